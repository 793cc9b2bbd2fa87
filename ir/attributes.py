"""Attributes: the compile-time parameters of operations.

The common ones are plain Python values, so that a pass reads ``op.attributes["channel"] == 3``:

========================  =================================
Python                    text
========================  =================================
``bool``                  ``true``, ``false``
``int``                   ``3 : i64`` (``3`` in an array); 64 bits
``float``                 ``1.5 : f64``
``str``                   ``"text"``
``tuple``                 ``[1, 2]``
any ``Type``              ``i32``, ``tensor<4xf32>``
========================  =================================

The rest are the frozen dataclasses below. A dialect attribute with parameters, such as
``#baechi.cost<flops = 3.0, ...>``, is a frozen dataclass decorated with ``register_attribute``:
its fields print as ``name = value`` and parse back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """``unit``: present without a value; in a dictionary only its name prints."""


@dataclass(frozen=True, slots=True)
class IntegerAttr:
    """An integer of a type other than ``i64``: ``3 : i32``."""

    value: int
    type: ScalarType


@dataclass(frozen=True, slots=True)
class FloatAttr:
    """A float of a type other than ``f64``: ``1.5 : f32``. NaN and infinities print as hex bits."""

    value: float
    type: ScalarType

    def __eq__(self, other: object) -> bool:
        # NaN payloads must compare equal, or print(parse(x)) would not be a fixed point.
        if not isinstance(other, FloatAttr) or other.type != self.type:
            return False
        return repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.type))


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """A reference to a symbol: ``@main`` or, nested, ``@main::@task_3``."""

    path: tuple[str, ...]

    @property
    def root(self) -> str:
        """The outermost name."""
        return self.path[0]

    @property
    def leaf(self) -> str:
        """The innermost name."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class DenseArray:
    """MLIR's ``array<i64: 1, 2>``; parsed and printed, used by no op of ours."""

    element: ScalarType
    values: tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class DenseElements:
    """MLIR's ``dense<[1, 2]> : tensor<2xi64>``: what stands in the brackets is kept as text."""

    text: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class DictAttr(Mapping[str, "Attribute"]):
    """``{a = 1 : i64, b}``: a frozen mapping, in the order in which it was made.

    Equality ignores the order, as MLIR does, which sorts the keys.
    """

    items_: tuple[tuple[str, Attribute], ...] = ()

    @staticmethod
    def of(mapping: Mapping[str, Attribute]) -> DictAttr:
        """Freeze ``mapping``."""
        return DictAttr(tuple(mapping.items()))

    def __getitem__(self, key: str) -> Attribute:
        for name, value in self.items_:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictAttr) and dict(self.items_) == dict(other.items_)

    def __hash__(self) -> int:
        return hash(frozenset(self.items_))


@dataclass(frozen=True, slots=True)
class OpaqueAttr:
    """An attribute of a dialect we do not model, kept as text: ``#dialect.name<body>``.

    With an empty ``name``, ``#dialect<body>``.
    """

    dialect: str
    name: str
    body: str | None = None


@dataclass(frozen=True, slots=True)
class ParameterizedAttr:
    """Base of registered dialect attributes; see ``register_attribute``."""


Attribute: TypeAlias = (
    "bool | int | float | str | tuple[Attribute, ...] | Unit | IntegerAttr | FloatAttr | SymbolRef"
    " | DenseArray | DenseElements | DictAttr | OpaqueAttr | ParameterizedAttr | TensorType"
    " | TokenType | OnType | InFlightType | OpaqueType | ScalarType | FunctionType"
)

#: Qualified name (``baechi.cost``) -> class.
REGISTERED_ATTRIBUTES: dict[str, type[ParameterizedAttr]] = {}

#: The reverse of ``REGISTERED_ATTRIBUTES``.
ATTRIBUTE_NAMES: dict[type[ParameterizedAttr], str] = {}

_A = TypeVar("_A", bound="type[ParameterizedAttr]")


def register_attribute(name: str) -> Callable[[_A], _A]:
    """Class decorator: ``#name<field = value, ...>`` prints from and parses to this dataclass.

    Fields hold attributes. A field equal to its default is left out of the text.
    """

    def register(cls: _A) -> _A:
        REGISTERED_ATTRIBUTES[name] = cls
        ATTRIBUTE_NAMES[cls] = name
        return cls

    return register


def as_tuple(attribute: object) -> tuple[Attribute, ...]:
    """``attribute`` as an array; raises TypeError when it is none."""
    if not isinstance(attribute, tuple):
        raise TypeError(f"expected an array attribute, found {attribute!r}")
    return attribute
