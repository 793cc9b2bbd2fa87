"""Memory that one turn of a loop takes beside what the loop carries.

As XLA has it, what a loop carries lies in one place from turn to turn: the body writes its results
over what it was given, and copies what is still read then (``CopyInsertion``). A scan's turn cuts
its slices from the stacks that it reads, in the kernels that read them where it can, and writes its
results into the stacks that it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Block, Operation
from baechi_jax.passes.cost.buffers import Buffers
from baechi_jax.passes.cost.fusion import Kernels, find_kernels
from baechi_jax.passes.cost.layout import type_facts
from baechi_jax.passes.cost.liveness import buffers_of
from baechi_jax.passes.cost.lowering import Lowering
from baechi_jax.passes.cost.primitives import MOVE


def loop_bytes(op: Operation) -> int:
    """The most bytes that a turn of ``op``, a scan or a while loop, takes for itself."""
    most = 0
    for block in op.blocks:
        results = block.terminator.operands
        if op.name == "jax.scan":
            turn = _scan_turn(op, block)
        elif len(results) == len(op.results):
            turn = _turn(block, len(block.arguments) - len(results))
        else:
            # The condition: its result alone is new.
            turn = _turn(block, len(block.arguments))
        most = max(most, turn)
    return most


def _turn(block: Block, first: int) -> int:
    """A turn of a while loop, whose body carries its arguments from ``first`` on."""
    lowering = Lowering()
    for argument in block.arguments:
        lowering.input(argument)
    results = block.terminator.operands
    lowering.add(block.ops[:-1], results)
    starts = [lowering.number[argument] for argument in block.arguments[first:]]
    return _bytes(lowering, [lowering.result(value) for value in results], starts, {})


def _scan_turn(op: Operation, block: Block) -> int:
    consts, carry = _count(op, "num_consts"), _count(op, "num_carry")
    lowering = Lowering()
    out = lowering.out
    for argument in block.arguments[: consts + carry]:
        lowering.input(argument)
    cut = block.arguments[consts + carry :]
    stacks = [out.value(type_facts(value.type)) for value in op.operands[consts + carry :]]
    made = [out.value(type_facts(value.type)) for value in op.results[carry:]]
    out.input_count = len(out.facts)
    for argument, stack in zip(cut, stacks, strict=True):
        lowering.cut(argument, stack)
    results = block.terminator.operands
    lowering.add(block.ops[:-1], results)
    ends = [lowering.result(value) for value in results]
    starts = [lowering.number[value] for value in block.arguments[consts : consts + carry]]
    into: dict[int, int] = {}
    for place, stack in enumerate(made):
        written = out.value(out.facts[stack])
        out.node(MOVE, [stack, ends[carry + place]], [written], None)
        into[written] = stack
    return _bytes(lowering, ends[:carry] + list(into), starts + made, into)


def _count(op: Operation, key: str) -> int:
    value = op.attributes.get(key, 0)
    return value if isinstance(value, int) else 0


def _bytes(
    lowering: Lowering, ends: Sequence[int], starts: Sequence[int], into: dict[int, int]
) -> int:
    """The peak of a turn that writes ``ends`` over ``starts``.

    ``into``: results that are an input in which some elements are written. Of ``ends`` those
    without a start are new.
    """
    lowered = lowering.out
    sources = [*starts, *[-1] * (len(ends) - len(starts))]
    lowered.finish(list(ends))
    kernels: Kernels = find_kernels(lowered)
    buffers: Buffers = buffers_of(lowered, kernels)
    buffers.carried = {**buffers.carried, **into}
    shared: dict[int, int] = {}
    # Results that are an argument in another place, or twice the same.
    copied = 0
    for found, start in zip(kernels.outputs, sources, strict=True):
        if start < 0 or found == start:
            continue
        if found < lowered.input_count:
            copied += kernels.sizes[found]
        elif found not in shared:
            shared[found] = start
    return copied + buffers.peak_bytes(kernels.outputs, shared)
