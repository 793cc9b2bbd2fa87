"""Parameters of JAX equations as attributes.

========================================  ===================================================
parameter                                 attribute
========================================  ===================================================
bool, int, float, str                     the same
numpy scalar                              ``IntegerAttr``, ``FloatAttr`` of its dtype, or plain
``None``                                  ``#baechi.none``
tuple, list, set                          array (a set sorted)
named tuple, dataclass, str-keyed dict    dictionary
enum                                      its member's name, a string
dtype, abstract value                     type
anything else                             ``#jax.opaque<"its class">``: no address in the text
========================================  ===================================================

A jaxpr in a parameter is no attribute but a region of the op; ``split_params`` lists them in a
fixed order with their paths (``branches[1]``, ``jaxprs.solve``), and a parameter that holds one is
left out of the attributes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from jax.core import ShapedArray

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.attributes import Attribute, DictAttr, FloatAttr, IntegerAttr, OpaqueAttr
from baechi_jax.ir.jax_types import dtype_attribute, element_of, type_of
from baechi_jax.ir.types import ScalarType

#: The attribute of a parameter that is None.
NONE = OpaqueAttr("baechi", "none")


def split_params(
    params: Mapping[str, Any],
) -> tuple[dict[str, Attribute], list[tuple[str, Any]]]:
    """The attributes of an equation's parameters, and ``(path, jaxpr)`` of every jaxpr in them.

    The jaxprs are in the order of the op's regions. A parameter that holds one has no attribute.
    """
    attributes: dict[str, Attribute] = {}
    jaxprs: list[tuple[str, Any]] = []
    for name, value in params.items():
        kind = type(value)
        # Nearly every parameter is of the first few kinds.
        if value is None:
            attributes[name] = NONE
        elif kind is bool or kind is str or (kind is tuple and _all_integers(value)):
            attributes[name] = value
        elif isinstance(value, _LEAVES):
            attributes[name] = encode(value)
        else:
            found = list(_jaxprs_in(name, value))
            if found:
                jaxprs += found
            else:
                attributes[name] = encode(value)
    return attributes, jaxprs


def encode(value: Any) -> Attribute:
    """The attribute of one parameter; see the module's table."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _ENCODERS[type(value)] = _encoder_for(value)
    return encoder(value)


def replace_jaxprs(value: Any, new: Iterator[Any]) -> Any:
    """``value`` with its jaxprs replaced, in the order of ``split_params``, by those of ``new``."""
    if compat.is_jaxpr(value):
        return next(new)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replace_jaxprs(entry, new) for entry in value))
    if isinstance(value, tuple | list):
        return type(value)(replace_jaxprs(entry, new) for entry in value)
    if isinstance(value, dict):
        return {key: replace_jaxprs(entry, new) for key, entry in value.items()}
    return value


#: What certainly holds no jaxpr; tested first because nearly every parameter is one of these.
_LEAVES = (bool, int, float, str, type(None), np.dtype)


def _jaxprs_in(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if compat.is_jaxpr(value):
        yield path, value
    elif isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)
        for index, entry in enumerate(value):
            if not isinstance(entry, _LEAVES):
                step = f"[{index}]" if fields is None else f".{fields[index]}"
                yield from _jaxprs_in(path + step, entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _jaxprs_in(f"{path}[{key!r}]", entry)


# Encoders, by class -------------------------------------------------------------------------------


def _integer(value: int) -> Attribute:
    if -(2**63) <= value < 2**63:
        return int(value)
    return IntegerAttr(value, ScalarType("ui64" if 0 <= value < 2**64 else "i128"))


def _all_integers(value: tuple[Any, ...]) -> bool:
    """Whether ``value`` is its own attribute: shapes, axes, most of all parameters."""
    for entry in value:  # noqa: SIM110 (a generator costs twice as much, and this is hot)
        if type(entry) is not int or not -(2**63) <= entry < 2**63:
            return False
    return True


def _tuple(value: tuple[Any, ...]) -> Attribute:
    return value if _all_integers(value) else tuple(encode(entry) for entry in value)


def _array(value: Any) -> Attribute:
    return tuple(encode(entry) for entry in value)


def _set(value: Any) -> Attribute:
    encoded = [encode(entry) for entry in value]
    return tuple(sorted(encoded, key=repr))


def _mapping(value: Mapping[Any, Any]) -> Attribute:
    if all(isinstance(key, str) for key in value):
        return DictAttr(tuple((key, encode(entry)) for key, entry in value.items()))
    return tuple((encode(key), encode(entry)) for key, entry in value.items())


def _named_tuple(value: Any) -> Attribute:
    return DictAttr(tuple((name, encode(entry)) for name, entry in zip(value._fields, value)))


def _dataclass(value: Any) -> Attribute:
    return DictAttr(
        tuple(
            (field.name, encode(getattr(value, field.name))) for field in dataclasses.fields(value)
        )
    )


def _enum(value: enum.Enum) -> Attribute:
    # A combination of flags may have no name.
    return value.name or str(value.value)


def _complex(value: complex) -> Attribute:
    return (float(value.real), float(value.imag))


def _scalar_class(value: type) -> Attribute:
    try:
        dtype = np.dtype(value)
    except TypeError:
        return _opaque(value)
    # To numpy any class is a dtype: that of objects.
    return _opaque(value) if dtype.kind == "O" else dtype_attribute(dtype)


def _opaque(value: Any) -> Attribute:
    return OpaqueAttr("jax", "opaque", f'"{type(value).__name__}"')


def numpy_scalar(value: Any) -> Attribute:
    """A numpy scalar (or 0-d array) as an attribute of its dtype; see ``docs/ir.md``, literals.

    ``i64``, ``f64`` and ``i1`` are plain Python numbers; complex numbers are pairs of floats.
    """
    element = element_of(value.dtype)
    if element == "i1":
        return bool(value)
    if element == "i64":
        return int(value)
    if element == "f64":
        return float(value)
    if element.startswith(("i", "ui")):
        return IntegerAttr(int(value), ScalarType(element))
    if element.startswith("complex<"):
        part = element[len("complex<") : -1]
        parts = (float(value.real), float(value.imag))
        return parts if part == "f64" else tuple(FloatAttr(x, ScalarType(part)) for x in parts)
    if element.startswith("!"):
        return _opaque(value)
    return FloatAttr(float(value), ScalarType(element))


def _encoder_for(value: Any) -> Callable[[Any], Attribute]:
    """The encoder of a class that is met for the first time; most specific test first."""
    if isinstance(value, enum.Enum):
        return _enum
    if isinstance(value, np.dtype) or compat.key_tag(value) is not None:
        return dtype_attribute
    if isinstance(value, ShapedArray):
        return type_of
    if isinstance(value, type):
        return _scalar_class
    if isinstance(value, np.generic):
        return numpy_scalar
    for kind, encoder in (
        (bool, bool),
        (int, _integer),
        (float, float),
        (complex, _complex),
        (str, str),
        (frozenset | set, _set),
        (list, _array),
        (Mapping, _mapping),
    ):
        if isinstance(value, kind):
            return encoder
    if isinstance(value, tuple):
        return _named_tuple if hasattr(value, "_fields") else _array
    if dataclasses.is_dataclass(value):
        return _dataclass
    return _opaque


_ENCODERS: dict[type, Callable[[Any], Attribute]] = {
    bool: lambda value: value,
    int: _integer,
    float: lambda value: value,
    complex: _complex,
    str: lambda value: value,
    tuple: _tuple,
    list: _array,
    type(None): lambda value: NONE,
}
