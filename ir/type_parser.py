"""Parsing aliases, types and locations.

Every type of a module occurs many times, so what was parsed is remembered by its text. Aliases
(``#loc3 = loc(...)``) are parsed where they are first used, since MLIR prints those of locations
after the operations.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod

from baechi_jax.ir.attributes import Attribute, OpaqueAttr
from baechi_jax.ir.floats import FLOAT_FORMATS
from baechi_jax.ir.lexer import Scanner
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
    Type,
)

# Types ---------------------------------------------------------------------------------------

_SCALAR = (
    r"(?:[us]?i[1-9]\d*|index|bf16|"
    + "|".join(sorted((name for name in FLOAT_FORMATS if name != "bf16"), key=len, reverse=True))
    + r")\b"
)
_SCALAR_TYPE = re.compile(rf"\s*({_SCALAR})", re.ASCII)
_COMPLEX = re.compile(rf"\s*complex\s*<\s*({_SCALAR})\s*>", re.ASCII)
_TENSOR = re.compile(r"\s*tensor\s*<\s*((?:\d+\s*x\s*)*)", re.ASCII)
_DYNAMIC = re.compile(r"\s*tensor\s*<\s*(?:\d+\s*x\s*)*[?*]", re.ASCII)
_DIALECT_TYPE = re.compile(r"\s*!([A-Za-z_][\w$]*)(?:\.([\w$.]+))?", re.ASCII)
_ARROW = re.compile(r"\s*->")
_DEVICES = re.compile(r"\s*\[([\d\s,]*)\]\s*,", re.ASCII)

#: A type whose brackets nest at most three deep and whose strings hold no bracket: nearly all.
_INNER = r'(?:[^<>"-]|->|-(?!>)|"[^"\\<>\n]*")'
SIMPLE_TYPE = rf"(?:tensor|![\w.$]++)(?:<(?:{_INNER}|<(?:{_INNER}|<{_INNER}*>)*>)*>|(?![\w.$<]))"
_SIMPLE_TYPE = re.compile(rf"\s*({SIMPLE_TYPE})", re.ASCII)

# Locations -----------------------------------------------------------------------------------

#: The commonest forms. Groups: all that is in the parentheses, then name, file, line and column.
FAST_LOCATION = (
    r'\s*loc\(((?:"([^"\\\n]*)"\()?"([^"\\\n]*)":(\d+):(\d+)(?(2)\))|"[^"\\\n]*"|#\w+)\)'
)
_FAST_LOCATION = re.compile(FAST_LOCATION, re.ASCII)
_LINE_COLUMN = re.compile(r"\s*:\s*(\d+)\s*:\s*(\d+)(?:\s+to\s+\d*\s*:\s*\d+)?", re.ASCII)


_PRETTY = re.compile(r"([A-Za-z_][\w.]*)(<.*>)?", re.ASCII | re.DOTALL)
_ALIAS_LINE = re.compile(r"^[ \t]*([#!][\w$.]+)[ \t]*=", re.ASCII | re.MULTILINE)
_ALIAS = re.compile(r"\s*([#!][\w$]+)(?![\w$.<])", re.ASCII)
WORD = re.compile(r"\s*([A-Za-z_]\w*)", re.ASCII)

_WEAK = OpaqueAttr("baechi", "weak")
_BEING_PARSED = object()
_TYPES = (TensorType, TokenType, OnType, InFlightType, OpaqueType, ScalarType, FunctionType)


class TypeParser(ABC):
    """Parses aliases, types and locations at the position of its scanner."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self._types: dict[str, Type] = {}
        self._locations: dict[str, Location] = {}
        #: Where the value of each alias is; found when the first alias is met.
        self._alias_positions: dict[str, int] | None = None
        self._alias_values: dict[str, object] = {}
        self._alias_ends: dict[str, int] = {}

    @abstractmethod
    def attribute(self) -> Attribute:
        """An attribute."""

    # Aliases ----------------------------------------------------------------------------------

    def _aliases(self) -> dict[str, int]:
        scanner = self.scanner
        if self._alias_positions is None:
            self._alias_positions = {}
            for match in _ALIAS_LINE.finditer(scanner.text):
                name = match.group(1)
                if name in self._alias_positions:
                    raise scanner.error(f"alias '{name}' is defined twice", match.start(1))
                self._alias_positions[name] = match.end()
        return self._alias_positions

    def skip_alias_definition(self) -> None:
        """Move past ``#name = value``, checking it."""
        scanner = self.scanner
        start = scanner.space_end()
        match = scanner.match(_ALIAS)
        if match is None:
            raise scanner.error(f"expected an operation, found {scanner.found()}")
        if match.group(1) not in self._aliases():
            raise scanner.error("expected '=' after the name of an alias")
        self.alias(match.group(1), start)
        scanner.pos = self._alias_ends[match.group(1)]

    def alias(self, name: str, start: int) -> object:
        """What the alias ``name``, used at ``start``, stands for."""
        if name in self._alias_values:
            value = self._alias_values[name]
            if value is _BEING_PARSED:
                raise self.scanner.error(f"alias '{name}' refers to itself", start)
            return value
        position = self._aliases().get(name)
        if position is None:
            raise self.scanner.error(f"undefined alias '{name}'", start)
        after = self.scanner.pos
        self.scanner.pos = position
        self._alias_values[name] = _BEING_PARSED
        value = self._alias_values[name] = self._alias_body(name)
        self._alias_ends[name] = self.scanner.pos
        self.scanner.pos = after
        return value

    def _alias_body(self, name: str) -> object:
        if name[0] == "!":
            return self.read_type()
        scanner = self.scanner
        scanner.peek()
        return self.location() if scanner.text.startswith("loc", scanner.pos) else self.attribute()

    # Types ------------------------------------------------------------------------------------

    def read_type(self) -> Type:
        """A type."""
        scanner = self.scanner
        fast = _SIMPLE_TYPE.match(scanner.text, scanner.pos)
        if fast is not None:
            text = fast.group(1)
            known = self._types.get(text)
            if known is not None:
                scanner.pos = fast.end()
                return known
            type_ = self._any_type()
            if scanner.pos == fast.end():
                self._types[text] = type_
            return type_
        return self._any_type()

    def _any_type(self) -> Type:
        scanner = self.scanner
        char = scanner.peek()
        if char == "!":
            return self._dialect_type()
        if char == "(":
            return self._function_type()
        if match := scanner.match(_SCALAR_TYPE):
            return ScalarType(match.group(1))
        if match := scanner.match(_COMPLEX):
            return ScalarType(f"complex<{match.group(1)}>")
        if scanner.text.startswith("tensor", scanner.pos):
            return self._tensor_type()
        word = WORD.match(scanner.text, scanner.pos)
        if word is not None:
            raise scanner.error(f"unknown type '{word.group(1)}'")
        raise scanner.error(f"expected a type, found {scanner.found()}")

    def _tensor_type(self) -> TensorType:
        scanner = self.scanner
        start = scanner.pos
        match = scanner.match(_TENSOR)
        if match is None:
            raise scanner.error("expected '<' after 'tensor'", start + len("tensor"))
        if _DYNAMIC.match(scanner.text, start):
            raise scanner.error(
                "a tensor needs a known shape: dynamic dimensions are not supported"
            )
        shape = tuple(int(dim) for dim in match.group(1).split("x")[:-1])
        begin = scanner.space_end()
        element = self._any_type()
        if not isinstance(element, ScalarType | OpaqueType):
            raise scanner.error("expected an element type", begin)
        weak = False
        if scanner.accept(","):
            begin = scanner.space_end()
            encoding = self.attribute()
            if encoding != _WEAK:
                raise scanner.error("the only tensor encoding is #baechi.weak", begin)
            weak = True
        scanner.expect(">", "at the end of a tensor type")
        return TensorType(shape, str(element), weak)

    def _function_type(self) -> FunctionType:
        inputs = self.type_list("the inputs of a function type")
        if self.scanner.match(_ARROW) is None:
            raise self.scanner.error(
                f"expected '->' in a function type, found {self.scanner.found()}"
            )
        return FunctionType(inputs, self.result_types())

    def result_types(self) -> tuple[Type, ...]:
        """One type, or several in parentheses."""
        if self.scanner.peek() == "(":
            return self.type_list("the result types")
        return (self.read_type(),)

    def type_list(self, what: str) -> tuple[Type, ...]:
        """``(type, ...)``."""
        scanner = self.scanner
        scanner.expect("(", f"before {what}")
        types: list[Type] = []
        if scanner.accept(")"):
            return ()
        while True:
            types.append(self.read_type())
            if not scanner.accept(","):
                scanner.expect(")", f"after {what}")
                return tuple(types)

    def _dialect_type(self) -> Type:
        scanner = self.scanner
        start = scanner.pos
        match = scanner.match(_DIALECT_TYPE)
        if match is None:
            raise scanner.error(f"expected a type, found {scanner.found()}")
        dialect, name = match.groups()
        following = scanner.text[scanner.pos : scanner.pos + 1]
        if name is None and following != "<":
            alias = self.alias(f"!{dialect}", start)
            if not isinstance(alias, _TYPES):
                raise scanner.error(f"alias '!{dialect}' is not a type", start)
            return alias
        resume = None
        if name is None:
            name, resume = self.pretty_name()
        type_: Type
        if dialect == "baechi" and name in ("on", "in_flight", "token"):
            type_ = self._baechi_type(name)
        else:
            type_ = OpaqueType(dialect, name, self.body(f"the type '!{dialect}.{name}'"))
        if resume is not None:
            scanner.pos = resume
        return type_

    def body(self, what: str) -> str | None:
        """The text in ``<...>``, if that is next."""
        scanner = self.scanner
        if not scanner.text.startswith("<", scanner.pos):
            return None
        return scanner.balanced(what)

    def pretty_name(self) -> tuple[str, int | None]:
        """Read ``<name>`` and ``<name<body>>`` as ``name`` and ``name<body>``, as MLIR does.

        Returns the name, empty when what is there has another form, and where to go on once the
        body is parsed. Leaves the position at the body's ``<``, or where there is none.
        """
        scanner = self.scanner
        begin = scanner.pos
        body = scanner.balanced("a dialect's attribute or type")
        end = scanner.pos
        match = _PRETTY.fullmatch(body)
        if match is None:
            scanner.pos = begin
            return "", None
        scanner.pos = end - 1 if match.group(2) is None else begin + 1 + match.start(2)
        return match.group(1), end

    def _baechi_type(self, name: str) -> Type:
        scanner = self.scanner
        if name == "token":
            return TokenType()
        where = f"in '!baechi.{name}'"
        scanner.expect("<", where)
        type_: Type
        if name == "in_flight":
            type_ = InFlightType(self._held_type(where))
        else:
            match = scanner.match(_DEVICES)
            if match is None:
                raise scanner.error(
                    f"expected devices such as '[0],' {where}, found {scanner.found()}"
                )
            numbers = [part.strip() for part in match.group(1).split(",")]
            if not all(numbers):
                raise scanner.error(f"expected device numbers {where}", match.start(1))
            devices = tuple(map(int, numbers))
            held = self._held_type(where)
            layout = "whole"
            if scanner.accept(","):
                layout = scanner.string(f"a layout string {where}")
            type_ = OnType(devices, held, layout)
        scanner.expect(">", f"at the end of '!baechi.{name}'")
        return type_

    def _held_type(self, where: str) -> TensorType | TokenType | OpaqueType:
        begin = self.scanner.space_end()
        held = self.read_type()
        if not isinstance(held, TensorType | TokenType | OpaqueType):
            raise self.scanner.error(f"expected a tensor type {where}, found {held}", begin)
        return held

    # Locations ----------------------------------------------------------------------------------

    def trailing_location(self) -> Location:
        """``loc(...)`` if it is next; else the unknown location."""
        scanner = self.scanner
        match = _FAST_LOCATION.match(scanner.text, scanner.pos)
        if match is None:
            if scanner.peek() == "l" and scanner.text.startswith("loc", scanner.pos):
                return self.location()
            return UNKNOWN
        location = self._locations.get(match.group(1)) or self.fast_location(*match.groups())
        scanner.pos = match.end()
        return location

    def fast_location(
        self, text: str, name: str | None, file: str | None, line: str, column: str
    ) -> Location:
        """What a match of ``FAST_LOCATION`` here says; remembered by its text."""
        if file is None:
            location = self.location()
        else:
            location = Location(file, int(line), int(column), name or "")
        self._locations[text] = location
        return location

    def location(self) -> Location:
        """``loc(...)``. Of a fused location the first known part counts, of a call the callee."""
        scanner = self.scanner
        scanner.expect("loc", "for a location")
        scanner.expect("(", "after 'loc'")
        location = self._location_body()
        scanner.expect(")", "at the end of a location")
        return location

    def _location_body(self) -> Location:
        scanner = self.scanner
        char = scanner.peek()
        if char == '"':
            text = scanner.string("a file or a name")
            if match := scanner.match(_LINE_COLUMN):
                return Location(text, int(match.group(1)), int(match.group(2)))
            if not scanner.accept("("):
                return Location(name=text)
            inner = self._location_body()
            scanner.expect(")", "after a named location")
            return dataclasses.replace(inner, name=text or inner.name)
        if char == "#":
            start = scanner.pos
            match = scanner.match(_ALIAS)
            if match is None:
                raise scanner.error(f"expected a location, found {scanner.found()}")
            alias = self.alias(match.group(1), start)
            if not isinstance(alias, Location):
                raise scanner.error(f"alias '{match.group(1)}' is not a location", start)
            return alias
        word = WORD.match(scanner.text, scanner.pos)
        name = word.group(1) if word is not None else ""
        if word is not None and name == "unknown":
            scanner.pos = word.end()
            return UNKNOWN
        if word is not None and name == "callsite":
            scanner.pos = word.end()
            scanner.expect("(", "after 'callsite'")
            callee = self._nested_location()
            scanner.expect("at", "between callee and caller")
            caller = self._nested_location()
            scanner.expect(")", "after a call site")
            return callee if callee.known else caller
        if word is not None and name == "fused":
            scanner.pos = word.end()
            if scanner.accept("<"):
                self.attribute()
                scanner.expect(">", "after a fused location's metadata")
            scanner.expect("[", "after 'fused'")
            parts = [self._nested_location()]
            while scanner.accept(","):
                parts.append(self._nested_location())
            scanner.expect("]", "after a fused location")
            with_file = [part for part in parts if part.file]
            return (with_file or parts)[0]
        raise scanner.error(f"expected a location, found {scanner.found()}")

    def _nested_location(self) -> Location:
        scanner = self.scanner
        scanner.peek()
        if scanner.text.startswith("loc", scanner.pos):
            return self.location()
        return self._location_body()
