"""What a rule is: the states of an operation's results from those of its operands.

A rule is a function of an ``At`` (the operation, the states of its operands, the size of the axis).
It returns the states of the results, or raises ``Mixed`` with a clause that says what the operation
does to the axis (``reverses the axis``). On the way it notes in the ``At`` what running the
operation on one piece takes: full operands of which the piece reads its part, and parameters that
shrink with the axis.

Rules are found by the primitive's name. They are called only where an operand depends on the axis
and none is ``Neither``; what does not depend on it needs no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.types import TensorType, unplaced
from baechi_jax.passes.axis.states import Full, Partial, Split, State, serves_as_partial

Rule: TypeAlias = Callable[["At"], Sequence[State]]

#: Operation name -> rule.
RULES: dict[str, Rule] = {}


class Mixed(Exception):
    """An operation mixes the axis; the message is a clause about it, its name left out."""


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Decorator: make a function the rule of these primitives of dialect ``jax``."""

    def register(function: Rule) -> Rule:
        for primitive in primitives:
            RULES[f"jax.{primitive}"] = function
        return function

    return register


class At:
    """One operation, seen by its rule."""

    __slots__ = ("op", "shrinks", "size", "slices", "states")

    def __init__(self, op: Operation, states: Sequence[State], size: int) -> None:
        self.op = op
        self.states = tuple(states)
        #: Elements of the axis.
        self.size = size
        #: Operand -> dimension: full, and the piece reads its part.
        self.slices: dict[int, int] = {}
        #: ``(attribute, position)`` of numbers to be divided by the number of pieces; position
        #: None where the attribute is the number itself.
        self.shrinks: list[tuple[str, int | None]] = []

    # Reading --------------------------------------------------------------------------------

    def shape(self, operand: int) -> tuple[int, ...]:
        """The shape of an operand."""
        return shape_of(self.op.operands[operand])

    def result_shape(self, result: int = 0) -> tuple[int, ...]:
        """The shape of a result."""
        return shape_of(self.op.results[result])

    def integers(self, name: str, within: Mapping[str, Attribute] | None = None) -> tuple[int, ...]:
        """The attribute ``name``, a tuple of integers; of the operation unless ``within`` is given.

        Raises PassError, with the operation and its source line, where it is not one.
        """
        value = (self.op.attributes if within is None else within).get(name)
        if isinstance(value, tuple) and all(type(entry) is int for entry in value):
            return tuple(entry for entry in value if isinstance(entry, int))
        raise self._wrong(name, "a list of integers", value)

    def integer(self, name: str) -> int:
        """The attribute ``name``, an integer; raises PassError where it is not one."""
        value = self.op.attributes.get(name)
        if type(value) is int:
            return value
        raise self._wrong(name, "an integer", value)

    def rows(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The attribute ``name``, lists of integers in a list; raises PassError otherwise."""
        value = self.op.attributes.get(name)
        if not isinstance(value, tuple):
            raise self._wrong(name, "a list of lists of integers", value)
        return tuple(self.integers(name, {name: row}) for row in value)

    def dictionary(self, name: str) -> Mapping[str, Attribute]:
        """The attribute ``name``, a dictionary; raises PassError where it is not one."""
        value = self.op.attributes.get(name)
        if isinstance(value, Mapping):
            return value
        raise self._wrong(name, "a dictionary", value)

    def _wrong(self, name: str, expected: str, found: object) -> PassError:
        return PassError(
            f"{self.op.location}: '{self.op.name}' needs the attribute '{name}', {expected}; found "
            f"{found!r}"
        )

    def split(self) -> dict[int, int]:
        """Operand -> dimension, of the operands that are split."""
        return {i: s.dimension for i, s in enumerate(self.states) if isinstance(s, Split)}

    def kind(self) -> str:
        """The one kind of the partial operands; raises Mixed where others are split, or differ."""
        kinds = sorted({state.kind for state in self.states if isinstance(state, Partial)})
        if len(kinds) != 1 or self.split():
            found = ", ".join(str(state) for state in self.states)
            raise Mixed(f"mixes operands that are {found}")
        return kinds[0]

    # Requiring ------------------------------------------------------------------------------

    def need_full(self, operands: Sequence[int], what: str) -> None:
        """These operands must not depend on the axis; ``what`` names them in the reason."""
        for operand in operands:
            if not isinstance(self.states[operand], Full):
                raise Mixed(f"needs {what} that is full, found {self.states[operand]}")

    def need_split(self, operand: int, dimension: int, what: str) -> None:
        """This operand must be split along ``dimension``, or full: then a piece reads its part."""
        state = self.states[operand]
        if isinstance(state, Full):
            self.slices[operand] = dimension
        elif state != Split(dimension):
            raise Mixed(f"needs {what} that is split along {dimension} or full, found {state}")

    def need_partial(self, operand: int, kind: str, what: str) -> None:
        """Each piece must be able to use this operand as its part of a ``kind``."""
        state = self.states[operand]
        if not serves_as_partial(state, kind):
            raise Mixed(f"needs {what} that is a partial {kind} too, found {state}")

    def shrink(self, attribute: str, position: int | None) -> None:
        """Note that a number in an attribute is divided by the number of pieces."""
        self.shrinks.append((attribute, position))

    def not_linear(self, kind: str) -> Mixed:
        """The reason of an operation that does not keep partial values."""
        return Mixed(f"of a partial {kind} is no partial {kind}")


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a tensor, wherever it lies; empty for what is no tensor."""
    type_ = unplaced(value.type)
    return type_.shape if isinstance(type_, TensorType) else ()


def element_of(value: Value) -> str:
    """The element type of a tensor; empty for what is no tensor."""
    type_ = unplaced(value.type)
    return type_.element if isinstance(type_, TensorType) else ""


def is_float(element: str) -> bool:
    """Whether the elements are real floats."""
    return element.startswith(("f", "bf"))


def is_inexact(element: str) -> bool:
    """Whether the elements are floats or complex."""
    return is_float(element) or element.startswith("complex<")
