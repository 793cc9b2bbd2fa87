"""The compiled list scheduler (numba, cached on disk): ``list_scheduling.py``, step for step.

It takes the same decisions as the scheduler in plain Python, which says what they are and is what
the tests compare it with; here are only arrays. Heaps hold the rank of a node in program order and
its key; ``HEAPS`` of them for each device: nodes whose data arrives later, nodes whose data is
there, and the same two for urgent nodes.

Numba passes an array as seven words, so what belongs together is one array with named columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from baechi_jax.passes.placement._jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]

FUTURE, ARRIVED, URGENT_FUTURE, URGENT_ARRIVED = 0, 1, 2, 3
HEAPS = 4
_NONE = np.inf

# Columns of ``nodes``, ``[n, 8]``: the problem's, then the state's.
GROUP, POSITION, ARGUMENT, READ, READ_END, PLACED, MISSING, FAVOURITE = range(8)
# Columns of ``tensors``, ``[t, 4]``.
PRODUCER, BYTES, READER, READER_END = range(4)
# Planes of ``links``, ``[3, d, d]``; the wire is a whole number.
LATENCY, PER_BYTE, WIRE = range(3)


class Graph(NamedTuple):
    """The problem, in the machine's unit of time; names as in ``FlatGraph`` and ``Machine``."""

    nodes: Ints
    tensors: Ints
    seconds: Floats
    fastest: Floats
    #: Node at each position.
    order: Ints
    reads: Ints
    readers: Ints
    give_starts: Ints
    gives: Ints
    #: Nodes of each group in program order, ``[g + 1]``, ``[n]``.
    member_starts: Ints
    members: Ints
    allowed: Bools
    processor: Ints
    links: Floats
    #: Groups of arguments that come along with each group, ``[g + 1]``, ``[...]``.
    along_starts: Ints
    along: Ints
    #: Whether there are favourite children, whether devices have channels instead of links.
    awake: bool
    channel: bool


class Memory(NamedTuple):
    """What the ledger needs; all empty and ``ample`` true where memory cannot run out."""

    ample: bool
    limit: Ints
    curve: Ints
    group_peak: Ints
    first: Ints
    nbytes: Ints
    in_starts: Ints
    in_tensors: Ints
    in_groups: Ints
    in_until: Ints
    out_starts: Ints
    out_tensors: Ints
    out_groups: Ints
    out_until: Ints
    # The state.
    used: Ints
    peak: Ints
    copied: Ints
    together: Ints
    touched: Bools


class State(NamedTuple):
    """What changes, but for the ledger and two columns of ``nodes``."""

    device: Ints
    open: Bools
    finish: Floats
    arrival: Floats
    #: When each processor is free; when each wire, or each device's channel, is.
    free: Floats
    wire_free: Floats
    keys: Floats
    ranks: Ints
    sizes: Ints
    awake_for: Ints
    #: Work space of an estimate, ``[d]``.
    sent: Floats


# Heaps ------------------------------------------------------------------------------------------


@inlined
def _push(keys: Floats, ranks: Ints, sizes: Ints, heap: int, key: float, rank: int) -> None:
    at = sizes[heap]
    sizes[heap] += 1
    while at > 0:
        above = (at - 1) >> 1
        if keys[heap, above] < key or (keys[heap, above] == key and ranks[heap, above] <= rank):
            break
        keys[heap, at] = keys[heap, above]
        ranks[heap, at] = ranks[heap, above]
        at = above
    keys[heap, at] = key
    ranks[heap, at] = rank


@inlined
def _sink(keys: Floats, ranks: Ints, sizes: Ints, heap: int, key: float, rank: int) -> None:
    """Replace the top."""
    size = sizes[heap]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            keys[heap, right] < keys[heap, below]
            or (keys[heap, right] == keys[heap, below] and ranks[heap, right] < ranks[heap, below])
        ):
            below = right
        if key < keys[heap, below] or (key == keys[heap, below] and rank <= ranks[heap, below]):
            break
        keys[heap, at] = keys[heap, below]
        ranks[heap, at] = ranks[heap, below]
        at = below
    keys[heap, at] = key
    ranks[heap, at] = rank


@inlined
def _pop(keys: Floats, ranks: Ints, sizes: Ints, heap: int) -> None:
    last = sizes[heap] - 1
    sizes[heap] = last
    if last > 0:
        _sink(keys, ranks, sizes, heap, keys[heap, last], ranks[heap, last])


