"""Measured costs of operations, in a file.

JSON: ``{"format": "baechi-costs", "version": 1, "entries": [...]}``; an entry holds ``operation``
(the structural fingerprint of ``ir/fingerprint.py``), ``kind`` (of device), ``seconds``, perhaps
``temporary_bytes``, and ``name``, which is for readers. Passes read tables and never write them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from baechi_jax.ir.core import Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.files import write_text_atomically
from baechi_jax.ir.fingerprint import fingerprint


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured operation on one kind of device."""

    seconds: float
    temporary_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class CostTable:
    """Entries by ``(fingerprint of the operation, device kind)``."""

    entries: Mapping[tuple[str, str], Entry]

    def cost(self, op: Operation, analytic: Cost, kinds: Sequence[str]) -> Cost | None:
        """``analytic`` with what was measured for ``op`` in its place; None if nothing was."""
        operation = fingerprint(op)
        found = [self.entries.get((operation, kind)) for kind in kinds]
        if not any(found):
            return None
        temporary = [e.temporary_bytes for e in found if e and e.temporary_bytes is not None]
        return replace(
            analytic,
            seconds=tuple(
                entry.seconds if entry else guess
                for entry, guess in zip(found, analytic.seconds, strict=True)
            ),
            temporary_bytes=max(temporary, default=analytic.temporary_bytes),
        )

    def to_json(self) -> str:
        """Text that ``from_json`` reads."""
        rows = [
            {
                "name": entry.name,
                "operation": operation,
                "kind": kind,
                "seconds": entry.seconds,
                **(
                    {}
                    if entry.temporary_bytes is None
                    else {"temporary_bytes": entry.temporary_bytes}
                ),
            }
            for (operation, kind), entry in self.entries.items()
        ]
        return json.dumps({"format": "baechi-costs", "version": 1, "entries": rows}, indent=1)

    def save(self, path: str | Path) -> None:
        """Write the table; whoever reads ``path`` meanwhile sees the old one or the new one."""
        write_text_atomically(path, self.to_json())

    @staticmethod
    def from_json(text: str) -> CostTable:
        """Read what ``to_json`` wrote; raises PassError naming the entry that is wrong."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise PassError(f"the table of costs is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != "baechi-costs":
            raise PassError('not a table of costs: expected "format": "baechi-costs"')
        if data.get("version") != 1:
            raise PassError(
                f"table version {data.get('version')!r} is not known; this release reads 1"
            )
        rows = data.get("entries")
        if not isinstance(rows, list):
            raise PassError("'entries' of the table of costs must be a list")
        entries: dict[tuple[str, str], Entry] = {}
        for index, row in enumerate(rows):
            key, entry = _entry(row, index)
            entries[key] = entry
        return CostTable(entries)

    @staticmethod
    def load(path: str | Path) -> CostTable:
        """Read a table; an error names the file."""
        try:
            return CostTable.from_json(Path(path).read_text(encoding="utf-8"))
        except PassError as error:
            raise PassError(f"{path}: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise PassError(f"cannot read the table of costs {path}: {error}") from error


def _entry(row: object, index: int) -> tuple[tuple[str, str], Entry]:
    if not isinstance(row, dict):
        raise PassError(f"entries[{index}] must be an object, found {row!r}")
    for key in ("operation", "kind"):
        if not isinstance(row.get(key), str):
            raise PassError(f"entries[{index}].{key} must be a string, found {row.get(key)!r}")
    seconds = row.get("seconds")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0:
        raise PassError(f"entries[{index}].seconds must be a number >= 0, found {seconds!r}")
    temporary = row.get("temporary_bytes")
    if temporary is not None and (not isinstance(temporary, int) or temporary < 0):
        raise PassError(
            f"entries[{index}].temporary_bytes must be an integer >= 0, found {temporary!r}"
        )
    name = row.get("name", "")
    entry = Entry(float(seconds), temporary, name if isinstance(name, str) else "")
    return (row["operation"], row["kind"]), entry
