"""A binary heap in two arrays, for compiled loops: least key first, of equal ones the least rank.

The caller counts the entries. Several heaps in one array are slices of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from baechi_jax.passes.placement._jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]


@compiled
def push(keys: Floats, ranks: Ints, size: int, key: float, rank: int) -> None:
    """Add an entry to a heap of ``size``."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and ranks[above] < rank):
            break
        keys[at] = keys[above]
        ranks[at] = ranks[above]
        at = above
    keys[at] = key
    ranks[at] = rank


@compiled
def pop(keys: Floats, ranks: Ints, size: int) -> None:
    """Drop the top of a heap of ``size``."""
    last = size - 1
    key, rank = keys[last], ranks[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            keys[right] < keys[below]
            or (keys[right] == keys[below] and ranks[right] < ranks[below])
        ):
            below = right
        if key < keys[below] or (key == keys[below] and rank < ranks[below]):
            break
        keys[at] = keys[below]
        ranks[at] = ranks[below]
        at = below
    keys[at] = key
    ranks[at] = rank
