"""How single operations lie in memory for XLA's CPU compiler: bitcasts, dots, concatenations.

What ``passes/cost/lowering.py`` asks of an operation; the rules are listed there.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.types import TensorType, Type, nbytes
from baechi_jax.passes.cost.primitives import BITCAST, ELEMENTWISE, EXPENSIVE, REDUCE, Kind

_FLOATS = frozenset({"f32", "f64", "f16", "bf16"})
_HALVES = frozenset({"f16", "bf16"})

#: Concatenation along the last axis is a kernel of its own from this many bytes on.
_CONCATENATE_BYTES = 2048


#: ``(bytes, elements, axes of more than one element, is float)`` of a type.
Facts: TypeAlias = tuple[int, int, int, bool]

#: By identity, since hashing a type costs more than all else here. Keeps the types alive.
_FACTS: dict[int, tuple[Type, Facts]] = {}

#: Types whose facts are remembered.
_REMEMBERED = 100_000


def type_facts(type_: Type) -> Facts:
    """What the memory model asks of a type; remembered."""
    known = _FACTS.get(id(type_))
    if known is not None:
        return known[1]
    if isinstance(type_, TensorType):
        rank = sum(1 for extent in type_.shape if extent != 1)
        facts = (type_.nbytes, type_.size, rank, type_.element in _FLOATS)
    else:
        facts = (nbytes(type_), 0, 0, False)
    if len(_FACTS) >= _REMEMBERED:
        _FACTS.clear()
    _FACTS[id(type_)] = (type_, facts)
    return facts


def identity(op: Operation, reads: Sequence[int]) -> Hashable:
    """Equal for operations that compute the same."""
    return (op.name, tuple(reads), op.results[0].type, parameters(op))


def parameters(op: Operation) -> tuple[tuple[str, Attribute], ...]:
    """The attributes that say what ``op`` computes."""
    return tuple(entry for entry in op.attributes.items() if not entry[0].startswith("baechi."))


def is_half(value: Value) -> bool:
    """Whether the elements have half precision, which XLA:CPU computes in single."""
    return isinstance(value.type, TensorType) and value.type.element in _HALVES


def is_bitcast(op: Operation, kind: Kind) -> bool:
    """Whether the result of ``op`` is its operand's bytes in the same order."""
    if kind is BITCAST:
        return True
    name = op.name
    if name == "jax.convert_element_type":
        source, target = op.operands[0].type, op.results[0].type
        return getattr(source, "element", None) == getattr(target, "element", "")
    if name == "jax.transpose":
        order, type_ = op.attributes.get("permutation"), op.operands[0].type
        if not isinstance(order, tuple) or not isinstance(type_, TensorType):
            return False
        moved = [axis for axis in order if isinstance(axis, int) and type_.shape[axis] != 1]
        return moved == sorted(moved)
    if kind is REDUCE or name == "jax.broadcast_in_dim":
        # Exactly the axes of one element come or go.
        return (
            len(op.operands) == 1
            and type_facts(op.operands[0].type)[1] == type_facts(op.results[0].type)[1]
        )
    return name == "jax.copy"


#: Operations that are cheap or not by their operands or parameters.
_DEPENDS = frozenset({"jax.div", "jax.integer_pow", "jax.convert_element_type"})


def elementwise_kind(op: Operation, kind: Kind, reads: Sequence[int]) -> Kind:
    """``kind``, or what becomes of it: XLA divides by a constant by multiplying."""
    name = op.name
    if name not in _DEPENDS:
        return kind
    if name == "jax.div":
        # A division by a constant becomes a multiplication.
        return ELEMENTWISE if reads[1] < 0 else kind
    if name == "jax.integer_pow":
        power = op.attributes.get("y")
        return EXPENSIVE if isinstance(power, int) and power < 0 else kind
    return EXPENSIVE if is_half(op.results[0]) else kind


def joins_rows(op: Operation) -> bool:
    """Whether ``op`` concatenates along the last axis, or more than eight values."""
    if op.name != "jax.concatenate":
        return False
    type_ = op.results[0].type
    assert isinstance(type_, TensorType)
    last = len(type_.shape) - 1
    rows = last > 0 and op.attributes.get("dimension") == last
    return len(op.operands) > 8 or (rows and type_.nbytes >= _CONCATENATE_BYTES)


def conv_expansion(op: Operation) -> int:
    """How many times the work of a convolution XLA does, since it makes it without groups.

    The weight gradient of a depthwise convolution, a group of the batch for each feature, is a
    dense one of which the diagonal is kept: ``ConvolutionGroupConverter`` in
    ``xla/service/convolution_group_converter.cc``. 1 for all others.
    """
    groups = op.attributes.get("batch_group_count", 1)
    numbers, out = op.attributes.get("dimension_numbers"), op.results[0].type
    if not isinstance(groups, int) or groups < 2:
        return 1
    assert isinstance(numbers, DictAttr)
    assert isinstance(out, TensorType)
    return groups if out.shape[_ints(numbers["out_spec"])[1]] == groups else 1


