"""Operations as they run on one piece: types, parameters and reads along the axis cut to it.

    mapping = {argument: piece of it, ...}
    for op in function.body.ops[:-1]:
        block.extend(on_piece(op, report, pieces, index, mapping))

What is full is the same for all pieces: a caller that makes several may clone those operations once
and leave the values in each ``mapping``. A partial value that ``report.on_piece(op).combines``
names must have been replaced in ``mapping`` by the combined one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from baechi_jax.ir.core import Block, Operation, Region, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.location import Location
from baechi_jax.ir.types import TensorType, unplaced
from baechi_jax.passes.axis.report import AxisReport
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.axis.states import Neither


def on_piece(
    op: Operation, report: AxisReport, pieces: int, index: int, mapping: dict[Value, Value]
) -> list[Operation]:
    """``op`` for piece ``index`` of ``pieces``: first what cuts its full operands, then itself.

    Detached. ``mapping`` gives the piece's value for each operand, and takes those of the results
    and of what is inside. Raises PassError for an operation that mixes the axis, or whose operands
    are mixed, and where the axis cannot be cut so.
    """
    report.check_pieces(pieces)
    if not 0 <= index < pieces:
        raise PassError(f"there is no piece {index} of {pieces}; count from 0")
    rows = report.size // pieces
    return on_rows(op, report, index * rows, rows, mapping)


def on_rows(
    op: Operation,
    report: AxisReport,
    start: int,
    rows: int,
    mapping: dict[Value, Value],
    cut: Cut | None = None,
) -> list[Operation]:
    """As ``on_piece``, for the elements ``start`` to ``start + rows`` of the axis.

    ``cut(value, dimension, start, rows)`` gives the part of a full value that an operation outside
    of loops and branches reads; by default a slice is among what is returned.
    """
    return _Clone(report, start, rows, mapping, cut).clone(op)


#: Gives a part of a full value: value, dimension, first index, size.
Cut: TypeAlias = Callable[[Value, int, int, int], Value]


@dataclass(slots=True)
class _Clone:
    report: AxisReport
    start: int
    rows: int
    mapping: dict[Value, Value]
    cut: Cut | None

    def clone(self, op: Operation) -> list[Operation]:
        report, mapping = self.report, self.mapping
        made: list[Operation] = []
        sources, results = list(enumerate(op.operands)), list(op.results)
        if op.name == "jax.optimization_barrier":
            # Each operand passes alone: those that are mixed stay behind.
            sources = [each for each in sources if not isinstance(report.state(each[1]), Neither)]
            results = [each for each in results if not isinstance(report.state(each), Neither)]
        operands = self._operands(op, sources, made)
        for result in results:
            _refuse_mixed(op, report, result)
        copy = Operation(
            op.name,
            operands,
            [report.type_of_rows(result, self.rows) for result in results],
            {**op.attributes, **report.shrink_to(op, self.rows)},
            (),
            op.location,
        )
        for old, new in zip(results, copy.results):
            new.name = old.name
            mapping[old] = new
        if op.regions:
            # What is read in part in there is cut in there: regions are closed.
            inside = _Clone(report, self.start, self.rows, mapping, None)
            for region in op.regions:
                copy.add_region(Region([inside.block(block) for block in region.blocks]))
        made.append(copy)
        return made

    def block(self, block: Block) -> Block:
        copy = Block(self.report.type_of_rows(argument, self.rows) for argument in block.arguments)
        self.mapping.update(zip(block.arguments, copy.arguments))
        for op in block.ops:
            copy.extend(self.clone(op))
        return copy

    def _operands(
        self, op: Operation, sources: Sequence[tuple[int, Value]], made: list[Operation]
    ) -> Sequence[Value]:
        slices = dict(self.report.on_piece(op).slices)
        operands: list[Value] = []
        for position, value in sources:
            _refuse_mixed(op, self.report, value)
            piece = self.mapping[value]
            dimension = slices.get(position)
            if dimension is not None and self.rows < self.report.size:
                # A dimension may be a multiple of the axis.
                times = shape_of(piece)[dimension] // self.report.size
                start, size = self.start * times, self.rows * times
                if self.cut is None:
                    part = slice_of(piece, dimension, start, size, op.location)
                    made.append(part)
                    piece = part.results[0]
                else:
                    piece = self.cut(piece, dimension, start, size)
            operands.append(piece)
        return operands


def _refuse_mixed(op: Operation, report: AxisReport, value: Value) -> None:
    state = report.state(value)
    if isinstance(state, Neither):
        raise PassError(
            f"{op.location}: '{op.name}' cannot run on a piece of the axis: {state.message}"
        )


def slice_of(value: Value, dimension: int, start: int, size: int, location: Location) -> Operation:
    """The operation that takes ``size`` elements of ``value`` from ``start`` along a dimension."""
    shape = shape_of(value)
    first = [0] * len(shape)
    limit = list(shape)
    first[dimension] = start
    limit[dimension] = start + size
    tensor = unplaced(value.type)
    assert isinstance(tensor, TensorType), "only tensors are read in parts"
    part = tuple(high - low for low, high in zip(first, limit))
    return Operation(
        "jax.slice",
        [value],
        [TensorType(part, tensor.element, tensor.weak)],
        {"start_indices": tuple(first), "limit_indices": tuple(limit)},
        (),
        location,
    )
