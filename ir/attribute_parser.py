"""Parsing attributes. Most occur many times in a module, so they are remembered by their text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import cast

from baechi_jax.ir.attributes import (
    REGISTERED_ATTRIBUTES,
    Attribute,
    DictAttr,
    OpaqueAttr,
    ParameterizedAttr,
    SymbolRef,
    Unit,
)
from baechi_jax.ir.errors import BaechiError
from baechi_jax.ir.lexer import Scanner
from baechi_jax.ir.location import Location
from baechi_jax.ir.number_parser import NumberParser
from baechi_jax.ir.type_parser import WORD

_VALUE = r"""(?:
      (-?\d+)(?:\s*:\s*i64)?
    | "([^"\\\n]*)"
    | (-?\d+\.\d*(?:[eE][-+]?\d+)?)(?:\s*:\s*f64)?
    | (\[[^][{"]*(?:\[[^][{"]*(?:\[[^][{"]*\][^][{"]*)*\][^][{"]*)*\]
      |\#[\w.$]+(?:<[^<>"]*>)?
      |-?[\w.+-]+\s*:\s*\w+
      |true|false)
    )"""
#: The commonest values, each known to end where it does by what follows. Groups: an integer, a
#: string, a float, and text to look up among the attributes that were parsed before.
_FAST_VALUE = re.compile(rf"\s*{_VALUE}(?=\s*[,}}\]>)])", re.ASCII | re.VERBOSE)
_FAST_ENTRY = re.compile(rf"\s*([A-Za-z_][\w$.]*)\s*=\s*{_VALUE}\s*([,}}])", re.ASCII | re.VERBOSE)
_FAST_FIELD = re.compile(rf"\s*([A-Za-z_]\w*)\s*=\s*{_VALUE}\s*([,>])", re.ASCII | re.VERBOSE)
_KEY = re.compile(r'\s*(?:([A-Za-z_][\w$.]*)|"((?:[^"\\\n]|\\.)*)")\s*(=?)', re.ASCII)
_SYMBOL = re.compile(r'\s*@(?:([A-Za-z_][\w$.]*)|"((?:[^"\\\n]|\\.)*)")', re.ASCII)
_DIALECT_ATTRIBUTE = re.compile(r"\s*#([A-Za-z_][\w$]*)(?:\.([\w$.]+))?", re.ASCII)

_REFUSED = frozenset(
    ("affine_map", "affine_set", "dense_resource", "sparse", "strided", "distinct", "opaque")
)


class AttributeParser(NumberParser):
    """Parses attributes at the position of its scanner."""

    def __init__(self, scanner: Scanner) -> None:
        super().__init__(scanner)
        self._attributes: dict[str, Attribute] = {}

    def dictionary(self) -> dict[str, Attribute]:
        """``{name = attribute, ...}``; an attribute without a value is a unit."""
        scanner = self.scanner
        text = scanner.text
        if not text.startswith("{", scanner.pos):
            scanner.expect("{", "before attributes")
        else:
            scanner.pos += 1
        entries: dict[str, Attribute] = {}
        known = self._attributes
        while True:
            match = _FAST_ENTRY.match(text, scanner.pos)
            if match is None:
                if self._slow_entry(entries):
                    continue
                return entries
            key, integer, string, float_, other, end = match.groups()
            if key in entries:
                raise scanner.error(f"attribute '{key}' is given twice", match.start(1))
            if integer is not None:
                entries[key] = self.int64(int(integer), match.start(2))
            elif string is not None:
                entries[key] = string
            elif float_ is not None:
                entries[key] = float(float_)
            elif other in known:
                entries[key] = known[other]
            else:
                scanner.pos = match.start(5)
                entries[key] = self._remembered(other)
                if scanner.pos != match.end(5):
                    # A longer attribute than the pattern took it for.
                    if self._entry_end():
                        continue
                    return entries
            scanner.pos = match.end()
            if end == "}":
                return entries

    def _slow_entry(self, entries: dict[str, Attribute]) -> bool:
        """Add one entry of any form; whether another follows."""
        scanner = self.scanner
        match = scanner.match(_KEY)
        if match is None:
            if not entries and scanner.accept("}"):
                return False
            raise scanner.error(f"expected the name of an attribute, found {scanner.found()}")
        key, quoted, equals = match.groups()
        if key is None:
            key = scanner.decoded(quoted, match.start(2))
            if not key:
                raise scanner.error("an attribute needs a name", match.start(2) - 1)
        if key in entries:
            start = match.start(1) if quoted is None else match.start(2) - 1
            raise scanner.error(f"attribute '{key}' is given twice", start)
        entries[key] = self.attribute() if equals else _UNIT
        return self._entry_end()

    def _entry_end(self) -> bool:
        if self.scanner.accept(","):
            return True
        self.scanner.expect("}", "or ',' after an attribute")
        return False

    def _remembered(self, text: str) -> Attribute:
        """The attribute here, which ``text`` probably is; remembered if so."""
        start = self.scanner.pos
        attribute = self._slow_attribute()
        if self.scanner.pos == start + len(text):
            self._attributes[text] = attribute
        return attribute

    def attribute(self) -> Attribute:
        """An attribute."""
        scanner = self.scanner
        match = _FAST_VALUE.match(scanner.text, scanner.pos)
        if match is None:
            return self._slow_attribute()
        integer, string, float_, other = match.groups()
        if other is not None and other not in self._attributes:
            scanner.pos = match.start(4)
            return self._remembered(other)
        scanner.pos = match.end()
        if integer is not None:
            return self.int64(int(integer), match.start(1))
        if string is not None:
            return string
        return float(float_) if other is None else self._attributes[other]

    def _slow_attribute(self) -> Attribute:
        scanner = self.scanner
        char = scanner.peek()
        if char == '"':
            value = scanner.string("a string")
            if scanner.peek() == ":":
                raise scanner.error("strings with a type are not supported")
            return value
        if char == "[":
            return self._array()
        if char == "{":
            return DictAttr(tuple(self.dictionary().items()))
        if char == "#":
            return self._dialect_attribute()
        if char == "@":
            return self._symbol()
        if char == "!" or char == "(":
            return self.read_type()
        if char.isdigit() or char == "-":
            return self.number()
        word = WORD.match(scanner.text, scanner.pos)
        if word is None:
            raise scanner.error(f"expected an attribute, found {scanner.found()}")
        name = word.group(1)
        if name in ("true", "false", "unit"):
            scanner.pos = word.end()
            return _UNIT if name == "unit" else name == "true"
        if name == "array":
            return self.dense_array()
        if name == "dense":
            return self.dense_elements()
        if name == "loc":
            raise scanner.error("locations are not supported as attributes")
        if name in _REFUSED:
            raise scanner.error(f"'{name}' attributes are not supported")
        return self.read_type()

    def _array(self) -> tuple[Attribute, ...]:
        scanner = self.scanner
        scanner.expect("[", "before an array")
        if scanner.accept("]"):
            return ()
        entries: list[Attribute] = []
        while True:
            entries.append(self.attribute())
            if not scanner.accept(","):
                scanner.expect("]", "or ',' in an array")
                return tuple(entries)

    def _symbol(self) -> SymbolRef:
        scanner = self.scanner
        path: list[str] = []
        while True:
            path.append(self.symbol_name())
            if not scanner.accept("::"):
                return SymbolRef(tuple(path))

    def symbol_name(self) -> str:
        """``@name`` or ``@"name"``, without the ``@``."""
        scanner = self.scanner
        match = scanner.match(_SYMBOL)
        if match is None:
            raise scanner.error(f"expected a symbol such as @main, found {scanner.found()}")
        bare, quoted = match.groups()
        return bare if bare is not None else scanner.decoded(quoted, match.start(2))

    # Dialect attributes -------------------------------------------------------------------------

    def _dialect_attribute(self) -> Attribute:
        scanner = self.scanner
        start = scanner.pos
        match = scanner.match(_DIALECT_ATTRIBUTE)
        if match is None:
            raise scanner.error(f"expected an attribute, found {scanner.found()}")
        dialect, name = match.groups()
        following = scanner.text[scanner.pos : scanner.pos + 1]
        if name is None and following != "<":
            alias = self.alias(f"#{dialect}", start)
            if isinstance(alias, Location):
                raise scanner.error("locations are not supported as attributes", start)
            return alias  # type: ignore[return-value]  # what an alias holds is an attribute
        resume = None
        if name is None:
            name, resume = self.pretty_name()
        attribute: Attribute
        cls = REGISTERED_ATTRIBUTES.get(f"{dialect}.{name}")
        if cls is not None:
            attribute = self._registered(cls, f"#{dialect}.{name}", start)
        else:
            body = self.body(f"the attribute '#{dialect}.{name}'")
            attribute = OpaqueAttr(dialect, name, body)
        if resume is not None:
            scanner.pos = resume
        return attribute

    def _registered(self, cls: type[ParameterizedAttr], name: str, start: int) -> ParameterizedAttr:
        scanner = self.scanner
        fields, required = _fields_of(cls)
        values: dict[str, Attribute] = {}
        if scanner.text.startswith("<", scanner.pos):
            scanner.pos += 1
            if not self._fast_fields(fields, values) and not scanner.accept(">"):
                while True:
                    begin = scanner.space_end()
                    match = scanner.match(WORD)
                    if match is None:
                        raise scanner.error(f"expected a field of {name}, found {scanner.found()}")
                    key = match.group(1)
                    if key not in fields:
                        known = ", ".join(fields)
                        raise scanner.error(f"{name} has no field '{key}'; it has: {known}", begin)
                    if key in values:
                        raise scanner.error(f"field '{key}' of {name} is given twice", begin)
                    scanner.expect("=", f"after field '{key}' of {name}")
                    begin = scanner.space_end()
                    values[key] = self._field(self.attribute(), fields[key], key, name, begin)
                    if not scanner.accept(","):
                        scanner.expect(">", f"or ',' in {name}")
                        break
        for key in required:
            if key not in values:
                raise scanner.error(f"{name} needs field '{key}'", start)
        try:
            return cast("Callable[..., ParameterizedAttr]", cls)(**values)
        except BaechiError as error:
            raise scanner.error(f"{name}: {error}", start) from error

    def _fast_fields(self, fields: dict[str, str], values: dict[str, Attribute]) -> bool:
        """Read the fields whose values are plain numbers and strings of the right type.

        Stops at the first that is not, or after the last; in that case it returns True.
        """
        scanner = self.scanner
        text = scanner.text
        while True:
            match = _FAST_FIELD.match(text, scanner.pos)
            if match is None:
                return False
            key, integer, string, float_, _, end = match.groups()
            annotation = fields.get(key)
            if key in values:
                return False
            if float_ is not None and annotation == "float":
                values[key] = float(float_)
            elif integer is not None and annotation in ("int", "float"):
                number = self.int64(int(integer), match.start(2))
                values[key] = number if annotation == "int" else float(number)
            elif string is not None and annotation == "str":
                values[key] = string
            else:
                return False
            scanner.pos = match.end()
            if end == ">":
                return True

    def _field(
        self, value: Attribute, annotation: str, key: str, name: str, begin: int
    ) -> Attribute:
        if annotation == "float" and type(value) is int:
            return float(value)
        if annotation == "tuple[float, ...]" and isinstance(value, tuple):
            value = tuple(float(entry) if type(entry) is int else entry for entry in value)
        if not _has_type(value, annotation):
            raise self.scanner.error(f"field '{key}' of {name} must be {annotation}", begin)
        return value


_UNIT = Unit()


#: By class: the annotations of its fields, and which fields have no default.
_FIELDS: dict[type, tuple[dict[str, str], tuple[str, ...]]] = {}


def _fields_of(cls: type[ParameterizedAttr]) -> tuple[dict[str, str], tuple[str, ...]]:
    known = _FIELDS.get(cls)
    if known is None:
        fields = dataclasses.fields(cls)
        required = tuple(
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        annotations = {field.name: str(field.type) for field in fields}
        known = _FIELDS[cls] = (annotations, required)
    return known


def _has_type(value: Attribute, annotation: str) -> bool:
    """Whether ``value`` fits a field annotated ``annotation``."""
    if annotation.startswith("tuple["):
        if not isinstance(value, tuple):
            return False
        element = annotation[len("tuple[") : -len(", ...]")]
        return all(_has_type(entry, element) for entry in value)
    simple = {"int": int, "float": float, "str": str, "bool": bool}.get(annotation)
    if simple is not None:
        return type(value) is simple
    cls = next((c for c in REGISTERED_ATTRIBUTES.values() if c.__name__ == annotation), None)
    return cls is None or isinstance(value, cls)
