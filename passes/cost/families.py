"""Families of operations that one factor corrects, and what each family takes in a task.

The analytic model errs in the same direction for operations of one family on one kind of device:
matrix products reach more or less of the peak, elementwise kernels more or less of the bandwidth.
A kernel belongs to the family of the operation in it that would take longest alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.topology import Device
from baechi_jax.passes.cost.fusion import find_kernels
from baechi_jax.passes.cost.lowering import lower
from baechi_jax.passes.cost.operation import op_cost
from baechi_jax.passes.cost.primitives import CONTROL, KERNEL, REDUCE
from baechi_jax.passes.cost.roofline import kind_of, seconds

MATMUL, CONVOLUTION, LOOP = "matmul", "convolution", "loop"
REDUCTION, INDEXING, LIBRARY, ELEMENTWISE = "reduction", "indexing", "library", "elementwise"

FAMILIES = (MATMUL, CONVOLUTION, LOOP, REDUCTION, INDEXING, LIBRARY, ELEMENTWISE)

_BY_NAME = {
    **dict.fromkeys(
        ("jax.dot_general", "jax.ragged_dot", "jax.ragged_dot_general", "jax.scaled_matmul"), MATMUL
    ),
    "jax.conv_general_dilated": CONVOLUTION,
    **dict.fromkeys(
        (
            "jax.gather",
            "jax.dynamic_slice",
            "jax.dynamic_update_slice",
            *(f"jax.scatter{kind}" for kind in ("", "-add", "-max", "-min", "-mul", "-sub")),
        ),
        INDEXING,
    ),
}

_BY_KIND = {CONTROL: LOOP, REDUCE: REDUCTION, KERNEL: LIBRARY}


def family_of(op: Operation) -> str:
    """The family of ``op``, one of ``FAMILIES``."""
    named = _BY_NAME.get(op.name)
    return named if named is not None else _BY_KIND.get(kind_of(op), ELEMENTWISE)


def family_seconds(
    ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value], device: Device
) -> dict[str, float]:
    """Seconds on ``device`` of each family in a task, by the analytic model, launch excluded.

    ``ops``, ``inputs`` and ``outputs`` as in ``task_cost``. Costs that stand on the operations
    (``baechi.cost``) do not count: they may have been corrected already.
    """
    lowered = lower(ops, inputs, outputs)
    kernels = find_kernels(lowered)
    sizes = kernels.sizes
    costs = [None if op is None else op_cost(op, [device]) for op in lowered.ops]
    found: dict[str, float] = {}
    for nodes, writes, reads in zip(kernels.nodes, kernels.writes, kernels.reads, strict=True):
        members = [(cost, lowered.ops[node]) for node in nodes if (cost := costs[node]) is not None]
        if not members:
            continue
        cost, longest = max(members, key=lambda member: member[0].seconds[0])
        assert longest is not None
        taken = cost.seconds[0]
        if len(nodes) > 1:
            moved = sum(sizes[buffer] for buffer in (*writes, *reads))
            taken = seconds(sum(cost.flops for cost, _ in members), moved, device)
        family = family_of(longest)
        found[family] = found.get(family, 0.0) + taken
    return {family: found[family] for family in FAMILIES if found.get(family)}
