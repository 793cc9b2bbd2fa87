"""What colocation and recomputation ask of operations: forward or backward, literal, effect, scope.

Backward operations are those that JAX traced under ``transpose(...)``. Name stacks are compared
with the wrappers of automatic differentiation taken off, so that ``transpose(jvp(layer1))/dot`` and
``jvp(layer1)/dot`` are one place.
"""

from __future__ import annotations

import re

from baechi_jax.ir.core import Operation
from baechi_jax.ir.types import TokenType

LITERAL = "baechi.literal"
BARRIER = "jax.optimization_barrier"

_WRAPPER = re.compile(r"\b(?:transpose|jvp|vmap|linearize)\(|\)")

#: Components of a name stack that ``jax.checkpoint`` puts in.
_REMAT = frozenset({"checkpoint", "rematted_computation", ""})


def is_backward(op: Operation) -> bool:
    """Whether ``op`` was traced in the backward pass (recomputation of remat included)."""
    return "transpose(" in op.location.name


def has_effect(op: Operation) -> bool:
    """Whether ``op`` takes or gives a token."""
    return any(isinstance(value.type, TokenType) for value in (*op.operands, *op.results))


class Scopes:
    """Name stacks without the wrappers of differentiation; remembers what it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def scope(self, stack: str) -> str:
        """``jvp(a)/b`` and ``transpose(jvp(a))/jvp(a)/rematted_computation/b`` both as ``a/b``."""
        scope = self._seen.get(stack)
        if scope is None:
            parts = _WRAPPER.sub("", stack).split("/")
            scope = "/".join(dict.fromkeys(part for part in parts if part not in _REMAT))
            self._seen[stack] = scope
        return scope
