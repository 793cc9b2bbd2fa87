"""The peak of a task's temporaries, before it is compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.passes.cost.buffers import Buffers, donated_pairs
from baechi_jax.passes.cost.fusion import Kernels, find_kernels
from baechi_jax.passes.cost.internal import internal_bytes
from baechi_jax.passes.cost.lowering import Lowered, lower

#: Operations whose result lies where their first operand lay, if that dies there.
_IN_PLACE = frozenset(
    {
        "jax.dynamic_update_slice",
        "jax.sort",
        "jax.scatter",
        "jax.scatter-add",
        "jax.scatter-sub",
        "jax.scatter-mul",
        "jax.scatter-min",
        "jax.scatter-max",
    }
)


def temporary_bytes(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    donated: Collection[int] | None = None,
) -> int:
    """The most bytes that live at once while ``ops`` run, on top of inputs and outputs.

    ``donated`` are the positions of the inputs whose buffers outputs may take; None stands for
    all of them, which never gives less in total: what an output saves by taking a buffer, it may
    cost again as a copy.
    """
    lowered = lower(ops, inputs, outputs)
    return peak_of(lowered, find_kernels(lowered), inputs, outputs, donated)


def peak_of(
    lowered: Lowered,
    kernels: Kernels,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    donated: Collection[int] | None,
) -> int:
    """``temporary_bytes`` of a task whose kernels are known."""
    shared: dict[int, int] = {}
    if len(kernels.outputs) == len(outputs):
        for result, source in donated_pairs(inputs, outputs, donated).items():
            shared.setdefault(kernels.outputs[result], source)
    internal: dict[int, int] = {}
    in_place: dict[int, int] = {}
    for kernel, nodes in enumerate(kernels.nodes):
        op = lowered.ops[nodes[-1]] if nodes else None
        if op is None:
            continue
        if op.name in _IN_PLACE:
            first = next(iter(kernels.reads[kernel]), -1)
            in_place[kernel] = first
        own = internal_bytes(op)
        if own:
            internal[kernel] = own
    return Buffers(kernels, lowered.input_count, shared, internal, in_place).peak_bytes()


def own_bytes(op: Operation) -> int:
    """What ``op`` takes for itself while it runs: from its cost if it has one."""
    cost = op.attributes.get("baechi.cost")
    return cost.temporary_bytes if isinstance(cost, Cost) else internal_bytes(op)