# Estimates --------------------------------------------------------------------------------------


@inlined
def _transfer(links: Floats, channel: bool, nbytes: int, source: int, target: int) -> float:
    time = links[LATENCY, source, target] + nbytes * links[PER_BYTE, source, target]
    return float(np.rint(time)) if channel else float(time)


@inlined
def _free_link(links: Floats, channel: bool, wire_free: Floats, source: int, target: int) -> float:
    if channel:
        return float(max(wire_free[source], wire_free[target]))
    return float(wire_free[int(links[WIRE, source, target])])


@inlined
def _data_time(
    node: int,
    target: int,
    nodes: Ints,
    tensors: Ints,
    reads: Ints,
    links: Floats,
    channel: bool,
    device: Ints,
    finish: Floats,
    arrival: Floats,
    wire_free: Floats,
    sent: Floats,
) -> float:
    latest = 0.0
    if channel:
        # The transfers that this node needs wait for one another.
        received = wire_free[target]
        sent[:] = -1.0
    else:
        received = 0.0
    for index in range(nodes[node, READ], nodes[node, READ_END]):
        tensor = reads[index]
        producer = tensors[tensor, PRODUCER]
        source = device[nodes[producer, GROUP]]
        if source < 0:
            continue
        if source == target:
            time = finish[producer]
        else:
            time = arrival[tensor, target]
            if time < 0.0 and channel:
                takes = _transfer(links, channel, tensors[tensor, BYTES], source, target)
                start = max(finish[producer], wire_free[source], sent[source])
                sent[source] = start + takes
                received = max(start, received) + takes
                time = received
            elif time < 0.0:
                busy = _free_link(links, channel, wire_free, source, target)
                time = max(finish[producer], busy) + _transfer(
                    links, channel, tensors[tensor, BYTES], source, target
                )
        if time > latest:
            latest = time
    return latest


@inlined
def _urgent_time(
    node: int,
    nodes: Ints,
    tensors: Ints,
    reads: Ints,
    links: Floats,
    channel: bool,
    device: Ints,
    offered: Bools,
    finish: Floats,
    arrival: Floats,
    wire_free: Floats,
    sent: Floats,
) -> float:
    group = nodes[node, GROUP]
    at = device[group]
    latest = -1.0
    for target in range(offered.shape[1]):
        if at == target or (at < 0 and offered[group, target]):
            time = _data_time(
                node,
                target,
                nodes,
                tensors,
                reads,
                links,
                channel,
                device,
                finish,
                arrival,
                wire_free,
                sent,
            )
            latest = max(latest, time)
    return latest


@inlined
def _time(graph: Graph, state: State, node: int, target: int, urgent: bool) -> float:
    """When the data of ``node`` is on ``target``, or on every device that it may go to."""
    if urgent:
        return _urgent_time(
            node,
            graph.nodes,
            graph.tensors,
            graph.reads,
            graph.links,
            graph.channel,
            state.device,
            state.open,
            state.finish,
            state.arrival,
            state.wire_free,
            state.sent,
        )
    return _data_time(
        node,
        target,
        graph.nodes,
        graph.tensors,
        graph.reads,
        graph.links,
        graph.channel,
        state.device,
        state.finish,
        state.arrival,
        state.wire_free,
        state.sent,
    )


@inlined
def _enqueue(graph: Graph, state: State, node: int) -> None:
    group, rank = graph.nodes[node, GROUP], graph.nodes[node, POSITION]
    at = state.device[group]
    everywhere = _time(graph, state, node, 0, True) if graph.awake else 0.0
    keys, ranks, sizes = state.keys, state.ranks, state.sizes
    for target in range(len(state.awake_for)):
        if at == target or (at < 0 and state.open[group, target]):
            loss = graph.seconds[node, target] - graph.fastest[node]
            data = _time(graph, state, node, target, False)
            _push(keys, ranks, sizes, HEAPS * target + FUTURE, data + loss, rank)
            if graph.awake:
                _push(keys, ranks, sizes, HEAPS * target + URGENT_FUTURE, everywhere + loss, rank)


# Choosing ---------------------------------------------------------------------------------------


@inlined
def _stale(nodes: Ints, device: Ints, offered: Bools, node: int, target: int) -> bool:
    if nodes[node, PLACED]:
        return True
    group = nodes[node, GROUP]
    at = device[group]
    return bool(at != target if at >= 0 else not offered[group, target])


