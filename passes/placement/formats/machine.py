"""What replaces a workload file's own statement about the machine, or stands in for a missing one.

dnn-partitioning's and Piper's files and our own say how many devices there are and what they hold;
PipeDream's say nothing. What is given here counts for accelerators: the devices that pay for
transfers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal accelerators: how many, the memory of each, and the bandwidth to the others.

    None is what the file says.
    """

    devices: int | None = None
    memory_bytes: float | None = None
    bytes_per_second: float | None = None


def on_machine(workload: Workload, machine: Machine, file: str) -> Workload:
    """``workload`` with the devices and the memory of ``machine``.

    Raises WorkloadError where there is no one class of accelerators that is meant.
    """
    if machine.devices is None and machine.memory_bytes is None:
        return workload
    pay = [index for index, kind in enumerate(workload.classes) if kind.transfers]
    if not pay:
        raise WorkloadError(f"{file}: the workload has no accelerators to change")
    if machine.devices is not None and len(pay) > 1:
        names = ", ".join(f"'{workload.classes[index].name}'" for index in pay)
        raise WorkloadError(
            f"{file}: classes: the workload has {len(pay)} classes of accelerators ({names}), so a "
            "number of devices does not say of which; change the file instead"
        )
    classes = list(workload.classes)
    for index in pay:
        if machine.devices is not None:
            classes[index] = replace(classes[index], count=machine.devices)
        if machine.memory_bytes is not None:
            classes[index] = replace(classes[index], memory_bytes=machine.memory_bytes)
    return replace(workload, classes=tuple(classes))
