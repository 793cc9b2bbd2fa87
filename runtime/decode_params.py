"""Attributes back to the parameters of JAX equations.

The traced equation is the guide. Where an attribute is still what the traced parameter encodes to,
the traced object itself is used: it may hold what no attribute can (a callable, a sharding). Where
a pass changed it, the traced parameter's class says what to make (named tuple, enum, dtype, list).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import numpy as np

from baechi_jax.ir.attributes import Attribute, DictAttr, FloatAttr, IntegerAttr, OpaqueAttr
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.jax_params import NONE, encode
from baechi_jax.ir.jax_types import aval_of, dtype_of
from baechi_jax.ir.types import OpaqueType, ScalarType, TensorType


def decode(attribute: Attribute, like: Any) -> Any:
    """The parameter that ``attribute`` says, made like the traced parameter ``like``.

    Raises IRError where the attribute cannot be such a parameter.
    """
    if encode(like) == attribute:
        return like
    if isinstance(like, enum.Enum):
        return _member(attribute, type(like))
    if isinstance(attribute, DictAttr):
        return _structure(attribute, like)
    if isinstance(attribute, tuple):
        return _sequence(attribute, like)
    if isinstance(like, np.generic) and isinstance(attribute, bool | int | float):
        return type(like)(attribute)
    if isinstance(like, complex):
        raise IRError(f"expected a pair of floats for a complex number, found {attribute!r}")
    return decode_alone(attribute)


def decode_alone(attribute: Attribute) -> Any:
    """The parameter that ``attribute`` says by itself, without a traced one to go by.

    Strings stay strings, arrays become tuples, types become dtypes or abstract values. Raises
    IRError for an opaque attribute.
    """
    if isinstance(attribute, bool | int | float | str):
        return attribute
    if attribute == NONE:
        return None
    if isinstance(attribute, tuple):
        return tuple(decode_alone(entry) for entry in attribute)
    if isinstance(attribute, DictAttr):
        return {name: decode_alone(entry) for name, entry in attribute.items_}
    if isinstance(attribute, ScalarType):
        return dtype_of(attribute.name)
    if isinstance(attribute, OpaqueType):
        return dtype_of(str(attribute))
    if isinstance(attribute, TensorType):
        return aval_of(attribute)
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return np.dtype(dtype_of(attribute.type.name)).type(attribute.value)
    if isinstance(attribute, OpaqueAttr):
        raise IRError(
            f"{attribute.body or attribute.name} cannot be made from text: only a traced op "
            "('baechi.eqn') whose parameter is unchanged can have it"
        )
    raise IRError(f"cannot make a parameter from {attribute!r}")


def decode_literal(attribute: Attribute, element: str) -> Any:
    """The number that ``baechi.literal`` holds, as Python or numpy knows it."""
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return attribute.value
    if isinstance(attribute, bool | int | float):
        return attribute
    if isinstance(attribute, tuple) and len(attribute) == 2 and element.startswith("complex<"):
        real, imag = (decode_literal(part, element) for part in attribute)
        return complex(real, imag)
    raise IRError(f"expected a number of type {element}, found {attribute!r}")


def _member(attribute: Attribute, cls: type[enum.Enum]) -> Any:
    for member in cls.__members__.values():
        if attribute in (member.name, member.value):
            return member
    raise IRError(f"{attribute!r} is no {cls.__name__}: expected one of {list(cls.__members__)}")


def _structure(attribute: DictAttr, like: Any) -> Any:
    entries: Mapping[str, Attribute] = dict(attribute.items_)
    if hasattr(like, "_fields"):
        old = like._asdict()
        _same_keys(entries, old, like)
        return type(like)(**{name: decode(entries[name], old[name]) for name in old})
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        old = {field.name: getattr(like, field.name) for field in dataclasses.fields(like)}
        _same_keys(entries, old, like)
        changed = {
            name: decode(entries[name], value)
            for name, value in old.items()
            if encode(value) != entries[name]
        }
        return dataclasses.replace(like, **changed)
    if isinstance(like, Mapping):
        made = {
            name: decode(entry, like[name]) if name in like else decode_alone(entry)
            for name, entry in entries.items()
        }
        return made if type(like) is dict else type(like)(made)  # type: ignore[call-arg]
    return decode_alone(attribute)


def _same_keys(found: Mapping[str, Attribute], expected: Mapping[str, Any], like: Any) -> None:
    if found.keys() != expected.keys():
        raise IRError(
            f"expected the fields {list(expected)} of {type(like).__name__}, found {list(found)}"
        )


def _sequence(attribute: tuple[Attribute, ...], like: Any) -> Any:
    if isinstance(like, complex):
        return complex(*(decode_alone(part) for part in attribute))
    if not isinstance(like, tuple | list | set | frozenset):
        return decode_alone(attribute)
    guides = list(like)
    if len(guides) != len(attribute):
        # A longer or shorter list of the same kind of thing: any old entry is a guide.
        guides = guides[:1] * len(attribute)
    entries = (
        [decode(entry, guide) for entry, guide in zip(attribute, guides)]
        if guides
        else [decode_alone(entry) for entry in attribute]
    )
    return type(like)(entries)
