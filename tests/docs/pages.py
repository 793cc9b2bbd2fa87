"""Running the blocks of a page in order, in one folder, as a reader would.

A block's first line says what is done with it:

- ``python``: it is run, all of them in one process; ``sh``: it is run by bash.
- ``python train.py``: it is written to that file.
- ``output``: what the block before it prints; ``output near``: the same words, and numbers near
  those shown (``_near``), but for the placer's name. Figures of plans are such: they move a little
  with each release of JAX and each change of a cost.
- Any other block is text.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Runs the blocks given as JSON and prints what each of them printed, as JSON.
_DRIVER = r"""
import contextlib, io, json, subprocess, sys, traceback

blocks = json.loads(sys.stdin.read())
# One file with all blocks, each at its own lines, so that sources are found in it.
script = "".join(text for kind, text in blocks if kind == "python")
open("tutorial.py", "w", encoding="utf-8").write(script)
scope = {"__name__": "__main__", "__file__": "tutorial.py"}
lines, printed = 0, []
for kind, text in blocks:
    if kind == "sh":
        command = ["bash", "-e", "-o", "pipefail", "-c", text]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"exit status {done.returncode} of\n{text}\n{done.stdout}")
        printed.append(done.stdout)
        continue
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * lines + text, "tutorial.py", "exec"), scope)
    except BaseException:
        sys.exit(f"{traceback.format_exc()}\nin\n{text}\n{out.getvalue()}")
    lines += text.count("\n")
    printed.append(out.getvalue())
sys.__stdout__.write(json.dumps(printed))
"""


@dataclass(frozen=True)
class Shown:
    """What a page shows of a block's output, and what the block printed."""

    block: str
    shown: str
    printed: str
    how: str

    @property
    def true(self) -> bool:
        """Whether the page shows what was printed."""
        if self.how != "near":
            return _lines(self.shown) == _lines(self.printed)
        (words, numbers), (printed, found) = _parts(self.shown), _parts(self.printed)
        return words == printed and all(map(_near, numbers, found))


def run_page(page: Path, folder: Path, timeout_seconds: float = 600) -> list[Shown]:
    """Run ``page`` in ``folder``; raises AssertionError with the output when a block fails."""
    text = page.read_text(encoding="utf-8")
    blocks: list[tuple[str, str]] = []
    expected: list[tuple[int, str, str]] = []
    for kind, name, content in _BLOCK.findall(text):
        if name and kind != "output":
            (folder / name).write_text(content, encoding="utf-8")
        elif kind in ("python", "sh"):
            blocks.append((kind, content))
        elif kind == "output":
            assert name in ("", "near"), f"{page.name}: output {name}"
            expected.append((len(blocks) - 1, content, name))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", _DRIVER],
        input=json.dumps(blocks),
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_seconds,
    )
    assert done.returncode == 0, f"{page.name}\n{done.stderr}"
    printed = json.loads(done.stdout)
    return [Shown(blocks[index][1], shown, printed[index], how) for index, shown, how in expected]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


_UNITS = {
    "%": 0.01,
    **{unit: 1e-3**power for power, unit in enumerate(("s", "ms", "us", "ns"))},
    **{unit: 1024.0**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB"))},
}
#: A number, and its unit if it has one; not a source line, nor a part of a name or a type.
_NUMBER = re.compile(
    r"(?<![\w.:])([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(ns|us|ms|s|B|KiB|MiB|GiB|%))?(?!\w)"
)
#: How far numbers may be from those shown: a share of it, for percentages also so much, for counts.
_SHARE, _POINTS, _COUNT = 0.2, 0.05, 1.0


def _parts(text: str) -> tuple[str, list[tuple[float, float]]]:
    """The words with a ``#`` for each number, and the numbers (seconds, bytes, shares), each with
    how far another may be from it at least."""
    text = re.sub("─+", "─", " ".join(text.split()))
    # Which of the placers wins is as close a thing as a number.
    text = re.sub(r"Placed by \S+ \([\w ]+\)", "Placed", text)
    numbers: list[tuple[float, float]] = []

    def number(match: re.Match[str]) -> str:
        value = float(match[1].replace(",", "")) * _UNITS.get(match[2], 1.0)
        slack = _POINTS if match[2] == "%" else _COUNT if match[0].isdigit() else 0.0
        numbers.append((value, slack))
        return "#"

    return _NUMBER.sub(number, text), numbers


def _near(shown: tuple[float, float], printed: tuple[float, float]) -> bool:
    """Whether what was printed is near what is shown."""
    value, slack = shown
    return abs(value - printed[0]) <= max(slack, _SHARE * abs(value))
