"""Operations as they run on one piece: types, parameters and reads along the axis cut to it.

    mapping = {argument: piece of it, ...}
    for op in function.body.ops[:-1]:
        block.extend(on_piece(op, report, pieces, index, mapping))

What is full is the same for all pieces: a caller that makes several may clone those operations once
and leave the values in each ``mapping``. A partial value that ``report.on_piece(op).combines``
names must have been replaced in ``mapping`` by the combined one.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Block, Operation, Region, Value
from baechi_jax.ir.errors import PassError
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
    made: list[Operation] = []
    sources, results = list(enumerate(op.operands)), list(op.results)
    if op.name == "jax.optimization_barrier":
        # Each operand passes alone: those that are mixed stay behind.
        sources = [each for each in sources if not isinstance(report.state(each[1]), Neither)]
        results = [each for each in results if not isinstance(report.state(each), Neither)]
    operands = _operands(op, sources, report, pieces, index, mapping, made)
    for result in results:
        _refuse_mixed(op, report, result)
    copy = Operation(
        op.name,
        operands,
        [report.piece_type(result, pieces) for result in results],
        {**op.attributes, **report.shrink(op, pieces)},
        (),
        op.location,
    )
    for old, new in zip(results, copy.results):
        new.name = old.name
        mapping[old] = new
    for region in op.regions:
        blocks = [_block(block, report, pieces, index, mapping) for block in region.blocks]
        copy.add_region(Region(blocks))
    made.append(copy)
    return made


def _block(
    block: Block, report: AxisReport, pieces: int, index: int, mapping: dict[Value, Value]
) -> Block:
    copy = Block(report.piece_type(argument, pieces) for argument in block.arguments)
    mapping.update(zip(block.arguments, copy.arguments))
    for op in block.ops:
        copy.extend(on_piece(op, report, pieces, index, mapping))
    return copy


def _operands(
    op: Operation,
    sources: Sequence[tuple[int, Value]],
    report: AxisReport,
    pieces: int,
    index: int,
    mapping: dict[Value, Value],
    made: list[Operation],
) -> Sequence[Value]:
    slices = dict(report.on_piece(op).slices)
    operands: list[Value] = []
    for position, value in sources:
        _refuse_mixed(op, report, value)
        piece = mapping[value]
        if position in slices and pieces > 1:
            cut = _cut(piece, slices[position], pieces, index, op)
            made.append(cut)
            piece = cut.results[0]
        operands.append(piece)
    return operands


def _refuse_mixed(op: Operation, report: AxisReport, value: Value) -> None:
    state = report.state(value)
    if isinstance(state, Neither):
        raise PassError(
            f"{op.location}: '{op.name}' cannot run on a piece of the axis: {state.message}"
        )


def _cut(value: Value, dimension: int, pieces: int, index: int, op: Operation) -> Operation:
    """The slice of a full value that is the part of one piece."""
    shape = shape_of(value)
    length = shape[dimension] // pieces
    start = [0] * len(shape)
    limit = list(shape)
    start[dimension] = index * length
    limit[dimension] = (index + 1) * length
    tensor = unplaced(value.type)
    assert isinstance(tensor, TensorType), "only tensors are read in parts"
    part = tuple(high - low for low, high in zip(start, limit))
    return Operation(
        "jax.slice",
        [value],
        [TensorType(part, tensor.element, tensor.weak)],
        {"start_indices": tuple(start), "limit_indices": tuple(limit)},
        (),
        op.location,
    )
