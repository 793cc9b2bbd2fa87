"""The compiled inner loop of the flow bound (numba, cached on disk).

Classes are merged nodes in topological order; an ideal is a set of them closed under predecessors.
From an ideal the kernel takes classes out one after another in falling order, so that every set S
that may run last on one accelerator is met once. The share of the flow that passes S only grows
with S, and so does its load but for transfers between its own classes; a branch ends when even the
least load of S is more than what the optimum can afford.
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
def following_edges(pointers: Ints, removed: Ints, child: Ints) -> Ints:
    """``[edge]``: where to go on in its child, at the first class below the one taken out."""
    follows = np.zeros(len(removed), np.int64)
    for edge in range(len(removed)):
        position = pointers[child[edge]]
        end = pointers[child[edge] + 1]
        while position < end and removed[position] >= removed[edge]:
            position += 1
        follows[edge] = position
    return follows


@compiled
def sums_of_ideals(pointers: Ints, removed: Ints, child: Ints, value: Floats) -> Floats:
    """``[ideal]``: the sum of ``value[class]`` over its classes."""
    ideals = len(pointers) - 1
    total = np.zeros(ideals)
    for ideal in range(1, ideals):
        edge = pointers[ideal]
        total[ideal] = total[child[edge]] + value[removed[edge]]
    return total


@compiled
def least_flow_costs(
    # The ideals to do, and the tables to fill: [ideal, state].
    first: int,
    stop: int,
    best: Floats,
    previous: NDArray[np.int32],
    used_kind: NDArray[np.int8],
    # The lattice of ideals, in an order in which children come first: CSR.
    pointers: Ints,
    removed: Ints,
    child: Ints,
    follows: Ints,
    member: Bools,
    # Edges between classes: CSR by target, and by source with the flow on each.
    source_pointers: Ints,
    sources: Ints,
    target_pointers: Ints,
    targets: Ints,
    flow: Floats,
    # [class]: the flow through it, what it adds on the host, bytes, transfer seconds, its colour
    # (-1 if no other class has it); [colour]: classes; [kind, class]: seconds on accelerators.
    # ``behind``: of the nodes between the class and its readers, which are in S if both are.
    through: Floats,
    on_host: Floats,
    held: Floats,
    held_behind: Floats,
    transfer: Floats,
    colour: Ints,
    colour_size: Ints,
    seconds: Floats,
    seconds_behind: Floats,
    # Accelerators of each kind: how many subgraphs in all, memory.
    counts: Ints,
    memory: Floats,
    # [ideal] the least that its classes add to the cost, wherever they are; and a cost that a known
    # split has.
    work: Floats,
    bound: float,
) -> int:
    """Least cost of ideals, by the number of subgraphs of each kind; returns the sets visited.

    The cost of a split is the sum of the flow into each subgraph times its load, and of what its
    classes on the host add. Entries that cannot lead to less than ``bound`` stay infinite.
    """
    ideals = len(pointers) - 1
    kinds = len(counts)
    classes = len(transfer)
    states = best.shape[1]
    stride = np.ones(kinds + 1, np.int64)
    for kind in range(kinds):
        stride[kind + 1] = stride[kind] * (counts[kind] + 1)
    inside = np.zeros(classes, np.bool_)
    taken = np.zeros(classes, np.int64)
    pins = np.zeros(classes)
    in_colour = np.zeros(len(colour_size) + 1, np.int64)
    at = np.zeros(classes + 1, np.int64)
    ideal_at = np.zeros(classes + 1, np.int64)
    class_at = np.zeros(classes + 1, np.int64)
    pinned = np.zeros(classes + 1)
    moved = np.zeros(classes + 1)
    share = np.zeros(classes + 1)
    bytes_at = np.zeros(classes + 1)
    partial = np.zeros(classes + 1, np.int64)
    compute = np.zeros((kinds, classes + 1))
    visited = 0
    for ideal in range(first, stop):
        limit = bound - (work[ideals - 1] - work[ideal])
        for edge in range(pointers[ideal], pointers[ideal + 1]):
            group = removed[edge]
            for state in range(states):
                value = best[child[edge], state] + on_host[group]
                if value < best[ideal, state] and value < limit:
                    best[ideal, state] = value
                    previous[ideal, state] = child[edge]
                    used_kind[ideal, state] = -1
        worst = 0.0
        for state in range(1, states):
            worst = max(worst, best[ideal, state])
        worst = min(worst, limit)
        for group in range(classes):
            pins[group] = 0.0
            if member[ideal, group]:
                for link in range(target_pointers[group], target_pointers[group + 1]):
                    if not member[ideal, targets[link]]:
                        pins[group] = transfer[group]
                        break
        depth = 0
        ideal_at[0] = ideal
        at[0] = pointers[ideal]
        while depth >= 0:
            here = ideal_at[depth]
            if at[depth] >= pointers[here + 1]:
                if depth > 0:
                    group = class_at[depth]
                    inside[group] = False
                    for link in range(source_pointers[group], source_pointers[group + 1]):
                        taken[sources[link]] -= 1
                    if colour[group] >= 0:
                        in_colour[colour[group]] -= 1
                depth -= 1
                continue
            edge = at[depth]
            at[depth] += 1
            group = removed[edge]
            smaller = child[edge]
            near = taken[group] > 0
            size = bytes_at[depth] + held[group]
            if near:
                size += held_behind[group]
            pin = pinned[depth] + pins[group]
            flowing = share[depth] + through[group]
            for link in range(target_pointers[group], target_pointers[group + 1]):
                if inside[targets[link]]:
                    flowing -= flow[link]
            alive = False
            for kind in range(kinds):
                busy = compute[kind, depth] + seconds[kind, group]
                if near:
                    busy += seconds_behind[kind, group]
                compute[kind, depth + 1] = busy
                # What is not in S adds at least its work, wherever it runs.
                if size <= memory[kind] and flowing * (busy + pin) + work[smaller] < worst:
                    alive = True
            if not alive:
                continue
            visited += 1
            depth += 1
            at[depth] = follows[edge]
            ideal_at[depth] = smaller
            class_at[depth] = group
            bytes_at[depth] = size
            pinned[depth] = pin
            share[depth] = flowing
            pays = moved[depth - 1]
            inside[group] = True
            if taken[group] > 0:
                pays -= transfer[group]
            if target_pointers[group + 1] - target_pointers[group] > taken[group]:
                pays += transfer[group]
            for link in range(source_pointers[group], source_pointers[group + 1]):
                taken[sources[link]] += 1
                if taken[sources[link]] == 1:
                    pays += transfer[sources[link]]
            moved[depth] = pays
            broken = partial[depth - 1]
            if colour[group] >= 0:
                in_colour[colour[group]] += 1
                if in_colour[colour[group]] == 1:
                    broken += 1
                if in_colour[colour[group]] == colour_size[colour[group]]:
                    broken -= 1
            partial[depth] = broken
            if broken > 0:
                continue
            improved = False
            for kind in range(kinds):
                if size > memory[kind]:
                    continue
                cost = flowing * (compute[kind, depth] + pays)
                if cost + work[smaller] >= worst:
                    continue
                for state in range(stride[kind], states):
                    if state // stride[kind] % (counts[kind] + 1) == 0:
                        continue
                    value = best[smaller, state - stride[kind]] + cost
                    if value < best[ideal, state] and value < limit:
                        best[ideal, state] = value
                        previous[ideal, state] = smaller
                        used_kind[ideal, state] = kind
                        improved = True
            if improved:
                worst = 0.0
                for state in range(1, states):
                    worst = max(worst, best[ideal, state])
                worst = min(worst, limit)
    return visited
