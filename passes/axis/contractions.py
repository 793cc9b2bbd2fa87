"""Rules of ``dot_general``, its ragged and scaled forms, and ``conv_general_dilated``.

All are linear in each operand. A batch dimension, or a free one whose partner is full, stays
split; a dimension that is summed over gives a partial sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute
from baechi_jax.passes.axis.rule import At, Mixed, element_of, rule
from baechi_jax.passes.axis.states import Partial, Split, State

_SIDES = ("a left operand", "a right operand")


@dataclass(frozen=True, slots=True)
class _Dims:
    """The dimensions of both operands by role: ``contracting[side][i]`` meets that of the other."""

    contracting: tuple[tuple[int, ...], ...]
    batch: tuple[tuple[int, ...], ...]
    #: In the order in which the result has them, behind the batch, the left operand's first.
    free: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(at: At, numbers: Attribute | None, groups: Sequence[int] = ()) -> _Dims:
        """Read ``dimension_numbers``; ``groups`` of the right operand do not reach the result."""
        contracting, batch = (
            tuple(at.integers("dimension_numbers", {"dimension_numbers": row}) for row in pair)
            for pair in _pairs(numbers)
        )
        gone = ((), groups)
        free = tuple(
            tuple(
                dimension
                for dimension in range(len(at.shape(side)))
                if dimension not in (*contracting[side], *batch[side], *gone[side])
            )
            for side in (0, 1)
        )
        return _Dims(contracting, batch, free)

    def partner(self, side: int, dimension: int) -> int | None:
        """The dimension of the other operand that it meets; None for a free one."""
        for pair in (self.contracting, self.batch):
            if dimension in pair[side]:
                return pair[1 - side][pair[side].index(dimension)]
        return None


def _linear(at: At) -> list[State]:
    """No operand is split: one may be a partial sum, the other is full."""
    kind = at.kind()
    if kind != "sum":
        raise at.not_linear(kind)
    if all(isinstance(state, Partial) for state in at.states[:2]):
        raise Mixed("multiplies two partial sums")
    at.need_full(range(2, len(at.states)), "an operand")
    (element,) = (element_of(v) for v, s in zip(at.op.operands, at.states) if s == Partial(kind))
    if element.startswith("ui") and element != element_of(at.op.results[0]):
        raise Mixed(f"widens a partial sum of {element}, which may have wrapped around")
    return [Partial(kind)]


def _dot(at: At, dims: _Dims, side: int, dimension: int) -> State:
    """The state of the product, the axis being in ``dimension`` of operand ``side``."""
    other = 1 - side
    partner = dims.partner(side, dimension)
    if partner is None:
        at.need_full([other], _SIDES[other])
        before = len(dims.batch[0]) + (len(dims.free[0]) if side else 0)
        return Split(before + dims.free[side].index(dimension))
    at.need_split(other, partner, _SIDES[other])
    if dimension in dims.contracting[side]:
        return Partial("sum")
    return Split(dims.batch[side].index(dimension))


@rule("dot_general")
def _dot_general(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        return _linear(at)
    dims = _Dims.of(at, at.op.attributes.get("dimension_numbers"))
    side, dimension = next(iter(split.items()))
    return [_dot(at, dims, side, dimension)]


@rule("ragged_dot_general")
def _ragged_dot(at: At) -> Sequence[State]:
    """``dot_general`` in groups: the third operand has the sizes of consecutive groups.

    They are counted from the start of the *ragged* dimension of the left operand, so parts of that
    (or of the groups) would need sizes of their own. Each position of the dimensions outside of it
    may have its sizes; else all have the same.
    """
    split = at.split()
    if not split:
        return _linear(at)
    numbers = at.dictionary("ragged_dot_dimension_numbers")
    (ragged,) = at.integers("lhs_ragged_dimensions", numbers)
    groups = at.integers("rhs_group_dimensions", numbers)
    dims = _Dims.of(at, numbers.get("dot_dimension_numbers"), groups)
    outside = _outside(dims, ragged) if len(at.shape(2)) > 1 else ()
    operand, dimension = next(iter(split.items()))
    if operand == 2:
        if dimension >= len(outside):
            raise Mixed("takes sizes of groups for positions of the axis")
        operand, dimension = 0, outside[dimension]
        at.need_split(0, dimension, _SIDES[0])
    left = dims.partner(1, dimension) if operand else dimension
    if left == ragged or (operand == 1 and dimension in groups):
        raise Mixed(f"has groups along the axis, dimension {dimension} of {_SIDES[operand]}")
    state = _dot(at, dims, operand, dimension)
    if left in outside:
        at.need_split(2, outside.index(left), "sizes of groups")
    else:
        at.need_full([2], "sizes of groups")
    if ragged in dims.contracting[0] and isinstance(state, Split):
        return [Split(state.dimension + 1)]  # the groups come first
    return [state]


def _outside(dims: _Dims, ragged: int) -> tuple[int, ...]:
    """The dimensions of the left operand that the sizes of groups have, if they have any."""
    if ragged in dims.batch[0]:
        return dims.batch[0][: dims.batch[0].index(ragged)]
    own = dims.contracting[0] if ragged in dims.contracting[0] else dims.free[0]
    return dims.batch[0] + own[: own.index(ragged)]


@rule("scaled_dot")
def _scaled_dot(at: At) -> Sequence[State]:
    """``dot_general`` of scaled operands; operands 2 and 3 are the scales.

    A scale has the dimensions of its operand; along a contracting one, a number for each block.
    """
    split = at.split()
    if not split:
        return _linear(at)
    dims = _Dims.of(at, at.op.attributes.get("dimension_numbers"))
    operand, dimension = next(iter(split.items()))
    side = operand % 2
    at.need_split(side, dimension, _SIDES[side])
    state = _dot(at, dims, side, dimension)
    for each, own in ((side, dimension), (1 - side, dims.partner(side, dimension))):
        scale = f"a scale of {_SIDES[each]}"
        if own is None or _one_scale(at, each, own):
            at.need_full([2 + each], scale)
        elif at.shape(2 + each)[own] % at.size:
            raise Mixed(f"has scales for blocks across the axis, dimension {own} of {_SIDES[each]}")
        else:
            at.need_split(2 + each, own, scale)
    return [state]


def _one_scale(at: At, side: int, dimension: int) -> bool:
    """Whether all of the axis has one scale, and so has a piece (blocks have two or more)."""
    return at.shape(2 + side)[dimension] == 1 and at.shape(side)[dimension] >= 2 * at.size


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
