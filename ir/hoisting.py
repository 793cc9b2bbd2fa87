"""Where the arrays that inner jaxprs close over go when they become operands.

``from_jaxpr`` makes every such array an argument of ``@main`` and hands it down through the ops on
the way. This module knows which ops can take more operands, where, and which attribute counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.errors import IRError

#: Ops that can take leading operands more: calls, whose region takes the operands one to one, and
#: control flow.
EXTENSIBLE = frozenset(
    {
        *("jax.jit", "jax.custom_jvp_call", "jax.custom_vjp_call", "jax.closed_call", "jax.remat"),
        *("jax.scan", "jax.while", "jax.cond"),
    }
)


@dataclass(frozen=True, slots=True)
class Constant:
    """An array that a jaxpr closes over. Two are one where the array is the same object."""

    value: Any
    aval: Any

    @property
    def key(self) -> int:
        """The identity of the array."""
        return id(self.value)


def merge(groups: Iterable[Iterable[Constant]]) -> list[Constant]:
    """Each constant once, in order of appearance."""
    merged = {constant.key: constant for group in groups for constant in group}
    return list(merged.values())


def insertion_points(
    name: str, attributes: Mapping[str, Attribute], hoisted: Sequence[list[Constant]]
) -> list[tuple[int, list[Constant]]]:
    """Where in an op's operands the constants of its regions go, last place first."""
    if not any(hoisted):
        return []
    if name == "jax.while":
        return [(_count(name, attributes, "cond_nconsts"), hoisted[1]), (0, hoisted[0])]
    if name == "jax.cond":  # after the predicate; every branch takes the same
        return [(1, hoisted[0])]
    return [(0, hoisted[0])]


def counts(
    name: str, attributes: Mapping[str, Attribute], hoisted: Sequence[list[Constant]]
) -> dict[str, int]:
    """How many operands an op gains, by the attribute that counts them ("" where none does)."""
    if not any(hoisted):
        return {}
    if name == "jax.while":
        return {"cond_nconsts": len(hoisted[0]), "body_nconsts": len(hoisted[1])}
    if "num_consts" in attributes:
        return {"num_consts": len(hoisted[0])}
    return {"": len(hoisted[0])}


def is_scalar(aval: Any) -> bool:
    """Whether a constant of this type is a literal: a number without dimensions."""
    if getattr(aval, "shape", None) != ():
        return False
    # Extended dtypes (random keys) are no numpy dtype; float0 is a structured one.
    return isinstance(aval.dtype, np.dtype) and aval.dtype.names is None


def _count(name: str, attributes: Mapping[str, Attribute], key: str) -> int:
    value = attributes.get(key)
    if not isinstance(value, int):
        raise IRError(f"'{name}' has no count '{key}': found {value!r}")
    return value
