"""Definitions of operations and attributes: what each must satisfy on its own.

A definition is a function that raises ``invalid(op, message)``. The verifier has checked the
structure before it calls one, so a definition may rely on parents, use lists and terminators.
Operations of dialects that define none of their own pass, as do attributes that nobody defines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation
from baechi_jax.ir.diagnostics import describe
from baechi_jax.ir.errors import VerificationError

OpCheck = Callable[[Operation], None]
AttributeCheck = Callable[[Operation, Attribute], None]


@dataclass(frozen=True, slots=True)
class OpDefinition:
    """What is known of an operation.

    ``terminator``: it ends its block, and stands nowhere else. ``closed``: its regions read no
    value from outside. ``symbol_table``: the names of the operations right in it are unique.
    """

    check: OpCheck
    terminator: bool = False
    closed: bool = False
    symbol_table: bool = False


#: By name of the operation.
OP_DEFINITIONS: dict[str, OpDefinition] = {}

#: By name of the dialect: one definition for all its operations.
DIALECT_DEFINITIONS: dict[str, OpDefinition] = {}

#: By name of the attribute, on whatever operation it stands.
ATTRIBUTE_CHECKS: dict[str, AttributeCheck] = {}


def define_op(
    name: str, *, terminator: bool = False, closed: bool = False, symbol_table: bool = False
) -> Callable[[OpCheck], OpCheck]:
    """Decorator: make a function the check of operation ``name``.

    A dialect with one defined operation has no others: an unknown name in it is an error.
    """

    def register(check: OpCheck) -> OpCheck:
        OP_DEFINITIONS[name] = OpDefinition(check, terminator, closed, symbol_table)
        return check

    return register


def define_dialect(name: str) -> Callable[[OpCheck], OpCheck]:
    """Decorator: make a function the check of every operation of dialect ``name``."""

    def register(check: OpCheck) -> OpCheck:
        DIALECT_DEFINITIONS[name] = OpDefinition(check)
        return check

    return register


def define_attribute(name: str) -> Callable[[AttributeCheck], AttributeCheck]:
    """Decorator: make a function the check of attribute ``name`` (``baechi.cost``) on any op."""

    def register(check: AttributeCheck) -> AttributeCheck:
        ATTRIBUTE_CHECKS[name] = check
        return check

    return register


def definition_of(op: Operation) -> OpDefinition | None:
    """The definition of ``op``; None where anything goes.

    Raises VerificationError for an unknown name in a dialect that defines its operations.
    """
    definition = OP_DEFINITIONS.get(op.name)
    if definition is not None:
        return definition
    dialect = op.name.partition(".")[0]
    definition = DIALECT_DEFINITIONS.get(dialect)
    if definition is not None:
        return definition
    known = [name for name in OP_DEFINITIONS if name.partition(".")[0] == dialect]
    if known:
        import difflib

        close = difflib.get_close_matches(op.name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(sorted(known))}"
        raise invalid(op, f"unknown operation; {hint}")
    return None


def invalid(op: Operation, message: str) -> VerificationError:
    """The error to raise when ``op`` breaks a rule: message, source line, neighbours."""
    return VerificationError(describe(op, message))
