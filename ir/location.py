"""Where an operation comes from: a source line, and the name stack it was traced under."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """``loc("layer1/dot"("train.py":12:4))``.

    ``name`` is the name stack (``transpose(jvp(layer1))/dot``), empty where there is none. ``file``
    is empty where the source is unknown.
    """

    file: str = ""
    line: int = 0
    column: int = 0
    name: str = ""

    @property
    def known(self) -> bool:
        """Whether there is anything to print."""
        return bool(self.file or self.name)

    def __str__(self) -> str:
        """``train.py:12`` for messages; the name stack where no file is known."""
        return f"{self.file}:{self.line}" if self.file else (self.name or "unknown source")


UNKNOWN = Location()
