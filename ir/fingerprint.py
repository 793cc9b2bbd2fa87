"""Structural fingerprints: equal for operations that compute the same thing.

What counts: names of operations, which value each operand is, types, attributes, regions. What does
not: locations, names of values, ``sym_name``, every ``baechi.*`` attribute of an operation (costs,
decisions, indices into the trace), the devices in a type, and the text of opaque attributes, which
may hold addresses. Of a function's ``arg_attrs`` what the caller promised counts: donation, state,
constants.

So a loaded plan can be checked against a fresh trace, and the tasks of repeated layers are seen to
be equal. What else a compiled task depends on (its devices, ``baechi.donates``) is up to the
caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from baechi_jax.ir.attribute_printer import print_attribute
from baechi_jax.ir.attributes import Attribute, DictAttr, OpaqueAttr
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.types import FunctionType, InFlightType, OnType, Type

#: What counts among the attributes of arguments and results.
_PROMISES = ("baechi.constant", "baechi.donated", "baechi.state")


def fingerprint(op: Operation) -> str:
    """The sha256, in hex, of the structure of ``op`` and all inside it."""
    writer = _Writer()
    writer.operation(op)
    return writer.digest()


def fingerprints(runs: Iterable[Sequence[Operation]]) -> list[str]:
    """The fingerprint of each run of operations; what comes from outside it counts by its type."""
    writer = _Writer()
    found: list[str] = []
    for run in runs:
        for op in run:
            writer.operation(op)
        found.append(writer.digest())
        writer.restart()
    return found


class _Writer:
    """Writes a canonical text, line by line; brackets and lengths make it unambiguous."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[Value, int] = {}
        # By identity: the module keeps types and attributes alive while we write.
        self._types: dict[int, str] = {}
        self._attributes: dict[int, str] = {}
        #: Names of attributes as an operation has them -> those that count, sorted.
        self._keys: dict[tuple[str, ...], tuple[str, ...]] = {}

    def digest(self) -> str:
        """The sha256 of what was written, in hex."""
        text = "\n".join(self.lines)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def restart(self) -> None:
        """Forget what was written."""
        self.lines.clear()
        self._numbers.clear()

    def operation(self, op: Operation) -> None:
        numbers = self._numbers
        types = self._types
        operands: list[str] = []
        for value in op.operands:
            number = numbers.get(value)
            if number is None:
                # From outside: its type is all that is known of it.
                number = numbers[value] = len(numbers)
                operands.append(f"{number}:{self._type(value.type)}")
            else:
                operands.append(str(number))
        parts = [op.name, ",".join(operands)]
        if op.attributes:
            self._append_attributes(op, parts)
        for result in op.results:
            type_ = result.type
            parts.append(types.get(id(type_)) or self._type(type_))
        self.lines.append("|".join(parts))
        if op.regions:
            self._regions(op)
        # After the regions, which cannot read them.
        for result in op.results:
            numbers[result] = len(numbers)

    def _regions(self, op: Operation) -> None:
        lines = self.lines
        for region in op.regions:
            lines.append("{")
            for block in region.blocks:
                for argument in block.arguments:
                    self._numbers[argument] = len(self._numbers)
                lines.append("^" + ",".join([self._type(a.type) for a in block.arguments]))
                for inner in block.ops:
                    self.operation(inner)
            lines.append("}")

    def _append_attributes(self, op: Operation, parts: list[str]) -> None:
        attributes = op.attributes
        names = tuple(attributes)
        counted = self._keys.get(names)
        if counted is None:
            counted = self._keys[names] = tuple(
                sorted(n for n in names if n != "sym_name" and not n.startswith("baechi."))
            )
        known = self._attributes
        for name in counted:
            value = attributes[name]
            if name in ("arg_attrs", "res_attrs"):
                promises = _promises(value)
                if promises:
                    parts.append(f"{name}={promises}")
                continue
            text = known.get(id(value))
            if text is None:
                text = known[id(value)] = _text(value)
            parts.append(f"{name}={text}")

    def _type(self, type_: Type) -> str:
        text = self._types.get(id(type_))
        if text is None:
            text = self._types[id(type_)] = str(_without_devices(type_))
        return text


def _without_devices(type_: Type) -> Type:
    """``type_`` without its place; how it is laid out there remains."""
    if isinstance(type_, OnType):
        return type_.type if type_.layout == "whole" else OnType((), type_.type, type_.layout)
    if isinstance(type_, InFlightType):
        return type_.type
    if isinstance(type_, FunctionType):
        return FunctionType(
            tuple(map(_without_devices, type_.inputs)), tuple(map(_without_devices, type_.results))
        )
    return type_


def _text(value: Attribute) -> str:
    if isinstance(value, str):
        return f"{len(value)}'{value}"
    if isinstance(value, tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, OpaqueAttr):
        return f"#{value.dialect}.{value.name}"
    if isinstance(value, DictAttr):
        return _dictionary_text(value)
    if isinstance(value, OnType | FunctionType | InFlightType):
        return str(_without_devices(value))
    return print_attribute(value)


def _dictionary_text(entries: Mapping[str, Attribute]) -> str:
    return "{" + ",".join(f"{_text(key)}={_text(entries[key])}" for key in sorted(entries)) + "}"


def _promises(value: Attribute) -> str:
    """What counts of ``arg_attrs`` or ``res_attrs``; nothing when no entry has any of it."""
    if not isinstance(value, tuple):
        return _text(value)
    texts = [
        _dictionary_text({key: entry[key] for key in _PROMISES if key in entry})
        if isinstance(entry, DictAttr)
        else _text(entry)
        for entry in value
    ]
    return f"[{','.join(texts)}]" if any(text != "{}" for text in texts) else ""
