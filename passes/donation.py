"""Which operand of a task may give its buffer to which result.

XLA writes the result over the operand, so every kernel that reads the operand must come before: it
is a strict ancestor of the operation that makes the result, or makes the result itself and is
elementwise. XLA fuses a cheap operation into the one that reads it; where several read it, XLA may
compute it again in each, and which kernels read the operand is not known. Where this does not hold
XLA saves the operand in a copy, and a donation that frees nothing would be counted as memory saved.
State that is updated in the task
(a parameter and its next value) is donated in any case, as ``jax.jit`` does.

JAX pairs donated operands and results of one type in the order in which they stand, so the results
of a task are put into that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Block, Operation, OpResult, Value
from baechi_jax.ir.types import TensorType, unplaced
from baechi_jax.passes.cost.primitives import (
    BITCAST,
    BROADCAST,
    ELEMENTWISE,
    EXPENSIVE,
    MOVE,
    REDUCE,
)
from baechi_jax.passes.cost.roofline import kind_of

_ELEMENTWISE = frozenset({ELEMENTWISE, EXPENSIVE})

#: What XLA may compute in the kernels that read it, and what may take it in.
_FUSED = frozenset({ELEMENTWISE, EXPENSIVE, BITCAST, BROADCAST, MOVE})
_FUSING = _FUSED | {REDUCE}

#: What XLA does in place in its first operand.
_IN_PLACE = frozenset(
    f"jax.{name}"
    for name in ("dynamic_update_slice", "scatter", "scatter-add", "scatter_add", "scatter_mul")
)


@dataclass(frozen=True, slots=True)
class Dying:
    """An operand that dies with its task; ``successor`` is the next value if it is state."""

    operand: int
    successor: Value | None = None


def choose_donations(task: Operation, dying: Sequence[Dying]) -> list[tuple[int, int]]:
    """Pairs of operand and result index, by operand."""
    free: dict[tuple[object, ...], list[int]] = {}
    for result in task.results:
        free.setdefault(buffer_type(result), []).append(result.index)
    pairs: list[tuple[int, int]] = []
    others: list[int] = []
    for each in dying:
        value = task.operands[each.operand]
        candidates = free.get(buffer_type(value), [])
        next_value = each.successor
        if (
            isinstance(next_value, OpResult)
            and next_value.owner is task
            and next_value.index in candidates
        ):
            candidates.remove(next_value.index)
            pairs.append((each.operand, next_value.index))
        elif candidates and isinstance(unplaced(value.type), TensorType):
            others.append(each.operand)
    ancestors: dict[int, set[Operation]] = {}
    for operand in others:
        candidates = free[buffer_type(task.operands[operand])]
        for index in candidates:
            if _overwritten_last(task.body, operand, index, ancestors):
                candidates.remove(index)
                pairs.append((operand, index))
                break
    return sorted(pairs)


def buffer_type(value: Value) -> tuple[object, ...]:
    """What an operand and the result that takes its buffer must have in common."""
    inner = unplaced(value.type)
    return (inner.shape, inner.element) if isinstance(inner, TensorType) else (inner,)


def _overwritten_last(
    body: Block, operand: int, result: int, known: dict[int, set[Operation]]
) -> bool:
    """Whether every read of the operand is over when the result is written."""
    value = body.terminator.operands[result]
    if not isinstance(value, OpResult):
        return False
    maker = value.owner
    before = known.get(result)
    if before is None:
        before = known[result] = _ancestors(maker)
    argument = body.arguments[operand]
    for user in argument.users:
        kernel = _kernel_of(body, _top_level(body, user))
        if kernel is maker:
            in_place = maker.name in _IN_PLACE and maker.operands[0] is argument
            if not (in_place or kind_of(maker) in _ELEMENTWISE):
                return False
        elif kernel is None or kernel not in before:
            return False
    return True


def _kernel_of(body: Block, op: Operation) -> Operation | None:
    """The last operation of the kernel in which ``op`` is; None where there may be many."""
    while kind_of(op) in _FUSED:
        readers = dict.fromkeys(user for result in op.results for user in result.users)
        fusing = [r for r in readers if r.parent is body and kind_of(r) in _FUSING]
        if not fusing:
            return op
        if len(readers) > 1:
            return None
        op = fusing[0]
    return op


def _top_level(body: Block, op: Operation) -> Operation:
    while op.parent is not body:
        parent = op.parent_op
        assert parent is not None
        op = parent
    return op


def _ancestors(op: Operation) -> set[Operation]:
    seen: set[Operation] = set()
    stack = [op]
    while stack:
        for value in stack.pop().operands:
            if isinstance(value, OpResult) and value.owner not in seen:
                seen.add(value.owner)
                stack.append(value.owner)
    return seen


def align_results(task: Operation, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Reorder the results of ``task`` so that JAX pairs them as ``pairs`` says.

    Returns, for each result, where it stood before.
    """
    chosen: dict[tuple[object, ...], list[int]] = {}
    for _, result in sorted(pairs):
        chosen.setdefault(buffer_type(task.results[result]), []).append(result)
    order = list(range(len(task.results)))
    for kind, first in chosen.items():
        places = [r.index for r in task.results if buffer_type(r) == kind]
        rest = [place for place in places if place not in first]
        for place, index in zip(places, [*first, *rest]):
            order[place] = index
    if order == list(range(len(order))):
        return order
    terminator = task.body.terminator
    yielded = list(terminator.operands)
    terminator.set_operands([yielded[index] for index in order])
    task.results = [task.results[index] for index in order]
    for position, moved in enumerate(task.results):
        moved.index = position
    return order
