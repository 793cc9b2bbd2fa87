"""The compiled inner loops of the dynamic programs over ideals (numba, cached on disk).

An ideal is a set of classes closed under predecessors. ``child[e]`` is what is left of its ideal
when the maximal class ``removed[e]`` is taken out. From an ideal I the kernel walks all smaller
ideals J depth first, taking classes out in falling order, so that each J is met exactly once; what
was taken out, S = I - J, is the content of one device.

Three things keep the walk short. A branch ends when S is too slow or too large for every class of
device to improve on what I has already, counting the outputs that must leave S whatever else joins
it. The transfers of S are counted only where its compute and what J costs leave room for an
improvement. And an ideal is entered at all only if some number of devices can have computed it
while the others can still do the rest.
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
def _with_class(
    moved: float,
    group: int,
    inside: Bools,
    taken: Ints,
    class_pointers: Ints,
    class_nodes: Ints,
    source_pointers: Ints,
    sources: Ints,
    target_pointers: Ints,
    transfer: Floats,
) -> float:
    """Seconds of the transfers of S with ``group`` added, where they were ``moved`` without it.

    ``inside[node]`` says what is in S, ``taken[node]`` how many of its readers are.
    """
    for position in range(class_pointers[group], class_pointers[group + 1]):
        node = class_nodes[position]
        inside[node] = True
        if taken[node] > 0:
            moved -= transfer[node]
        if target_pointers[node + 1] - target_pointers[node] > taken[node]:
            moved += transfer[node]
        for link in range(source_pointers[node], source_pointers[node + 1]):
            source = sources[link]
            taken[source] += 1
            if inside[source]:
                if taken[source] == target_pointers[source + 1] - target_pointers[source]:
                    moved -= transfer[source]
            elif taken[source] == 1:
                moved += transfer[source]
    return moved


@compiled
def best_loads(
    # The ideals to do, and the tables to fill: [ideal, state].
    first: int,
    stop: int,
    best: Floats,
    previous: NDArray[np.int32],
    used_kind: NDArray[np.int8],
    used_replicas: NDArray[np.int8],
    # The lattice of ideals, in an order in which children come first: CSR.
    pointers: Ints,
    removed: Ints,
    child: Ints,
    member: Bools,
    # Nodes of each class, and the edges of the workload: CSR.
    class_pointers: Ints,
    class_nodes: Ints,
    source_pointers: Ints,
    sources: Ints,
    target_pointers: Ints,
    targets: Ints,
    label: Ints,
    # Costs: [kind, class] seconds; [class] bytes; [node] transfer seconds; [class] sync seconds.
    seconds: Floats,
    held: Floats,
    transfer: Floats,
    sync: Floats,
    # Devices: [kind] count, memory, whether transfers cost; the last kind is the most numerous.
    counts: Ints,
    memory: Floats,
    pays: Bools,
    # Options.
    bound: float,
    overlap: bool,
    replicas: int,
    # Whether loads add up (one sample after another) or the largest counts (a pipeline), and
    # [kind] whether devices of that kind may be used any number of times.
    in_series: bool,
    unlimited: Bools,
    # [class] work, in any unit, and [kind] the most work that a second on this kind does.
    effort: Floats,
    exchange: Floats,
) -> int:
    """Smallest largest (or summed) load below ``bound`` of ideals, by devices of each kind.

    Fills ``best[ideal, state]`` for ideals ``first`` up to ``stop``, with ``state`` a mixed-radix
    number over the kinds (at most so many devices of each), and how it was reached; all smaller
    ideals must be done. Entries at or above ``bound`` stay infinite. Returns the sets visited.
    """
    ideals = len(pointers) - 1
    kinds = len(counts)
    classes = len(class_pointers) - 1
    nodes = len(label)
    stride = np.ones(kinds + 1, np.int64)
    for kind in range(kinds):
        stride[kind + 1] = stride[kind] * (counts[kind] + 1)
    states = stride[kinds]

    last = kinds - 1
    work = np.zeros(ideals)
    for ideal in range(1, ideals):
        edge = pointers[ideal]
        work[ideal] = work[child[edge]] + effort[removed[edge]]
    capacity = np.zeros(states)
    for state in range(states):
        for kind in range(kinds):
            count = state // stride[kind] % (counts[kind] + 1)
            if count > 0:
                capacity[state] += count * bound * exchange[kind]
    total = work[ideals - 1]

    # Where to go on in the child of an edge: at the first class below the one taken out.
    follows = np.zeros(len(removed), np.int64)
    for edge in range(len(removed)):
        position = pointers[child[edge]]
        end = pointers[child[edge] + 1]
        while position < end and removed[position] >= removed[edge]:
            position += 1
        follows[edge] = position
    # The least value of an ideal over all its states.
    least_of = np.zeros(ideals)
    for ideal in range(1, first):
        least_of[ideal] = best[ideal].min()
    inside = np.zeros(nodes, np.bool_)
    taken = np.zeros(nodes, np.int64)
    pins = np.zeros(classes)
    at = np.zeros(classes + 1, np.int64)
    ideal_at = np.zeros(classes + 1, np.int64)
    class_at = np.zeros(classes + 1, np.int64)
    pinned = np.zeros(classes + 1)
    moved_at = np.zeros(classes + 1)
    compute = np.zeros((kinds, classes + 1))
    bytes_at = np.zeros(classes + 1)
    sync_at = np.zeros(classes + 1)
    effort_at = np.zeros(classes + 1)
    useful = np.zeros(states, np.int64)
    digit = np.zeros((kinds, states), np.int64)
    for state in range(states):
        for kind in range(kinds):
            digit[kind, state] = state // stride[kind] % (counts[kind] + 1)
    slack = 1e-9 * total
    visited = 0

    for ideal in range(first, stop):
        width = 0
        for state in range(states):
            rest = capacity[states - 1 - state]
            if in_series or (
                work[ideal] <= capacity[state] + slack and total - work[ideal] <= rest + slack
            ):
                useful[width] = state
                width += 1
        if width == 0:
            least_of[ideal] = np.inf
            continue
        for group in range(classes):
            pins[group] = 0.0
        for node in range(nodes):
            if member[ideal, label[node]]:
                for edge in range(target_pointers[node], target_pointers[node + 1]):
                    if not member[ideal, label[targets[edge]]]:
                        pins[label[node]] += transfer[node]
                        break
        # Nothing at or above this helps any state of this ideal.
        worst = bound
        depth = 0
        # Transfers are known for the classes taken out at levels up to this one.
        counted = 0
        ideal_at[0] = ideal
        at[0] = pointers[ideal]
        while depth >= 0:
            here = ideal_at[depth]
            if at[depth] >= pointers[here + 1]:
                if counted == depth and depth > 0:
                    group = class_at[depth]
                    for position in range(class_pointers[group], class_pointers[group + 1]):
                        node = class_nodes[position]
                        inside[node] = False
                        for link in range(source_pointers[node], source_pointers[node + 1]):
                            taken[sources[link]] -= 1
                    counted -= 1
                depth -= 1
                continue
            edge = at[depth]
            at[depth] += 1
            group = removed[edge]
            pin = pinned[depth] + pins[group]
            size = bytes_at[depth] + held[group]
            done = effort_at[depth] + effort[group]
            alive = False
            for kind in range(kinds):
                busy = compute[kind, depth] + seconds[kind, group]
                compute[kind, depth + 1] = busy
                fixed = pin if pays[kind] else 0.0
                floor = max(busy, fixed) if overlap else busy + fixed
                if in_series:
                    # What is not in S takes at least its work, wherever it runs.
                    fits = floor - done < min(bound - total, worst - work[ideal])
                elif kind == last:
                    fits = floor < worst * replicas
                else:
                    fits = floor < worst
                alive = alive or (fits and size <= memory[kind])
            if not alive:
                continue
            visited += 1
            smaller = child[edge]
            depth += 1
            at[depth] = follows[edge]
            ideal_at[depth] = smaller
            class_at[depth] = group
            bytes_at[depth] = size
            pinned[depth] = pin
            effort_at[depth] = done
            sync_at[depth] = sync_at[depth - 1] + sync[group]
            if least_of[smaller] >= worst:
                continue
            for kind in range(kinds):
                if size > memory[kind]:
                    continue
                busy = compute[kind, depth]
                fixed = pin if pays[kind] else 0.0
                floor = max(busy, fixed) if overlap else busy + fixed
                copies = replicas if kind == last else 1
                for copy in range(1, copies + 1):
                    reduce = sync_at[depth] * 2.0 * (copy - 1) / copy
                    least = floor / copy + reduce
                    if least >= worst:
                        continue
                    step = 0 if unlimited[kind] else stride[kind] * copy
                    for index in range(width):
                        state = useful[index]
                        if step > 0 and digit[kind, state] < copy:
                            continue
                        before = best[smaller, state - step]
                        value = least + before if in_series else max(least, before)
                        if value >= best[ideal, state] or value >= bound:
                            continue
                        # Only now the transfers are worth counting.
                        if pays[kind]:
                            while counted < depth:
                                counted += 1
                                moved_at[counted] = _with_class(
                                    moved_at[counted - 1],
                                    class_at[counted],
                                    inside,
                                    taken,
                                    class_pointers,
                                    class_nodes,
                                    source_pointers,
                                    sources,
                                    target_pointers,
                                    transfer,
                                )
                            moved = moved_at[depth]
                            load = max(busy, moved) if overlap else busy + moved
                            load = load / copy + reduce
                            value = load + before if in_series else max(load, before)
                            if value >= best[ideal, state] or value >= bound:
                                continue
                        best[ideal, state] = value
                        previous[ideal, state] = smaller
                        used_kind[ideal, state] = kind
                        used_replicas[ideal, state] = copy
                        worst = 0.0
                        for other in range(width):
                            worst = max(worst, best[ideal, useful[other]])
                        worst = min(worst, bound)
        least_of[ideal] = best[ideal].min()
    return visited
