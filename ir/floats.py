"""Floating-point formats without numpy: bits, rounding, and text that reads back exactly.

Covers every float type that JAX has. A value is held as a Python float (every one of these formats
fits in a double). Decimal text is read as MLIR reads it: to a double first, then rounded to the
format, ties to even. Formats follow LLVM's ``APFloat`` semantics of the same names.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """One format. ``kind`` says what stands beside the ordinary numbers.

    ``ieee``: infinities and NaNs at the top exponent. ``fn``: no infinity, one NaN with all bits
    set. ``fnuz``: no infinity, no negative zero, whose bits are the NaN. ``finite``: neither.
    ``scale``: no sign, no zero, no fraction; all bits set is NaN.
    """

    exponent_bits: int
    fraction_bits: int
    bias: int
    kind: str = "ieee"

    @property
    def bits(self) -> int:
        """Width in bits."""
        return self.exponent_bits + self.fraction_bits + (self.kind != "scale")


FLOAT_FORMATS: dict[str, FloatFormat] = {
    "f64": FloatFormat(11, 52, 1023),
    "f32": FloatFormat(8, 23, 127),
    "f16": FloatFormat(5, 10, 15),
    "bf16": FloatFormat(8, 7, 127),
    "f8E5M2": FloatFormat(5, 2, 15),
    "f8E4M3": FloatFormat(4, 3, 7),
    "f8E3M4": FloatFormat(3, 4, 3),
    "f8E4M3FN": FloatFormat(4, 3, 7, "fn"),
    "f8E4M3FNUZ": FloatFormat(4, 3, 8, "fnuz"),
    "f8E5M2FNUZ": FloatFormat(5, 2, 16, "fnuz"),
    "f8E4M3B11FNUZ": FloatFormat(4, 3, 11, "fnuz"),
    "f8E8M0FNU": FloatFormat(8, 0, 127, "scale"),
    "f6E2M3FN": FloatFormat(2, 3, 1, "finite"),
    "f6E3M2FN": FloatFormat(3, 2, 3, "finite"),
    "f4E2M1FN": FloatFormat(2, 1, 1, "finite"),
}


def to_bits(value: float, name: str) -> int:
    """The bits of ``value`` rounded to format ``name``.

    Too large a value becomes infinity, NaN where there is no infinity, the largest number where
    there is neither. Raises ValueError for what the format cannot hold at all: a NaN where there
    is none, a negative number where there is no sign.
    """
    if name == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", math.nan if value != value else value))[0])
    format_ = FLOAT_FORMATS[name]
    sign_bit = 1 << (format_.bits - 1)
    if format_.kind == "scale":
        return _scale_bits(value, name)
    top = (1 << (format_.exponent_bits + format_.fraction_bits)) - 1
    infinity = top + 1 - (1 << format_.fraction_bits)
    if value != value:
        if format_.kind == "finite":
            raise ValueError(f"{name} has no NaN")
        if format_.kind == "ieee":
            return infinity | (1 << (format_.fraction_bits - 1))
        return top if format_.kind == "fn" else sign_bit
    sign = sign_bit if math.copysign(1.0, value) < 0 else 0
    magnitude = _magnitude(abs(value), format_, top)
    if format_.kind == "ieee":
        return sign | min(magnitude, infinity)
    if format_.kind == "fn":
        return sign | min(magnitude, top)
    if format_.kind == "finite":
        return sign | min(magnitude, top)
    if magnitude > top or magnitude == 0:
        return sign_bit if magnitude else 0
    return sign | magnitude


def _magnitude(value: float, format_: FloatFormat, top: int) -> int:
    """Exponent and fraction bits of a value >= 0 as one number; above ``top`` on overflow."""
    if value == 0.0:
        return 0
    if math.isinf(value):
        return top + 1
    exponent = max(math.frexp(value)[1] - 1, 1 - format_.bias)
    # Scaling by a power of two is exact, and round() rounds ties to even. A carry out of the
    # fraction raises the exponent by itself; a subnormal has exponent field zero.
    steps = round(math.ldexp(value, format_.fraction_bits - exponent))
    return ((exponent + format_.bias - 1) << format_.fraction_bits) + steps


def _scale_bits(value: float, name: str) -> int:
    if value != value or math.isinf(value):
        return 0xFF
    if value < 0.0:
        raise ValueError(f"{name} has no negative numbers")
    if value == 0.0:
        return 0
    fraction, exponent = math.frexp(value)
    bits = exponent - 1 + 127 + (fraction >= 0.75)
    return max(bits, 0) if bits < 0xFF else 0xFF


def from_bits(bits: int, name: str) -> float:
    """The value that ``bits`` stand for in format ``name``; every NaN becomes the same one.

    Raises ValueError when there are more bits than the format has.
    """
    format_ = FLOAT_FORMATS[name]
    if bits >> format_.bits:
        raise ValueError(f"{bits:#x} has more than the {format_.bits} bits of {name}")
    if name == "f64":
        value = float(struct.unpack("<d", struct.pack("<Q", bits))[0])
        return math.nan if value != value else value
    if format_.kind == "scale":
        return math.nan if bits == 0xFF else math.ldexp(1.0, bits - 127)
    top = (1 << (format_.bits - 1)) - 1
    sign = -1.0 if bits > top else 1.0
    magnitude = bits & top
    exponent = magnitude >> format_.fraction_bits
    fraction = magnitude & ((1 << format_.fraction_bits) - 1)
    if format_.kind == "ieee" and exponent == (1 << format_.exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if (format_.kind == "fn" and magnitude == top) or (format_.kind == "fnuz" and bits == top + 1):
        return math.nan
    if exponent:
        fraction += 1 << format_.fraction_bits
    scale = max(exponent, 1) - format_.bias - format_.fraction_bits
    return sign * math.ldexp(fraction, scale)


def rounded(value: float, name: str) -> float:
    """``value`` rounded to format ``name``; raises ValueError as ``to_bits`` does."""
    return value if name == "f64" else from_bits(to_bits(value, name), name)


@lru_cache(maxsize=4096)
def _narrow_text(value: float, name: str) -> str:
    format_ = FLOAT_FORMATS[name]
    bits = to_bits(value, name)
    exact = from_bits(bits, name)
    smallest_normal = math.ldexp(1.0, 1 - format_.bias)
    subnormal = exact != 0.0 and abs(exact) < smallest_normal
    if not math.isfinite(exact) or subnormal:
        return f"0x{bits:0{(format_.bits + 3) // 4}X}"
    for digits in range(1, 18):
        text = f"{exact:.{digits}g}"
        if to_bits(float(text), name) == bits:
            return _with_point(repr(float(text)))
    return _with_point(repr(exact))


def float_text(value: float, name: str = "f64") -> str:
    """The shortest decimal text that reads back as ``value`` in format ``name``.

    NaNs, infinities and subnormals are written as the hex digits of their bits, as MLIR does.
    """
    if name != "f64":
        # Zero apart: a cache cannot tell 0.0 from -0.0.
        return _narrow_text(value, name) if value != 0.0 else repr(rounded(value, name))
    text = float.__repr__(value)
    if "n" in text or ("e-3" in text and abs(value) < 2.2250738585072014e-308):
        return f"0x{to_bits(value, name):016X}"
    return text if "." in text else _with_point(text)


def _with_point(text: str) -> str:
    # Python writes 1e+300, which MLIR does not read: a float needs its point.
    if "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
