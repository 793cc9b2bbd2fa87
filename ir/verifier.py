"""The verifier: the structure of a module, then each operation's own definition.

Structure: parents and owners point back; use lists say exactly who reads what; a value is defined
before it is read, in the same block or one around it, and a closed region (of a function, a task)
reads nothing from outside; a region has one block, since no operation branches; a terminator ends
its block; the symbols of a function or module are unique.

It runs between every two passes, so it is one sweep with little work for each operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import baechi_jax.ir.dialects  # noqa: F401  # registers the definitions
from baechi_jax.ir.attribute_printer import print_attribute
from baechi_jax.ir.attributes import (
    ATTRIBUTE_NAMES,
    Attribute,
    DenseArray,
    DenseElements,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    ParameterizedAttr,
    SymbolRef,
    Unit,
)
from baechi_jax.ir.core import Block, BlockArgument, Operation, OpResult, Value
from baechi_jax.ir.dialect import ATTRIBUTE_CHECKS, OpDefinition, definition_of, invalid
from baechi_jax.ir.errors import VerificationError
from baechi_jax.ir.symbols import resolve
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
)

#: Classes of attributes; registered ones and subclasses are looked at only when met.
_ATTRIBUTE_CLASSES: frozenset[type] = frozenset(
    (
        *(bool, int, float, str, tuple, Unit, IntegerAttr, FloatAttr, SymbolRef, DenseArray),
        *(DenseElements, DictAttr, OpaqueAttr, TensorType, TokenType, OnType, InFlightType),
        *(OpaqueType, ScalarType, FunctionType),
    )
)

#: Stands for a definition that was not looked up yet.
_UNKNOWN = OpDefinition(lambda op: None)

#: Dialects whose symbol references must resolve; those of others may mean something else.
_OWN_DIALECTS = frozenset(("builtin", "func", "baechi", "jax"))


def verify(op: Operation) -> None:
    """Check ``op`` and all inside it.

    Raises VerificationError, which shows the operation, its source line and its neighbours. Of an
    operation taken by itself, values and symbols outside are taken on trust.
    """
    verifier = _Verifier(op)
    verifier.check_structure()
    verifier.check_definitions()


class _Verifier:
    def __init__(self, root: Operation) -> None:
        self._root = root
        self._definitions: dict[str, OpDefinition | None] = {}
        self._defined: list[tuple[Operation, OpDefinition]] = []
        self._attributes: list[tuple[Operation, str, Attribute]] = []
        self._references: list[tuple[Operation, SymbolRef]] = []
        #: Values defined inside the root, and how many operands inside it read them.
        self._values: list[Value] = []
        self._reads = 0
        #: The innermost operation around the sweep whose regions read nothing from outside.
        self._closed_by: Operation | None = None

    def check_structure(self) -> None:
        """Everything that definitions may rely on."""
        root = self._root
        definition = self._operation(root, set())
        if root.regions:
            self._regions(root, definition, set())
        if sum(len(value.uses) for value in self._values) != self._reads:
            raise self._wrong_uses()

    def check_definitions(self) -> None:
        """Symbols, attributes and operations, each by its own definition."""
        for op, reference in self._references:
            if resolve(op, reference) is None and _outermost(op).name == "builtin.module":
                raise invalid(op, f"there is no operation {print_attribute(reference)}")
        for op, name, attribute in self._attributes:
            ATTRIBUTE_CHECKS[name](op, attribute)
        for op, definition in self._defined:
            definition.check(op)

    # Structure --------------------------------------------------------------------------------

    def _operation(self, op: Operation, visible: set[Value]) -> OpDefinition | None:
        """Check ``op`` itself; ``visible`` are the values that it may read."""
        name = op.name
        definition = self._definitions.get(name, _UNKNOWN)
        if definition is _UNKNOWN:
            definition = self._definitions[name] = definition_of(op)
        if definition is not None:
            self._defined.append((op, definition))
        for index, value in enumerate(op.operands):
            if (op, index) not in value.uses:
                raise invalid(op, f"operand {index} does not have it in its list of uses")
            if value in visible:
                self._reads += 1
            else:
                self._check_outside(op, index, value)
        for index, result in enumerate(op.results):
            if result.owner is not op or result.index != index:
                raise invalid(op, f"result {index} belongs to another operation or position")
        if op.attributes:
            for key, attribute in op.attributes.items():
                kind = type(attribute)
                if kind not in _ATTRIBUTE_CLASSES:
                    _check_class(op, key, attribute)
                elif kind is SymbolRef and name.partition(".")[0] in _OWN_DIALECTS:
                    self._references.append((op, attribute))  # type: ignore[arg-type]
                if key in ATTRIBUTE_CHECKS:
                    self._attributes.append((op, key, attribute))
        return definition

    def _regions(self, op: Operation, definition: OpDefinition | None, visible: set[Value]) -> None:
        outer_closed_by = self._closed_by
        if definition is not None and definition.closed:
            visible = set()
            self._closed_by = op
        for number, region in enumerate(op.regions):
            if region.parent is not op:
                raise invalid(op, f"region {number} belongs to another operation")
            if len(region.blocks) > 1:
                raise invalid(
                    op,
                    f"region {number} has {len(region.blocks)} blocks; no operation branches, so "
                    "nothing reaches the second",
                )
            for block in region.blocks:
                if block.parent is not region:
                    raise invalid(op, f"the block of region {number} belongs to another region")
                self._block(block, op, visible)
        self._closed_by = outer_closed_by
        if definition is not None and definition.symbol_table:
            _check_symbols(op)

    def _block(self, block: Block, parent: Operation, visible: set[Value]) -> None:
        values: list[Value] = []
        for index, argument in enumerate(block.arguments):
            if argument.owner is not block or argument.index != index:
                raise invalid(
                    parent, f"block argument {index} belongs to another block or position"
                )
            values.append(argument)
        visible.update(values)
        last = len(block.ops) - 1
        for position, op in enumerate(block.ops):
            if op.parent is not block:
                raise invalid(op, "it is in a block that it does not have as its parent")
            definition = self._operation(op, visible)
            if definition is not None and definition.terminator and position != last:
                raise invalid(op, "a terminator must be the last operation of its block")
            if op.regions:
                self._regions(op, definition, visible)
            for result in op.results:
                if result in visible:
                    raise invalid(op, "it is in its block twice")
                visible.add(result)
                values.append(result)
        self._values += values
        visible.difference_update(values)

    # What went wrong ----------------------------------------------------------------------------

    def _check_outside(self, op: Operation, index: int, value: Value) -> None:
        """``op`` reads a value that the sweep has not met where ``op`` can see it."""
        definer = _definer(value)
        what = f"operand {index}, {_described(value)},"
        if definer is None or _outermost(definer) is not _outermost(op):
            raise invalid(op, f"{what} is in no block of this module")
        if self._closed_by is not None and not _is_in(definer, self._closed_by):
            around = self._closed_by
            raise invalid(
                op, f"{what} comes from outside of the '{around.name}', whose region is closed"
            )
        if not _is_in(definer, self._root):
            return
        if definer is op or _is_in(op, definer):
            raise invalid(op, f"{what} is a result of the operation itself")
        if definer.parent is not None and any(
            ancestor.parent is definer.parent for ancestor in _ancestors(op)
        ):
            raise invalid(op, f"{what} is read before it is defined")
        raise invalid(op, f"{what} is defined in a region that '{op.name}' is not in")

    def _wrong_uses(self) -> VerificationError:
        """The error for use lists that say more, or less, than the operands do."""
        seen: set[Operation] = set()
        for op in self._root.walk():
            if op in seen:
                return invalid(op, "it is in its block twice")
            seen.add(op)
        for value in self._values:
            for user, index in value.uses:
                definer = _definer(value) or self._root
                if user not in seen:
                    return invalid(
                        definer, f"{_described(value)} is read by {user!r}, which is not in here"
                    )
                if index >= len(user.operands) or user.operands[index] is not value:
                    return invalid(
                        definer,
                        f"the uses of {_described(value)} name operand {index} of {user!r}, which "
                        "reads another value",
                    )
        raise AssertionError("use lists differ from operands, but no use is wrong")


def _check_symbols(table: Operation) -> None:
    names: set[str] = set()
    for region in table.regions:
        for block in region.blocks:
            for op in block.ops:
                name = op.attributes.get("sym_name")
                if name is None:
                    continue
                if not isinstance(name, str):
                    raise invalid(op, f"'sym_name' must be a string, found {name!r}")
                if name in names:
                    raise invalid(op, f"another operation is named @{name} too")
                names.add(name)


def _check_class(op: Operation, key: str, attribute: object) -> None:
    registered = isinstance(attribute, ParameterizedAttr) and type(attribute) in ATTRIBUTE_NAMES
    if not registered and not isinstance(attribute, int | float | str):
        raise invalid(
            op,
            f"attribute '{key}' is a {type(attribute).__qualname__}, which is no attribute: "
            "use bool, int, float, str, a tuple, or a class of ir/attributes.py",
        )


def _described(value: Value) -> str:
    if isinstance(value, OpResult):
        which = f" {value.index}" if len(value.owner.results) > 1 else ""
        return f"result{which} of '{value.owner.name}' at {value.owner.location}"
    return f"block argument {value.index}"


def _definer(value: Value) -> Operation | None:
    """The operation that gives the value, or whose block has it as an argument."""
    if isinstance(value, OpResult):
        return value.owner
    assert isinstance(value, BlockArgument)
    return value.owner.parent_op


def _ancestors(op: Operation) -> Iterator[Operation]:
    current: Operation | None = op
    while current is not None:
        yield current
        current = current.parent_op


def _outermost(op: Operation) -> Operation:
    return list(_ancestors(op))[-1]


def _is_in(op: Operation, around: Operation) -> bool:
    return any(ancestor is around for ancestor in _ancestors(op))