def conv_swaps(op: Operation) -> bool:
    """Whether XLA lets operand and kernel of a convolution change places, for fewer operations.

    ``SwapConvOperands`` in ``xla/hlo/transforms/simplifiers/algebraic_simplifier.cc``.
    """
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    strides, padding, spread, kernel_spread = (_tuple(op, name) for name in names)
    numbers = op.attributes.get("dimension_numbers")
    image, kernel = op.operands[0].type, op.operands[1].type
    if not (
        isinstance(numbers, DictAttr)
        and isinstance(image, TensorType)
        and isinstance(kernel, TensorType)
        and op.attributes.get("feature_group_count", 1) == 1
        and op.attributes.get("batch_group_count", 1) == 1
    ):
        return False
    before = after = 1
    axes = zip(_ints(numbers["lhs_spec"])[2:], _ints(numbers["rhs_spec"])[2:], strict=True)
    for place, (image_axis, kernel_axis) in enumerate(axes):
        size, window = image.shape[image_axis], kernel.shape[kernel_axis]
        pads = _ints(padding[place])
        dense = strides[place] == 1 and kernel_spread[place] == 1
        if pads == (0, 0) and kernel_spread[place] == 1:
            if spread[place] == window and strides[place] == window - 1:
                continue
            if size == window and spread[place] == 1 and strides[place] == 1:
                continue
        before *= window
        single = size == 1 and dense and pads == (window - 1, window - 1)
        after *= window if single else size
    return before > after


def rows_come_last(op: Operation) -> bool:
    """Whether the updates of a scatter have one axis of indices, the first, as XLA wants them."""
    numbers = op.attributes.get("dimension_numbers")
    updates = op.operands[2].type
    if not isinstance(numbers, DictAttr) or not isinstance(updates, TensorType):
        return False
    window = _ints(numbers["update_window_dims"])
    rank = len(updates.shape)
    return rank <= len(window) + 1 and window == tuple(range(rank - len(window), rank))


def _tuple(op: Operation, name: str) -> tuple[Attribute, ...]:
    found = op.attributes.get(name)
    return found if isinstance(found, tuple) else ()


class DotSide(NamedTuple):
    """How one operand of a dot lies: several free axes, and what becomes of it."""

    several: bool = False
    #: Several axes become one.
    flattened: bool = False
    #: Its free and contracted axes change places, which the product can do by itself...
    swapped: bool = False
    #: ...or its axes lie so that it is copied first.
    copied: bool = False


def dot_side(op: Operation, side: int) -> DotSide:
    """How operand ``side`` of a dot lies."""
    numbers = op.attributes.get("dimension_numbers")
    type_ = op.operands[side].type
    if not isinstance(numbers, tuple) or not isinstance(type_, TensorType):
        return DotSide()
    return _dot_side(type_.shape, _axes(numbers[0], side), _axes(numbers[1], side), side)


def transposed_dot_side(op: Operation, side: int) -> tuple[Value, DotSide] | None:
    """What operand ``side`` of a dot is a transpose of, and how that lies, if the product can read
    it as it is."""
    maker = op.operands[side].defining_op
    numbers = op.attributes.get("dimension_numbers")
    if maker is None or maker.name != "jax.transpose" or not isinstance(numbers, tuple):
        return None
    source = maker.operands[0]
    order = _ints(maker.attributes.get("permutation", ()))
    if not isinstance(source.type, TensorType) or is_half(source):
        return None
    contracted, batch = (
        tuple(order[axis] for axis in _axes(numbers[place], side)) for place in (0, 1)
    )
    lies = _dot_side(source.type.shape, contracted, batch, side)
    return None if lies.copied or lies.several or len(contracted) > 1 else (source, lies)


@functools.lru_cache(maxsize=4096)
def _dot_side(
    shape: tuple[int, ...], contracted_axes: tuple[int, ...], batch_axes: tuple[int, ...], side: int
) -> DotSide:
    contracted, batch = list(contracted_axes), list(batch_axes)
    free = [axis for axis in range(len(shape)) if axis not in contracted and axis not in batch]
    several = len(free) > 1
    flattened = len(contracted) > 1 or several
    batch = [axis for axis in batch if shape[axis] != 1]
    free = [axis for axis in free if shape[axis] != 1]
    contracted = [axis for axis in contracted if shape[axis] != 1]
    order = batch + free + contracted if side == 0 else batch + contracted + free
    if order == sorted(order):
        return DotSide(several, flattened)
    other = batch + contracted + free if side == 0 else batch + free + contracted
    if len(free) <= 1 and len(contracted) <= 1 and other == sorted(other):
        return DotSide(several, flattened, swapped=True)
    return DotSide(several, flattened, copied=True)


def _axes(pair: Attribute, side: int) -> tuple[int, ...]:
    return _ints(pair[side] if isinstance(pair, tuple) else ())


def _ints(found: Attribute) -> tuple[int, ...]:
    return (
        tuple(each for each in found if isinstance(each, int)) if isinstance(found, tuple) else ()
    )
