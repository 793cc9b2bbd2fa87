"""The text of types and attributes, in MLIR's spelling."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from baechi_jax.ir.attributes import (
    ATTRIBUTE_NAMES,
    Attribute,
    DenseArray,
    DenseElements,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    ParameterizedAttr,
    SymbolRef,
    Unit,
)
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.floats import FLOAT_FORMATS, float_text
from baechi_jax.ir.lexer import escaped, is_balanced
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
)

_BARE_KEY = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_LIMIT = 1 << 63
_ONLY_INT = {int}


def print_attribute(attribute: Attribute) -> str:
    """The text of ``attribute``; raises IRError for a value that is no attribute."""
    function = _TYPED.get(type(attribute))
    return function(attribute) if function is not None else _inferred(attribute, _TYPED)


@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """``text`` as a string literal; raises IRError for a lone surrogate that stands for no byte."""
    try:
        return f'"{escaped(text)}"'
    except ValueError as error:
        raise IRError(f"the string {text!r} has no text form: {error}") from error


@lru_cache(maxsize=4096)
def key_text(key: str) -> str:
    """The name of an attribute, quoted where need be."""
    if _BARE_KEY.fullmatch(key):
        return key
    if not key:
        raise IRError("an attribute needs a name")
    return quoted(key)


def dictionary_text(attributes: dict[str, Attribute], known: dict[int, str] | None = None) -> str:
    """``{name = attribute, ...}``.

    ``known`` collects the texts of attributes by their ``id``: only for attributes that live as
    long as it does.
    """
    known = {} if known is None else known
    parts: list[str] = []
    for key, value in attributes.items():
        kind = type(value)
        name = key_text(key)
        if kind is int and -_LIMIT <= value < _LIMIT:  # type: ignore[operator]
            parts.append(f"{name} = {value} : i64")
            continue
        text = known.get(id(value))
        if text is None:
            function = _TYPED.get(kind)
            text = function(value) if function is not None else _inferred(value, _TYPED)
            known[id(value)] = text
        parts.append(name if kind is Unit else f"{name} = {text}")
    return "{" + ", ".join(parts) + "}"


# One function per class. ``Any``: each takes the class that it is registered for below. -----------


def _typed_int(value: int) -> str:
    return f"{_short_int(value)} : i64"


def _short_int(value: int) -> str:
    if not -_LIMIT <= value < _LIMIT:
        raise IRError(f"{value} does not fit in 64 bits: give an IntegerAttr with a wider type")
    return str(value)


def _typed_float(value: float) -> str:
    return float_text(value) + " : f64"


def _short_float(value: float) -> str:
    text = float_text(value)
    # Without its type, a float's bits would read as an integer.
    return text + " : f64" if text[:2] == "0x" else text


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _array(value: tuple[Attribute, ...]) -> str:
    if set(map(type, value)) == _ONLY_INT:
        return _int_array(cast("tuple[int, ...]", value))
    parts: list[str] = []
    for entry in value:
        function = _SHORT.get(type(entry))
        parts.append(function(entry) if function is not None else _inferred(entry, _SHORT))
    return "[" + ", ".join(parts) + "]"


# Only for arrays of true integers: one of floats or booleans may compare equal.
@lru_cache(maxsize=4096)
def _int_array(value: tuple[int, ...]) -> str:
    return f"[{', '.join(map(_short_int, value))}]"


def _integer(attribute: IntegerAttr) -> str:
    if attribute.type.name == "i1":
        return _bool(bool(attribute.value))
    return f"{int(attribute.value)} : {attribute.type.name}"


def _float(attribute: FloatAttr) -> str:
    name = attribute.type.name
    if name not in FLOAT_FORMATS:
        raise IRError(f"a float cannot have type {name}")
    try:
        return f"{float_text(float(attribute.value), name)} : {name}"
    except ValueError as error:
        raise IRError(f"{attribute.value!r} has no text form: {error}") from error


def _symbol(attribute: SymbolRef) -> str:
    return "::".join(
        f"@{name}" if _BARE_KEY.fullmatch(name) else f"@{quoted(name)}" for name in attribute.path
    )


def _dictionary(attribute: DictAttr) -> str:
    return dictionary_text(dict(attribute.items_))


def _dense_array(attribute: DenseArray) -> str:
    name = attribute.element.name
    if not attribute.values:
        return f"array<{name}>"
    if name == "i1":
        texts = [_bool(bool(value)) for value in attribute.values]
    elif name in FLOAT_FORMATS:
        texts = [float_text(float(value), name) for value in attribute.values]
    else:
        texts = [str(int(value)) for value in attribute.values]
    return f"array<{name}: {', '.join(texts)}>"


def _dense_elements(attribute: DenseElements) -> str:
    return f"dense<{attribute.text}> : {attribute.type}"


@lru_cache(maxsize=4096)
def _opaque(attribute: OpaqueAttr) -> str:
    dot = "." if attribute.name else ""
    if attribute.body is None:
        return f"#{attribute.dialect}{dot}{attribute.name}"
    if not is_balanced(attribute.body):
        raise IRError(
            f"the body of #{attribute.dialect}{dot}{attribute.name} has brackets or strings that "
            f"are not closed; make it a string literal: {attribute.body[:80]!r}"
        )
    return f"#{attribute.dialect}{dot}{attribute.name}<{attribute.body}>"


#: By class: the text before each field's value and its default (a field without one has one that
#: equals nothing), and what gets the values of all fields.
_FIELDS: dict[type, tuple[tuple[tuple[str, Any], ...], Callable[[Any], tuple[Any, ...]]]] = {}


def _fields_of(cls: type[ParameterizedAttr]) -> tuple[tuple[tuple[str, Any], ...], Any]:
    fields = dataclasses.fields(cls)
    # Two names or more, so that the getter gives a tuple; zip drops what is too many.
    getter = operator.attrgetter(*(field.name for field in fields), "__class__", "__class__")
    _FIELDS[cls] = tuple((f"{field.name} = ", field.default) for field in fields), getter
    return _FIELDS[cls]


def _parameterized(attribute: ParameterizedAttr) -> str:
    cls = type(attribute)
    fields, getter = _FIELDS.get(cls) or _fields_of(cls)
    parts: list[str] = []
    for (prefix, default), value in zip(fields, getter(attribute)):
        if value == default:
            continue
        function = _SHORT.get(type(value))
        parts.append(prefix + (function(value) if function else _inferred(value, _SHORT)))
    body = f"<{', '.join(parts)}>" if parts else ""
    return f"#{ATTRIBUTE_NAMES[cls]}{body}"


_COMMON: dict[type, Callable[[Any], str]] = {
    bool: _bool,
    str: quoted,
    tuple: _array,
    Unit: lambda _: "unit",
    IntegerAttr: _integer,
    FloatAttr: _float,
    SymbolRef: _symbol,
    DictAttr: _dictionary,
    DenseArray: _dense_array,
    DenseElements: _dense_elements,
    OpaqueAttr: _opaque,
    TensorType: str,
    TokenType: str,
    OnType: str,
    InFlightType: str,
    OpaqueType: str,
    ScalarType: str,
    FunctionType: str,
}
_TYPED: dict[type, Callable[[Any], str]] = {**_COMMON, int: _typed_int, float: _typed_float}
_SHORT: dict[type, Callable[[Any], str]] = {**_COMMON, int: _short_int, float: _short_float}


def _inferred(value: object, table: dict[type, Callable[[Any], str]]) -> str:
    """The text of a value whose very class is not in ``table``: registered ones, and subclasses.

    ``numpy.float64`` and ``enum.IntEnum`` are such subclasses.
    """
    if isinstance(value, ParameterizedAttr):
        if type(value) not in ATTRIBUTE_NAMES:
            raise IRError(f"{type(value).__name__} is not registered: use register_attribute")
        table[type(value)] = _parameterized
        return _parameterized(value)
    for base, plain in ((int, int), (float, float), (str, str.__str__)):
        if isinstance(value, base):
            return table[base](plain(value))
    raise IRError(
        f"{value!r} of type {type(value).__qualname__} is no attribute; convert it to bool, int, "
        "float, str, a tuple, or a class of ir/attributes.py"
    )
