"""Which operations of a task XLA turns into one kernel, and what memory that leaves.

XLA fuses elementwise work into the kernels that read it. A value is *materialised*, that is written
to memory, when the task returns it, when the operation that makes it is a kernel of its own
(a matrix product), when one that reads it needs it in memory, or when it is too expensive to
compute once per reader. All other values exist only inside kernels: they cost no bytes, and what
they were computed from stays alive until the last kernel that needs them has run.

Each materialised value is the *root* of one kernel. A cheap value that several kernels read is
computed in each. Bitcasts (``reshape``) share the buffer of what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Operation, Value
from baechi_jax.passes.cost.primitives import Kind
from baechi_jax.passes.cost.roofline import kind_of

#: Kinds whose result may live inside the kernel that reads it.
_FUSED = frozenset({Kind.ELEMENTWISE, Kind.EXPENSIVE, Kind.BROADCAST, Kind.MOVE, Kind.BITCAST})

#: Kinds that may hold what they read inside their kernel.
_FUSING = frozenset({*_FUSED, Kind.REDUCE})


@dataclass(slots=True)
class Kernels:
    """The kernels of a task, in program order of their roots.

    ``roots[k]`` is the index in the task's operations of the operation that ends kernel k;
    ``members[k]`` the indices of all operations in it (a cheap one may be in several), the root
    last; ``reads[k]`` the materialised values that it reads, each once. ``buffer`` maps a value to
    the one whose buffer it shares, where that is another.
    """

    roots: list[int]
    members: list[list[int]]
    reads: list[list[Value]]
    buffer: dict[Value, Value]


def find_kernels(ops: Sequence[Operation], outputs: Sequence[Value]) -> Kernels:
    """The kernels of ``ops``, which are in def-before-use order."""
    kinds = [kind_of(op) for op in ops]
    fused = _find_fused(ops, kinds, outputs)
    buffer: dict[Value, Value] = {}
    # For each fused value: the operations behind it, and the materialised values they read.
    inside: dict[Value, tuple[list[int], list[Value]]] = {}
    kernels = Kernels([], [], [], buffer)
    for index, op in enumerate(ops):
        kind = kinds[index]
        if kind is Kind.NOTHING:
            # A barrier's results are its operands.
            if len(op.operands) == len(op.results):
                for result, operand in zip(op.results, op.operands):
                    buffer[result] = buffer.get(operand, operand)
            continue
        if kind is Kind.BITCAST and not fused[index] and op.operands:
            operand = op.operands[0]
            buffer[op.results[0]] = buffer.get(operand, operand)
            continue
        members: list[int] = []
        reads: list[Value] = []
        for operand in op.operands:
            behind = inside.get(operand)
            if behind is None:
                reads.append(buffer.get(operand, operand))
            else:
                members += behind[0]
                reads += behind[1]
        members.append(index)
        if len(members) > 2:
            members = list(dict.fromkeys(members))
        if len(reads) > 1:
            reads = list(dict.fromkeys(reads))
        if fused[index]:
            inside[op.results[0]] = (members, reads)
            continue
        kernels.roots.append(index)
        kernels.members.append(members)
        kernels.reads.append(reads)
    return kernels


def _find_fused(
    ops: Sequence[Operation], kinds: Sequence[Kind], outputs: Sequence[Value]
) -> list[bool]:
    """Whether the result of each operation exists only inside kernels."""
    fused = [False] * len(ops)
    materialised: set[Value] = set(outputs)
    readers: dict[Value, int] = {}
    for index in range(len(ops) - 1, -1, -1):
        op, kind = ops[index], kinds[index]
        count = readers.get(op.results[0], 0) if len(op.results) == 1 else 0
        fused[index] = (
            kind in _FUSED
            and count > 0
            and op.results[0] not in materialised
            and (kind is not Kind.EXPENSIVE or count == 1)
        )
        holds = kind in _FUSING and (kind is not Kind.BITCAST or fused[index])
        for operand in op.operands:
            if holds:
                # An operation in several kernels reads its operands in each.
                readers[operand] = readers.get(operand, 0) + (count if fused[index] else 1)
            else:
                materialised.add(operand)
    return fused
