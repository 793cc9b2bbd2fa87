"""Building and reading ``func.func``: arguments, results and their attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from baechi_jax.ir.attributes import Attribute, DictAttr, as_tuple
from baechi_jax.ir.core import Block, Operation, Region
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.types import FunctionType, Type


def function(
    name: str, argument_types: Iterable[Type] = (), location: Location = UNKNOWN
) -> Operation:
    """A ``func.func`` with an empty body.

    Append a ``func.return``, then call ``refresh_function_type``.
    """
    block = Block(argument_types)
    return Operation("func.func", (), (), {"sym_name": name}, [Region([block])], location)


def refresh_function_type(func: Operation) -> None:
    """Recompute ``function_type`` from the body's arguments and its return."""
    inputs = tuple(argument.type for argument in func.body.arguments)
    results = tuple(value.type for value in func.body.terminator.operands)
    func.attributes["function_type"] = FunctionType(inputs, results)


def argument_attributes(func: Operation) -> list[dict[str, Attribute]]:
    """A mutable copy of each argument's attributes; write it back with the setter below."""
    return _read(func, "arg_attrs", len(func.body.arguments))


def result_attributes(func: Operation) -> list[dict[str, Attribute]]:
    """A mutable copy of each result's attributes; write it back with the setter below."""
    return _read(func, "res_attrs", len(func.body.terminator.operands))


def set_argument_attributes(func: Operation, entries: Sequence[Mapping[str, Attribute]]) -> None:
    """Replace the attributes of all arguments."""
    func.attributes["arg_attrs"] = tuple(DictAttr.of(entry) for entry in entries)


def set_result_attributes(func: Operation, entries: Sequence[Mapping[str, Attribute]]) -> None:
    """Replace the attributes of all results."""
    func.attributes["res_attrs"] = tuple(DictAttr.of(entry) for entry in entries)


def _read(func: Operation, key: str, count: int) -> list[dict[str, Attribute]]:
    entries = as_tuple(func.attributes.get(key, ()))
    if entries and len(entries) != count:
        raise IRError(
            f"'{key}' of @{func.attributes.get('sym_name')} has {len(entries)} entries for {count}"
        )
    if not entries:
        return [{} for _ in range(count)]
    result: list[dict[str, Attribute]] = []
    for entry in entries:
        if not isinstance(entry, DictAttr):
            raise IRError(f"'{key}' must hold dictionaries, found {entry!r}")
        result.append(dict(entry.items_))
    return result
