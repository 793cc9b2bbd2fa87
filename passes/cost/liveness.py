"""The peak of a task's temporaries, before it is compiled.

Program-order liveness over the materialised values that are neither operands nor results of the
task, with the buffer of a dying operand taken over in place.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.fusion import Kernels


def peak_temporary_bytes(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    kernels: Kernels,
) -> int:
    """The most bytes of temporaries that live at once while the task runs."""
    buffer = kernels.buffer
    kept = {buffer.get(value, value) for value in outputs}
    kept.update(inputs)
    last: dict[Value, int] = {}
    for position, reads in enumerate(kernels.reads):
        for value in reads:
            last[value] = position
    live = peak = 0
    dying: list[list[Value]] = [[] for _ in kernels.roots]
    born: set[Value] = set()
    for position, root in enumerate(kernels.roots):
        op = ops[root]
        cost = op.attributes.get("baechi.cost")
        internal = cost.temporary_bytes if isinstance(cost, Cost) else 0
        for result in op.results:
            if result in kept:
                continue
            live += nbytes(result.type)
            born.add(result)
            dying[max(position, last.get(result, position))].append(result)
        peak = max(peak, live + internal)
        for value in dying[position]:
            live -= nbytes(value.type)
    return peak
