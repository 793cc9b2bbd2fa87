"""Parsing numbers, and MLIR's own containers of numbers."""

from __future__ import annotations

import re

from baechi_jax.ir.attributes import (
    Attribute,
    DenseArray,
    DenseElements,
    FloatAttr,
    IntegerAttr,
)
from baechi_jax.ir.floats import FLOAT_FORMATS, from_bits, rounded
from baechi_jax.ir.type_parser import TypeParser
from baechi_jax.ir.types import ScalarType, TensorType

_FLOAT = re.compile(r"\s*(-?\d+\.\d*(?:[eE][-+]?\d+)?)", re.ASCII)
_HEX = re.compile(r"\s*(-?)0x([0-9A-Fa-f]+)", re.ASCII)
_INTEGER = re.compile(r"\s*(-?\d+)", re.ASCII)


class NumberParser(TypeParser):
    """Parses numbers at the position of its scanner."""

    def number(self) -> Attribute:
        """An integer or a float, in decimal or by its bits, with its type or without."""
        scanner = self.scanner
        start = scanner.pos
        if match := scanner.match(_FLOAT):
            type_ = self._number_type() or ScalarType("f64")
            return self._float(float(match.group(1)), type_, start)
        if match := scanner.match(_HEX):
            number = int(match.group(2), 16)
            type_ = self._number_type() or ScalarType("i64")
            if type_.name in FLOAT_FORMATS:
                if match.group(1):
                    raise scanner.error("the bits of a float have no sign", start)
                return self._float_of_bits(number, type_, start)
            return self._integer(-number if match.group(1) else number, type_, start)
        match = scanner.match(_INTEGER)
        if match is None:
            raise scanner.error(f"expected a number, found {scanner.found()}")
        type_ = self._number_type() or ScalarType("i64")
        if type_.name in FLOAT_FORMATS:
            raise scanner.error(
                f"'{match.group(1)}' is no float: write '{match.group(1)}.0'", start
            )
        return self._integer(int(match.group(1)), type_, start)

    def _number_type(self) -> ScalarType | None:
        scanner = self.scanner
        if not scanner.accept(":"):
            return None
        begin = scanner.space_end()
        type_ = self.read_type()
        if not isinstance(type_, ScalarType) or type_.name.startswith("complex"):
            raise scanner.error(f"a number cannot have type {type_}", begin)
        return type_

    def _float(self, value: float, type_: ScalarType, start: int) -> float | FloatAttr:
        if type_.name not in FLOAT_FORMATS:
            raise self.scanner.error(f"a float cannot have type {type_}", start)
        if type_.name == "f64":
            return value
        try:
            return FloatAttr(rounded(value, type_.name), type_)
        except ValueError as error:
            raise self.scanner.error(str(error), start) from None

    def _float_of_bits(self, bits: int, type_: ScalarType, start: int) -> float | FloatAttr:
        try:
            value = from_bits(bits, type_.name)
        except ValueError as error:
            raise self.scanner.error(str(error), start) from None
        return value if type_.name == "f64" else FloatAttr(value, type_)

    def int64(self, value: int, start: int) -> int:
        """``value`` as a number of 64 bits; ``start`` is where it stands."""
        if -(1 << 63) <= value < 1 << 63:
            return value
        result = self._integer(value, ScalarType("i64"), start)
        assert isinstance(result, int)
        return result

    def _integer(self, value: int, type_: ScalarType, start: int) -> int | IntegerAttr:
        name = type_.name
        bits = 64 if name == "index" else int(name.lstrip("usi"))
        low, high = -(1 << (bits - 1)), (1 << bits) - 1
        if name[0] == "u":
            low = 0
        elif name[0] == "s":
            high = (1 << (bits - 1)) - 1
        if not low <= value <= high:
            raise self.scanner.error(f"{value} does not fit in {name}", start)
        if name[0] == "i" and value >= 1 << (bits - 1):
            # Signless: MLIR prints these bits as a negative number.
            value -= 1 << bits
        if name == "i64":
            return value
        if name == "i1":
            return value != 0
        return IntegerAttr(value, type_)

    # MLIR's own containers ----------------------------------------------------------------------

    def dense_array(self) -> DenseArray:
        """``array<i64: 1, 2>``."""
        scanner = self.scanner
        scanner.accept("array")
        scanner.expect("<", "after 'array'")
        begin = scanner.space_end()
        element = self.read_type()
        if not isinstance(element, ScalarType) or element.name.startswith("complex"):
            raise scanner.error(f"an array cannot hold {element}", begin)
        values: list[int | float | bool] = []
        if scanner.accept(":"):
            while True:
                values.append(self._dense_value(element))
                if not scanner.accept(","):
                    break
        scanner.expect(">", "or ',' in an array")
        return DenseArray(element, tuple(values))

    def _dense_value(self, element: ScalarType) -> int | float | bool:
        scanner = self.scanner
        start = scanner.space_end()
        if element.name == "i1":
            for text in ("true", "false"):
                if scanner.accept(text):
                    return text == "true"
            raise scanner.error(f"expected true or false, found {scanner.found()}")
        value: Attribute
        if element.name in FLOAT_FORMATS:
            if match := scanner.match(_HEX):
                value = self._float_of_bits(int(match.group(2), 16), element, start)
            elif match := scanner.match(_FLOAT):
                value = self._float(float(match.group(1)), element, start)
            else:
                raise scanner.error(f"expected a float, found {scanner.found()}")
        elif match := scanner.match(_INTEGER):
            value = self._integer(int(match.group(1)), element, start)
        else:
            raise scanner.error(f"expected an integer, found {scanner.found()}")
        return value.value if isinstance(value, FloatAttr | IntegerAttr) else value

    def dense_elements(self) -> DenseElements:
        """``dense<[1, 2]> : tensor<2xi64>``."""
        scanner = self.scanner
        scanner.accept("dense")
        if scanner.peek() != "<":
            raise scanner.error(f"expected '<' after 'dense', found {scanner.found()}")
        text = scanner.balanced("a dense attribute")
        scanner.expect(":", "after a dense attribute")
        begin = scanner.space_end()
        type_ = self.read_type()
        if not isinstance(type_, TensorType):
            raise scanner.error(f"a dense attribute needs a tensor type, found {type_}", begin)
        return DenseElements(text, type_)