@inlined
def _top(graph: Graph, state: State, target: int, urgent: bool) -> tuple[float, int]:
    """Time and rank of the first of a queue that can start on ``target``; infinity if none."""
    nodes, device, offered = graph.nodes, state.device, state.open
    keys, ranks, sizes = state.keys, state.ranks, state.sizes
    future = HEAPS * target + (URGENT_FUTURE if urgent else FUTURE)
    arrived = HEAPS * target + (URGENT_ARRIVED if urgent else ARRIVED)
    free = state.free[graph.processor[target]]
    while sizes[future] > 0:
        rank = ranks[future, 0]
        node = graph.order[rank]
        if _stale(nodes, device, offered, node, target):
            _pop(keys, ranks, sizes, future)
            continue
        loss = graph.seconds[node, target] - graph.fastest[node]
        now = _time(graph, state, node, target, urgent)
        if now + loss > keys[future, 0]:
            _sink(keys, ranks, sizes, future, now + loss, rank)
        elif now <= free:
            _pop(keys, ranks, sizes, future)
            _push(keys, ranks, sizes, arrived, loss, rank)
        else:
            break
    while sizes[arrived] > 0:
        rank = ranks[arrived, 0]
        node = graph.order[rank]
        if _stale(nodes, device, offered, node, target):
            _pop(keys, ranks, sizes, arrived)
            continue
        now = _time(graph, state, node, target, urgent)
        if now <= free:
            break
        _pop(keys, ranks, sizes, arrived)
        loss = graph.seconds[node, target] - graph.fastest[node]
        _push(keys, ranks, sizes, future, now + loss, rank)
    best, best_rank = _NONE, -1
    if sizes[arrived] > 0:
        best, best_rank = free + keys[arrived, 0], ranks[arrived, 0]
    if sizes[future] > 0:
        key, rank = keys[future, 0], ranks[future, 0]
        if best_rank < 0 or key < best or (key == best and rank < best_rank):
            best, best_rank = key, rank
    return best, best_rank


@inlined
def _stays_awake(graph: Graph, state: State, target: int, child: int) -> bool:
    group = graph.nodes[child, GROUP]
    at = state.device[group]
    if graph.nodes[child, PLACED] or (at >= 0 and at != target) or not state.open[group, target]:
        state.awake_for[target] = -1
        return False
    if at < 0 and graph.nodes[child, MISSING] == 0:
        here = max(_time(graph, state, child, target, False), state.free[graph.processor[target]])
        for other in range(len(state.awake_for)):
            if other != target and state.open[group, other]:
                there = max(
                    _time(graph, state, child, other, False), state.free[graph.processor[other]]
                )
                if here > there:
                    state.awake_for[target] = -1
                    return False
    return True


@inlined
def _best_on(graph: Graph, state: State, target: int) -> tuple[float, int]:
    if graph.awake:
        child = state.awake_for[target]
        if child >= 0 and _stays_awake(graph, state, target, child):
            best, best_rank = _top(graph, state, target, True)
            if graph.nodes[child, MISSING] == 0:
                own = max(
                    _time(graph, state, child, target, False), state.free[graph.processor[target]]
                )
                rank = graph.nodes[child, POSITION]
                if best_rank < 0 or own < best or (own == best and rank < best_rank):
                    return own, rank
            return best, best_rank
    return _top(graph, state, target, False)


# Memory -----------------------------------------------------------------------------------------


@compiled
def _closure(graph: Graph, memory: Memory, state: State, group: int) -> int:
    """Put ``group`` and the arguments that come along into ``together``; how many."""
    memory.together[0] = group
    count = 1
    for index in range(graph.along_starts[group], graph.along_starts[group + 1]):
        other = graph.along[index]
        if state.device[other] >= 0:
            continue
        fits = True
        for target in range(len(memory.peak)):
            if graph.allowed[group, target] and not graph.allowed[other, target]:
                fits = False
                break
        if fits:
            memory.together[count] = other
            count += 1
    return count


@compiled
def _joins(memory: Memory, count: int, group: int) -> bool:
    return bool((memory.together[:count] == group).any())


