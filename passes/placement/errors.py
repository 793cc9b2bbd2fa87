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
    ``remark``: what else there is to say of it; ``remedies``: what would help. ``needed_bytes``:
    limits, one per device, that would do, as the first of ``remedies`` says; empty for none. From a
    placer they are kept by a placement in simulation; from the planner they are ``memory_bytes``
    with which it succeeds, where it says so.
    """

    def __init__(
        self,
        message: str,
        shortfalls: tuple[Shortfall, ...] = (),
        *,
        proven: bool = False,
        peak: PeakTable | None = None,
        remark: str = "",
        remedies: tuple[str, ...] = (),
        needed_bytes: tuple[int, ...] = (),
    ) -> None:
        help_ = "\n".join(["What would help:", *(f"  - {each}" for each in remedies)])
        advice = "\n".join(part for part in (remark, help_ if remedies else "") if part)
        parts = [message, *(peak.lines() if peak is not None else ()), advice]
        super().__init__("\n".join(part for part in parts if part))
        self.message = message
        self.shortfalls = shortfalls
        self.proven = proven
        self.peak = peak
        self.remark = remark
        self.remedies = remedies
        #: What is printed after ``peak``: the remark and the remedies.
        self.advice = advice
        self.needed_bytes = needed_bytes

    def prefixed(self, text: str) -> InfeasiblePlacementError:
        """The same with ``text`` before its message, not proven any more."""
        return InfeasiblePlacementError(
            f"{text}{self.message}",
            self.shortfalls,
            peak=self.peak,
            remark=self.remark,
            remedies=self.remedies,
            needed_bytes=self.needed_bytes,
        )

    def with_limits(self, needed_bytes: tuple[int, ...], remedy: str) -> InfeasiblePlacementError:
        """The same with other limits that would do, told by ``remedy``."""
        others = self.remedies[1:] if self.needed_bytes else self.remedies
        return InfeasiblePlacementError(
            self.message,
            self.shortfalls,
            proven=self.proven,
            peak=self.peak,
            remark=self.remark,
            remedies=(remedy, *others),
            needed_bytes=needed_bytes,
        )
