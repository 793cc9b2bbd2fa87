"""What a step really takes in memory, instruction by instruction.

The step is run one instruction at a time, each waited for, and for each device these are added up:
the arrays that live in the program's slots (arguments and constants among them) and, while a task
runs, what XLA says that it takes on top: its temporaries, and its results less those that take an
argument's buffer. So it works where a device reports no memory (CPU); what no array accounts for,
such as the allocator's fragments, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from baechi_jax.ir.core import Operation
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.types import TensorType, nbytes, unplaced
from baechi_jax.passes.memory_measured import temporaries_beyond
from baechi_jax.runtime.compile import CompiledTask
from baechi_jax.runtime.errors import ExecutionError
from baechi_jax.runtime.execute import Executor, free
from baechi_jax.runtime.instructions import Instruction, Run

#: Bytes of a pointer.
_POINTER = 8


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes on each device while ``instruction`` runs; -1 stands for the start of the step."""

    instruction: int
    nbytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The memory of one step: at each instruction, and as the plan predicted it.

    ``predicted`` is empty for a program whose module does not say.
    """

    moments: tuple[Moment, ...]
    predicted: tuple[DeviceMemory, ...]

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """The most that lay on each device at once."""
        return tuple(map(max, zip(*(moment.nbytes for moment in self.moments), strict=True)))

    @property
    def peak_instructions(self) -> tuple[int, ...]:
        """The instruction at which each device reached its peak first."""
        peaks = self.peak_bytes
        return tuple(
            next(moment.instruction for moment in self.moments if moment.nbytes[device] == peak)
            for device, peak in enumerate(peaks)
        )

    @property
    def ratios(self) -> tuple[float, ...]:
        """Actual over predicted peak of each device; 1 where neither holds anything."""
        return tuple(
            actual / entry.peak_bytes if entry.peak_bytes else (1.0 if not actual else float("inf"))
            for actual, entry in zip(self.peak_bytes, self.predicted)
        )


def measure_step(
    executor: Executor, arguments: Sequence[jax.Array]
) -> tuple[list[jax.Array], StepMemory]:
    """Run one step of ``executor`` slowly; its results and its memory.

    Donated arguments are given away, as in any step. Raises ExecutionError as a step does, and for
    a backend that does not say what a compiled task takes.
    """
    program = executor.program
    index = {device: number for number, device in enumerate(executor.devices)}
    slots = executor.slots(arguments)
    jax.block_until_ready(list(arguments))
    moments = [Moment(-1, tuple(_held(slots, index)))]
    for position, (function, inputs, outputs, drops, deletes, item) in enumerate(executor.linked):
        held = _held(slots, index)
        extra = _while_running(executor, item)
        moments.append(Moment(position, tuple(map(sum, zip(held, extra, strict=True)))))
        try:
            results = jax.block_until_ready(function(*[slots[slot] for slot in inputs]))
        except Exception as error:
            raise executor.error(item, error, arguments) from error
        for slot, result in zip(outputs, results):
            slots[slot] = result
        if not isinstance(item, Run):
            # A copy counts while its source still lives.
            moments.append(Moment(position, tuple(_held(slots, index))))
        free(slots, drops, deletes)
    moments.append(Moment(len(executor.linked), tuple(_held(slots, index))))
    return executor.results(slots), StepMemory(tuple(moments), program.memory)


def _while_running(executor: Executor, item: Instruction) -> list[int]:
    """What a task takes on top of its operands, on its device."""
    extra = [0] * len(executor.devices)
    if isinstance(item, Run):
        task = executor.tasks[item.task]
        found = _figures(task)
        if found is None:
            raise ExecutionError(
                f"the backend of {task.device} does not say what {task} takes, so the memory of a "
                "step cannot be measured there; call the function itself"
            )
        result_bytes, taken_bytes, temporary_bytes = found
        device = executor.devices.index(task.device)
        extra[device] = temporary_bytes + result_bytes - taken_bytes
    return extra


def compiled_temporaries(tasks: Sequence[CompiledTask]) -> dict[Operation, int]:
    """Each task with the bytes that it takes on top of its operands and results, as compiled.

    Padded results, and results that XLA does not write over the operands that the plan gives away,
    are counted there, since the plan's accounts do not have them. Tasks of a backend that does not
    say are left out.
    """
    found: dict[Operation, int] = {}
    for task in tasks:
        figures = _figures(task)
        if figures is not None:
            result_bytes, taken_bytes, temporary_bytes = figures
            beyond = temporaries_beyond(task.operation, result_bytes, taken_bytes)
            found[task.operation] = max(0, temporary_bytes + beyond)
    return found


def _figures(task: CompiledTask) -> tuple[int, int, int] | None:
    """Bytes of results, of results that lie in operands, of temporaries; None if nobody knows.

    XLA counts the table of pointers to several results with them; no array has it, and a plan is
    not made again for it.
    """
    found = task.executable.memory()
    if found is None:
        return None
    _, result_bytes, taken_bytes, temporary_bytes = found
    count = sum(isinstance(unplaced(r.type), TensorType) for r in task.operation.results)
    table = _POINTER * count if count > 1 else 0
    planned = sum(nbytes(result.type) for result in task.operation.results)
    return max(planned, result_bytes - table), taken_bytes, temporary_bytes


def _held(slots: Sequence[Any], index: dict[jax.Device, int]) -> list[int]:
    """Bytes of the arrays in ``slots`` on each device, each array once."""
    held = [0] * len(index)
    for array in {id(array): array for array in slots if array is not None}.values():
        if not array.is_deleted():
            for device in array.devices():
                held[index[device]] += _nbytes(array)
    return held


def _nbytes(array: jax.Array) -> int:
    """Bytes of one array; a random key's are those of its data."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return int(jax.random.key_data(array).nbytes)
    return int(array.nbytes)
