"""Compiled: the channel simulator's makespan, and searches that call it (numba, cached on disk).

The simulator is that of ``simulate/channel.py``, without memory. ``nodes`` and the other arrays
with named columns hold the problem; see ``channel_search.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from baechi_jax.passes.placement._heap import pop, push
from baechi_jax.passes.placement._jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]

# Columns of ``nodes``, ``[n, 5]``.
OUT, OUT_END, RANK, ARGUMENT, READS = range(5)


@compiled
def play(
    # The problem.
    nodes: Ints,
    by_rank: Ints,
    times: Floats,
    edges: Ints,
    costs: Floats,
    processor: Ints,
    # The assignment, and the state, changed in place.
    device: Ints,
    ready: Floats,
    missing: Ints,
    free: Floats,
    channel: Floats,
    arrived: Floats,
    heap_keys: Floats,
    heap_ranks: Ints,
    size: int,
    # At most so many nodes are taken.
    most: int,
    # What was changed, for ``undo``: edges in order, transfers in order; the nodes taken.
    log_ready: Floats,
    log_moves: Ints,
    taken: Ints,
) -> tuple[int, int, int, int, float, float]:
    """Take nodes until none is ready or ``most`` are.

    ``edges`` has columns reader and tensor; ``costs[t, a, b]``. Returns the heap's size, the nodes
    taken, the entries of both logs, the latest end and the sum of ends.
    """
    count = 0
    edge_log = 0
    move_log = 0
    makespan = 0.0
    total = 0.0
    while size > 0 and count < most:
        now = heap_keys[0]
        node = by_rank[heap_ranks[0]]
        pop(heap_keys, heap_ranks, size)
        size -= 1
        here = device[node]
        taken[count] = node
        count += 1
        if nodes[node, ARGUMENT]:
            end = 0.0
        else:
            own = processor[here]
            end = max(now, free[own]) + times[node, here]
            free[own] = end
        makespan = max(makespan, end)
        total += end
        for index in range(nodes[node, OUT], nodes[node, OUT_END]):
            reader, tensor = edges[index, 0], edges[index, 1]
            there = device[reader]
            time = end
            if there != here:
                time = arrived[tensor, there]
                if time < 0.0:
                    cost = costs[tensor, here, there]
                    send = max(end, channel[here])
                    channel[here] = send + cost
                    time = max(send, channel[there]) + cost
                    channel[there] = time
                    arrived[tensor, there] = time
                    log_moves[move_log, 0] = tensor
                    log_moves[move_log, 1] = there
                    move_log += 1
            log_ready[edge_log] = ready[reader]
            edge_log += 1
            ready[reader] = max(ready[reader], time)
            missing[reader] -= 1
            if missing[reader] == 0:
                push(heap_keys, heap_ranks, size, ready[reader], nodes[reader, RANK])
                size += 1
    return size, count, edge_log, move_log, makespan, total


@compiled
def undo(
    nodes: Ints,
    edges: Ints,
    ready: Floats,
    missing: Ints,
    arrived: Floats,
    count: int,
    edge_log: int,
    move_log: int,
    log_ready: Floats,
    log_moves: Ints,
    taken: Ints,
) -> None:
    """Undo what ``play`` did to ``ready``, ``missing`` and ``arrived``."""
    for back in range(count):
        node = taken[count - 1 - back]
        for index in range(nodes[node, OUT_END] - 1, nodes[node, OUT] - 1, -1):
            edge_log -= 1
            reader = edges[index, 0]
            ready[reader] = log_ready[edge_log]
            missing[reader] += 1
    for move in range(move_log):
        arrived[log_moves[move, 0], log_moves[move, 1]] = -1.0


@compiled
def makespan_of(
    nodes: Ints,
    by_rank: Ints,
    times: Floats,
    edges: Ints,
    costs: Floats,
    processor: Ints,
    device: Ints,
    ready: Floats,
    missing: Ints,
    free: Floats,
    channel: Floats,
    arrived: Floats,
    heap_keys: Floats,
    heap_ranks: Ints,
    log_ready: Floats,
    log_moves: Ints,
    taken: Ints,
) -> float:
    """Makespan of an assignment; the state is set up here."""
    ready[:] = 0.0
    free[:] = 0.0
    channel[:] = 0.0
    arrived[:] = -1.0
    size = 0
    for node in range(len(nodes)):
        missing[node] = nodes[node, READS]
        if missing[node] == 0:
            push(heap_keys, heap_ranks, size, 0.0, nodes[node, RANK])
            size += 1
    _, _, _, _, makespan, _ = play(
        nodes,
        by_rank,
        times,
        edges,
        costs,
        processor,
        device,
        ready,
        missing,
        free,
        channel,
        arrived,
        heap_keys,
        heap_ranks,
        size,
        len(nodes),
        log_ready,
        log_moves,
        taken,
    )
    return makespan


@compiled
def anneal(
    nodes: Ints,
    by_rank: Ints,
    times: Floats,
    edges: Ints,
    costs: Floats,
    processor: Ints,
    device: Ints,
    ready: Floats,
    missing: Ints,
    free: Floats,
    channel: Floats,
    arrived: Floats,
    heap_keys: Floats,
    heap_ranks: Ints,
    log_ready: Floats,
    log_moves: Ints,
    taken: Ints,
    # Groups that may move, nodes of each group, near[g, :]: groups that exchange tensors with it.
    movable: Ints,
    member_starts: Ints,
    members: Ints,
    near_starts: Ints,
    near: Ints,
    group_device: Ints,
    allowed: NDArray[np.bool_],
    best_device: Ints,
    current: float,
    best: float,
    hot: float,
    cold: float,
    steps: int,
    seed: int,
) -> tuple[float, float]:
    """Simulated annealing from ``hot`` to ``cold`` (times); full simulations.

    A move takes a group to another device; two times in three to that of a neighbour, and one time
    in four with a neighbour that is on the same device. Returns the current and the best makespan;
    ``best_device`` receives the best devices of groups.
    """
    np.random.seed(seed)
    devices = len(channel)
    moved = np.zeros(2, dtype=np.int64)
    old = np.zeros(2, dtype=np.int64)
    for step in range(steps):
        heat = hot * (cold / hot) ** (step / steps)
        group = movable[np.random.randint(len(movable))]
        source = group_device[group]
        target = np.random.randint(devices)
        begin, end = near_starts[group], near_starts[group + 1]
        if end > begin and np.random.randint(3) > 0:
            target = group_device[near[begin + np.random.randint(end - begin)]]
        if target == source or not allowed[group, target]:
            continue
        moved[0] = group
        count = 1
        if end > begin and np.random.randint(4) == 0:
            other = near[begin + np.random.randint(end - begin)]
            if group_device[other] == source and allowed[other, target]:
                moved[1] = other
                count = 2
        for index in range(count):
            old[index] = group_device[moved[index]]
            group_device[moved[index]] = target
            for entry in range(member_starts[moved[index]], member_starts[moved[index] + 1]):
                device[members[entry]] = target
        length = makespan_of(
            nodes,
            by_rank,
            times,
            edges,
            costs,
            processor,
            device,
            ready,
            missing,
            free,
            channel,
            arrived,
            heap_keys,
            heap_ranks,
            log_ready,
            log_moves,
            taken,
        )
        if length <= current or np.random.random() < np.exp((current - length) / heat):
            current = length
            if length < best:
                best = length
                best_device[:] = group_device
        else:
            for index in range(count):
                group_device[moved[index]] = old[index]
                for entry in range(member_starts[moved[index]], member_starts[moved[index] + 1]):
                    device[members[entry]] = old[index]
    return current, best


@compiled
def sweep(
    nodes: Ints,
    by_rank: Ints,
    times: Floats,
    edges: Ints,
    costs: Floats,
    processor: Ints,
    device: Ints,
    ready: Floats,
    missing: Ints,
    free: Floats,
    channel: Floats,
    arrived: Floats,
    heap_keys: Floats,
    heap_ranks: Ints,
    log_ready: Floats,
    log_moves: Ints,
    taken: Ints,
    reads_starts: Ints,
    sources: Ints,
    allowed: NDArray[np.bool_],
    window: int,
    ahead: int,
    trials: int,
    hot: float,
    seed: int,
) -> float:
    """Go through the step window by window, improving where the nodes of each window are.

    Every node is a group of its own. A trial moves a node of the next ``window`` nodes to be taken,
    plays ``ahead`` nodes from here and keeps the move when the mean of their ends and the latest
    end, added up, get less (or a little more, by chance, early in the window). Then the window's
    nodes are taken, and the next one begins. Returns the makespan.
    """
    np.random.seed(seed)
    devices = len(channel)
    ready[:] = 0.0
    free[:] = 0.0
    channel[:] = 0.0
    arrived[:] = -1.0
    size = 0
    for node in range(len(nodes)):
        missing[node] = nodes[node, READS]
        if missing[node] == 0:
            push(heap_keys, heap_ranks, size, 0.0, nodes[node, RANK])
            size += 1
    keep_keys = np.empty_like(heap_keys)
    keep_ranks = np.empty_like(heap_ranks)
    keep_free = np.empty_like(free)
    keep_channel = np.empty_like(channel)
    chosen = np.empty(ahead, dtype=np.int64)
    kept = np.empty(ahead, dtype=np.int64)
    makespan = 0.0
    while size > 0:
        keep_keys[:size] = heap_keys[:size]
        keep_ranks[:size] = heap_ranks[:size]
        keep_free[:] = free
        keep_channel[:] = channel
        begin = size
        current = 0.0
        best = 0.0
        inside = 0
        for trial in range(-1, trials):
            node, source = -1, -1
            if trial >= 0:
                node = chosen[np.random.randint(inside)]
                source = device[node]
                target = np.random.randint(devices)
                low, high = reads_starts[node], reads_starts[node + 1]
                if high > low and np.random.randint(2) == 0:
                    target = device[sources[low + np.random.randint(high - low)]]
                if target == source or not allowed[node, target]:
                    continue
                # What was sent before this window for it stays as it is: those that were taken
                # earlier have sent their tensors, so only nodes that miss all of them may move.
                if missing[node] < nodes[node, READS]:
                    continue
                device[node] = target
            size = begin
            _, count, edge_log, move_log, last, total = play(
                nodes,
                by_rank,
                times,
                edges,
                costs,
                processor,
                device,
                ready,
                missing,
                free,
                channel,
                arrived,
                heap_keys,
                heap_ranks,
                size,
                ahead,
                log_ready,
                log_moves,
                taken,
            )
            value = total / count + last
            if trial < 0:
                inside = min(window, count)
                reach = min(count, 2 * window)
                chosen[:reach] = taken[:reach]
                inside = reach
                kept[:reach] = device[chosen[:reach]]
                current = best = value
            undo(
                nodes,
                edges,
                ready,
                missing,
                arrived,
                count,
                edge_log,
                move_log,
                log_ready,
                log_moves,
                taken,
            )
            heap_keys[:begin] = keep_keys[:begin]
            heap_ranks[:begin] = keep_ranks[:begin]
            free[:] = keep_free
            channel[:] = keep_channel
            if trial >= 0:
                heat = hot * (1.0 - trial / trials) + 1e-9
                if value <= current or np.random.random() < np.exp((current - value) / heat):
                    current = value
                    if value < best:
                        best = value
                        kept[:inside] = device[chosen[:inside]]
                else:
                    device[node] = source
        device[chosen[:inside]] = kept[:inside]
        size, _, _, _, last, _ = play(
            nodes,
            by_rank,
            times,
            edges,
            costs,
            processor,
            device,
            ready,
            missing,
            free,
            channel,
            arrived,
            heap_keys,
            heap_ranks,
            begin,
            window,
            log_ready,
            log_moves,
            taken,
        )
        makespan = max(makespan, last)
    return makespan
