"""Results in pieces, each computed for its own rows, so that none need be whole anywhere.

An initialiser makes stacked parameters whose layers are to lie on several devices. From each piece
of a result that is wanted, this goes back through what computes it: an operation that works row by
row (``passes/axis`` says so) is done for the piece's rows, until the rows begin: at a key for each
layer, at one draw of random bits for all (``passes/random_rows.py``), at an array that repeats, at
the parts of a concatenation or of a stack, at an argument.
There, and at an operation that mixes the rows, the piece is a slice of the whole, which is then
computed on one device. Nobody reads the whole of the others any more.

A scan over the rows that carries something (flax initialises the layers of ``nn.scan`` while it
runs them) becomes its iterations. What only served the carry is then read by nobody.

Assumes the form *Traced* of ``docs/ir.md``. Calls are inlined first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.function import (
    argument_attributes,
    refresh_function_type,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.pieces import PIECE, Piece
from baechi_jax.ir.types import TensorType, nbytes, unplaced
from baechi_jax.passes.axis.analysis import analyze
from baechi_jax.passes.axis.piece import on_rows
from baechi_jax.passes.axis.report import AxisReport
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.axis.states import Split
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.passes.random_rows import is_counted, rows_of_bits
from baechi_jax.passes.tasks import LITERAL
from baechi_jax.passes.unroll.stacks import concatenate, part_of

#: Scans of more iterations stay as they are.
_LONGEST = 256

_log = logging.getLogger(__name__)

#: Rows of a value: ``(start, stop)``.
Rows = tuple[int, int]


def split_results(
    module: Module, pieces: Mapping[int, Sequence[Rows]], partitionable: bool = False
) -> None:
    """Make result ``i`` of ``@main`` the rows ``pieces[i]``: its whole, in order.

    ``partitionable``: JAX draws each random number from its own counter
    (``jax_threefry_partitionable``), so that a draw for all rows can be done for some.


    Each gets ``baechi.piece`` (``ir/pieces.py``). A result whose rows cannot be computed apart is
    computed whole and cut; that is logged with its source line.
    """
    InlineCalls().run(module)
    function = module.main
    splitters: dict[int, _Splitter] = {}
    results = list(function.body.terminator.operands)
    by_length: dict[int, list[Value]] = {}
    for index in sorted(pieces):
        by_length.setdefault(pieces[index][-1][1], []).append(results[index])
    for length, values in by_length.items():
        splitters[length] = _Splitter(function, values, length, partitionable)
    values, entries, first = [], [], []
    for index, (value, entry) in enumerate(zip(results, result_attributes(function), strict=True)):
        first.append(len(values))
        if index not in pieces:
            values.append(value)
            entries.append(entry)
            continue
        length = pieces[index][-1][1]
        splitters[length].tell(value, str(entry.get("baechi.name", f"result {index}")))
        for start, stop in pieces[index]:
            values.append(splitters[length].result(value, start, stop - start))
            entries.append(_piece_entry(entry, Piece(index, start, stop - start, length)))
    body = function.body
    made = [op for splitter in splitters.values() for op in splitter.made]
    body.set_ops([*body.ops[:-1], *made, body.terminator])
    body.terminator.set_operands(values)
    set_result_attributes(function, entries)
    _renumber_state(function, first, pieces)
    refresh_function_type(function)
    EliminateDeadCode().run(module)


def _piece_entry(entry: Mapping[str, Attribute], piece: Piece) -> dict[str, Attribute]:
    made = {**entry, PIECE: piece.attribute()}
    if isinstance(name := entry.get("baechi.name"), str):
        made["baechi.name"] = f"{name}[{piece.start}:{piece.stop}]"
    return made


def _renumber_state(
    function: Operation, first: Sequence[int], pieces: Mapping[int, Sequence[Rows]]
) -> None:
    entries = argument_attributes(function)
    for entry in entries:
        state = entry.get("baechi.state")
        if isinstance(state, int):
            if state in pieces:
                # The argument is whole: its next value is not of its type any more.
                del entry["baechi.state"]
            else:
                entry["baechi.state"] = first[state]
    set_argument_attributes(function, entries)


class _Splitter:
    """Rows of values that are ``length`` long, and the operations that make them."""

    def __init__(
        self, function: Operation, values: Sequence[Value], length: int, partitionable: bool
    ) -> None:
        self._partitionable = partitionable
        self.made: list[Operation] = []
        self._begins, loops = _where_rows_begin(values, length)
        #: Scans that become their iterations, and the results of those that have been made.
        self._iterations: dict[Operation, dict[int, Sequence[Value]]] = {op: {} for op in loops}
        self._report: AxisReport = analyze(
            function, dict.fromkeys(self._begins, 0), combine=True, gather=True, unrolled=loops
        )
        self._known: dict[tuple[Value, int, int], Value] = {}
        self._parts: dict[tuple[Value, int, int, int], Value] = {}
        self._literals: dict[tuple[object, object], Value] = {}

    def tell(self, value: Value, name: str) -> None:
        """Log where a result is whole before it is cut."""
        if self._report.state(value) == Split(0):
            return
        op = value.defining_op
        reason = self._report.gathered.get(op) if op is not None else None
        _log.info(
            "%s (%d bytes) is made whole on one device, and cut there: %s",
            name,
            nbytes(value.type),
            f"'{reason.op.name}' at {reason.op.location} {reason.reason}"
            if reason is not None
            else "its rows are not computed apart",
        )

    def result(self, value: Value, start: int, size: int) -> Value:
        """Rows ``start`` to ``start + size`` of ``value``."""
        if self._report.state(value) == Split(0):
            return self._rows(value, start, size)
        op = value.defining_op
        return self._part(value, 0, start, size, UNKNOWN if op is None else op.location)

    def _rows(self, value: Value, start: int, size: int) -> Value:
        """As ``result``, of a value that is split, along whichever dimension."""
        key = (value, start, size)
        known = self._known.get(key)
        if known is not None:
            return known
        op = value.defining_op
        if op is not None and op in self._iterations:
            self._known[key] = self._iterated(op, value, start, size)
            return self._known[key]
        if self._is_apart(value) and op is not None:
            mapping = {
                operand: self._rows(operand, start, size) if self._is_split(operand) else operand
                for operand in op.operands
            }

            def cut(whole: Value, dimension: int, start: int, size: int) -> Value:
                return self._part(whole, dimension, start, size, op.location)

            self.made += on_rows(op, self._report, start, size, mapping, cut)
            for result in op.results:
                if self._is_split(result):
                    self._known[(result, start, size)] = mapping[result]
            return self._known[key]
        if op is not None and op.name == "jax.concatenate" and op.attributes["dimension"] == 0:
            found = self._concatenated(op, start, size)
        elif op is not None and op.name == "jax.stack" and op.attributes["axis"] == 0:
            found = self._joined(op, op.operands[start : start + size], size)
        elif op is not None and self._partitionable and is_counted(op):
            self.made += rows_of_bits(op, start, size)
            found = self.made[-1].results[0]
        else:
            location = UNKNOWN if op is None else op.location
            found = self._part(value, 0, start, size, location)
        self._known[key] = found
        return found

    def _concatenated(self, op: Operation, start: int, size: int) -> Value:
        """Of the operands of a concatenation only those that the rows are in."""
        parts: list[Value] = []
        offset = 0
        for operand in op.operands:
            count = shape_of(operand)[0]
            low, high = max(start - offset, 0), min(start + size - offset, count)
            if (low, high) == (0, count):
                parts.append(operand)
            elif low < high:
                parts.append(self._part(operand, 0, low, high - low, op.location))
            offset += count
        return parts[0] if len(parts) == 1 else self._joined(op, parts, size)

    def _joined(self, op: Operation, parts: Sequence[Value], size: int) -> Value:
        """``op`` (a concatenation, or a stack) of some of its operands."""
        tensor = unplaced(op.results[0].type)
        assert isinstance(tensor, TensorType), "only tensors are concatenated"
        type_ = TensorType((size, *tensor.shape[1:]), tensor.element, tensor.weak)
        return self._emit(Operation(op.name, parts, [type_], op.attributes, (), op.location))

    def _iterated(self, scan: Operation, value: Value, start: int, size: int) -> Value:
        """Rows of what ``scan`` stacks, from its iterations."""
        index = scan.results.index(value)  # type: ignore[arg-type]
        rows: list[Value] = []
        for row in range(start, start + size):
            single = self._iteration(scan, row)[index]
            rows.append(self._emit(_expand(single, scan.location)))
        if size == 1:
            return rows[0]
        tensor = unplaced(value.type)
        assert isinstance(tensor, TensorType), "only tensors are stacked"
        type_ = TensorType((size, *tensor.shape[1:]), tensor.element, tensor.weak)
        return self._emit(concatenate(rows, 0, type_, scan.location))

    def _iteration(self, scan: Operation, row: int) -> Sequence[Value]:
        """What the iteration of ``row`` yields, and with it those before it."""
        form = ScanForm.of(scan)
        made = self._iterations[scan]
        order = range(form.length)[::-1] if form.reverse else range(form.length)
        carries: Sequence[Value] = scan.operands[form.consts : form.consts + form.carries]
        for each in order:
            if each not in made:
                made[each] = self._iterate(scan, form, each, carries)
            if each == row:
                break
            carries = made[each][: form.carries]
        return made[row]

    def _iterate(
        self, scan: Operation, form: ScanForm, row: int, carries: Sequence[Value]
    ) -> Sequence[Value]:
        xs: list[Value] = []
        for index in form.rows:
            operand = scan.operands[index]
            split = self._is_split(operand)
            piece = (
                self._rows(operand, row, 1) if split else self._part(operand, 0, row, 1, UNKNOWN)
            )
            xs.append(self._emit(_squeeze(piece, scan.location)))
        body = scan.body
        mapping: dict[Value, Value] = dict(
            zip(body.arguments, [*scan.operands[: form.consts], *carries, *xs], strict=True)
        )
        for op in body.ops[:-1]:
            if op.name == LITERAL:
                key = (op.result.type, op.attributes["value"])
                if key not in self._literals:
                    self._literals[key] = self._emit(op.clone())
                mapping[op.result] = self._literals[key]
            else:
                self.made.append(op.clone(mapping))
        return [mapping[value] for value in body.terminator.operands]

    def _emit(self, op: Operation) -> Value:
        self.made.append(op)
        return op.results[0]

    def _is_split(self, value: Value) -> bool:
        return isinstance(self._report.state(value), Split)

    def _is_apart(self, value: Value) -> bool:
        """Whether the operation that makes ``value`` can run on some of its rows."""
        return self._is_split(value) and value not in self._begins

    def _part(
        self, value: Value, dimension: int, start: int, size: int, location: Location
    ) -> Value:
        key = (value, dimension, start, size)
        known = self._parts.get(key)
        if known is None:
            known = self._parts[key] = self._emit(part_of(value, dimension, start, size, location))
        return known


def _expand(row: Value, location: Location) -> Operation:
    """``row`` with a dimension 0 of size 1."""
    tensor = unplaced(row.type)
    assert isinstance(tensor, TensorType), "only tensors are stacked"
    type_ = TensorType((1, *tensor.shape), tensor.element, tensor.weak)
    return Operation("jax.reshape", [row], [type_], {"new_sizes": type_.shape}, (), location)


def _squeeze(piece: Value, location: Location) -> Operation:
    """``piece`` without its dimension 0, of size 1."""
    tensor = unplaced(piece.type)
    assert isinstance(tensor, TensorType), "only tensors are stacked"
    type_ = TensorType(tensor.shape[1:], tensor.element, tensor.weak)
    return Operation("jax.squeeze", [piece], [type_], {"dimensions": (0,)}, (), location)


def _where_rows_begin(values: Sequence[Value], length: int) -> tuple[list[Value], list[Operation]]:
    """Going back from ``values`` along dimension 0: what is not made of values as long.

    And the scans over the rows on the way that carry something.
    """
    begins: list[Value] = []
    loops: dict[Operation, None] = {}
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.defining_op
        if op is not None and op.name == "jax.scan":
            form = ScanForm.of(op)
            carried = form.carries and not form.tokens and form.length <= _LONGEST
            if carried and form.length == length and op.results.index(value) >= form.carries:  # type: ignore[arg-type]
                loops[op] = None
        before = [v for v in op.operands if shape_of(v)[:1] == (length,)] if op is not None else []
        if before:
            stack += before
        else:
            begins.append(value)
    return begins, list(loops)
