"""Errors of placement."""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.errors import BaechiError


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
    """

    def __init__(
        self, message: str, shortfalls: tuple[Shortfall, ...] = (), *, proven: bool = False
    ) -> None:
        super().__init__(message)
        self.shortfalls = shortfalls
        self.proven = proven
