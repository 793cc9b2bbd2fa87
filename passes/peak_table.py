"""The largest buffers that live on a device at its peak: what an error shows when memory runs out.

Plain data and plain text; the command line makes a table of it. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Buffers in a table; the others are counted in one line.
ROWS = 12


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """``what`` it holds: an argument's path, the operation that makes it, or a task's temporaries;
    ``source``: ``file:line`` of that operation, empty for an argument."""

    nbytes: int
    what: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.what} at {self.source}" if self.source else self.what


@dataclass(frozen=True, slots=True)
class PeakTable:
    """The peak of one device and its ``buffers``, largest first.

    ``when`` continues a sentence: ``while 't3' at train.py:12 runs``.
    """

    device: int
    name: str
    peak_bytes: int
    limit_bytes: int
    when: str
    buffers: tuple[LiveBuffer, ...]

    @staticmethod
    def of(
        device: int,
        name: str,
        peak_bytes: int,
        limit_bytes: int,
        when: str,
        buffers: Sequence[LiveBuffer],
    ) -> PeakTable:
        """The table of ``buffers`` in any order; those of no bytes are left out."""
        kept = sorted((each for each in buffers if each.nbytes), key=lambda each: -each.nbytes)
        return PeakTable(device, name, peak_bytes, limit_bytes, when, tuple(kept))

    @property
    def shown(self) -> tuple[LiveBuffer, ...]:
        """The rows of the table."""
        return self.buffers if len(self.buffers) <= ROWS + 1 else self.buffers[:ROWS]

    @property
    def others(self) -> tuple[LiveBuffer, ...]:
        """What the last row counts."""
        return self.buffers[len(self.shown) :]

    @property
    def headline(self) -> str:
        """``device 1 (cpu:1) needs 3.2 MiB while ... runs, 1.2 MiB more than its limit ...``."""
        name = f" ({self.name})" if self.name else ""
        return (
            f"device {self.device}{name} needs {size_text(self.peak_bytes)} {self.when}, "
            f"{size_text(self.peak_bytes - self.limit_bytes)} more than its limit of "
            f"{size_text(self.limit_bytes)}"
        )

    def share(self, nbytes: int) -> str:
        """Percent of the peak."""
        return f"{100 * nbytes / max(1, self.peak_bytes):.1f}%"

    def lines(self) -> list[str]:
        """The table as lines of text."""
        rows = [(each.nbytes, str(each)) for each in self.shown]
        if self.others:
            rest = sum(each.nbytes for each in self.others)
            rows.append((rest, f"{len(self.others)} smaller buffers"))
        return [
            f"  {size_text(nbytes):>10}  {self.share(nbytes):>6}  {what}" for nbytes, what in rows
        ]


def size_text(nbytes: int) -> str:
    """``1.50 MiB``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes} B"
