"""Matrix products and convolutions as XLA's CPU compiler sees them; see ``lowering.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Operation
from baechi_jax.passes.cost.layout import (
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


def lower_dot(to: Lowering, op: Operation, reads: list[int]) -> None:
    """The nodes of a matrix product that reads ``reads``; none if an equal one is there."""
    key = identity(op, reads)
    known = to.known.get(key)
    if known is not None:
        to.number[op.results[0]] = known
        return
    _new_dot(to, op, reads)
    to.known[key] = to.number[op.results[0]]


def _new_dot(to: Lowering, op: Operation, reads: list[int]) -> None:
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
        size, elements, rank, is_float = type_facts(operand.type)
        half = is_half(operand)
        if lies.copied or half:
            size = 4 * elements if half else size
            copy = out.value((size, elements, rank, is_float))
            out.node(MOVE, [reads[side]], [copy], None)
            reads[side] = copy
        elif lies.flattened:
            facts = (size, elements, rank, is_float)
            reads[side] = to.bitcast_of(reads[side], facts, None)
    result = op.results[0]
    size, elements, rank, is_float = type_facts(result.type)
    if plain:
        out.plain_dots.add(len(out.kinds))
    if is_half(result):
        wide = out.value((4 * elements, elements, rank, is_float))
        out.node(KERNEL, reads, [wide], op)
        out.node(EXPENSIVE, [wide], [to.new(result)], None)
        return
    if not flat:
        out.node(KERNEL, reads, [to.new(result)], op)
        return
    made = out.value((size, elements, rank, is_float))
    out.node(KERNEL, reads, [made], op)
    to.number[result] = to.bitcast_of(made, (size, elements, rank, is_float), op)


def lower_conv(to: Lowering, op: Operation, reads: list[int]) -> None:
    """The nodes of a convolution that reads ``reads``; none if an equal one is there."""
    key = identity(op, reads)
    known = to.known.get(key)
    if known is not None:
        to.number[op.results[0]] = known
        return
    _new_conv(to, op, reads)
    to.known[key] = to.number[op.results[0]]


def _new_conv(to: Lowering, op: Operation, reads: list[int]) -> None:
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
        half = is_half(op.operands[side])
        # A kernel that changes places is read backwards.
        copied = spec != wanted or half or (swapped and side == 1)
        if reads[side] >= 0 and copied:
            size, elements, rank, is_float = type_facts(op.operands[side].type)
            copy = out.value((4 * elements if half else size, elements, rank, is_float))
            out.node(MOVE, [reads[side]], [copy], None)
            reads[side] = copy
    result = op.results[0]
    half = is_half(result)
    if swapped:
        last = (axes - 1, 0, *range(1, axes - 1))
    if numbers["out_spec"] == last and not half:
        out.node(KERNEL, reads, [to.new(result)], op)
        return
    size, elements, rank, is_float = type_facts(result.type)
    made = out.value((4 * elements if half else size, elements, rank, is_float))
    out.node(KERNEL, reads, [made], op)
    out.node(EXPENSIVE if half else MOVE, [made], [to.new(result)], None)
