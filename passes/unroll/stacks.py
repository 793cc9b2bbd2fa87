"""A stacked value that is kept apart: for each piece its rows, made in the form that is asked for.

A piece can be had in two forms: with dimension 0 (``tensor<1x...>``), as arguments are, and as its
single rows, as the body of a scan reads and yields them. Each is made when first asked for, so that
a residual that goes from one unrolled scan to another costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.location import Location
from baechi_jax.ir.types import TensorType, unplaced
from baechi_jax.passes.axis.piece import slice_of
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.cost.primitives import ELEMENTWISE, EXPENSIVE
from baechi_jax.passes.cost.roofline import kind_of

#: Takes an operation into the new body, and gives it back.
Emit = Callable[[Operation], Operation]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows ``start`` to ``start + size`` of every stack."""

    start: int
    size: int

    @property
    def text(self) -> str:
        """``3:4``, as in Python."""
        return f"{self.start}:{self.start + self.size}"


def cut_evenly(length: int, rows: int) -> tuple[Rows, ...]:
    """``length`` rows in pieces of ``rows``; the last one has what remains."""
    return tuple(Rows(start, min(rows, length - start)) for start in range(0, length, rows))


@dataclass(slots=True)
class Stack:
    """The pieces of one value. Partial values, whose pieces are summands, have them whole."""

    pieces: list[Value | None]
    rows: list[Sequence[Value] | None]
    #: Of what made the rows of each piece, for the operations that give them dimension 0.
    locations: list[Location] = field(default_factory=list)

    @staticmethod
    def of_pieces(pieces: Sequence[Value]) -> Stack:
        """From pieces that have dimension 0."""
        return Stack(list(pieces), [None] * len(pieces))

    def piece(self, index: int, emit: Emit) -> Value:
        """The piece with dimension 0."""
        value = self.pieces[index]
        if value is None:
            rows, location = self.rows[index], self.locations[index]
            assert rows is not None, "a piece has one of its forms"
            parts = [emit(_expand(row, location)).results[0] for row in rows]
            value = parts[0]
            if len(parts) > 1:
                first = _tensor(value)
                whole = TensorType((len(parts), *first.shape[1:]), first.element, first.weak)
                value = emit(concatenate(parts, 0, whole, location)).results[0]
            self.pieces[index] = value
        return value

    def row(self, index: int, offset: int, location: Location, emit: Emit) -> Value:
        """Row ``offset`` of a piece. From a piece, made anew each time.

        What reads it in the forward pass and what does in the backward pass would otherwise share
        a value that is kept between the two.
        """
        rows = self.rows[index]
        if rows is not None:
            return rows[offset]
        piece = self.pieces[index]
        assert piece is not None, "a piece has one of its forms"
        if shape_of(piece)[0] > 1:
            piece = emit(slice_of(piece, 0, offset, 1, location)).results[0]
        return emit(_squeeze(piece, location)).results[0]


def _squeeze(piece: Value, location: Location) -> Operation:
    """The operation that takes dimension 0, of size 1, away."""
    tensor = _tensor(piece)
    row = TensorType(tensor.shape[1:], tensor.element, tensor.weak)
    return Operation("jax.squeeze", [piece], [row], {"dimensions": (0,)}, (), location)


def _expand(row: Value, location: Location) -> Operation:
    tensor = _tensor(row)
    shape = (1, *tensor.shape)
    type_ = TensorType(shape, tensor.element, tensor.weak)
    return Operation("jax.reshape", [row], [type_], {"new_sizes": shape}, (), location)


def concatenate(
    pieces: Sequence[Value], dimension: int, whole: TensorType, location: Location
) -> Operation:
    """The operation that makes the whole value of its pieces."""
    return Operation("jax.concatenate", pieces, [whole], {"dimension": dimension}, (), location)


def part_of(value: Value, dimension: int, start: int, size: int, location: Location) -> Operation:
    """The operation that gives a part of a whole value.

    A value that repeats along the dimension (zeros, a broadcast bias) is made smaller from the
    start.
    """
    op = value.defining_op
    if op is not None and op.name == "jax.broadcast_in_dim":
        along = op.attributes.get("broadcast_dimensions")
        shape = op.attributes.get("shape")
        # What scalars fill is the same everywhere; operands with a sharding of their own stay.
        if isinstance(along, tuple) and isinstance(shape, tuple) and dimension not in along:
            tensor = _tensor(value)
            new = (*shape[:dimension], size, *shape[dimension + 1 :])
            type_ = TensorType(
                tuple(n for n in new if isinstance(n, int)), tensor.element, tensor.weak
            )
            attributes = {**op.attributes, "shape": new}
            return Operation(op.name, op.operands, [type_], attributes, (), location)
    return slice_of(value, dimension, start, size, location)


def repeated_part(
    value: Value, dimension: int, size: int, location: Location, emit: Emit
) -> Value | None:
    """``size`` rows of a whole value that is the same in each, computed from such rows.

    None where it is not known to be: it must be elementwise operations on broadcasts, as the square
    of ``jnp.imag`` of a real stack is, zeros that optax's global norm adds.
    """
    if not _repeats(value, dimension):
        return None
    op = value.defining_op
    if op is None or op.name == "jax.broadcast_in_dim":
        return emit(part_of(value, dimension, 0, size, location)).results[0]
    operands: list[Value] = []
    for operand in op.operands:
        part = (
            repeated_part(operand, dimension, size, location, emit) if shape_of(operand) else None
        )
        operands.append(operand if part is None else part)
    tensor = _tensor(value)
    shape = (*tensor.shape[:dimension], size, *tensor.shape[dimension + 1 :])
    type_ = TensorType(shape, tensor.element, tensor.weak)
    return emit(Operation(op.name, operands, [type_], op.attributes, (), op.location)).results[0]


def _repeats(value: Value, dimension: int) -> bool:
    """Whether ``value`` is known to be the same in every row of ``dimension``."""
    op = value.defining_op
    if op is None or len(op.results) != 1 or not isinstance(value.type, TensorType):
        return False
    if op.name == "jax.broadcast_in_dim":
        along = op.attributes.get("broadcast_dimensions")
        return isinstance(along, tuple) and dimension not in along
    if kind_of(op) not in (ELEMENTWISE, EXPENSIVE) or op.regions:
        return False
    shape = shape_of(value)
    shaped = [operand for operand in op.operands if shape_of(operand)]
    return bool(shaped) and all(
        shape_of(operand) == shape and _repeats(operand, dimension) for operand in shaped
    )


def _tensor(value: Value) -> TensorType:
    tensor = unplaced(value.type)
    assert isinstance(tensor, TensorType), f"only tensors are stacked, found {value.type}"
    assert tensor.shape == shape_of(value)
    return tensor
