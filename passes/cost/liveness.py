"""The peak of a task's temporaries, before it is compiled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from baechi_jax.ir.core import Block, Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.passes.cost.buffers import Branches, Buffers, donated_pairs
from baechi_jax.passes.cost.fusion import Kernels, find_kernels
from baechi_jax.passes.cost.internal import internal_bytes
from baechi_jax.passes.cost.lowering import Lowered, lower
from baechi_jax.passes.cost.primitives import CONTROL, KERNEL, MOVE

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

#: Loops, which carry their values in place, and what counts the operands before those.
_FIRST_CARRIED = {
    "jax.while": ("cond_nconsts", "body_nconsts"),
    "jax.scan": ("num_consts",),
}


def temporary_bytes(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    donated: Collection[int] | None = None,
) -> int:
    """The most bytes that live at once while ``ops`` run, on top of inputs and outputs.

    ``donated`` are the positions of the inputs whose buffers outputs may take. None: not known yet,
    so all of them; what the others cost as copies, outputs of their own would cost too.
    """
    lowered = lower(ops, inputs, outputs)
    kernels = find_kernels(lowered)
    shared = shared_buffers(kernels.outputs, inputs, outputs, donated)
    return buffers_of(lowered, kernels).peak_bytes(kernels.outputs, shared)


def buffers_of(lowered: Lowered, kernels: Kernels) -> Buffers:
    """The buffers of a task whose kernels are known."""
    internal: dict[int, int] = {}
    in_place: dict[int, int] = {}
    carried: dict[int, int] = {}
    filled: set[int] = set()
    loops: set[int] = set()
    branches: dict[int, Branches] = {}
    for kernel, nodes in enumerate(kernels.nodes):
        if not nodes:
            continue
        last = nodes[-1]
        op = lowered.ops[last]
        if op is None or lowered.kinds[last] not in (KERNEL, CONTROL, MOVE):
            continue
        if op.name in _IN_PLACE:
            in_place[kernel] = next(iter(kernels.reads[kernel]), -1)
        if op.name in _FIRST_CARRIED or op.name.startswith("jax.scatter"):
            loops.add(kernel)
        if op.name in _FIRST_CARRIED:
            found = _carried(op, lowered.reads[last], lowered.writes[last])
            carried.update(found)
            filled.update(result for result in lowered.writes[last] if result not in found)
        if op.name == "jax.cond":
            # The first operand chooses.
            branches[kernel] = (lowered.reads[last][1:], [_buffers(b) for b in op.blocks])
        own = _own_bytes(op)
        if own:
            internal[kernel] = own
    return Buffers(
        kernels, lowered.input_count, internal, in_place, carried, filled, loops, branches
    )


def _buffers(block: Block) -> Buffers:
    lowered = lower(block.ops[:-1], block.arguments, block.terminator.operands)
    return buffers_of(lowered, find_kernels(lowered))


def _carried(op: Operation, reads: Sequence[int], writes: Sequence[int]) -> dict[int, int]:
    """What a loop gives of each value that it carries -> what that starts from."""
    first = sum(_count(op, key) for key in _FIRST_CARRIED[op.name])
    count = _count(op, "num_carry") if op.name == "jax.scan" else len(writes)
    return dict(zip(writes[:count], reads[first : first + count]))


def _count(op: Operation, key: str) -> int:
    value = op.attributes.get(key, 0)
    return value if isinstance(value, int) else 0


def shared_buffers(
    found: Sequence[int],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    donated: Collection[int] | None,
) -> dict[int, int]:
    """Buffer of a result -> the donated input that it shares memory with.

    ``found`` are the buffers of ``outputs``, fewer where some are no tensors or constants.
    """
    shared: dict[int, int] = {}
    if len(found) == len(outputs):
        for result, source in donated_pairs(inputs, outputs, donated).items():
            shared.setdefault(found[result], source)
    return shared


def _own_bytes(op: Operation) -> int:
    """What ``op`` takes for itself while it runs: from its cost if it has one."""
    cost = op.attributes.get("baechi.cost")
    return cost.temporary_bytes if isinstance(cost, Cost) else internal_bytes(op)
