"""Writes the table of ``docs/zoo.md``: ``python -m tests.zoo.table [NAME ...]``.

Each entry is examined in a process of its own, so that none sees another's caches or memory. Rows
of entries that are not named stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.zoo.registry import ENTRIES, ZOO

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
BEGIN, END = "<!-- written by make zoo: begin -->", "<!-- end -->"

HEADINGS = (
    "entry",
    "equations",
    "tasks",
    "plan s",
    "one-device peak",
    "limit",
    "predicted peak",
    "actual peak",
    "predicted step ms",
    "step ms",
    "jax.jit ms",
    "difference",
    "status",
)


def row_of(name: str) -> list[str]:
    """Examine one entry here and now."""
    from baechi_jax.ir.errors import BaechiError
    from tests.zoo.examine import examine

    entry = ZOO[name]
    try:
        outcome = examine(entry)
    except BaechiError as error:
        return [name, *["-"] * (len(HEADINGS) - 2), f"{type(error).__name__}: {_line(str(error))}"]
    whole = outcome.one_device_bytes
    status = "; ".join(map(_line, outcome.problems)) or "equal"
    if not outcome.problems and outcome.noisy:
        status += f", {outcome.noisy} arrays to within rounding"
    if entry.one_device:
        status += f"; one device: {outcome.reason}"
    else:
        status += f"; {outcome.devices_used} devices"
    return [
        name,
        str(outcome.equations),
        str(outcome.tasks),
        f"{outcome.plan_seconds:.1f}",
        f"{whole / 2**20:.1f} MiB",
        f"{100 * outcome.limit_bytes / whole:.0f} %",
        f"{100 * max(outcome.predicted_bytes) / whole:.0f} %",
        f"{100 * max(outcome.actual_bytes) / whole:.0f} %",
        f"{1e3 * outcome.predicted_step_seconds:.1f}",
        f"{1e3 * outcome.step_seconds:.1f}",
        f"{1e3 * outcome.one_device_step_seconds:.1f}",
        f"{outcome.difference:.1e}",
        status,
    ]


def write(rows: dict[str, list[str]], page: Path = PAGE) -> None:
    """Put ``rows`` into the page's table, in the order of the registry."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    # What an entry shows stands in the registry.
    known = {
        cells[0]: [cells[0], *cells[2:]]
        for line in old.splitlines()
        if (cells := _cells(line)) and cells[0] in ZOO
    }
    known.update(rows)
    name, *headings = HEADINGS
    table = [[name, "what is in it", *headings], ["---"] * (len(HEADINGS) + 1)]
    for entry in ENTRIES:
        if entry.name in known:
            _, *cells = known[entry.name]
            table.append([entry.name, entry.shows, *cells])
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    page.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if "|" in line else []


def _line(text: str) -> str:
    """The first line of ``text``, as a table's cell takes it."""
    return text.splitlines()[0].replace("|", "/")


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the entries that are named, by default all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ZOO))
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in ZOO]:
        parser.error(f"no such entry: {', '.join(unknown)}; there are {', '.join(ZOO)}")
    if options.row:
        sys.stdout.write("\n" + json.dumps(row_of(options.names[0])) + "\n")
        return 0
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    failed = 0
    for name in options.names or ZOO:
        if missing := ZOO[name].missing():
            sys.stderr.write(f"{name}: needs {', '.join(missing)}: pip install -e '.[zoo]'\n")
            failed += 1
            continue
        command = [sys.executable, "-W", "ignore", "-m", "tests.zoo.table", "--row", name]
        done = subprocess.run(
            command, check=False, env=environment, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.stderr.write(f"{name}: the run failed\n")
            failed += 1
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        sys.stderr.write(" | ".join(row) + "\n")
        failed += not row[-1].startswith("equal")
        write({name: row})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
