"""The compiled inner loop of the latency search (numba, cached on disk).

The state is the piece of every class of nodes: a subgraph of an accelerator, or the host. A move
puts one class, or a class and everything of its piece that lies before (or after) it, into another
piece. The latency is recomputed by one sweep over the pieces in dependence order; a cycle among
them (which is also what a piece that is not contiguous makes) refuses the move.
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
def _latency(
    piece_of: Ints,
    pieces: int,
    subgraphs: int,
    edge_pointers: Ints,
    targets: Ints,
    transfer: Floats,
    seconds: Floats,
    host_seconds: Floats,
    kind_of: Ints,
    loads: Floats,
    waiting: Ints,
    ready: Floats,
    stamp: Ints,
    stack: Ints,
    member_pointers: Ints,
    members: Ints,
) -> float:
    """Latency of the split, or infinity; ``loads`` receives the load of each piece."""
    nodes = len(piece_of)
    for piece in range(pieces):
        loads[piece] = 0.0
        waiting[piece] = 1 if piece % subgraphs else 0
        ready[piece] = 0.0
        member_pointers[piece] = 0
    member_pointers[pieces] = 0
    for node in range(nodes):
        piece = piece_of[node]
        if piece < pieces:
            loads[piece] += seconds[kind_of[piece], node]
            member_pointers[piece + 1] += 1
    for piece in range(pieces):
        member_pointers[piece + 1] += member_pointers[piece]
        stamp[piece] = member_pointers[piece]
    for node in range(nodes):
        piece = piece_of[node]
        if piece < pieces:
            members[stamp[piece]] = node
            stamp[piece] += 1
    for piece in range(pieces):
        stamp[piece] = -1
    for node in range(nodes):
        waiting[pieces + node] = 0
        ready[pieces + node] = 0.0
    for node in range(nodes):
        home = piece_of[node]
        leaves = False
        for edge in range(edge_pointers[node], edge_pointers[node + 1]):
            target = targets[edge]
            piece = piece_of[target]
            if piece == pieces:
                waiting[pieces + target] += 1
            elif piece == home:
                continue
            else:
                waiting[piece] += 1
                if stamp[piece] != node:
                    stamp[piece] = node
                    loads[piece] += transfer[node]
            leaves = True
        if leaves and home < pieces:
            loads[home] += transfer[node]
    top = 0
    finished = 0
    for piece in range(pieces):
        if waiting[piece] == 0:
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
            first = member_pointers[unit]
            stop = member_pointers[unit + 1]
            if (unit + 1) % subgraphs:
                ready[unit + 1] = max(ready[unit + 1], end)
                waiting[unit + 1] -= 1
                if waiting[unit + 1] == 0:
                    stack[top] = unit + 1
                    top += 1
        else:
            end = ready[unit] + host_seconds[unit - pieces]
            first = 0
            stop = 1
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


@compiled
def anneal_latency(
    steps: int,
    seed: int,
    start: Ints,
    pieces: int,
    subgraphs: int,
    # Nodes of each colour class, and which classes are joined by an edge: CSR.
    class_pointers: Ints,
    class_nodes: Ints,
    neighbour_pointers: Ints,
    neighbours: Ints,
    # [class] a topological position.
    position: Ints,
    # Edges of the workload (CSR by source) and costs; ``seconds[kind, node]`` is zero where a node
    # cannot run, ``allowed[kind, class]`` says where it can; its last row is the host.
    edge_pointers: Ints,
    targets: Ints,
    transfer: Floats,
    seconds: Floats,
    host_seconds: Floats,
    allowed: Bools,
    held: Floats,
    # [piece] kind, [accelerator] memory; behind them, that of the host.
    kind_of: Ints,
    memory: Floats,
    # Temperatures at the first and the last step, and what a second of load weighs.
    hot: float,
    cold: float,
    weight: float,
) -> tuple[float, Ints]:
    """Annealing on ``latency + weight * sum of loads``; the best latency seen and its split.

    ``start[node]`` is the piece of each node, ``pieces`` for the host; it must be valid. A move
    that takes a prefix or suffix of a piece along goes by ``position``. The same seed gives the
    same result.
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
    member_pointers = np.zeros(pieces + 2, np.int64)
    members = np.zeros(nodes + 1, np.int64)
    accelerators = len(memory)
    used = np.zeros(accelerators)
    class_held = np.zeros(classes)
    for group in range(classes):
        for at in range(class_pointers[group], class_pointers[group + 1]):
            class_held[group] += held[class_nodes[at]]
    for node in range(nodes):
        used[piece_of[node] // subgraphs] += held[node]
    value = _latency(
        piece_of,
        pieces,
        subgraphs,
        edge_pointers,
        targets,
        transfer,
        seconds,
        host_seconds,
        kind_of,
        loads,
        waiting,
        ready,
        stamp,
        stack,
        member_pointers,
        members,
    )
    energy = value
    for piece in range(pieces):
        energy += weight * loads[piece]
    best = value
    best_piece_of = piece_of.copy()
    changed = np.zeros(classes, np.int64)
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
        kind = kind_of[target] if target < pieces else len(allowed) - 1
        size = 0.0
        fits = True
        for index in range(count):
            size += class_held[changed[index]]
            fits = fits and allowed[kind, changed[index]]
        device = target // subgraphs
        same = origin < pieces and origin // subgraphs == device
        if not same:
            fits = fits and used[device] + size <= memory[device]
        if not fits:
            continue
        for index in range(count):
            for at in range(class_pointers[changed[index]], class_pointers[changed[index] + 1]):
                piece_of[class_nodes[at]] = target
        now = _latency(
            piece_of,
            pieces,
            subgraphs,
            edge_pointers,
            targets,
            transfer,
            seconds,
            host_seconds,
            kind_of,
            loads,
            waiting,
            ready,
            stamp,
            stack,
            member_pointers,
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
            used[origin // subgraphs] -= size
            used[device] += size
            if now < best * (1 - 1e-12):
                best = now
                best_piece_of[:] = piece_of
        else:
            for index in range(count):
                for at in range(class_pointers[changed[index]], class_pointers[changed[index] + 1]):
                    piece_of[class_nodes[at]] = origin
    return best, best_piece_of
