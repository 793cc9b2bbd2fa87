"""Rules of operations that move elements and compute nothing.

Partial values go through all of them, of whatever kind: each element of the result is an element of
an operand. What is put in beside (a padding value, another operand) must serve as a part too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from baechi_jax.passes.axis.rule import At, Mixed, rule
from baechi_jax.passes.axis.states import Partial, Split, State


def _moved(at: At) -> list[State]:
    """The states where no operand is split: partial values go through."""
    return [Partial(at.kind())] * len(at.op.results)


@rule("broadcast_in_dim")
def _broadcast(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    target = at.integers("broadcast_dimensions")[dimension]
    at.shrink("shape", target)
    return [Split(target)]


@rule("reshape")
def _reshape(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    if isinstance(at.op.attributes.get("dimensions"), tuple):
        raise Mixed("transposes and reshapes at once")
    target = _reshaped(at.shape(0), at.result_shape(), dimension, at.size)
    if target is None:
        raise Mixed(
            f"from {_shape(at.shape(0))} to {_shape(at.result_shape())} puts the axis, split "
            f"{dimension}, inside another dimension"
        )
    at.shrink("new_sizes", target)
    return [Split(target)]


def _reshaped(old: Sequence[int], new: Sequence[int], dimension: int, size: int) -> int | None:
    """The dimension of ``new`` that has the axis outermost; None where none has.

    A part of ``old[dimension]`` is a run of elements in each of ``prod(old[:dimension])`` rows. It
    is a part of ``new[d]`` where that has the same rows before it, and a multiple of the axis.
    """
    if 0 in old:
        return dimension if tuple(old) == tuple(new) else None
    rows = math.prod(old[:dimension])
    before = 1
    found: int | None = None
    for index, length in enumerate(new):
        if before == rows and length % size == 0:
            # An axis of one element fits anywhere; the dimension as it was is the best guess.
            if length == old[dimension]:
                return index
            found = index if found is None else found
        before *= length
    return found


@rule("transpose")
def _transpose(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    return [Split(at.integers("permutation").index(dimension))]


@rule("squeeze")
def _squeeze(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    gone = [each % len(at.shape(0)) for each in at.integers("dimensions")]
    if dimension in gone:
        raise Mixed("drops the axis, which has one element")
    return [Split(dimension - sum(each < dimension for each in gone))]


@rule("concatenate")
def _concatenate(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        kind = at.kind()
        for operand in range(len(at.states)):
            at.need_partial(operand, kind, "an operand")
        return [Partial(kind)]
    dimension = next(iter(split.values()))
    if dimension == at.integer("dimension") and len(at.states) > 1:
        raise Mixed(f"joins more to the axis, along dimension {dimension}")
    for operand in range(len(at.states)):
        at.need_split(operand, dimension, "an operand")
    return [Split(dimension)]


@rule("stack")
def _stack(at: At) -> Sequence[State]:
    split = at.split()
    if not split:
        kind = at.kind()
        for operand in range(len(at.states)):
            at.need_partial(operand, kind, "an operand")
        return [Partial(kind)]
    dimension = next(iter(split.values()))
    for operand in range(len(at.states)):
        at.need_split(operand, dimension, "an operand")
    return [Split(dimension + (at.integer("axis") <= dimension))]


@rule("unstack")
def _unstack(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    axis = at.integer("axis")
    if dimension == axis:
        raise Mixed(f"takes the axis apart, dimension {dimension}")
    return [Split(dimension - (axis < dimension))] * len(at.op.results)


@rule("tile")
def _tile(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    new = len(at.result_shape()) - len(at.shape(0))
    target = dimension + new
    if at.integers("reps")[target] != 1:
        raise Mixed(f"repeats the axis, dimension {dimension}")
    return [Split(target)]


@rule("split")
def _split(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    if dimension == at.integer("axis") and len(at.op.results) > 1:
        raise Mixed(f"cuts the axis, along dimension {dimension}")
    if dimension == at.integer("axis"):
        at.shrink("sizes", 0)
    return [Split(dimension)] * len(at.op.results)


@rule("pad")
def _pad(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        kind = at.kind()
        at.need_partial(0, kind, "an operand")
        at.need_partial(1, kind, "a padding value")
        return [Partial(kind)]
    at.need_full([1], "a padding value")
    if at.rows("padding_config")[dimension] != (0, 0, 0):
        raise Mixed(f"pads the axis, along dimension {dimension}")
    return [Split(dimension)]


@rule("rev")
def _rev(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    if dimension in at.integers("dimensions"):
        raise Mixed("reverses the axis")
    return [Split(dimension)]


@rule("slice")
def _slice(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    start = at.integers("start_indices")[dimension]
    limit = at.integers("limit_indices")[dimension]
    strides = at.op.attributes.get("strides")
    stride = at.integers("strides")[dimension] if isinstance(strides, tuple) else 1
    if (start, limit, stride) != (0, at.shape(0)[dimension], 1):
        raise Mixed(f"takes a part of the axis, {start}:{limit}:{stride} of dimension {dimension}")
    at.shrink("limit_indices", dimension)
    return [Split(dimension)]


@rule("dynamic_slice")
def _dynamic_slice(at: At) -> Sequence[State]:
    at.need_full(range(1, len(at.states)), "a position")
    dimension = at.split().get(0)
    if dimension is None:
        return _moved(at)
    # A window as large as the dimension starts at 0, whatever the index: XLA clamps it.
    if at.integers("slice_sizes")[dimension] != at.shape(0)[dimension]:
        raise Mixed(f"takes a part of the axis, along dimension {dimension}")
    at.shrink("slice_sizes", dimension)
    return [Split(dimension)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(at: At) -> Sequence[State]:
    at.need_full(range(2, len(at.states)), "a position")
    split = at.split()
    if not split:
        kind = at.kind()
        at.need_partial(0, kind, "an operand")
        at.need_partial(1, kind, "an update")
        return [Partial(kind)]
    dimension = next(iter(split.values()))
    if at.shape(1)[dimension] != at.shape(0)[dimension]:
        raise Mixed(f"writes into a part of the axis, along dimension {dimension}")
    at.need_split(0, dimension, "an operand")
    at.need_split(1, dimension, "an update")
    return [Split(dimension)]


#: Give the same number everywhere where their operand is one.
KEEP_UNIFORM = frozenset(
    f"jax.{name}"
    for name in (
        "broadcast_in_dim reshape transpose squeeze slice rev copy convert_element_type "
        "name sharding_constraint stop_gradient optimization_barrier tile"
    ).split()
)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
