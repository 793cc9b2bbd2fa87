"""The interpreter: one walk over a function, a rule for each operation.

    report = analyze(module.main, {argument: dimension})
    report.state(value)        # full, split d, partial kind, neither
    report.on_piece(op)        # what it takes to run the operation on one piece

With ``combine``, a partial value that meets an operation that would mix it is combined over the
pieces there (an all-reduce, or the sum of what microbatches gave) and counts as full for it. Never
inside a loop or a branch, whose iterations the pieces do not take together.

With ``gather``, what mixes the axis in any other way runs once, on the whole: the pieces of its
operands are concatenated there, its results are full, and ``report.gathered`` says so. Nothing
outside of loops and branches is *neither* then. Loops over the axis that are to be ``unrolled``
take it apart themselves: what they scan over is split or full, their stacked results are split.

Assumes closed regions in the form *Traced* of ``docs/ir.md`` or later; calls need not be inlined.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from baechi_jax.ir.attributes import FloatAttr, IntegerAttr
from baechi_jax.ir.core import Block, BlockArgument, Operation, OpResult, Region, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.types import TensorType, TokenType, unplaced
from baechi_jax.passes.axis import (
    contractions,
    control,
    elementwise,
    indexing,
    linear_algebra,
    reductions,
    shapes,
)
from baechi_jax.passes.axis.report import AxisReport, OnPiece
from baechi_jax.passes.axis.rule import RULES, At, Mixed, shape_of
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.axis.states import FULL, Full, Neither, Partial, Split, State

#: The families of rules: to import one puts its rules into ``RULES``.
FAMILIES = (contractions, elementwise, indexing, linear_algebra, reductions, shapes)

#: Give result ``i`` from operand ``i`` alone.
_EACH_ALONE = frozenset(
    {"jax.optimization_barrier", "jax.device_put", "baechi.send", "baechi.recv"}
)


def analyze(
    function: Operation,
    axes: Mapping[int | Value, int],
    *,
    combine: bool = False,
    gather: bool = False,
    unrolled: Collection[Operation] = (),
) -> AxisReport:
    """What becomes of an axis in every value of ``function``.

    ``axes`` says where it is: argument (its index), or any value of the function's body, to the
    dimension, negative ones counted from the end. All must have the same size there. ``unrolled``
    are scans in the function's body, as long as the axis. Raises PassError, naming the argument,
    where they do not.
    """
    given, size = _given(function, axes)
    interpreter = _Interpreter(size, given, combine, gather, frozenset(unrolled))
    body = function.body
    interpreter.block(body, [given.get(argument, FULL) for argument in body.arguments])
    states = {v: state for v, state in interpreter.states.items() if not isinstance(state, Full)}
    return AxisReport(function, size, states, interpreter.ops, interpreter.gathered)


def _given(function: Operation, axes: Mapping[int | Value, int]) -> tuple[dict[Value, State], int]:
    """The states to start from, and the size of the axis."""
    if not axes:
        raise PassError("no input is given to follow an axis of; name at least one")
    arguments = function.body.arguments
    names = argument_names(function)
    given: dict[Value, State] = {}
    first = ""
    size = 0
    for key, dimension in axes.items():
        if isinstance(key, int) and not 0 <= key < len(arguments):
            raise PassError(
                f"there is no argument {key}: '{_symbol(function)}' has {len(arguments)}"
            )
        value = arguments[key] if isinstance(key, int) else key
        name = _name(function, value, names)
        shape = shape_of(value)
        if not isinstance(unplaced(value.type), TensorType) or not (
            -len(shape) <= dimension < len(shape)
        ):
            raise PassError(f"{name} has no dimension {dimension}: its type is {value.type}")
        dimension %= len(shape)
        if shape[dimension] == 0:
            raise PassError(f"dimension {dimension} of {name} is empty: it has no pieces")
        if first and shape[dimension] != size:
            raise PassError(
                f"an axis has one size, but dimension {dimension} of {name} has "
                f"{shape[dimension]} elements and {first} has {size}"
            )
        first, size = first or name, shape[dimension]
        given[value] = Split(dimension)
    return given, size


def _name(function: Operation, value: Value, names: Sequence[str]) -> str:
    """How messages name a value that was given."""
    if isinstance(value, OpResult):
        if value.owner.parent is not function.body:
            raise PassError(
                f"{value.owner.location}: a result of '{value.owner.name}' is not in the body of "
                f"'{_symbol(function)}'; an axis starts at its arguments or its operations' results"
            )
        return f"result {value.index} of '{value.owner.name}' at {value.owner.location}"
    if not isinstance(value, BlockArgument) or value.owner is not function.body:
        raise PassError(
            f"a block argument ({value.type}) is not an argument of '{_symbol(function)}'; an axis "
            "starts at the arguments of the function or at results in its body"
        )
    return f"argument '{names[value.index]}'"


def argument_names(function: Operation) -> list[str]:
    """How messages and options name the arguments of ``function``.

    By ``baechi.name``; by the name in the text, or ``arg0``, where they have none.
    """
    return [
        str(entry.get("baechi.name") or value.name or f"arg{value.index}")
        for entry, value in zip(argument_attributes(function), function.body.arguments)
    ]


def _symbol(function: Operation) -> str:
    return f"@{function.attributes.get('sym_name')}"


class _Interpreter:
    def __init__(
        self,
        size: int,
        given: Mapping[Value, State],
        combine: bool,
        gather: bool,
        unrolled: frozenset[Operation],
    ) -> None:
        self.states: dict[Value, State] = {}
        self.ops: dict[Operation, OnPiece] = {}
        self.gathered: dict[Operation, Neither] = {}
        self._size = size
        self._given = given
        self._combine = combine
        self._gather = gather
        self._unrolled = unrolled
        #: Loops and branches around the operation at hand.
        self._depth = 0

    def block(self, block: Block, states: Sequence[State]) -> list[State]:
        """Analyse a block for the states of its arguments; the states of what it yields."""
        for argument, state in zip(block.arguments, states):
            self.states[argument] = state
        for op in block.ops[:-1]:
            for result, state in zip(op.results, self._results(op)):
                self.states[result] = self._given.get(result, state)
        self.ops.pop(block.terminator, None)
        return [self.states[value] for value in block.terminator.operands]

    def _results(self, op: Operation) -> Sequence[State]:
        self.ops.pop(op, None)
        operands = [self.states[value] for value in op.operands]
        if op in self._unrolled:
            return self._of_unrolled(op, operands)
        states = self._combining(op, operands)
        if not self._gather or self._depth or control.is_call(op):
            return states
        mixed = _mixes(states, operands)
        if not mixed and not _reads_for_effect(op, operands):
            return states
        reason = mixed[0] if mixed else Neither(op, "has an effect, which every piece would have")
        assert isinstance(reason, Neither)
        return self._on_the_whole(op, operands, reason, range(len(operands)))

    def _on_the_whole(
        self, op: Operation, operands: Sequence[State], reason: Neither, which: Sequence[int]
    ) -> Sequence[State]:
        """Note that ``op`` needs these operands whole; the states of its results."""
        self._forget(op.regions)
        gathers: list[tuple[int, int]] = []
        combines: list[tuple[int, str]] = []
        for index in which:
            state = operands[index]
            if isinstance(state, Split):
                gathers.append((index, state.dimension))
            elif isinstance(state, Partial):
                combines.append((index, state.kind))
        if gathers or combines:
            self.ops[op] = OnPiece((), tuple(combines), (), tuple(gathers))
            self.gathered[op] = reason
        return [FULL] * len(op.results)

    def _of_unrolled(self, op: Operation, operands: Sequence[State]) -> Sequence[State]:
        """The results of a scan whose iterations become operations of their own."""
        scan = ScanForm.of(op)
        which = [
            index
            for index, state in enumerate(operands)
            if not (index in scan.rows and state == Split(0))
        ]
        reason = Neither(op, "needs it in every iteration")
        self._on_the_whole(op, operands, reason, which)
        results = range(scan.carries, scan.carries + scan.ys)
        return [Split(0) if index in results else FULL for index in range(len(op.results))]

    def _combining(self, op: Operation, operands: Sequence[State]) -> Sequence[State]:
        states = self._without_combining(op, operands)
        if not self._combine or self._depth or control.is_call(op):
            return states
        partial = [
            (index, state.kind)
            for index, state in enumerate(operands)
            if isinstance(state, Partial)
        ]
        if not partial or not _mixes(states, operands):
            return states
        combined = [FULL if isinstance(state, Partial) else state for state in operands]
        better = self._without_combining(op, combined)
        if len(_mixes(better, combined)) >= len(_mixes(states, operands)):
            return self._without_combining(op, operands)
        noted = self.ops.get(op, OnPiece())
        self.ops[op] = OnPiece(noted.slices, tuple(partial), noted.shrinks)
        return better

    def _without_combining(self, op: Operation, operands: Sequence[State]) -> Sequence[State]:
        self.ops.pop(op, None)
        if all(isinstance(state, Full) for state in operands):
            self._forget(op.regions)
            return _full(op, operands)
        if op.name in _EACH_ALONE:
            return operands
        at = At(op, operands, self._size)
        try:
            states = self._by_rule(at)
        except Mixed as mixed:
            return [_unless_token(op, i, Neither(op, str(mixed))) for i in range(len(op.results))]
        if at.slices or at.shrinks:
            slices = tuple(sorted(at.slices.items()))
            self.ops[op] = OnPiece(slices, (), tuple(at.shrinks))
        return states

    def _forget(self, regions: Sequence[Region]) -> None:
        """What is in these regions is full, whatever was found before for other operands."""
        for region in regions:
            for block in region.blocks:
                for argument in block.arguments:
                    self.states.pop(argument, None)
                for op in block.ops:
                    self.ops.pop(op, None)
                    for result in op.results:
                        self.states.pop(result, None)
                    self._forget(op.regions)

    def _by_rule(self, at: At) -> Sequence[State]:
        op = at.op
        if control.has_rule(op):
            inner = self.block if control.is_call(op) else self._inner_block
            return control.analyse(at, control.Regions(inner, self._note, self._set))
        for state in at.states:
            if isinstance(state, Neither):
                return [_unless_token(op, i, state) for i in range(len(op.results))]
        if any(isinstance(operand.type, TokenType) for operand in op.operands):
            raise Mixed("has an effect, which every piece would have")
        rule = RULES.get(op.name)
        if rule is None:
            raise Mixed("is not known to the axis analysis")
        return rule(at)

    def _inner_block(self, block: Block, states: Sequence[State]) -> list[State]:
        self._depth += 1
        try:
            return self.block(block, states)
        finally:
            self._depth -= 1

    def _note(self, op: Operation, operand: int, dimension: int) -> None:
        noted = self.ops.get(op, OnPiece())
        slices = tuple(sorted({**dict(noted.slices), operand: dimension}.items()))
        self.ops[op] = OnPiece(slices, noted.combines, noted.shrinks)

    def _set(self, value: Value, state: State) -> None:
        self.states[value] = state


def _reads_for_effect(op: Operation, operands: Sequence[State]) -> bool:
    """Whether ``op`` has an effect and reads what depends on the axis."""
    return any(isinstance(operand.type, TokenType) for operand in op.operands) and any(
        not isinstance(state, Full) for state in operands
    )


def _mixes(states: Sequence[State], operands: Sequence[State]) -> list[State]:
    """Those states that are mixed here, not before."""
    return [state for state in states if isinstance(state, Neither) and state not in operands]


def _unless_token(op: Operation, result: int, state: State) -> State:
    """A token orders effects; it carries nothing that could be mixed."""
    return FULL if isinstance(op.results[result].type, TokenType) else state


def _full(op: Operation, operands: Sequence[State]) -> Sequence[State]:
    if op.name == "baechi.literal":
        return [Full(_uniform(op.attributes.get("value")))]
    if op.name in shapes.KEEP_UNIFORM and operands:
        return operands[: len(op.results)]
    if op.name == "jax.mul" and Full(0) in operands:
        return [Full(0)]
    return [FULL] * len(op.results)


def _uniform(value: object) -> int | None:
    """0 or 1 where the literal is that number, of whatever type."""
    number = value.value if isinstance(value, FloatAttr | IntegerAttr) else value
    if isinstance(number, int | float) and number in (0, 1):
        return int(number)
    return None