@compiled
def _excess(memory: Memory, device: Ints, count: int, target: int) -> int:
    """Bytes by which a limit would be passed with the first ``count`` of ``together``."""
    if memory.ample:
        return 0
    slots = memory.used.shape[1]
    devices = len(memory.peak)
    bound = memory.peak[target]
    # The curve with the groups and the copies that come to this device.
    curve = memory.used[target].copy()
    others = np.zeros((devices, slots), dtype=np.int64)
    memory.touched[:] = False
    for index in range(count):
        group = memory.together[index]
        bound += memory.group_peak[group]
        for entry in range(memory.in_starts[group], memory.in_starts[group + 1]):
            other = memory.in_groups[entry]
            at = device[other]
            if at >= 0 and at != target and not _joins(memory, count, other):
                bound += memory.nbytes[memory.in_tensors[entry]]
        for entry in range(memory.out_starts[group], memory.out_starts[group + 1]):
            other = memory.out_groups[entry]
            at = device[other]
            if at >= 0 and at != target and not _joins(memory, count, other):
                tensor = memory.out_tensors[entry]
                since, until = memory.copied[tensor, at], memory.out_until[entry]
                start = max(memory.first[tensor], since + 1)
                memory.touched[at] = True
                for slot in range(start, until + 1):
                    others[at, slot] += memory.nbytes[tensor]
    worst = -(1 << 62)
    for at in range(devices):
        if memory.touched[at]:
            most = 0
            for slot in range(slots):
                most = max(most, memory.used[at, slot] + others[at, slot])
            if most > memory.limit[at]:
                worst = max(worst, most - memory.limit[at])
    if bound > memory.limit[target]:
        for index in range(count):
            group = memory.together[index]
            for slot in range(slots):
                curve[slot] += memory.curve[group, slot]
            for entry in range(memory.in_starts[group], memory.in_starts[group + 1]):
                other = memory.in_groups[entry]
                at = device[other]
                if at >= 0 and at != target and not _joins(memory, count, other):
                    tensor = memory.in_tensors[entry]
                    since, until = memory.copied[tensor, target], memory.in_until[entry]
                    start = max(memory.first[tensor], since + 1)
                    for slot in range(start, until + 1):
                        curve[slot] += memory.nbytes[tensor]
        bound = curve.max() if slots else 0
    return int(max(worst, bound - memory.limit[target]))


@compiled
def _copy(memory: Memory, tensor: int, target: int, until: int) -> None:
    since = memory.copied[tensor, target]
    if until <= since:
        return
    memory.copied[tensor, target] = until
    for slot in range(max(memory.first[tensor], since + 1), until + 1):
        memory.used[target, slot] += memory.nbytes[tensor]


@compiled
def _settle(memory: Memory, device: Ints, group: int, target: int) -> None:
    """Put ``group`` on ``target`` in the ledger."""
    device[group] = target
    if memory.ample:
        return
    slots = memory.used.shape[1]
    memory.touched[:] = False
    memory.touched[target] = True
    for slot in range(slots):
        memory.used[target, slot] += memory.curve[group, slot]
    for entry in range(memory.in_starts[group], memory.in_starts[group + 1]):
        at = device[memory.in_groups[entry]]
        if at >= 0 and at != target:
            _copy(memory, memory.in_tensors[entry], target, memory.in_until[entry])
    for entry in range(memory.out_starts[group], memory.out_starts[group + 1]):
        at = device[memory.out_groups[entry]]
        if at >= 0 and at != target:
            _copy(memory, memory.out_tensors[entry], at, memory.out_until[entry])
            memory.touched[at] = True
    for at in range(len(memory.peak)):
        if memory.touched[at]:
            memory.peak[at] = memory.used[at].max() if slots else 0


# Placing ----------------------------------------------------------------------------------------


@compiled
def _elsewhere(graph: Graph, memory: Memory, state: State, group: int, wanted: int) -> int:
    """Place an argument's group that could not come along; 1 when that passes a limit."""
    memory.together[0] = group
    best, best_excess = -1, 0
    for target in range(len(memory.peak)):
        if not graph.allowed[group, target]:
            continue
        excess = max(0, _excess(memory, state.device, 1, target))
        better = best < 0 or excess < best_excess or (excess == best_excess and target == wanted)
        if better:
            best, best_excess = target, excess
    _settle(memory, state.device, group, best)
    return 1 if best_excess > 0 else 0


