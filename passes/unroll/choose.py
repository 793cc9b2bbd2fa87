"""Which scans become layers, and which arguments are stacks of layers.

A scan is a candidate when something that it scans over comes from an argument of ``@main`` without
leaving its rows: through casts, barriers, elementwise operations.

The rule (``when = "auto"``): a candidate is taken if

- it is not long: at most ``longest`` iterations;
- it goes over parameters. They are the state of a training step (``baechi.state``); where none of
  what it scans over is state, its rows must be larger than what each iteration shares with the
  others. So the layers of a model at inference are found, and a recurrent cell, which reads one set
  of weights at every time step, is not;
- it is not cheap: its stacked arguments and results make at least ``share`` of all bytes of
  arguments.

A scan of at most ``around`` iterations with such a scan inside, over what its iterations share
(microbatches whose gradients are summed up), is unrolled first, its own stacks left whole.

From there the analysis of the axis says what else is split: scans that read stacked residuals, and
arguments that stand beside a split value (Adam's moments) or are the state behind one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Block, BlockArgument, Operation, Value
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.pieces import PIECE
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.axis.analysis import analyze
from baechi_jax.passes.axis.report import AxisReport
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.axis.states import Split

SCAN = "jax.scan"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which candidates are taken; see the module docstring.

    ``always`` takes every candidate. ``arguments`` are stacks whose scans are taken anyway,
    ``keep`` arguments that stay whole.
    """

    always: bool
    longest: int
    share: float
    around: int
    arguments: frozenset[int]
    keep: frozenset[int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Scans of one length to be unrolled, in order, and what the analysis says of their axis.

    ``arguments`` are those that become pieces; ``seeds`` maps each scan to the arguments that it
    scans over.
    """

    scans: tuple[Operation, ...]
    arguments: tuple[int, ...]
    seeds: Mapping[Operation, tuple[int, ...]]
    report: AxisReport

    @property
    def length(self) -> int:
        """Rows of each stack: layers."""
        return self.report.size


def choose(function: Operation, rule: Rule, done: set[int]) -> Chosen | None:
    """The next scans to unroll, those with the largest stacks first; None when there are none.

    ``done`` are lengths that were looked at before; those looked at now are added.
    """
    while taken := _candidates(function, rule, done):
        weight: dict[int, int] = {}
        for scan, arguments in taken.items():
            length = ScanForm.of(scan).length
            weight[length] = weight.get(length, 0) + sum(
                nbytes(function.body.arguments[index].type) for index in arguments
            )
        length = max(weight, key=lambda each: (weight[each], -each))
        done.add(length)
        seeds = {scan: found for scan, found in taken.items() if ScanForm.of(scan).length == length}
        chosen = _confirmed(function, seeds, length, rule)
        if chosen is not None:
            return chosen
    return None


def choose_around(function: Operation, rule: Rule) -> Chosen | None:
    """The next scan that holds candidates, to be unrolled as it is; None when there is none."""
    roots = _Roots(function)
    allowed = _may_part(function, rule)
    for op in function.body.ops:
        if op.name != SCAN:
            continue
        form = ScanForm.of(op)
        if 2 <= form.length <= rule.around and _holds_layers(op, form, roots, allowed, rule):
            stacked = op.results[form.carries : form.carries + form.ys]
            axes: dict[int | Value, int] = dict.fromkeys(stacked, 0)
            report = AxisReport(function, form.length, {}, {})
            if axes:
                report = analyze(function, axes, combine=True, gather=True, unrolled={op})
            return Chosen((op,), (), {op: ()}, report)
    return None


def _holds_layers(
    op: Operation, form: ScanForm, roots: _Roots, allowed: frozenset[int], rule: Rule
) -> bool:
    """Whether a scan in the body of ``op`` goes over arguments that all iterations share."""
    entries = argument_attributes(roots.function)
    total = sum(nbytes(argument.type) for argument in roots.function.body.arguments)
    inside = _Roots(op)
    for inner in op.body.ops:
        if inner.name != SCAN:
            continue
        rows = ScanForm.of(inner)
        found: set[int] = set()
        for index in rows.rows:
            for shared in inside.of(inner.operands[index], rows.length):
                if shared.index < form.consts:
                    outer = roots.of(op.operands[shared.index], rows.length)
                    found.update(value.index for value in outer)
        found &= allowed
        if found and _takes(inner, rows, found, entries, total, rule):
            return True
    return False


def _takes(
    op: Operation,
    form: ScanForm,
    arguments: Collection[int],
    entries: Sequence[Mapping[str, Attribute]],
    total: int,
    rule: Rule,
) -> bool:
    """Whether the rule takes a scan over these arguments."""
    return form.length >= 2 and (
        rule.always
        or not rule.arguments.isdisjoint(arguments)
        or _is_worth_it(op, form, sorted(arguments), entries, total, rule)
    )


def _candidates(
    function: Operation, rule: Rule, done: Collection[int]
) -> dict[Operation, tuple[int, ...]]:
    """Scans that the rule takes -> the arguments that they scan over."""
    entries = argument_attributes(function)
    total = sum(nbytes(argument.type) for argument in function.body.arguments)
    roots = _Roots(function)
    allowed = _may_part(function, rule)
    found: dict[Operation, tuple[int, ...]] = {}
    for op in function.body.ops:
        if op.name != SCAN:
            continue
        form = ScanForm.of(op)
        if form.length in done:
            continue
        arguments: dict[int, None] = {}
        for index in form.rows:
            for argument in roots.of(op.operands[index], form.length):
                if argument.index in allowed:
                    arguments[argument.index] = None
        if arguments and _takes(op, form, arguments, entries, total, rule):
            found[op] = tuple(sorted(arguments))
    return found


def _is_worth_it(
    op: Operation,
    form: ScanForm,
    arguments: Sequence[int],
    entries: Sequence[Mapping[str, Attribute]],
    total: int,
    rule: Rule,
) -> bool:
    if form.length > rule.longest:
        return False
    rows = sum(nbytes(op.operands[index].type) for index in form.rows)
    if not any("baechi.state" in entries[index] for index in arguments):
        shared = sum(nbytes(value.type) for value in op.operands[: form.consts])
        if rows // form.length <= shared:
            return False
    results = op.results[form.carries : form.carries + form.ys]
    return rows + sum(nbytes(value.type) for value in results) >= rule.share * total


class _Roots:
    """The arguments that a stacked value comes from, row by row."""

    def __init__(self, function: Operation) -> None:
        #: The function, or the loop, whose arguments they are.
        self.function = function

    def of(self, value: Value, length: int) -> list[BlockArgument]:
        """Arguments of ``length`` rows that ``value``, of as many, is made from."""
        found: list[BlockArgument] = []
        seen: set[Value] = set()
        stack = [value]
        while stack:
            each = stack.pop()
            if each in seen or shape_of(each)[:1] != (length,):
                continue
            seen.add(each)
            op = each.defining_op
            if isinstance(each, BlockArgument):
                found.append(each)
            elif op is not None and op.name == "jax.optimization_barrier":
                stack.append(op.operands[each.index])
            elif op is not None and not op.regions:
                stack += op.operands
        return found


def _confirmed(
    function: Operation, seeds: Mapping[Operation, tuple[int, ...]], length: int, rule: Rule
) -> Chosen | None:
    """The scans and arguments that go with ``seeds``.

    Seeds were found by shape. What the analysis does not confirm stays a loop.
    """
    refused: set[Operation] = set()
    while seeds := {scan: found for scan, found in seeds.items() if scan not in refused}:
        arguments, scans, report = _grown(function, seeds, length, rule, refused)
        refused_now = {scan for scan in scans if not _scans_split(scan, report, length)}
        if not refused_now:
            ordered = tuple(op for op in function.body.ops if op in scans)
            return Chosen(ordered, tuple(sorted(arguments)), seeds, report)
        refused |= refused_now
    return None


def _grown(
    function: Operation,
    seeds: Mapping[Operation, tuple[int, ...]],
    length: int,
    rule: Rule,
    refused: Collection[Operation],
) -> tuple[set[int], set[Operation], AxisReport]:
    """Arguments and scans, with the analysis that they were found by."""
    body = function.body
    arguments = {index for found in seeds.values() for index in found}
    scans = set(seeds)
    allowed = _may_part(function, rule)
    while True:
        axes: dict[int | Value, int] = dict.fromkeys(sorted(arguments), 0)
        report = analyze(function, axes, combine=True, gather=True, unrolled=scans)
        more = {*_beside(body, report, length), *_behind(function, report, length)}
        more |= _scanned_beside(scans)
        more &= allowed
        reading = {
            op
            for op in body.ops
            if op.name == SCAN
            and op not in scans
            and op not in refused
            and _scans_split(op, report, length)
        }
        if more <= arguments and not reading:
            return arguments, scans, report
        arguments |= more
        scans |= reading


def _may_part(function: Operation, rule: Rule) -> frozenset[int]:
    """Arguments that may become pieces: not closed-over arrays, not pieces already, not kept."""
    return frozenset(
        index
        for index, entry in enumerate(argument_attributes(function))
        if index not in rule.keep and "baechi.constant" not in entry and PIECE not in entry
    )


def _scanned_beside(scans: Collection[Operation]) -> set[int]:
    """Arguments that the scans go over as they are."""
    return {
        value.index
        for scan in scans
        for value in (scan.operands[index] for index in ScanForm.of(scan).rows)
        if isinstance(value, BlockArgument)
    }


def _beside(body: Block, report: AxisReport, length: int) -> set[int]:
    """Whole arguments of which pieces of operations read their rows."""
    found: set[int] = set()
    for op, needs in report.ops.items():
        if op.parent is not body:
            continue
        for operand, dimension in needs.slices:
            value = op.operands[operand]
            if (
                isinstance(value, BlockArgument)
                and dimension == 0
                and shape_of(value)[:1] == (length,)
            ):
                found.add(value.index)
    return found


def _behind(
    function: Operation,
    report: AxisReport,
    length: int,
) -> set[int]:
    """Arguments whose next value is split by rows."""
    entries = argument_attributes(function)
    results = function.body.terminator.operands
    found: set[int] = set()
    for index, entry in enumerate(entries):
        state = entry.get("baechi.state")
        if isinstance(state, int) and report.state(results[state]) == Split(0):
            same = shape_of(function.body.arguments[index]) == shape_of(results[state])
            if same and shape_of(results[state])[:1] == (length,):
                found.add(index)
    return found


def _scans_split(op: Operation, report: AxisReport, length: int) -> bool:
    form = ScanForm.of(op)
    return form.length == length and any(
        report.state(op.operands[index]) == Split(0) for index in form.rows
    )
