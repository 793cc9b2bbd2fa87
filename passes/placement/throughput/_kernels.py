"""The compiled inner loops of the dynamic programs over ideals (numba, cached on disk).

An ideal is a set of classes closed under predecessors. ``child[e]`` is what is left of its ideal
when the maximal class ``removed[e]`` is taken out. From an ideal I the kernel walks all smaller
ideals J depth first, taking classes out in falling order, so that each J is met exactly once; what
was taken out, S = I - J, is the content of one device. Its compute, bytes and transfers are kept
up to date as classes come and go.

Two things keep the walk short. A branch ends when S is too slow or too large for every class of
device, counting the outputs that must leave S whatever else joins it. And an ideal is entered at
all only if some number of devices can have computed it while the others can still do the rest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

INFINITY = np.inf


@njit(cache=True)  # type: ignore[untyped-decorator]
def best_loads(
    # The lattice of ideals, in an order in which children come first: CSR.
    pointers,
    removed,
    child,
    member,
    # Nodes of each class, and the edges of the workload: CSR.
    class_pointers,
    class_nodes,
    source_pointers,
    sources,
    target_pointers,
    targets,
    label,
    # Costs: [kind, class] seconds; [class] bytes; [node] transfer seconds; [class] sync seconds.
    seconds,
    held,
    transfer,
    sync,
    # Devices: [kind] count, memory, whether transfers cost; the last kind is the most numerous.
    counts,
    memory,
    pays,
    # Options.
    bound,
    overlap,
    replicas,
    # Whether loads add up (one sample after another) or the largest counts (a pipeline), and
    # [kind] whether devices of that kind may be used any number of times.
    in_series,
    unlimited,
    # [class] work, in any unit, and [kind] the most work that a second on this kind does.
    effort,
    exchange,
):
    """Smallest largest (or summed) load below ``bound`` of every ideal, by devices of each kind.

    Returns ``(best, previous, used_kind, used_replicas, visited)``: ``best[ideal, state]`` with
    ``state`` a mixed-radix number over the kinds (at most so many devices of each), and how it was
    reached. Entries at or above ``bound`` stay infinite.
    """
    ideals = len(pointers) - 1
    kinds = len(counts)
    classes = len(class_pointers) - 1
    nodes = len(label)
    stride = np.ones(kinds + 1, np.int64)
    for kind in range(kinds):
        stride[kind + 1] = stride[kind] * (counts[kind] + 1)
    states = stride[kinds]
    best = np.full((ideals, states), INFINITY)
    previous = np.zeros((ideals, states), np.int32)
    used_kind = np.zeros((ideals, states), np.int8)
    used_replicas = np.zeros((ideals, states), np.int8)
    best[0, :] = 0.0

    last = kinds - 1
    work = np.zeros(ideals)
    for ideal in range(1, ideals):
        edge = pointers[ideal]
        work[ideal] = work[child[edge]] + effort[removed[edge]]
    capacity = np.zeros(states)
    for state in range(states):
        for kind in range(kinds):
            count = state // stride[kind] % (counts[kind] + 1)
            capacity[state] += count * bound * exchange[kind]
    total = work[ideals - 1]

    inside = np.zeros(nodes, np.bool_)
    taken_targets = np.zeros(nodes, np.int64)
    leaves = np.zeros(nodes, np.bool_)
    at = np.zeros(classes + 1, np.int64)
    ideal_at = np.zeros(classes + 1, np.int64)
    class_at = np.zeros(classes + 1, np.int64)
    moved_before = np.zeros(classes + 1)
    pinned_before = np.zeros(classes + 1)
    compute = np.zeros((kinds, classes + 1))
    bytes_at = np.zeros(classes + 1)
    sync_at = np.zeros(classes + 1)
    effort_at = np.zeros(classes + 1)
    useful = np.zeros(states, np.bool_)
    slack = 1e-9 * total
    visited = 0

    for ideal in range(1, ideals):
        anything = False
        for state in range(states):
            rest = capacity[states - 1 - state]
            useful[state] = in_series or (
                work[ideal] <= capacity[state] + slack and total - work[ideal] <= rest + slack
            )
            anything = anything or useful[state]
        if not anything:
            continue
        for node in range(nodes):
            leaves[node] = False
            if member[ideal, label[node]]:
                for edge in range(target_pointers[node], target_pointers[node + 1]):
                    if not member[ideal, label[targets[edge]]]:
                        leaves[node] = True
                        break
        moved = 0.0
        pinned = 0.0
        depth = 0
        ideal_at[0] = ideal
        at[0] = pointers[ideal]
        class_at[0] = classes
        while depth >= 0:
            here = ideal_at[depth]
            if at[depth] >= pointers[here + 1]:
                if depth > 0:
                    group = class_at[depth]
                    for position in range(class_pointers[group], class_pointers[group + 1]):
                        node = class_nodes[position]
                        inside[node] = False
                        for edge in range(source_pointers[node], source_pointers[node + 1]):
                            taken_targets[sources[edge]] -= 1
                    moved = moved_before[depth]
                    pinned = pinned_before[depth]
                depth -= 1
                continue
            edge = at[depth]
            at[depth] += 1
            group = removed[edge]
            if group >= class_at[depth]:
                continue
            pin = pinned
            for position in range(class_pointers[group], class_pointers[group + 1]):
                node = class_nodes[position]
                if leaves[node]:
                    pin += transfer[node]
            size = bytes_at[depth] + held[group]
            alive = False
            for kind in range(kinds):
                time = compute[kind, depth] + seconds[kind, group]
                compute[kind, depth + 1] = time
                fixed = 0.0
                if pays[kind]:
                    fixed = pin
                floor = max(time, fixed) if overlap else time + fixed
                limit = bound
                if in_series:
                    # What is not in S takes at least its work, wherever it runs.
                    floor -= effort_at[depth] + effort[group]
                    limit = bound - total
                elif kind == last:
                    limit = bound * replicas
                if floor < limit and size <= memory[kind]:
                    alive = True
            if not alive:
                continue
            visited += 1
            moved_old = moved
            for position in range(class_pointers[group], class_pointers[group + 1]):
                node = class_nodes[position]
                inside[node] = True
                if taken_targets[node] > 0:
                    moved -= transfer[node]
                if target_pointers[node + 1] - target_pointers[node] > taken_targets[node]:
                    moved += transfer[node]
                for link in range(source_pointers[node], source_pointers[node + 1]):
                    source = sources[link]
                    taken_targets[source] += 1
                    if inside[source]:
                        degree = target_pointers[source + 1] - target_pointers[source]
                        if taken_targets[source] == degree:
                            moved -= transfer[source]
                    elif taken_targets[source] == 1:
                        moved += transfer[source]
            rest_ideal = child[edge]
            depth += 1
            at[depth] = pointers[rest_ideal]
            ideal_at[depth] = rest_ideal
            class_at[depth] = group
            bytes_at[depth] = size
            moved_before[depth] = moved_old
            pinned_before[depth] = pinned
            pinned = pin
            sync_at[depth] = sync_at[depth - 1] + sync[group]
            effort_at[depth] = effort_at[depth - 1] + effort[group]
            for kind in range(kinds):
                if size > memory[kind]:
                    continue
                cost = 0.0
                if pays[kind]:
                    cost = moved
                one = max(compute[kind, depth], cost) if overlap else compute[kind, depth] + cost
                copies = 1
                if kind == last:
                    copies = replicas
                for copy in range(1, copies + 1):
                    load = one
                    if copy > 1:
                        load = one / copy + sync_at[depth] * 2.0 * (copy - 1) / copy
                    if load >= bound:
                        continue
                    step = 0 if unlimited[kind] else stride[kind] * copy
                    for state in range(step, states):
                        if not useful[state]:
                            continue
                        if step > 0 and state // stride[kind] % (counts[kind] + 1) < copy:
                            continue
                        before = best[rest_ideal, state - step]
                        value = load + before if in_series else max(load, before)
                        if value < best[ideal, state] and value < bound:
                            best[ideal, state] = value
                            previous[ideal, state] = rest_ideal
                            used_kind[ideal, state] = kind
                            used_replicas[ideal, state] = copy
    return best, previous, used_kind, used_replicas, visited
