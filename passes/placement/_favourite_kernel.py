"""Compiled loops over the edges of m-SCT's graph (numba); see ``favourite_children.py``.

Edges are sorted by the number of their source, numbers being topological.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from baechi_jax.passes.placement._jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]


@compiled
def ways(source: Ints, target: Ints, seconds: Floats, cost: Floats) -> tuple[Floats, Floats]:
    """Longest way to the start of each node, and from its end, with ``cost`` on each edge."""
    head = np.zeros(len(seconds))
    tail = np.zeros(len(seconds))
    for edge in range(len(source)):
        time = head[source[edge]] + seconds[source[edge]] + cost[edge]
        head[target[edge]] = max(head[target[edge]], time)
    for back in range(len(source)):
        edge = len(source) - 1 - back
        time = tail[target[edge]] + seconds[target[edge]] + cost[edge]
        tail[source[edge]] = max(tail[source[edge]], time)
    return head, tail


@compiled
def complete(
    source: Ints,
    target: Ints,
    seconds: Floats,
    cost: Floats,
    free: Bools,
    near: Floats,
    makespan: float,
    passes: int,
) -> tuple[Floats, Floats]:
    """Give what is left of each node's one favourite to edges on ways longer than ``makespan``.

    Longest ways first, in rounds. ``near`` is changed in place; returns ``ways`` under it.
    """
    out = np.ones(len(seconds))
    into = np.ones(len(seconds))
    for edge in range(len(source)):
        out[source[edge]] -= near[edge]
        into[target[edge]] -= near[edge]
    for _ in range(passes):
        head, tail = ways(source, target, seconds, cost * (1.0 - near))
        length = np.empty(len(source))
        for edge in range(len(source)):
            a, b = source[edge], target[edge]
            length[edge] = (
                head[a] + seconds[a] + cost[edge] * (1.0 - near[edge]) + seconds[b] + tail[b]
            )
        changed = False
        for edge in np.argsort(-length, kind="mergesort"):
            if length[edge] <= makespan:
                break
            room = min(out[source[edge]], into[target[edge]], 1.0 - near[edge])
            if free[edge] and room > 1e-9:
                near[edge] += room
                out[source[edge]] -= room
                into[target[edge]] -= room
                changed = True
        if not changed:
            break
    return ways(source, target, seconds, cost * (1.0 - near))
