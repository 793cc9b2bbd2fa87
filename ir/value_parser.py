"""The names of values in a text: what ``%0`` and ``%0#1`` stand for, and where."""

from __future__ import annotations

import re

from baechi_jax.ir.attribute_parser import AttributeParser
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.lexer import Scanner
from baechi_jax.ir.types import ScalarType, Type

_NAME = r"%[\w$.-]+"
RESULT = re.compile(rf"({_NAME})(?:\s*:\s*(\d+))?", re.ASCII)
OPERAND = re.compile(rf"{_NAME}(?:#\d+)?", re.ASCII)
_AUTOMATIC_NAME = re.compile(r"%(?:\d+|arg\d+)(?:#\d+)?$", re.ASCII)
_COMMA = re.compile(r"\s*,\s*")


class ValueParser(AttributeParser):
    """Keeps the names that are visible at the position of its scanner.

    A name is forgotten at the end of the region that defines it. A name may be used before it is
    defined: a stand-in is read until then.
    """

    def __init__(self, scanner: Scanner) -> None:
        super().__init__(scanner)
        #: Name (``%0``, ``%0#1``) -> value, for every name that is visible here.
        self._values: dict[str, Value] = {}
        #: Names defined in the innermost region, to be forgotten at its end.
        self._defined: list[str] = []
        #: Names used before their definition: a stand-in, and where the first use is.
        self._forward: dict[str, tuple[Value, int]] = {}

    def operands(self, text: str, start: int) -> list[Value]:
        """The values that ``text``, which begins at ``start``, names."""
        values = self._values
        known = [values.get(name) for name in text.split(", ")]
        if None not in known:
            return known  # type: ignore[return-value]
        operands: list[Value] = []
        if text.isspace():
            return operands
        for part in text.split(","):
            name = part.strip()
            operands.append(values.get(name) or self._use(name, part, start))
            start += len(part) + 1
        return operands

    def _use(self, name: str, part: str, start: int) -> Value:
        """A use of a name that is not known as it is written."""
        begin = start + len(part) - len(part.lstrip())
        if not OPERAND.fullmatch(name):
            raise self.scanner.error(f"expected an operand such as %0, found '{name}'", begin)
        base, _, number = name.partition("#")
        if base in self._values:
            if number.strip("0") == "" and f"{base}#1" not in self._values:
                return self._values[base]
            raise self.scanner.error(f"'{base}' has no result number {number}", begin)
        key = base if number.strip("0") == "" else f"{base}#{int(number)}"
        known = self._forward.get(key)
        if known is None:
            known = self._forward[key] = (_Forward(key), begin)
        return known[0]

    def wrong_type(
        self, operand: Value, index: int, text: str, type_: Type, start: int, name: str
    ) -> None:
        """Fix the type of a value used before its definition, or refuse."""
        if isinstance(operand, _Forward) and not operand.typed:
            operand.type = type_
            operand.typed = True
            return
        parts = text.split(",")
        begin = start + sum(len(part) + 1 for part in parts[:index])
        begin += len(parts[index]) - len(parts[index].lstrip())
        raise self.scanner.error(
            f"operand {index} of '{name}', {parts[index].strip()}, has type {operand.type}, "
            f"but is used as {type_}",
            begin,
        )

    def name_results(self, op: Operation, text: str, start: int) -> None:
        """Give the results of ``op`` the names in ``text``, which begins at ``start``."""
        scanner = self.scanner
        names: list[tuple[str, int, int]] = []
        total = 0
        pos = start
        end = start + len(text)
        while True:
            match = RESULT.match(scanner.text, pos)
            if match is None or match.end() > end:
                raise scanner.error("expected the name of a result, such as %0", pos)
            count = 1 if match.group(2) is None else int(match.group(2))
            names.append((match.group(1), count, pos))
            total += count
            pos = match.end()
            if pos == end:
                break
            comma = _COMMA.match(scanner.text, pos)
            if comma is None:
                raise scanner.error("expected ',' or '=' after a result", pos)
            pos = comma.end()
        if total != len(op.results):
            raise scanner.error(
                f"'{op.name}' has {len(op.results)} results, but {total} are named", start
            )
        index = 0
        for name, count, where in names:
            if count == 0:
                raise scanner.error(f"'{name}' names no result", where)
            if count == 1:
                self.define(name, op.results[index], where)
            else:
                self.define(name, op.results[index], where)
                for number in range(count):
                    self.define(f"{name}#{number}", op.results[index + number], where)
            index += count

    def define(self, name: str, value: Value, pos: int) -> None:
        """``name`` is ``value`` from here to the end of the region."""
        if name in self._values:
            raise self.scanner.error(f"'{name}' is defined twice", pos)
        self._values[name] = value
        self._defined.append(name)
        if not name[1:].isdigit() and not _AUTOMATIC_NAME.match(name):
            value.name = name[1:].partition("#")[0]
        if self._forward and name in self._forward:
            stand_in, begin = self._forward.pop(name)
            if stand_in.type != value.type:
                raise self.scanner.error(
                    f"'{name}' has type {value.type}, but was used before as {stand_in.type}", begin
                )
            stand_in.replace_all_uses_with(value)

    def check_forward(self) -> None:
        """Refuse names that are still undefined."""
        for name, (_, pos) in self._forward.items():
            raise self.scanner.error(f"undefined value '{name}'", pos)


class _Forward(Value):
    """Stands for a value that is used before its definition."""

    __slots__ = ("typed",)

    def __init__(self, name: str) -> None:
        super().__init__(_UNTYPED, 0, name)
        self.typed = False


#: The type of a stand-in before its first use is complete.
_UNTYPED = ScalarType("?")
