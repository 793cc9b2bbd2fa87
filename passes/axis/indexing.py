"""Rules of ``gather`` and the scatters.

Three places for the axis: a batching dimension of operand and indices, a dimension of the operand
of which every window has all (*along*), and a dimension of the indices (*across*: each piece looks
up, or adds, at its own indices). To look up positions of the axis itself mixes it.

A window that has all of a dimension lies at 0 along it, in bounds for the whole exactly when it is
for a piece, so out-of-bounds modes do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from baechi_jax.ir.attributes import FloatAttr, IntegerAttr
from baechi_jax.passes.axis.rule import At, Mixed, element_of, is_inexact, rule
from baechi_jax.passes.axis.states import NEUTRAL, Partial, Split, State

_SCATTERED = {
    "jax.scatter-add": "sum",
    "jax.scatter-sub": "sum",
    "jax.scatter-mul": "prod",
    "jax.scatter-max": "max",
    "jax.scatter-min": "min",
    "jax.scatter": "",
}


def _refuse_index_parts(at: At, split: Mapping[int, int]) -> None:
    """The last dimension of the indices holds the parts of one index."""
    if split.get(1) == len(at.shape(1)) - 1:
        raise Mixed("takes the parts of an index for positions of the axis")


def _outside(rank: int, window: Sequence[int]) -> list[int]:
    """The dimensions that are not in the window, in order: those of the indices."""
    return [dimension for dimension in range(rank) if dimension not in window]


@rule("gather")
def _gather(at: At) -> Sequence[State]:
    numbers = at.dictionary("dimension_numbers")
    offset = at.integers("offset_dims", numbers)
    collapsed = at.integers("collapsed_slice_dims", numbers)
    batching = at.integers("operand_batching_dims", numbers)
    indices_batching = at.integers("start_indices_batching_dims", numbers)
    outside = _outside(len(at.result_shape()), offset)
    split = at.split()
    if not split:
        return _gather_partial(at)

    _refuse_index_parts(at, split)
    if 1 in split and split[1] in indices_batching:
        split = {0: batching[indices_batching.index(split[1])]}
    if 0 not in split:
        dimension = split[1]
        at.need_full([0], "an operand to look up in")
        return [Split(outside[dimension])]
    dimension = split[0]
    if dimension in batching:
        position = batching.index(dimension)
        partner = indices_batching[position]
        at.need_split(0, dimension, "an operand")
        at.need_split(1, partner, "indices")
        return [Split(outside[partner])]
    at.need_full([1], "indices into a split operand")
    if at.integers("slice_sizes")[dimension] != at.shape(0)[dimension]:
        raise Mixed(f"looks up positions of the axis, dimension {dimension}")
    if dimension in collapsed:
        raise Mixed("drops the axis, which has one element")
    windowed = [
        each for each in range(len(at.shape(0))) if each not in collapsed and each not in batching
    ]
    at.shrink("slice_sizes", dimension)
    return [Split(offset[windowed.index(dimension)])]


def _gather_partial(at: At) -> Sequence[State]:
    """Elements move; what is out of bounds must be filled with what serves as a part."""
    kind = at.kind()
    at.need_full([1], "indices into a partial operand")
    if at.op.attributes.get("mode") == "FILL_OR_DROP" and not _fill_serves(at, kind):
        raise Mixed(f"fills what is out of bounds with what is no partial {kind}")
    return [Partial(kind)]


def _fill_serves(at: At, kind: str) -> bool:
    fill = at.op.attributes.get("fill_value")
    if isinstance(fill, FloatAttr | IntegerAttr):
        fill = fill.value
    if isinstance(fill, int | float):
        # A NaN stays one under every kind.
        return kind not in NEUTRAL or fill == NEUTRAL[kind] or fill != fill
    # None given: NaN for floats, an extreme number for integers.
    return kind not in NEUTRAL or is_inexact(element_of(at.op.operands[0]))


@rule(*(name.removeprefix("jax.") for name in _SCATTERED))
def _scatter(at: At) -> Sequence[State]:
    numbers = at.dictionary("dimension_numbers")
    window = at.integers("update_window_dims", numbers)
    inserted = at.integers("inserted_window_dims", numbers)
    batching = at.integers("operand_batching_dims", numbers)
    indices_batching = at.integers("scatter_indices_batching_dims", numbers)
    outside = _outside(len(at.shape(2)), window)
    split = at.split()
    if not split:
        return _scatter_partial(at)

    _refuse_index_parts(at, split)
    # Where the axis is in the operand, seen from whichever operand is split; None: not in it.
    windowed = [
        each for each in range(len(at.shape(0))) if each not in inserted and each not in batching
    ]
    dimension = split.get(0)
    across: int | None = None  # the dimension of the indices that it is in
    if dimension is None and 2 in split:
        if split[2] in window:
            dimension = windowed[window.index(split[2])]
        else:
            across = outside.index(split[2])
    elif dimension is None:
        across = split[1]
    if across is not None and across in indices_batching:
        dimension = batching[indices_batching.index(across)]
    if dimension is None:
        assert across is not None
        return _scatter_across(at, across, outside)

    at.need_split(0, dimension, "an operand")
    if dimension in batching:
        partner = indices_batching[batching.index(dimension)]
        at.need_split(1, partner, "indices")
        at.need_split(2, outside[partner], "updates")
        return [Split(dimension)]
    at.need_full([1], "indices into a split operand")
    if dimension in inserted:
        raise Mixed(f"writes at positions of the axis, dimension {dimension}")
    partner = window[windowed.index(dimension)]
    if at.shape(2)[partner] != at.shape(0)[dimension]:
        raise Mixed(f"writes into a part of the axis, dimension {dimension}")
    at.need_split(2, partner, "updates")
    return [Split(dimension)]


def _scatter_across(at: At, dimension: int, outside: Sequence[int]) -> Sequence[State]:
    """Each piece writes its own updates: the results combine as the updates do."""
    kind = _SCATTERED[at.op.name]
    if not kind:
        raise Mixed("overwrites: the order of the updates along the axis counts")
    at.need_partial(0, kind, "an operand")
    at.need_split(1, dimension, "indices")
    at.need_split(2, outside[dimension], "updates")
    return [Partial(kind)]


def _scatter_partial(at: At) -> Sequence[State]:
    kind = at.kind()
    own = _SCATTERED[at.op.name]
    if own not in ("", kind) or own == "prod":
        raise at.not_linear(kind)
    at.need_full([1], "indices into a partial operand")
    at.need_partial(0, kind, "an operand")
    at.need_partial(2, kind, "updates")
    return [Partial(kind)]
