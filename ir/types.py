"""Types of values, and the scalar types that attributes carry.

Element types are spelled as MLIR spells them (``f32``, ``ui8``, ``complex<f32>``,
``!baechi.key<"fry">``) and kept as strings: passes compare them, the JAX border translates them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from baechi_jax.ir.lexer import escaped

#: Bits per element. ``i1`` takes a byte in memory; ``!baechi.float0`` takes nothing.
_ELEMENT_BITS: dict[str, int] = {
    "i1": 8,
    "ui1": 8,
    "index": 64,
    "!baechi.float0": 0,
    "bf16": 16,
    **{f"{sign}{bits}": bits for sign in ("i", "ui", "si") for bits in (2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **dict.fromkeys(
        (
            "f8E3M4",
            "f8E4M3",
            "f8E4M3FN",
            "f8E4M3B11FNUZ",
            "f8E4M3FNUZ",
            "f8E5M2",
            "f8E5M2FNUZ",
            "f8E8M0FNU",
            "f6E2M3FN",
            "f6E3M2FN",
        ),
        8,
    ),
    "f4E2M1FN": 4,
    "complex<f32>": 64,
    "complex<f64>": 128,
}

#: Bytes of one typed random key, by implementation name.
_KEY_BITS = {"fry": 64, "rbg": 128, "urbg": 128}


def element_bits(element: str) -> int:
    """Bits that one element takes in memory (``i1`` takes eight)."""
    bits = _ELEMENT_BITS.get(element)
    if bits is not None:
        return bits
    if element.startswith("!baechi.key<"):
        return _KEY_BITS.get(element[len('!baechi.key<"') : -len('">')], 128)
    return 64


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A bare element type used as a type attribute (``i32``, ``f8E4M3FN``, ``index``)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense array of known shape: ``tensor<4x8xf32>``.

    ``weak`` is JAX's weak type (a Python scalar's dtype, which promotes to its partner's); it
    prints as the tensor's encoding, ``tensor<f32, #baechi.weak>``.
    """

    shape: tuple[int, ...]
    element: str
    weak: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in device memory, without padding."""
        return (math.prod(self.shape) * element_bits(self.element) + 7) // 8

    def __str__(self) -> str:
        dims = "".join(f"{dim}x" for dim in self.shape)
        return f"tensor<{dims}{self.element}{', #baechi.weak' if self.weak else ''}>"


@dataclass(frozen=True, slots=True)
class TokenType:
    """The token that keeps effects in order: ``!baechi.token``. It takes no memory."""

    def __str__(self) -> str:
        return "!baechi.token"


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type of a dialect we do not model, kept as text: ``!jax.ref<"...">``.

    With an empty ``name``, ``!dialect<body>``.
    """

    dialect: str
    name: str
    body: str | None = None

    def __str__(self) -> str:
        body = "" if self.body is None else f"<{self.body}>"
        return f"!{self.dialect}{self.name and '.'}{self.name}{body}"


@dataclass(frozen=True, slots=True)
class OnType:
    """A value that lies on devices: ``!baechi.on<[0], tensor<4xf32>>``.

    ``layout`` says how it lies there: ``"whole"`` (each device has all of it; not printed). Split
    and partial layouts print as a third parameter.
    """

    devices: tuple[int, ...]
    type: TensorType | TokenType | OpaqueType
    layout: str = "whole"

    def __str__(self) -> str:
        devices = ", ".join(map(str, self.devices))
        layout = "" if self.layout == "whole" else f', "{escaped(self.layout)}"'
        return f"!baechi.on<[{devices}], {self.type}{layout}>"


@dataclass(frozen=True, slots=True)
class InFlightType:
    """A tensor between its send and its receive: ``!baechi.in_flight<tensor<4xf32>>``."""

    type: TensorType | TokenType | OpaqueType

    def __str__(self) -> str:
        return f"!baechi.in_flight<{self.type}>"


@dataclass(frozen=True, slots=True)
class FunctionType:
    """``(inputs) -> results``."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        results = ", ".join(map(str, self.results))
        if len(self.results) == 1 and not isinstance(self.results[0], FunctionType):
            return f"({inputs}) -> {results}"
        return f"({inputs}) -> ({results})"


Type: TypeAlias = (
    TensorType | TokenType | OnType | InFlightType | OpaqueType | ScalarType | FunctionType
)


# In a tuple: a union would be made anew at each call.
_PLACED = (OnType, InFlightType)


def unplaced(type_: Type) -> Type:
    """The type without its place: what lies on the devices, or flies between them."""
    return type_.type if isinstance(type_, _PLACED) else type_


def nbytes(type_: Type) -> int:
    """Bytes that a value of this type takes on one device; tokens and opaque types take none."""
    if isinstance(type_, TensorType):
        return type_.nbytes
    return nbytes(type_.type) if isinstance(type_, _PLACED) else 0
