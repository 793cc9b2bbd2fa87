"""What the analysis found: states of values, and what running an operation on a piece takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.types import InFlightType, OnType, TensorType, Type, unplaced
from baechi_jax.passes.axis.states import FULL, Neither, Split, State


@dataclass(frozen=True, slots=True)
class OnPiece:
    """What an operation needs to run on one piece, beside its operands' own pieces.

    - ``slices``: ``(operand, dimension)``. The operand is full, and the piece reads its part of it.
    - ``combines``: ``(operand, kind)``. The operand is a partial value that must be combined over
      the pieces first.
    - ``shrinks``: ``(attribute, position)``. That number in the attribute is a size along the axis,
      to be divided by the number of pieces; position None where the attribute is the number.
    - ``gathers``: ``(operand, dimension)``. The operation mixes the axis, so the pieces of the
      operand are concatenated first and the operation runs once, on the whole.
    """

    slices: tuple[tuple[int, int], ...] = ()
    combines: tuple[tuple[int, str], ...] = ()
    shrinks: tuple[tuple[str, int | None], ...] = ()
    gathers: tuple[tuple[int, int], ...] = ()


_NOTHING = OnPiece()


@dataclass(frozen=True, eq=False, slots=True)
class AxisReport:
    """The states of the values of ``function`` for one axis of ``size`` elements.

    ``states`` leaves out what is full, and ``ops`` those operations that need nothing. The regions
    of reductions and scatters, which combine two numbers, have no states. ``gathered`` are the
    operations that run on the whole, in order, each with how it mixes the axis.
    """

    function: Operation
    size: int
    states: Mapping[Value, State]
    ops: Mapping[Operation, OnPiece]
    gathered: Mapping[Operation, Neither] = field(default_factory=dict)

    def state(self, value: Value) -> State:
        """The state of ``value``."""
        return self.states.get(value, FULL)

    @property
    def arguments(self) -> tuple[State, ...]:
        """The states of the function's arguments."""
        return tuple(self.state(value) for value in self.function.body.arguments)

    @property
    def results(self) -> tuple[State, ...]:
        """The states of the function's results."""
        return tuple(self.state(value) for value in self.function.body.terminator.operands)

    def mixed(self) -> list[Neither]:
        """Where the axis is mixed: each place once, in the order of the operations."""
        found = (state for state in self.states.values() if isinstance(state, Neither))
        return list(dict.fromkeys(found))

    def on_piece(self, op: Operation) -> OnPiece:
        """What ``op`` needs to run on a piece."""
        return self.ops.get(op, _NOTHING)

    def check_pieces(self, pieces: int) -> None:
        """Raises PassError unless the axis can be cut into that many equal pieces."""
        if pieces < 1 or self.size % pieces:
            divisors = [str(n) for n in range(1, self.size + 1) if self.size % n == 0]
            raise PassError(
                f"an axis of {self.size} elements cannot be cut into {pieces} equal pieces; it can "
                f"into {', '.join(divisors)}"
            )

    def shrink(self, op: Operation, pieces: int) -> dict[str, Attribute]:
        """The attributes of ``op`` that differ when it runs on one of ``pieces`` pieces.

        Raises PassError where the axis cannot be cut so.
        """
        self.check_pieces(pieces)
        return self.shrink_to(op, self.size // pieces)

    def shrink_to(self, op: Operation, rows: int) -> dict[str, Attribute]:
        """The attributes of ``op`` that differ when it runs on ``rows`` elements of the axis."""
        changed: dict[str, Attribute] = {}
        for name, position in self.on_piece(op).shrinks:
            value = changed.get(name, op.attributes.get(name))
            if position is None and isinstance(value, int):
                changed[name] = value * rows // self.size
            elif isinstance(value, tuple) and position is not None:
                entry = value[position]
                assert isinstance(entry, int), "rules name numbers"
                short = entry * rows // self.size
                changed[name] = (*value[:position], short, *value[position + 1 :])
        return changed

    def piece_type(self, value: Value, pieces: int) -> Type:
        """The type of ``value`` on one of ``pieces`` pieces: a split dimension is shorter."""
        self.check_pieces(pieces)
        return self.type_of_rows(value, self.size // pieces)

    def type_of_rows(self, value: Value, rows: int) -> Type:
        """The type of ``value`` on ``rows`` elements of the axis: a split dimension is shorter."""
        state = self.states.get(value, FULL)
        if not isinstance(state, Split):
            return value.type
        return _shortened(value.type, state.dimension, rows, self.size)


def _shortened(type_: Type, dimension: int, rows: int, size: int) -> Type:
    tensor = unplaced(type_)
    assert isinstance(tensor, TensorType), "only tensors are split"
    shape = list(tensor.shape)
    shape[dimension] = shape[dimension] * rows // size
    short = TensorType(tuple(shape), tensor.element, tensor.weak)
    if isinstance(type_, OnType):
        return OnType(type_.devices, short, type_.layout)
    if isinstance(type_, InFlightType):
        return InFlightType(short)
    return short
