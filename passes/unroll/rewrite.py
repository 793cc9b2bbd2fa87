"""The rewriting: a function's body anew, with stacks kept apart.

One walk over the body. A scan that was chosen becomes its iterations. An operation that the axis
goes through becomes one per piece; one that mixes the axis gets the whole of its operands, put
together right before it. Everything else stays as it is, the same object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import BlockArgument, Operation, Value
from baechi_jax.ir.function import (
    argument_attributes,
    refresh_function_type,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.location import Location
from baechi_jax.ir.pieces import PIECE, Piece
from baechi_jax.ir.types import TensorType, Type, nbytes, unplaced
from baechi_jax.passes.axis.piece import on_rows
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.axis.states import Full, Partial, Split, State
from baechi_jax.passes.dataflow import BARRIER, LITERAL
from baechi_jax.passes.unroll.choose import Chosen
from baechi_jax.passes.unroll.names import layer_name, piece_name, scan_names
from baechi_jax.passes.unroll.stacks import (
    Rows,
    Stack,
    concatenate,
    cut_evenly,
    part_of,
    repeated_part,
)

_log = logging.getLogger(__name__)

#: What makes one value of two partial ones.
_COMBINE = {
    "sum": "jax.add",
    "prod": "jax.mul",
    "max": "jax.max",
    "min": "jax.min",
    "and": "jax.and",
    "or": "jax.or",
}

#: A stack of so many bytes that is put together on one device is worth a warning.
_WARN_BYTES = 1 << 20

#: A stacked result that is no state stays in pieces from this size on; smaller ones are put
#: together, as a vector of losses is.
_SMALLEST_RESULT = 1 << 16


def rewrite(function: Operation, chosen: Chosen, rows: int, *, inline: bool = False) -> None:
    """Unroll what was chosen, ``rows`` iterations to a piece.

    Several iterations stay a shorter scan, or are inlined too. Leaves dead code behind: what a scan
    gave and nobody read.
    """
    _Rewriter(function, chosen, rows, inline).rewrite()


class _Rewriter:
    def __init__(self, function: Operation, chosen: Chosen, rows: int, inline: bool) -> None:
        self.function = function
        self.inline = inline
        self.body = function.body
        self.report = chosen.report
        self.chosen = chosen
        self.rows = cut_evenly(chosen.length, rows)
        self.entries = argument_attributes(function)
        self.result_entries = result_attributes(function)
        names = [
            str(entry.get("baechi.name") or value.name or f"arg{value.index}")
            for entry, value in zip(self.entries, self.body.arguments)
        ]
        self.names = scan_names(chosen.scans, chosen.seeds, names)
        #: The new body.
        self.ops: list[Operation] = []
        #: Old value -> its pieces.
        self.stacks: dict[Value, Stack] = {}
        #: Old value -> the whole new one, where it is another.
        self.whole: dict[Value, Value] = {}
        #: Argument that is a piece -> which one.
        self.piece_number: dict[Value, int] = {}
        self.dropped: list[Operation] = []
        self.literals: dict[tuple[Type, Attribute], Value] = {}
        self.parts: dict[tuple[Value, int, int, int], Value] = {}
        self.prefixed: dict[tuple[str, Location], Location] = {}

    def rewrite(self) -> None:
        self._cut_arguments()
        scans = set(self.chosen.scans)
        *ops, terminator = self.body.ops
        for op in ops:
            if op.name == LITERAL:
                self._literal(op)
            elif op in scans:
                self._unroll(op)
            elif self._is_whole(op):
                self._keep(op)
            elif op.name == BARRIER:
                self._barrier(op)
            else:
                self._on_pieces(op)
        self._return(terminator)
        for op in self.dropped:
            op.drop_operands()
        self.body.set_ops([*self.ops, terminator])
        refresh_function_type(self.function)

    def emit(self, op: Operation) -> Operation:
        self.ops.append(op)
        return op

    def _state(self, value: Value) -> State:
        return self.report.state(value)

    # Arguments and results --------------------------------------------------------------------

    def _cut_arguments(self) -> None:
        pieces = set(self.chosen.arguments)
        arguments: list[BlockArgument] = []
        entries: list[dict[str, Attribute]] = []
        for leaf, (argument, entry) in enumerate(zip(self.body.arguments, self.entries)):
            if leaf not in pieces:
                arguments.append(argument)
                entries.append(entry)
                continue
            first = len(arguments)
            for number, rows in enumerate(self.rows):
                type_ = self.report.type_of_rows(argument, rows.size)
                name = None if argument.name is None else f"{argument.name}_{rows.start}"
                arguments.append(BlockArgument(self.body, 0, type_, name))
                self.piece_number[arguments[-1]] = number
                entries.append(self._piece_entry(entry, rows))
            self.stacks[argument] = Stack.of_pieces(arguments[first:])
        self.body.arguments[:] = arguments
        for index, argument in enumerate(arguments):
            argument.index = index
        self.entries = entries

    def _piece_entry(self, entry: Mapping[str, Attribute], rows: Rows) -> dict[str, Attribute]:
        """The attributes of a piece; which leaf it is of is known once all scans are unrolled."""
        made = dict(entry)
        made[PIECE] = Piece(0, rows.start, rows.size, self.chosen.length).attribute()
        if isinstance(name := entry.get("baechi.name"), str):
            made["baechi.name"] = piece_name(name, rows)
        return made

    def _return(self, terminator: Operation) -> None:
        cut = self._cut_results(terminator)
        values: list[Value] = []
        entries: list[dict[str, Attribute]] = []
        first: list[int] = []  # of each old result among the new ones
        for index, (value, entry) in enumerate(zip(terminator.operands, self.result_entries)):
            first.append(len(values))
            if index in cut:
                stack = self.stacks[value]
                for number, rows in enumerate(self.rows):
                    values.append(stack.piece(number, self.emit))
                    entries.append(self._piece_entry(entry, rows))
            else:
                if isinstance(self._state(value), Split) and value not in self.whole:
                    self._tell(terminator, value, "returns it")
                values.append(self._make_whole(value, terminator.location))
                entries.append(entry)
        terminator.set_operands(values)
        set_result_attributes(self.function, entries)
        self._renumber_state(cut, first)
        set_argument_attributes(self.function, self.entries)

    def _cut_results(self, terminator: Operation) -> set[int]:
        """The results that become pieces: next values of such arguments, what looks like them
        (gradients), and whatever is large."""
        if not self.chosen.arguments:
            return set()
        length = self.chosen.length
        state: dict[int, bool] = {}  # result -> whether its argument is in pieces
        alike: set[Type] = set()
        for argument in self.stacks:
            if isinstance(argument, BlockArgument):
                alike.add(unplaced(argument.type))
        for argument, entry in zip(self.body.arguments, self.entries):
            target = entry.get("baechi.state")
            if isinstance(target, int):
                state[target] = argument in self.piece_number
        cut: set[int] = set()
        for index, value in enumerate(terminator.operands):
            if PIECE in self.result_entries[index]:
                continue
            by_rows = self._state(value) == Split(0) and shape_of(value)[0] == length
            if by_rows and state.get(
                index,
                unplaced(value.type) in alike or nbytes(value.type) >= _SMALLEST_RESULT,
            ):
                cut.add(index)
        return cut

    def _renumber_state(self, cut: set[int], first: Sequence[int]) -> None:
        """``baechi.state`` in the new numbers of results, from piece to piece."""
        for argument, entry in zip(self.body.arguments, self.entries):
            target = entry.get("baechi.state")
            if not isinstance(target, int):
                continue
            number = self.piece_number.get(argument)
            if number is None:
                entry["baechi.state"] = first[target]
            elif target in cut:
                entry["baechi.state"] = first[target] + number
            else:
                # Its next value is made whole; it is no longer of the same type.
                del entry["baechi.state"]

    # Operations -------------------------------------------------------------------------------

    def _literal(self, op: Operation) -> None:
        self.literals.setdefault((op.result.type, op.attributes["value"]), op.result)
        self.emit(op)

    def _is_whole(self, op: Operation) -> bool:
        """Whether ``op`` runs once: it does not depend on the axis, or mixes it."""
        if op in self.report.gathered:
            return True
        values = (*op.operands, *op.results)
        return all(isinstance(self._state(value), Full) for value in values)

    def _keep(self, op: Operation) -> None:
        reason = self.report.gathered.get(op)
        needs = self.report.on_piece(op)
        gathered = {operand for operand, _ in (*needs.gathers, *needs.combines)}
        for index, value in enumerate(op.operands):
            if index in gathered:
                if reason is not None and index in dict(needs.gathers):
                    self._tell(op, value, reason.reason)
                op.set_operand(index, self._make_whole(value, op.location))
            elif (new := self.whole.get(value)) is not None:
                op.set_operand(index, new)
        self.emit(op)

    def _on_pieces(self, op: Operation) -> None:
        needs = self.report.on_piece(op)
        combined = {op.operands[operand] for operand, _ in needs.combines}
        whole: dict[Value, Value] = {}
        for value in op.operands:
            if value in combined or isinstance(self._state(value), Full):
                whole[value] = self._make_whole(value, op.location)
        apart = [value for value in dict.fromkeys(op.operands) if value not in whole]
        made: list[list[Value]] = [[] for _ in op.results]

        def cut(value: Value, dimension: int, start: int, size: int) -> Value:
            return self._part(value, dimension, start, size, op.location)

        for number, rows in enumerate(self.rows):
            mapping = dict(whole)
            for value in apart:
                mapping[value] = self.stacks[value].piece(number, self.emit)
            for copy in on_rows(op, self.report, rows.start, rows.size, mapping, cut):
                self.emit(copy)
            for values, result in zip(made, op.results):
                values.append(mapping[result])
        self._set_results(op, made)
        self.dropped.append(op)

    def _set_results(self, op: Operation, made: Sequence[Sequence[Value]]) -> None:
        for result, values in zip(op.results, made):
            if isinstance(self._state(result), Full):
                self.whole[result] = values[0]
            else:
                self.stacks[result] = Stack.of_pieces(values)

    def _barrier(self, op: Operation) -> None:
        """One barrier for what is whole, one for each piece: together they would tie all layers."""
        whole = [v for v in dict.fromkeys(op.operands) if isinstance(self._state(v), Full)]
        apart = [v for v in dict.fromkeys(op.operands) if v not in set(whole)]
        kept: dict[Value, Value] = {}
        if whole:
            values = [self._make_whole(value, op.location) for value in whole]
            kept = dict(zip(whole, self._behind(op, values)))
        pieces: dict[Value, list[Value]] = {value: [] for value in apart}
        for number in range(len(self.rows)):
            values = [self.stacks[value].piece(number, self.emit) for value in apart]
            for value, result in zip(apart, self._behind(op, values)):
                pieces[value].append(result)
        for operand, result in zip(op.operands, op.results):
            if operand in kept:
                self.whole[result] = kept[operand]
            else:
                self.stacks[result] = Stack.of_pieces(pieces[operand])
        self.dropped.append(op)

    def _behind(self, op: Operation, values: Sequence[Value]) -> Sequence[Value]:
        types = [value.type for value in values]
        return self.emit(Operation(op.name, values, types, op.attributes, (), op.location)).results

    # Values -----------------------------------------------------------------------------------

    def _make_whole(self, value: Value, location: Location) -> Value:
        """The whole of ``value``: concatenated, or combined, where it is in pieces."""
        known = self.whole.get(value)
        if known is not None:
            return known
        state = self._state(value)
        if isinstance(state, Full):
            return value
        pieces = [self.stacks[value].piece(i, self.emit) for i in range(len(self.rows))]
        if isinstance(state, Split):
            tensor = unplaced(value.type)
            assert isinstance(tensor, TensorType), "only tensors are split"
            total = pieces[0]
            if len(pieces) > 1:
                op = concatenate(pieces, state.dimension, tensor, location)
                total = self.emit(op).results[0]
        else:
            assert isinstance(state, Partial), "nothing else is outside of loops"
            total = pieces[0]
            # What sums over the layers is one operation in the source.
            source = value.defining_op
            where = source.location if source is not None else location
            for piece in pieces[1:]:
                name = _COMBINE[state.kind]
                op = Operation(name, [total, piece], [value.type], None, (), where)
                total = self.emit(op).results[0]
        self.whole[value] = total
        return total

    def _part(
        self, value: Value, dimension: int, start: int, size: int, location: Location
    ) -> Value:
        """A part of a whole (new) value."""
        key = (value, dimension, start, size)
        known = self.parts.get(key)
        if known is None:
            known = repeated_part(value, dimension, size, location, self.emit)
            if known is None:
                known = self.emit(part_of(value, dimension, start, size, location)).results[0]
            self.parts[key] = known
        return known

    def _tell(self, op: Operation, value: Value, reason: str) -> None:
        """Say which operation has a stack put together."""
        size = nbytes(value.type)
        _log.log(
            logging.WARNING if size >= _WARN_BYTES else logging.INFO,
            "%s: '%s' %s: a stack of %d layers (%s, %d bytes) is put together on its device",
            op.location,
            op.name,
            reason,
            self.chosen.length,
            value.type,
            size,
        )

    # Scans ------------------------------------------------------------------------------------

    def _unroll(self, op: Operation) -> None:
        form = ScanForm.of(op)
        reason = self.report.gathered.get(op)
        if reason is not None:
            for operand, _ in self.report.on_piece(op).gathers:
                self._tell(op, op.operands[operand], reason.reason)
        outside = {*range(form.consts + form.carries), *range(form.rows.stop, len(op.operands))}
        values = {
            index: self._make_whole(op.operands[index], op.location) for index in sorted(outside)
        }
        consts = [values[index] for index in range(form.consts)]
        carries = [values[index] for index in range(form.consts, form.consts + form.carries)]
        tokens = [values[index] for index in range(form.rows.stop, len(op.operands))]
        stacks = [
            Stack([None] * len(self.rows), [None] * len(self.rows), []) for _ in range(form.ys)
        ]
        for number, piece in _in_order(self.rows, form.reverse):
            loop = piece.size > 1 and not self.inline
            singles = [Rows(piece.start + offset, 1) for offset in range(piece.size)]
            made: list[list[Value]] = [[] for _ in range(form.ys)]
            for offset, rows in [(0, piece)] if loop else _in_order(singles, form.reverse):
                layer = _Layer(op, form, rows, self._located(op.location, op, rows))
                xs = [self._row(op, index, number, offset, layer) for index in form.rows]
                operands = [*consts, *carries, *xs, *tokens]
                run = self._loop if loop else self._iterate
                results = run(layer, operands)
                carries = results[: form.carries]
                tokens = results[form.carries + form.ys :]
                for values_, value in zip(made, results[form.carries :]):
                    values_.append(value)
            for stack, values_ in zip(stacks, made):
                if loop:
                    stack.pieces[number] = values_[0]
                else:
                    stack.rows[number] = values_[::-1] if form.reverse else values_
        locations = [self._located(op.location, op, rows) for rows in self.rows]
        for stack in stacks:
            stack.locations = locations
        self.whole.update(zip(op.results[: form.carries], carries))
        self.whole.update(zip(op.results[form.carries + form.ys :], tokens))
        self.stacks.update(zip(op.results[form.carries :], stacks))
        self.dropped.append(op)

    def _row(self, op: Operation, index: int, number: int, offset: int, layer: _Layer) -> Value:
        """What an iteration (or several in a loop) of piece ``number`` reads of a row operand."""
        value = op.operands[index]
        rows = layer.rows
        if self._state(value) == Split(0):
            stack = self.stacks[value]
            if rows.size > 1:
                return stack.piece(number, self.emit)
            return stack.row(number, offset, layer.location, self.emit)
        whole = self._make_whole(value, op.location)
        part = self._part(whole, 0, rows.start, rows.size, layer.location)
        if rows.size > 1:
            return part
        return Stack.of_pieces([part]).row(0, 0, layer.location, self.emit)

    def _iterate(self, layer: _Layer, operands: Sequence[Value]) -> list[Value]:
        """The body of the scan, once, for one row."""
        body = layer.scan.body
        mapping: dict[Value, Value] = dict(zip(body.arguments, operands))
        for op in body.ops[:-1]:
            if op.name == LITERAL:
                key = (op.result.type, op.attributes["value"])
                known = self.literals.get(key)
                if known is None:
                    known = self.literals[key] = self.emit(op.clone()).result
                mapping[op.result] = known
                continue
            copy = op.clone(mapping)
            copy.location = self._located(op.location, layer.scan, layer.rows)
            self.emit(copy)
        return [mapping[value] for value in body.terminator.operands]

    def _loop(self, layer: _Layer, operands: Sequence[Value]) -> list[Value]:
        """A shorter scan of several rows."""
        scan, form = layer.scan, layer.form
        types: list[Type] = []
        for index, result in enumerate(scan.results):
            is_row = form.carries <= index < form.carries + form.ys
            types.append(_rows_of(result.type, layer.rows.size) if is_row else result.type)
        attributes = {**scan.attributes, "length": layer.rows.size}
        copy = Operation(scan.name, operands, types, attributes, (), layer.location)
        for region in scan.regions:
            copy.add_region(region.clone({}))
        return list(self.emit(copy).results)

    def _located(self, location: Location, scan: Operation, rows: Rows) -> Location:
        """``location`` in the name stack of an iteration: ``jvp(model)/layers[3]/dot``."""
        prefix = layer_name(self.names[scan], rows)
        outer = scan.location.name
        prefix = f"{outer}/{prefix}" if outer else prefix
        if location is scan.location:
            return replace(location, name=prefix)
        key = (prefix, location)
        known = self.prefixed.get(key)
        if known is None:
            name = f"{prefix}/{location.name}" if location.name else prefix
            known = self.prefixed[key] = replace(location, name=name)
        return known


@dataclass(frozen=True, slots=True)
class _Layer:
    """One iteration of a scan, or several in a shorter scan."""

    scan: Operation
    form: ScanForm
    rows: Rows
    location: Location


def _in_order(rows: Sequence[Rows], reverse: bool) -> list[tuple[int, Rows]]:
    """Each with its number, the last first where the scan goes backwards."""
    numbered = list(enumerate(rows))
    return numbered[::-1] if reverse else numbered


def _rows_of(type_: Type, rows: int) -> Type:
    tensor = unplaced(type_)
    assert isinstance(tensor, TensorType), "rows are tensors"
    return TensorType((rows, *tensor.shape[1:]), tensor.element, tensor.weak)