@compiled
def _place(graph: Graph, memory: Memory, state: State, node: int, target: int) -> int:
    """Run ``node`` on ``target`` next, its group with it; how many arguments overflow."""
    group = graph.nodes[node, GROUP]
    overflows = 0
    if state.device[group] < 0:
        count = _closure(graph, memory, state, group)
        for index in range(count):
            _settle(memory, state.device, memory.together[index], target)
        for index in range(count):
            each = memory.together[index]
            for entry in range(graph.member_starts[each], graph.member_starts[each + 1]):
                other = graph.members[entry]
                if (
                    other != node
                    and not graph.nodes[other, PLACED]
                    and graph.nodes[other, MISSING] == 0
                    and not graph.nodes[other, ARGUMENT]
                ):
                    _enqueue(graph, state, other)
    start = state.free[graph.processor[target]]
    for index in range(graph.nodes[node, READ], graph.nodes[node, READ_END]):
        tensor = graph.reads[index]
        producer = graph.tensors[tensor, PRODUCER]
        source = state.device[graph.nodes[producer, GROUP]]
        if source < 0:
            overflows += _elsewhere(graph, memory, state, graph.nodes[producer, GROUP], target)
            source = state.device[graph.nodes[producer, GROUP]]
        if source == target:
            time = state.finish[producer]
        else:
            time = state.arrival[tensor, target]
            if time < 0.0:
                takes = _transfer(
                    graph.links, graph.channel, graph.tensors[tensor, BYTES], source, target
                )
                busy = _free_link(graph.links, graph.channel, state.wire_free, source, target)
                time = max(state.finish[producer], busy) + takes
                state.arrival[tensor, target] = time
                if graph.channel:
                    sent = max(state.finish[producer], state.wire_free[source])
                    state.wire_free[source] = sent + takes
                    state.wire_free[target] = time
                else:
                    state.wire_free[int(graph.links[WIRE, source, target])] = time
        start = max(start, time)
    end = start + graph.seconds[node, target]
    state.finish[node] = end
    graph.nodes[node, PLACED] = 1
    state.free[graph.processor[target]] = end
    if graph.awake:
        child = graph.nodes[node, FAVOURITE]
        if child >= 0 and not graph.nodes[child, PLACED]:
            state.awake_for[target] = child
    for index in range(graph.give_starts[node], graph.give_starts[node + 1]):
        tensor = graph.gives[index]
        for entry in range(graph.tensors[tensor, READER], graph.tensors[tensor, READER_END]):
            reader = graph.readers[entry]
            graph.nodes[reader, MISSING] -= 1
            if graph.nodes[reader, MISSING] == 0:
                _enqueue(graph, state, reader)
    return overflows


@compiled
def run(graph: Graph, memory: Memory, state: State) -> tuple[int, float]:
    """Schedule everything; groups placed above a limit, and the end of the last node."""
    devices = len(memory.peak)
    overflows = 0
    remaining = 0
    makespan = 0.0
    for node in range(len(graph.nodes)):
        if not graph.nodes[node, ARGUMENT]:
            remaining += 1
            if graph.nodes[node, MISSING] == 0:
                _enqueue(graph, state, node)
    while remaining > 0:
        best, rank, target = _NONE, -1, -1
        # The one that is free first, first: nothing starts before its device is free.
        first = 0
        for each in range(1, devices):
            if state.free[graph.processor[each]] < state.free[graph.processor[first]]:
                first = each
        for turn in range(devices):
            each = first if turn == 0 else turn - 1 if turn <= first else turn
            if not graph.awake and state.free[graph.processor[each]] > best:
                continue
            key, own = _best_on(graph, state, each)
            if own >= 0 and (
                rank < 0
                or key < best
                or (key == best and (own < rank or (own == rank and each < target)))
            ):
                best, rank, target = key, own, each
        node = graph.order[rank]
        group = graph.nodes[node, GROUP]
        if state.device[group] < 0:
            count = _closure(graph, memory, state, group)
            if _excess(memory, state.device, count, target) > 0:
                state.open[group, target] = False
                if state.open[group].any():
                    continue
                # A dead end: where it does the least harm.
                overflows += 1
                least = 0
                target = -1
                for each in range(devices):
                    if graph.allowed[group, each]:
                        excess = _excess(memory, state.device, count, each)
                        if target < 0 or excess < least:
                            least, target = excess, each
                state.open[group, target] = True
        overflows += _place(graph, memory, state, node, target)
        makespan = max(makespan, state.finish[node])
        remaining -= 1
    return overflows, makespan
