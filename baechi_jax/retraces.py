"""Many retraces in a row: a warning, as users of ``jax.jit`` know it from their own logs."""

from __future__ import annotations

import warnings
from typing import Any

#: So many calls in a row that all trace anew give a warning.
RETRACE_WARNING_AFTER = 6

#: Structure of the arguments, static ones, and ``(shape, dtype, weak type)`` of each leaf.
_Signature = tuple[Any, Any, tuple[Any, ...]]


class RetraceWarning(UserWarning):
    """A placed function was traced, planned and compiled for many calls in a row."""


class Retraces:
    """How many calls of function ``name`` in a row have traced anew."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.in_a_row = 0
        self._last: _Signature | None = None

    def count(self, tree: Any, static: Any, types_: tuple[Any, ...]) -> None:
        """One more; warns the caller's caller's caller when there are many."""
        self.in_a_row += 1
        last, self._last = self._last, (tree, static, types_)
        if self.in_a_row % RETRACE_WARNING_AFTER or last is None:
            return
        warnings.warn(
            f"{self._name} was traced, planned and compiled in each of its last {self.in_a_row} "
            f"calls: {_what_changed(last, (tree, static, types_))}. Pad batches to few shapes, and "
            "make what changes an array instead of a static argument",
            RetraceWarning,
            stacklevel=4,
        )


def _what_changed(before: _Signature, now: _Signature) -> str:
    if before[1] != now[1]:
        return f"the static arguments changed from {before[1]} to {now[1]}"
    if before[0] != now[0]:
        return "the structure of the arguments changed"
    for index, (one, other) in enumerate(zip(before[2], now[2], strict=True)):
        if one != other:
            return f"leaf {index} changed from {_type_text(one)} to {_type_text(other)}"
    return "JAX's configuration changed"


def _type_text(key: Any) -> str:
    shape, dtype, weak = key
    dims = ",".join(map(str, shape))
    return f"{dtype}[{dims}]" + (" (weakly typed)" if weak else "")
