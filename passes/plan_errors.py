"""What can be wrong with a plan: one class for each fault.

All but ``MemoryLimitError`` are raised by ``verify-plan`` alone. They mean that a pass, or the hand
that edited a saved plan, made a mistake; the message says which rule is broken, where, and what was
expected.
"""

from __future__ import annotations

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.peak_table import PeakTable


class PlanError(BaechiError):
    """A plan breaks a rule; the message names the operation, its device and its source line."""


class MalformedPlanError(PlanError):
    """An operation does not belong in a plan, or lacks what a plan needs of it."""


class OpenTaskError(PlanError):
    """An operation in a task reads a value from outside of the task."""


class ConvexityError(PlanError):
    """A path leaves a task and comes back, so the task can never start."""


class OrderError(PlanError):
    """An operation is issued before one whose value it reads."""


class WrongDeviceError(PlanError):
    """An operation reads what lies on another device, or gives a value where it does not run."""


class BoundaryError(PlanError):
    """An argument or a result of the step does not lie where the plan declares it."""


class PinError(PlanError):
    """An operation does not run on the device to which the user pinned it."""


class ColocationError(PlanError):
    """Two operations of one colocation group run on different devices."""


class ChannelError(PlanError):
    """A channel number is used twice, or one end of a channel is missing or misplaced."""


class DuplicateTransferError(PlanError):
    """A value is sent to one device more than once."""


class TokenTransferError(PlanError):
    """The token of an effect is sent to another device."""


class UseAfterFreeError(PlanError):
    """A value is read, freed or returned after it was freed."""


class UseAfterDonationError(PlanError):
    """A value is read, freed or returned after its buffer was given to a task's results."""


class IllegalFreeError(PlanError):
    """A value is freed that must live on: an undonated argument."""


class IllegalDonationError(PlanError):
    """A buffer is donated that must not be: nothing can take it over, it is not the step's to
    give, or a copy may still read it."""


class MemoryRecordError(PlanError):
    """The memory figures in the plan are not those that a recount gives."""


class DeadlockError(PlanError):
    """Device programs that run side by side wait for one another for ever."""


class ProgramMismatchError(PlanError):
    """A device's program is not what ``@main`` says that this device does."""


class MemoryLimitError(PlanError):
    """More must live on a device at once than its limit allows.

    ``device``, ``peak_bytes``, ``limit_bytes``: of the device that is furthest over.
    ``needed_bytes``: per device, the smallest ``memory_bytes`` with which this plan would fit.
    ``peak``: what lives there then, where the error knows; it is part of the message.
    """

    def __init__(
        self,
        message: str,
        *,
        device: int = -1,
        peak_bytes: int = 0,
        limit_bytes: int = 0,
        needed_bytes: tuple[int, ...] = (),
        peak: PeakTable | None = None,
    ) -> None:
        super().__init__(message)
        self.peak = peak
        self.device = device
        self.peak_bytes = peak_bytes
        self.limit_bytes = limit_bytes
        self.needed_bytes = needed_bytes


class RunAheadLimitError(PlanError):
    """A device's limit may be passed when the host issues as far ahead as the waits allow."""
