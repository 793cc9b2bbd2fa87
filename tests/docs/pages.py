"""Running the blocks of a page in order, in one folder, as a reader would.

A block's first line says what is done with it:

- ``python``: it is run, all of them in one process; ``sh``: it is run by bash.
- ``python train.py``: it is written to that file.
- ``output``: what the block before it prints; ``output some``: the same, but for what lies between
  the first and the last line; ``output varies``: the same, but for numbers, units, spaces and the
  placer's name.
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
        shown, printed = self._plain(self.shown), self._plain(self.printed)
        if self.how == "some":
            return _ends(shown) == _ends(printed)
        return shown == printed

    def _plain(self, text: str) -> str:
        if self.how != "varies":
            return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        # Which of the placers wins is as close a thing as a number.
        text = re.sub(r"Placed by \S+ \([\w ]+\)", "Placed", text)
        text = re.sub(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "#", text)
        text = re.sub(r"# ?(ns|us|ms|s|B|KiB|MiB|GiB|%)(?!\w)", "#", text)
        return " ".join(re.sub("─+", "─", text).split())


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
            assert name in ("", "some", "varies"), f"{page.name}: output {name}"
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


def _ends(text: str) -> list[str]:
    """The first and the last line, without numbers."""
    lines = text.splitlines() or [""]
    return [re.sub(r"\d+", "#", lines[0]), re.sub(r"\d+", "#", lines[-1])]
