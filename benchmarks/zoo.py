"""Which steps of the zoo (``tests/zoo``) a benchmark of placed steps takes, and why not the others.

A virtual environment without the zoo's packages has few of them: ``make bench-zoo`` has all.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.zoo.registry import ENTRIES, Entry


def entries() -> tuple[list[Entry], dict[str, str]]:
    """The entries to measure, in the registry's order, and why each of the others is left out."""
    skipped = {entry.name: why for entry in ENTRIES if (why := _why_not(entry))}
    return [entry for entry in ENTRIES if entry.name not in skipped], skipped


def _why_not(entry: Entry) -> str:
    """Why ``entry`` is left out; empty when it is not."""
    if missing := entry.missing():
        return f"needs {', '.join(missing)}"
    return f"one device: {entry.one_device}" if entry.one_device else ""
