"""Matrix products and convolutions as XLA's CPU compiler sees them; see ``lowering.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Operation, Value
from baechi_jax.passes.cost.layout import (
    Facts,
    conv_expansion,
    conv_swaps,
    dot_side,
    identity,
    is_half,
    transposed_dot_side,
    type_facts,
)
from baechi_jax.passes.cost.primitives import EXPENSIVE, KERNEL, MOVE

if TYPE_CHECKING:
    from baechi_jax.passes.cost.lowering import Lowering


def lower_product(to: Lowering, op: Operation, reads: list[int]) -> None:
    """The nodes of a product or a convolution that reads ``reads``; none if an equal one is there.

    ``op``: one of ``PRODUCTS``.
    """
    key = identity(op, reads)
    known = to.known.get(key)
    if known is None:
        PRODUCTS[op.name](to, op, reads)
        known = to.known[key] = to.number[op.results[0]]
    to.number[op.results[0]] = known


def _dot(to: Lowering, op: Operation, reads: list[int]) -> None:
    out = to.out
    flat, plain = False, True
    for side, operand in enumerate(op.operands[:2]):
        if reads[side] < 0:
            continue
        lies = dot_side(op, side)
        folded = transposed_dot_side(op, side)
        if folded is not None:
            source = to.number.get(folded[0], -1)
            if source >= 0 and source != reads[side]:
                if (maker := out.producer[reads[side]]) >= 0:
                    out.replaced.add(maker)
                reads[side], lies = source, folded[1]
        flat = flat or lies.several
        plain = plain and not (side == 0 and lies.swapped)
        if lies.copied or is_half(operand):
            reads[side] = _copied(to, operand, reads[side])
        elif lies.flattened:
            reads[side] = to.bitcast_of(reads[side], type_facts(operand.type), None)
    result = op.results[0]
    if plain:
        out.plain_dots.add(len(out.kinds))
    half = is_half(result)
    if not half and not flat:
        out.node(KERNEL, reads, [to.new(result)], op)
        return
    made = out.value(_single(result))
    out.node(KERNEL, reads, [made], op)
    if half:
        out.node(EXPENSIVE, [made], [to.new(result)], None)
    else:
        to.number[result] = to.bitcast_of(made, type_facts(result.type), op)


def _conv(to: Lowering, op: Operation, reads: list[int]) -> None:
    out = to.out
    numbers = op.attributes.get("dimension_numbers")
    if not isinstance(numbers, DictAttr):
        out.node(KERNEL, reads, [to.new(op.results[0])], op)
        return
    axes = len(numbers["lhs_spec"]) if isinstance(numbers["lhs_spec"], tuple) else 0
    last = (0, axes - 1, *range(1, axes - 1))
    kernel = (axes - 1, axes - 2, *range(axes - 2))
    swapped = conv_swaps(op)
    for side, wanted in enumerate((kernel, last) if swapped else (last, kernel)):
        spec = numbers["lhs_spec" if side == 0 else "rhs_spec"]
        operand = op.operands[side]
        # A kernel that changes places is read backwards.
        copied = spec != wanted or is_half(operand) or (swapped and side == 1)
        if reads[side] >= 0 and copied:
            reads[side] = _copied(to, operand, reads[side])
    result = op.results[0]
    half = is_half(result)
    groups = conv_expansion(op)
    if groups > 1:
        _expanded(to, op, reads, groups)
        return
    if swapped:
        last = (axes - 1, 0, *range(1, axes - 1))
    if numbers["out_spec"] == last and not half:
        out.node(KERNEL, reads, [to.new(result)], op)
        return
    made = out.value(_single(result))
    out.node(KERNEL, reads, [made], op)
    out.node(EXPENSIVE if half else MOVE, [made], [to.new(result)], None)


def _expanded(to: Lowering, op: Operation, reads: list[int], groups: int) -> None:
    """A convolution that is made for all pairs of features; those of one group are kept."""
    out = to.out
    size, elements, rank, is_float = _single(op.results[0])
    dense: Facts = (groups * size, groups * elements, rank, is_float)
    made, masked = out.value(dense), out.value(dense)
    out.node(KERNEL, reads, [made], op)
    out.node(KERNEL, [made], [masked], None)
    out.node(KERNEL, [masked], [to.new(op.results[0])], None)


def _copied(to: Lowering, operand: Value, value: int) -> int:
    """A copy of ``value``, in single precision if ``operand`` has half."""
    copy = to.out.value(_single(operand))
    to.out.node(MOVE, [value], [copy], None)
    return copy


def _single(value: Value) -> Facts:
    """The facts of ``value`` as a product computes it: half precision in single."""
    size, elements, rank, is_float = type_facts(value.type)
    return (4 * elements if is_half(value) else size, elements, rank, is_float)


#: The operations that are lowered here.
PRODUCTS: dict[str, Callable[[Lowering, Operation, list[int]], None]] = {
    "jax.dot_general": _dot,
    "jax.conv_general_dilated": _conv,
}
