"""The compiled simulator (numba, cached on disk): ``simulator.py``, step for step.

It plays what the simulator in plain Python plays, to the last bit, without transfer orders and
records of memory; that one says what the rules are, and is what the tests compare it with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from baechi_jax.passes.placement._heap import pop, push
from baechi_jax.passes.placement._jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]


class Graph(NamedTuple):
    """The problem; names as in ``PlacementProblem``, ``FlatGraph`` and ``Machine``."""

    seconds: Floats
    temporary_bytes: Ints
    is_argument: Bools
    tensor_bytes: Ints
    producer: Ints
    persistent: Bools
    alias: Ints
    read_starts: Ints
    reads: Ints
    reader_starts: Ints
    readers: Ints
    give_starts: Ints
    gives: Ints
    task_reads: Ints
    processor: Ints
    latency: Floats
    per_byte: Floats
    wire: Ints


class Moves(NamedTuple):
    """Every transfer, those of one tensor together, targets in the order of their first readers.

    ``starts``: ``[t + 1]``; the rest ``[m]``. ``left``: readers that are still to end. ``number``:
    in the order in which transfers are asked for. ``first``: the least priority of a reader.
    """

    starts: Ints
    tensor: Ints
    target: Ints
    left: Ints
    first: Floats
    number: Ints
    start: Floats
    end: Floats


class Waiting(NamedTuple):
    """A heap for each wire of the transfers that were asked for, by the priority of their readers;
    one after another, from ``starts``, ``[w + 1]``."""

    starts: Ints
    keys: Floats
    numbers: Ints
    size: Ints


@compiled
def longest_way(graph: Graph, order: Ints, device: Ints) -> Floats:
    """``judge.longest_way``."""
    way = np.zeros(len(device))
    for place in range(len(order) - 1, -1, -1):
        node = order[place]
        here = device[node]
        longest = 0.0
        for give in range(graph.give_starts[node], graph.give_starts[node + 1]):
            tensor = graph.gives[give]
            nbytes = graph.tensor_bytes[tensor]
            for index in range(graph.reader_starts[tensor], graph.reader_starts[tensor + 1]):
                reader = graph.readers[index]
                seconds = way[reader]
                there = device[reader]
                if there != here:
                    seconds += graph.latency[here, there] + nbytes * graph.per_byte[here, there]
                longest = max(longest, seconds)
        way[node] = graph.seconds[node, here] + longest
    return -way


@compiled
def find_moves(graph: Graph, device: Ints, priority: Floats) -> Moves:
    """The transfers that ``device`` makes necessary."""
    tensors = len(graph.producer)
    most = len(graph.readers)
    starts = np.zeros(tensors + 1, dtype=np.int64)
    tensor_of = np.empty(most, dtype=np.int64)
    target_of = np.empty(most, dtype=np.int64)
    left = np.zeros(most, dtype=np.int64)
    first = np.empty(most)
    count = 0
    for tensor in range(tensors):
        home = device[graph.producer[tensor]]
        own = count
        for index in range(graph.reader_starts[tensor], graph.reader_starts[tensor + 1]):
            reader = graph.readers[index]
            there = device[reader]
            if there == home:
                continue
            move = own
            while move < count and target_of[move] != there:
                move += 1
            if move == count:
                tensor_of[move] = tensor
                target_of[move] = there
                first[move] = priority[reader]
                count += 1
            left[move] += 1
            first[move] = min(first[move], priority[reader])
        starts[tensor + 1] = count
    return Moves(
        starts,
        tensor_of[:count].copy(),
        target_of[:count].copy(),
        left[:count].copy(),
        first[:count].copy(),
        np.full(count, -1, dtype=np.int64),
        np.zeros(count),
        np.zeros(count),
    )


@compiled
def play(
    graph: Graph,
    device: Ints,
    priority: Floats,
    moves: Moves,
    ordered: bool,
    queue_starts: Ints,
    queue: Ints,
    start: Floats,
    end: Floats,
    busy: Floats,
    peak: Ints,
    peak_at: Floats,
) -> tuple[int, float]:
    """Play a step; fills ``moves``, ``start``, ``end``, ``busy``, ``peak`` and ``peak_at``.

    ``ordered``: each device runs the nodes of its part of ``queue`` (``[d + 1]`` starts) in that
    order. Returns how many nodes ended, or -1 when one cannot run on its device, and the makespan.
    """
    nodes, devices, tensors = len(device), len(busy), len(graph.producer)
    processors, wires = graph.processor.max() + 1, graph.wire.max() + 1
    missing = graph.task_reads.copy()
    head = queue_starts[:-1].copy()
    idle = np.ones(processors, dtype=np.bool_)
    wire_idle = np.ones(wires, dtype=np.bool_)
    memory = np.zeros(devices, dtype=np.int64)
    kept = graph.persistent.copy()
    # Uses of each tensor on its own device that are still to end: readers there, transfers.
    left = np.zeros(tensors, dtype=np.int64)
    # Heaps of ready nodes and of transfers asked for, one after another.
    ready_starts = np.zeros(processors + 1, dtype=np.int64)
    for node in range(nodes):
        if not graph.is_argument[node]:
            ready_starts[graph.processor[device[node]] + 1] += 1
    waiting_starts = np.zeros(wires + 1, dtype=np.int64)
    for tensor in range(tensors):
        home = device[graph.producer[tensor]]
        from_argument = graph.is_argument[graph.producer[tensor]]
        for index in range(graph.reader_starts[tensor], graph.reader_starts[tensor + 1]):
            reader = graph.readers[index]
            if device[reader] == home:
                left[tensor] += 1
            elif from_argument:
                # An argument is there from the start, a copy of it is not.
                missing[reader] += 1
        for move in range(moves.starts[tensor], moves.starts[tensor + 1]):
            left[tensor] += 1
            waiting_starts[graph.wire[home, moves.target[move]] + 1] += 1
    ready_starts = np.cumsum(ready_starts)
    waiting_starts = np.cumsum(waiting_starts)
    ready_keys = np.empty(ready_starts[-1])
    ready_nodes = np.empty(ready_starts[-1], dtype=np.int64)
    ready_size = np.zeros(processors, dtype=np.int64)
    waiting = Waiting(
        waiting_starts,
        np.empty(waiting_starts[-1]),
        np.empty(waiting_starts[-1], dtype=np.int64),
        np.zeros(wires, dtype=np.int64),
    )
    # Moves by number.
    asked = np.empty(len(moves.tensor), dtype=np.int64)
    asked_count = 0
    event_keys = np.empty(processors + wires)
    event_codes = np.empty(processors + wires, dtype=np.int64)
    events = 0
    done = 0
    now = 0.0
    new_nodes = np.empty(nodes, dtype=np.int64)
    new_count = 0

    # What is there from the start.
    for node in range(nodes):
        if graph.is_argument[node]:
            done += 1
            for give in range(graph.give_starts[node], graph.give_starts[node + 1]):
                tensor = graph.gives[give]
                here = device[node]
                memory[here] += graph.tensor_bytes[tensor]
                if memory[here] > peak[here]:
                    peak[here] = memory[here]
                asked_count = _ask(graph, moves, tensor, here, waiting, asked, asked_count)
        elif missing[node] == 0:
            new_nodes[new_count] = node
            new_count += 1

    while True:
        if not ordered:
            for index in range(new_count):
                node = new_nodes[index]
                own = graph.processor[device[node]]
                base = ready_starts[own]
                push(ready_keys[base:], ready_nodes[base:], ready_size[own], priority[node], node)
                ready_size[own] += 1
        new_count = 0
        # Start what can.
        for own in range(processors):
            if not idle[own]:
                continue
            node = -1
            if not ordered:
                if ready_size[own]:
                    base = ready_starts[own]
                    node = ready_nodes[base]
                    pop(ready_keys[base:], ready_nodes[base:], ready_size[own])
                    ready_size[own] -= 1
            else:
                for here in range(devices):
                    if graph.processor[here] != own or head[here] == queue_starts[here + 1]:
                        continue
                    each = queue[head[here]]
                    if missing[each] == 0 and (node < 0 or priority[each] < priority[node]):
                        node = each
                if node >= 0:
                    head[device[node]] += 1
            if node < 0:
                continue
            here = device[node]
            seconds = graph.seconds[node, here]
            if seconds == np.inf:
                return -1, now
            idle[own] = False
            start[node] = now
            busy[here] += seconds
            nbytes = graph.temporary_bytes[node]
            for give in range(graph.give_starts[node], graph.give_starts[node + 1]):
                tensor = graph.gives[give]
                nbytes += graph.tensor_bytes[tensor]
                old = graph.alias[tensor]
                if old >= 0 and _takes_over(graph, device, left, kept, node, old):
                    kept[old] = True
                    nbytes -= graph.tensor_bytes[old]
            memory[here] += nbytes
            if memory[here] > peak[here]:
                peak[here] = memory[here]
                peak_at[here] = now
            push(event_keys, event_codes, events, now + seconds, node)
            events += 1
        for wire in range(wires):
            if not wire_idle[wire] or not waiting.size[wire]:
                continue
            base = waiting.starts[wire]
            number = waiting.numbers[base]
            pop(waiting.keys[base:], waiting.numbers[base:], waiting.size[wire])
            waiting.size[wire] -= 1
            wire_idle[wire] = False
            move = asked[number]
            tensor, there = moves.tensor[move], moves.target[move]
            here = device[graph.producer[tensor]]
            nbytes = graph.tensor_bytes[tensor]
            moves.start[move] = now
            memory[there] += nbytes
            if memory[there] > peak[there]:
                peak[there] = memory[there]
                peak_at[there] = now
            until = now + graph.latency[here, there] + nbytes * graph.per_byte[here, there]
            push(event_keys, event_codes, events, until, nodes + number)
            events += 1
        if not events:
            return done, now
        # What ends next.
        now = event_keys[0]
        while events and event_keys[0] == now:
            code = event_codes[0]
            pop(event_keys, event_codes, events)
            events -= 1
            if code >= nodes:
                move = asked[code - nodes]
                moves.end[move] = now
                tensor, there = moves.tensor[move], moves.target[move]
                here = device[graph.producer[tensor]]
                left[tensor] -= 1
                if not left[tensor] and not kept[tensor]:
                    memory[here] -= graph.tensor_bytes[tensor]
                new_count = _tell(graph, device, tensor, there, missing, new_nodes, new_count)
                wire_idle[graph.wire[here, there]] = True
                continue
            node = code
            done += 1
            end[node] = now
            here = device[node]
            freed = graph.temporary_bytes[node]
            for index in range(graph.read_starts[node], graph.read_starts[node + 1]):
                tensor = graph.reads[index]
                if device[graph.producer[tensor]] == here:
                    left[tensor] -= 1
                    if not left[tensor] and not kept[tensor]:
                        freed += graph.tensor_bytes[tensor]
                else:
                    move = moves.starts[tensor]
                    while moves.target[move] != here:
                        move += 1
                    moves.left[move] -= 1
                    if not moves.left[move]:
                        freed += graph.tensor_bytes[tensor]
            for give in range(graph.give_starts[node], graph.give_starts[node + 1]):
                tensor = graph.gives[give]
                if not left[tensor]:
                    if not graph.persistent[tensor]:
                        freed += graph.tensor_bytes[tensor]
                    continue
                asked_count = _ask(graph, moves, tensor, here, waiting, asked, asked_count)
                new_count = _tell(graph, device, tensor, here, missing, new_nodes, new_count)
            memory[here] -= freed
            idle[graph.processor[here]] = True


@compiled
def _ask(
    graph: Graph,
    moves: Moves,
    tensor: int,
    here: int,
    waiting: Waiting,
    asked: Ints,
    asked_count: int,
) -> int:
    """``tensor`` is there, on device ``here``: its transfers may start. Returns the new count."""
    for move in range(moves.starts[tensor], moves.starts[tensor + 1]):
        moves.number[move] = asked_count
        asked[asked_count] = move
        wire = graph.wire[here, moves.target[move]]
        base = waiting.starts[wire]
        push(
            waiting.keys[base:],
            waiting.numbers[base:],
            waiting.size[wire],
            moves.first[move],
            asked_count,
        )
        waiting.size[wire] += 1
        asked_count += 1
    return asked_count


@compiled
def _tell(
    graph: Graph,
    device: Ints,
    tensor: int,
    here: int,
    missing: Ints,
    new_nodes: Ints,
    new_count: int,
) -> int:
    """``tensor`` is there for its readers on device ``here``. Returns the new count."""
    for index in range(graph.reader_starts[tensor], graph.reader_starts[tensor + 1]):
        reader = graph.readers[index]
        if device[reader] == here:
            missing[reader] -= 1
            if missing[reader] == 0:
                new_nodes[new_count] = reader
                new_count += 1
    return new_count


@compiled
def _takes_over(graph: Graph, device: Ints, left: Ints, kept: Bools, node: int, old: int) -> bool:
    """Whether a result of ``node`` can have the buffer of the argument's tensor ``old``."""
    if left[old] != 1 or kept[old] or device[graph.producer[old]] != device[node]:
        return False
    for index in range(graph.reader_starts[old], graph.reader_starts[old + 1]):
        if graph.readers[index] == node:
            return True
    return False
