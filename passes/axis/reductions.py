"""Rules of reductions, cumulative operations, windows and sorting.

To reduce the axis gives a partial value; beside it, the axis stays. Cumulative operations, windows
and sorts along the axis mix it.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.passes.axis.rule import At, Mixed, rule
from baechi_jax.passes.axis.states import Partial, Split, State

_KIND_OF = {
    "jax.reduce_sum": "sum",
    "jax.reduce_prod": "prod",
    "jax.reduce_max": "max",
    "jax.reduce_min": "min",
    "jax.reduce_and": "and",
    "jax.reduce_or": "or",
    "jax.cumsum": "sum",
    "jax.cumprod": "prod",
    "jax.cummax": "max",
    "jax.cummin": "min",
    "jax.reduce_window_sum": "sum",
    "jax.reduce_window_max": "max",
    "jax.reduce_window_min": "min",
}


def _same_kind(at: At) -> list[State]:
    """A sum of partial sums, a maximum of partial maxima: in whatever order."""
    kind = at.kind()
    if kind != _KIND_OF.get(at.op.name):
        raise at.not_linear(kind)
    return [Partial(kind)] * len(at.op.results)


def _without(dimension: int, gone: Sequence[int]) -> Split:
    return Split(dimension - sum(each < dimension for each in gone))


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
def _reduce(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _same_kind(at)
    axes = at.integers("axes")
    if dimension in axes:
        return [Partial(_KIND_OF[at.op.name])]
    return [_without(dimension, axes)]


@rule("reduce_xor", "argmax", "argmin")
def _reduce_no_kind(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        raise at.not_linear(at.kind())
    axes = at.integers("axes")
    if dimension in axes:
        raise Mixed("goes over the axis, and parts of it cannot be combined")
    return [_without(dimension, axes)]


@rule("reduce")
def _reduce_with(at: At) -> Sequence[State]:
    """A reduction with a function of the user's: operands, then as many start values."""
    split = at.split()
    if not split:
        raise at.not_linear(at.kind())
    count = len(at.states) // 2
    at.need_full(range(count, len(at.states)), "a start value")
    dimension = next(iter(split.values()))
    for operand in range(count):
        at.need_split(operand, dimension, "an operand")
    axes = at.integers("dimensions")
    if dimension in axes:
        raise Mixed("reduces the axis with a function of its own")
    return [_without(dimension, axes)] * count


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _same_kind(at)
    if dimension == at.integer("axis"):
        raise Mixed(f"accumulates along the axis, dimension {dimension}")
    return [Split(dimension)]


def _window_beside(at: At, dimension: int) -> None:
    """Raises Mixed unless the window is one element, without gaps, along ``dimension``."""
    window = at.integers("window_dimensions")[dimension]
    stride = at.integers("window_strides")[dimension]
    padding = at.rows("padding")[dimension]
    dilations = [
        at.integers(name)[dimension]
        for name in ("base_dilation", "window_dilation")
        if name in at.op.attributes
    ]
    if (window, stride, padding) != (1, 1, (0, 0)) or any(each != 1 for each in dilations):
        raise Mixed(f"slides a window along the axis, dimension {dimension}")


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _window(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _same_kind(at)
    _window_beside(at, dimension)
    return [Split(dimension)]


@rule("reduce_window")
def _window_with(at: At) -> Sequence[State]:
    """Windows with a function of the user's: operands, then as many start values."""
    split = at.split()
    if not split:
        raise at.not_linear(at.kind())
    count = len(at.states) // 2
    at.need_full(range(count, len(at.states)), "a start value")
    dimension = next(iter(split.values()))
    for operand in range(count):
        at.need_split(operand, dimension, "an operand")
    _window_beside(at, dimension)
    return [Split(dimension)] * count


@rule("select_and_scatter_add", "select_and_gather_add")
def _window_select(at: At) -> Sequence[State]:
    """The first operand goes to (comes from) where the second has its maximum in each window."""
    split = at.split()
    if not split:
        kind = at.kind()
        if kind != "sum":
            raise at.not_linear(kind)
        at.need_full([1], "an operand to select by")
        return [Partial(kind)]
    dimension = next(iter(split.values()))
    _window_beside(at, dimension)
    at.need_split(0, dimension, "an operand")
    at.need_split(1, dimension, "an operand to select by")
    return [Split(dimension)]


@rule("select_and_scatter")
def _window_select_with(at: At) -> Sequence[State]:
    """The same with functions of the user's; the third operand is the start value."""
    split = at.split()
    if not split:
        raise at.not_linear(at.kind())
    at.need_full([2], "a start value")
    return _window_select(at)


@rule("sort")
def _sort(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        raise at.not_linear(at.kind())
    dimension = next(iter(split.values()))
    if dimension == at.integer("dimension"):
        raise Mixed(f"sorts along the axis, dimension {dimension}")
    for operand in range(len(at.states)):
        at.need_split(operand, dimension, "an operand")
    return [Split(dimension)] * len(at.states)


@rule("top_k", "approx_top_k")
def _top_k(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        raise at.not_linear(at.kind())
    axis = at.integer("axis" if at.op.name == "jax.top_k" else "reduction_dimension")
    if dimension == axis % len(at.shape(0)):
        raise Mixed(f"sorts along the axis, dimension {dimension}")
    return [Split(dimension)] * len(at.op.results)
