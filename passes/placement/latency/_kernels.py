"""The compiled inner loop of the latency search (numba, cached on disk).

The state is the piece of every class of nodes: an accelerator's subgraph, or the host. A move puts
one class, or a class and everything of its piece that lies before (or after) it, into another
piece. The latency is recomputed by one sweep over the pieces in dependence order; a cycle among
them (which is also what a piece that is not contiguous makes) refuses the move.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)  # type: ignore[untyped-decorator]
def _latency(
    piece_of,
    pieces,
    edge_pointers,
    targets,
    sources_of,
    sources,
    transfer,
    seconds,
    host_seconds,
    kind_of,
    loads,
    waiting,
    ready,
    stamp,
    stack,
    times,
    members_pointers,
    members,
):
    """Latency of the split, or infinity; ``loads`` receives the load of each piece."""
    nodes = len(piece_of)
    for piece in range(pieces):
        loads[piece] = 0.0
        waiting[piece] = 0
        ready[piece] = 0.0
        members_pointers[piece] = 0
    members_pointers[pieces] = 0
    for node in range(nodes):
        piece = piece_of[node]
        if piece < pieces:
            loads[piece] += seconds[kind_of[piece], node]
            members_pointers[piece + 1] += 1
    for piece in range(pieces):
        members_pointers[piece + 1] += members_pointers[piece]
    for piece in range(pieces):
        stamp[piece] = members_pointers[piece]
    for node in range(nodes):
        piece = piece_of[node]
        if piece < pieces:
            members[stamp[piece]] = node
            stamp[piece] += 1
    for piece in range(pieces):
        stamp[piece] = -1
    for node in range(nodes):
        home = piece_of[node]
        waiting[pieces + node] = 0
        ready[pieces + node] = 0.0
        leaves = False
        for edge in range(edge_pointers[node], edge_pointers[node + 1]):
            piece = piece_of[targets[edge]]
            if piece == home and piece < pieces:
                continue
            leaves = True
            if piece < pieces and stamp[piece] != node:
                stamp[piece] = node
                loads[piece] += transfer[node]
        if leaves and home < pieces:
            loads[home] += transfer[node]
    for node in range(nodes):
        home = piece_of[node]
        for edge in range(edge_pointers[node], edge_pointers[node + 1]):
            target = targets[edge]
            piece = piece_of[target]
            if piece < pieces:
                if piece != home:
                    waiting[piece] += 1
            else:
                waiting[pieces + target] += 1
    top = 0
    finished = 0
    for piece in range(pieces):
        if members_pointers[piece + 1] > members_pointers[piece] and waiting[piece] == 0:
            stack[top] = piece
            top += 1
    for node in range(nodes):
        if piece_of[node] == pieces and waiting[pieces + node] == 0:
            stack[top] = pieces + node
            top += 1
    last = 0.0
    while top > 0:
        top -= 1
        unit = stack[top]
        if unit < pieces:
            end = ready[unit] + loads[unit]
            first = members_pointers[unit]
            stop = members_pointers[unit + 1]
        else:
            end = ready[unit] + host_seconds[unit - pieces]
            first = 0
            stop = 1
        times[unit] = end
        last = max(last, end)
        finished += stop - first
        for position in range(first, stop):
            node = members[position] if unit < pieces else unit - pieces
            for edge in range(edge_pointers[node], edge_pointers[node + 1]):
                target = targets[edge]
                piece = piece_of[target]
                if piece == unit:
                    continue
                following = piece if piece < pieces else pieces + target
                ready[following] = max(ready[following], end)
                waiting[following] -= 1
                if waiting[following] == 0:
                    stack[top] = following
                    top += 1
    return last if finished == nodes else np.inf


@njit(cache=True)  # type: ignore[untyped-decorator]
def anneal_latency(
    steps,
    seed,
    start,
    pieces,
    class_pointers,
    class_nodes,
    class_of,
    neighbour_pointers,
    neighbours,
    edge_pointers,
    targets,
    sources_of,
    sources,
    position,
    transfer,
    seconds,
    host_seconds,
    allowed,
    held,
    kind_of,
    memory,
    hot,
    cold,
    weight,
):
    """Annealing on ``latency + weight * sum of loads``; the best latency seen and its split.

    ``start[node]`` is the piece of each node, ``pieces`` for the host. ``position[class]`` is a
    topological position, by which a move takes a prefix or suffix of a piece along.
    """
    np.random.seed(seed)
    nodes = len(start)
    classes = len(class_pointers) - 1
    piece_of = start.copy()
    loads = np.zeros(pieces + 1)
    waiting = np.zeros(pieces + nodes + 1, np.int64)
    ready = np.zeros(pieces + nodes + 1)
    stamp = np.zeros(pieces + 1, np.int64)
    stack = np.zeros(pieces + nodes + 1, np.int64)
    times = np.zeros(pieces + nodes + 1)
    members_pointers = np.zeros(pieces + 2, np.int64)
    members = np.zeros(nodes + 1, np.int64)
    used = np.zeros(pieces + 1)
    class_held = np.zeros(classes)
    for group in range(classes):
        for at in range(class_pointers[group], class_pointers[group + 1]):
            class_held[group] += held[class_nodes[at]]
    for node in range(nodes):
        used[piece_of[node]] += held[node]
    value = _latency(
        piece_of,
        pieces,
        edge_pointers,
        targets,
        sources_of,
        sources,
        transfer,
        seconds,
        host_seconds,
        kind_of,
        loads,
        waiting,
        ready,
        stamp,
        stack,
        times,
        members_pointers,
        members,
    )
    energy = value
    for piece in range(pieces):
        energy += weight * loads[piece]
    best = value
    best_piece_of = piece_of.copy()
    changed = np.zeros(classes, np.int64)
    old = np.zeros(classes, np.int64)
    for step in range(steps):
        temperature = hot * (cold / hot) ** (step / steps)
        group = np.random.randint(classes)
        origin = piece_of[class_nodes[class_pointers[group]]]
        choice = np.random.random()
        width = neighbour_pointers[group + 1] - neighbour_pointers[group]
        if choice < 0.75 and width > 0:
            other = neighbours[neighbour_pointers[group] + np.random.randint(width)]
            target = piece_of[class_nodes[class_pointers[other]]]
        elif choice < 0.87:
            target = pieces
        else:
            target = np.random.randint(pieces)
        if target == origin:
            continue
        count = 1
        changed[0] = group
        if origin < pieces and np.random.random() < 0.4:
            # Take along what of the piece lies after the class, or before it.
            tail = np.random.random() < 0.5
            for at in range(classes):
                if at == group or piece_of[class_nodes[class_pointers[at]]] != origin:
                    continue
                if (position[at] > position[group]) == tail:
                    changed[count] = at
                    count += 1
        size = 0.0
        fits = True
        for index in range(count):
            size += class_held[changed[index]]
            if target < pieces:
                fits = fits and allowed[kind_of[target], changed[index]]
        if target < pieces:
            fits = fits and used[target] + size <= memory[target]
        else:
            for index in range(count):
                fits = fits and allowed[len(allowed) - 1, changed[index]]
        if not fits:
            continue
        for index in range(count):
            old[index] = origin
            for at in range(class_pointers[changed[index]], class_pointers[changed[index] + 1]):
                piece_of[class_nodes[at]] = target
        now = _latency(
            piece_of,
            pieces,
            edge_pointers,
            targets,
            sources_of,
            sources,
            transfer,
            seconds,
            host_seconds,
            kind_of,
            loads,
            waiting,
            ready,
            stamp,
            stack,
            times,
            members_pointers,
            members,
        )
        accepted = np.isfinite(now)
        total = now
        if accepted:
            for piece in range(pieces):
                total += weight * loads[piece]
            change = total - energy
            accepted = change <= 0 or np.random.random() < np.exp(-change / temperature)
        if accepted:
            energy = total
            used[origin] -= size
            used[target] += size
            if now < best * (1 - 1e-12):
                best = now
                best_piece_of[:] = piece_of
        else:
            for index in range(count):
                for at in range(class_pointers[changed[index]], class_pointers[changed[index] + 1]):
                    piece_of[class_nodes[at]] = origin
    return best, best_piece_of
