"""What a step really takes: its memory, instruction by instruction.

Runs a compiled step one instruction at a time and adds up, for each device, the arrays that live
there and what XLA says the running task takes on top. This works on every platform, also where the
device reports no memory figures (CPU); it leaves out what no array accounts for, such as the
allocator's fragments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from baechi_jax.runtime.instructions import Run
from baechi_jax.stages import Compiled


def actual_peak_bytes(compiled: Compiled, *args: Any, **kwargs: Any) -> tuple[Any, tuple[int, ...]]:
    """Run one step of ``compiled`` on the arguments; ``(results, peak bytes of each device)``.

    Donated arguments are given away, as in any other step. The peak counts arguments, live values,
    and results and temporaries of the task that runs.
    """
    leaves = jax.tree.leaves((args, kwargs))
    pending = compiled.pending(leaves)
    if pending is None:
        raise TypeError("the arguments have other types than the step was compiled for")
    placed, _ = compiled.placer.place(leaves, pending)
    executor = compiled.executor
    program = executor.program
    values: list[Any] = [*compiled.constants, *placed]
    slots: list[Any] = [*values, *[None] * (program.slot_count - len(values))]
    index = {device: number for number, device in enumerate(executor.devices)}
    peaks = _held(slots, index)
    for function, inputs, outputs, drops, deletes, item in executor.linked:
        held = _held(slots, index)
        if isinstance(item, Run):
            task = executor.tasks[item.task]
            _, result_bytes, taken_over_bytes, temporary_bytes = task.executable.memory()
            held[index[task.device]] += result_bytes - taken_over_bytes + temporary_bytes
            peaks = [max(pair) for pair in zip(peaks, held, strict=True)]
        for slot, result in zip(outputs, jax.block_until_ready(function(*_read(slots, inputs)))):
            slots[slot] = result
        # Copies count while their source still lives.
        peaks = [max(pair) for pair in zip(peaks, _held(slots, index), strict=True)]
        for slot in deletes:
            slots[slot].delete()
        for slot in drops:
            slots[slot] = None
    results = jax.tree.unflatten(compiled.out_tree, _read(slots, program.results))
    return results, tuple(peaks)


def _read(slots: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
    return [slots[slot] for slot in wanted]


def _held(slots: Sequence[Any], index: dict[jax.Device, int]) -> list[int]:
    held = [0] * len(index)
    for array in {id(array): array for array in slots if array is not None}.values():
        if not array.is_deleted():
            for device in array.devices():
                held[index[device]] += array.nbytes
    return held
