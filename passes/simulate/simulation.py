"""What a simulator gives back: when everything happens in a step, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor on its way."""

    tensor: int
    source: int
    target: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What happens in a step. Seconds count from its start."""

    #: ``[n]``.
    start_seconds: list[float]
    end_seconds: list[float]
    transfers: list[Transfer]
    makespan_seconds: float
    #: Most bytes at once, and when that was first reached, ``[d]``.
    peak_bytes: list[int]
    peak_seconds: list[float]
    #: Seconds in which the device runs nodes, ``[d]``.
    busy_seconds: list[float]
    #: ``(seconds, bytes from then on)`` for each device; empty unless asked for.
    memory_steps: list[list[tuple[float, int]]]

    def fits(self, limit_bytes: Sequence[int]) -> bool:
        """Whether every device's peak is within its limit."""
        return all(peak <= limit for peak, limit in zip(self.peak_bytes, limit_bytes))

    def excess_bytes(self, limit_bytes: Sequence[int]) -> int:
        """Bytes above the limits, over all devices."""
        return sum(max(0, peak - limit) for peak, limit in zip(self.peak_bytes, limit_bytes))
