"""Errors of placement."""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.peak_table import PeakTable


class PlacementProblemError(BaechiError):
    """A placement problem is malformed, or contradicts itself (two pins for one group)."""


class PlacerError(BaechiError):
    """A placer cannot be used on this problem; the message says what to use instead."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How far a device's peak is above its limit in the best placement that was found."""

    device: int
    name: str
    peak_bytes: int
    limit_bytes: int

    @property
    def missing_bytes(self) -> int:
        """Bytes by which the limit is passed."""
        return self.peak_bytes - self.limit_bytes


class InfeasiblePlacementError(BaechiError):
    """No placement within the memory limits was found.

    ``shortfalls`` are those of the placement that came closest; ``proven`` says that none exists.
    ``peak``: what lives on its worst device at that device's peak, printed after ``message``;
    ``advice``: what would help, printed after that. ``needed_bytes``: limits, one per device, that
    a placement was found to keep by simulation: an upper bound of the smallest; empty for none.
    """

    def __init__(
        self,
        message: str,
        shortfalls: tuple[Shortfall, ...] = (),
        *,
        proven: bool = False,
        peak: PeakTable | None = None,
        advice: str = "",
        needed_bytes: tuple[int, ...] = (),
    ) -> None:
        parts = [message, *(peak.lines() if peak is not None else ()), advice]
        super().__init__("\n".join(part for part in parts if part))
        self.message = message
        self.shortfalls = shortfalls
        self.proven = proven
        self.peak = peak
        self.advice = advice
        self.needed_bytes = needed_bytes

    def prefixed(self, text: str) -> InfeasiblePlacementError:
        """The same with ``text`` before its message, not proven any more."""
        return InfeasiblePlacementError(
            f"{text}{self.message}",
            self.shortfalls,
            peak=self.peak,
            advice=self.advice,
            needed_bytes=self.needed_bytes,
        )
