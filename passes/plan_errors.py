"""What can be wrong with a plan: one class for each fault."""

from __future__ import annotations

from baechi_jax.ir.errors import BaechiError


class PlanError(BaechiError):
    """A plan breaks a rule; the message names the operation, its device and its source line."""


class MemoryLimitError(PlanError):
    """More must live on a device at once than its limit allows.

    ``device``, ``peak_bytes``, ``limit_bytes``: of the device that is furthest over.
    ``needed_bytes``: per device, the smallest ``memory_bytes`` with which this plan would fit.
    """

    def __init__(
        self,
        message: str,
        *,
        device: int = -1,
        peak_bytes: int = 0,
        limit_bytes: int = 0,
        needed_bytes: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.device = device
        self.peak_bytes = peak_bytes
        self.limit_bytes = limit_bytes
        self.needed_bytes = needed_bytes
