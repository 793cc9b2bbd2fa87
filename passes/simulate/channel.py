"""The simulator under the communication model of Baechi's authors (arXiv 2301.08695).

Each device has one channel for both directions: first come, first served, one transfer at a time.
A queue holds the nodes that are ready, ordered by the time at which they became so and, where that
is equal, by their place in Kahn's breadth-first order. The first is taken and runs on its device as
soon as that is free. Then its tensors are sent, in the order of their readers' indices, to each
device that reads them and does not have them yet: the transfer waits for the sender's channel and
keeps it busy, then for the receiver's channel and keeps that busy; both take its full time. A node
is ready when the last tensor that it reads is there.

Times are counted in microseconds, of which whole ones are exact; a transfer takes whole ones.
Memory is counted by the project's rules (``memory_curve.py``), which unlike the authors' charge
copies, and free what is read no more at that time, not in the order in which nodes are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.simulate.memory_curve import memory_curve
from baechi_jax.passes.simulate.simulation import Simulation, Transfer

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem


def simulate_channel(
    problem: PlacementProblem, assignment: Sequence[int], *, memory_steps: bool = False
) -> Simulation:
    """Run one step with node ``i`` on device ``assignment[i]``.

    Raises PlacementProblemError when a node cannot run where the assignment puts it.
    """
    machine, flat = problem.machine, problem.flat
    device = [int(each) for each in assignment]
    nodes = problem.nodes
    times = problem.node_times
    lasts = times[np.arange(nodes), device] if nodes else np.zeros(0)
    stuck = np.flatnonzero(~np.isfinite(lasts))
    if len(stuck):
        raise PlacementProblemError(
            f"'{problem.node_names[stuck[0]]}' cannot run on "
            f"{machine.names[device[stuck[0]]]}, where the assignment puts it"
        )
    takes = lasts.tolist()
    rank = problem.breadth_first.tolist()
    by_rank = np.argsort(problem.breadth_first).tolist()
    starts = flat.out_starts.tolist()
    readers, tensors = flat.out_readers.tolist(), flat.out_tensors.tolist()
    nbytes = problem.tensor_bytes.tolist()
    latency, per_byte = machine.unit_latency.tolist(), machine.unit_per_byte.tolist()
    processor = machine.processor.tolist()
    is_argument = problem.is_argument.tolist()
    free = [0.0] * machine.processors
    channel = [0.0] * problem.devices
    missing = np.diff(flat.read_starts).tolist()
    ready = [0.0] * nodes
    begin, finish = [0.0] * nodes, [0.0] * nodes
    arrived: dict[tuple[int, int], float] = {}
    moves: list[tuple[int, int, float, float]] = []
    busy = [0.0] * problem.devices
    queue = [(0.0, rank[node]) for node, count in enumerate(missing) if count == 0]
    heapify(queue)
    while queue:
        now, place = heappop(queue)
        node = by_rank[place]
        here = device[node]
        if not is_argument[node]:
            begin[node] = max(now, free[processor[here]])
            finish[node] = free[processor[here]] = begin[node] + takes[node]
            busy[here] += takes[node]
        end = finish[node]
        for index in range(starts[node], starts[node + 1]):
            reader, tensor = readers[index], tensors[index]
            there = device[reader]
            time = end
            if there != here:
                known = arrived.get((tensor, there))
                if known is None:
                    cost = float(
                        round(latency[here][there] + nbytes[tensor] * per_byte[here][there])
                    )
                    send = max(end, channel[here])
                    channel[here] = send + cost
                    receive = max(send, channel[there])
                    known = channel[there] = receive + cost
                    arrived[tensor, there] = known
                    moves.append((tensor, there, send, known))
                time = known
            if time > ready[reader]:
                ready[reader] = time
            missing[reader] -= 1
            if missing[reader] == 0:
                heappush(queue, (ready[reader], rank[reader]))
    start, stop = np.array(begin), np.array(finish)
    table = (
        np.array([move[0] for move in moves], dtype=np.int64),
        np.array([move[1] for move in moves], dtype=np.int64),
        np.array([move[2] for move in moves]),
        np.array([move[3] for move in moves]),
    )
    memory = memory_curve(problem, device, start, stop, table, steps=memory_steps)
    unit = machine.unit_seconds
    producer = problem.producer.tolist()
    return Simulation(
        start_seconds=(start * unit).tolist(),
        end_seconds=(stop * unit).tolist(),
        transfers=[
            Transfer(tensor, device[producer[tensor]], target, send * unit, arrival * unit)
            for tensor, target, send, arrival in moves
        ],
        makespan_seconds=max(finish, default=0.0) * unit,
        peak_bytes=memory.peak_bytes,
        peak_seconds=[time * unit for time in memory.peak_times],
        busy_seconds=[time * unit for time in busy],
        memory_steps=[[(time * unit, total) for time, total in each] for each in memory.steps],
    )
