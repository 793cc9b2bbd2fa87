"""Rules of ``dot_general`` and ``conv_general_dilated``.

Both are linear in each operand. A batch dimension, or a free one whose partner is full, stays
split; a dimension that is summed over gives a partial sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.attributes import Attribute
from baechi_jax.passes.axis.rule import At, Mixed, rule
from baechi_jax.passes.axis.states import Partial, Split, State

_SIDES = ("a left operand", "a right operand")


def _linear(at: At) -> list[State]:
    """No operand is split: one may be a partial sum, the other is full."""
    kind = at.kind()
    if kind != "sum":
        raise at.not_linear(kind)
    if all(isinstance(state, Partial) for state in at.states[:2]):
        raise Mixed("multiplies two partial sums")
    at.need_full(range(2, len(at.states)), "an operand")
    return [Partial(kind)]


@rule("dot_general")
def _dot_general(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        return _linear(at)
    contracting, batch = (
        tuple(at.integers("dimension_numbers", {"dimension_numbers": row}) for row in pair)
        for pair in _pairs(at.op.attributes.get("dimension_numbers"))
    )
    side, dimension = next(iter(split.items()))
    other = 1 - side
    if dimension in batch[side]:
        position = batch[side].index(dimension)
        at.need_split(other, batch[other][position], _SIDES[other])
        return [Split(position)]
    if dimension in contracting[side]:
        position = contracting[side].index(dimension)
        at.need_split(other, contracting[other][position], _SIDES[other])
        return [Partial("sum")]
    at.need_full([other], _SIDES[other])
    free = [
        [d for d in range(len(at.shape(i))) if d not in contracting[i] and d not in batch[i]]
        for i in (0, 1)
    ]
    before = len(batch[0]) + (len(free[0]) if side else 0)
    return [Split(before + free[side].index(dimension))]


def _pairs(numbers: Attribute | None) -> tuple[tuple[Attribute, ...], ...]:
    """``[[lhs, rhs], [lhs, rhs]]``; empty tuples where it is not that, so that reading fails."""
    if isinstance(numbers, tuple) and len(numbers) == 2:
        pairs = tuple(pair for pair in numbers if isinstance(pair, tuple) and len(pair) == 2)
        if len(pairs) == 2:
            return pairs
    return ((numbers or "nothing",), (numbers or "nothing",))


@rule("conv_general_dilated")
def _conv(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        return _linear(at)
    numbers = at.dictionary("dimension_numbers")
    left = at.integers("lhs_spec", numbers)
    right = at.integers("rhs_spec", numbers)
    out = at.integers("out_spec", numbers)
    feature_groups = at.integer("feature_group_count")
    batch_groups = at.integer("batch_group_count")
    side, dimension = next(iter(split.items()))
    spec = (left, right)[side]
    if dimension not in spec[:2]:
        raise Mixed(f"slides a window along the axis, dimension {dimension} of {_SIDES[side]}")
    role = spec.index(dimension)  # 0: batch, or output feature; 1: input feature

    grouped = _group_count(side, role, feature_groups, batch_groups)
    if grouped:
        # Groups are outermost in the features of both operands and of the result.
        groups = at.integer(grouped)
        if groups % at.size:
            raise Mixed(f"has {groups} groups along an axis of {at.size}: not a multiple")
        at.need_split(0, left[0 if grouped == "batch_group_count" else 1], _SIDES[0])
        at.need_split(1, right[0], _SIDES[1])
        at.shrink(grouped, None)
        return [Split(out[1])]
    if side == 0 and role == 0:
        at.need_full([1], _SIDES[1])
        return [Split(out[0])]
    if side == 1 and role == 0:
        at.need_full([0], _SIDES[0])
        return [Split(out[1])]
    if feature_groups > 1:
        raise Mixed("sums over the axis within groups of features")
    at.need_split(0, left[1], _SIDES[0])
    at.need_split(1, right[1], _SIDES[1])
    return [Partial("sum")]


def _group_count(side: int, role: int, feature_groups: int, batch_groups: int) -> str:
    """The attribute that counts the groups along this dimension; empty where there are none."""
    if batch_groups > 1 and role == 0:
        return "batch_group_count"
    if feature_groups > 1 and (side, role) in ((0, 1), (1, 0)):
        return "feature_group_count"
    return ""
