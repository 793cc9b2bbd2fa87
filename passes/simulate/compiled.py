"""The simulator for larger problems: the same steps as ``simulator.py``'s, in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.compiled_code import pays
from baechi_jax.passes.placement.flat import starts
from baechi_jax.passes.simulate.simulation import Simulation, Transfer

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate._play_kernel import Graph

#: From so many nodes on; numba takes half a second to load. Where it is loaded already, from fewer.
KERNEL_NODES, KERNEL_NODES_LOADED = 5000, 200


def worth_compiling(problem: PlacementProblem) -> bool:
    """Whether the compiled simulator is the quicker one for ``problem``."""
    return pays(problem.nodes, loaded=KERNEL_NODES_LOADED, unloaded=KERNEL_NODES)


def simulate_compiled(
    problem: PlacementProblem,
    assignment: Sequence[int],
    order: Sequence[int] | None = None,
    priority: Sequence[float] | None = None,
) -> Simulation | None:
    """``simulate`` without transfer order and memory steps.

    None where the step cannot run to its end; ``simulate`` in plain Python says why.
    """
    from baechi_jax.passes.simulate import _play_kernel as kernel

    graph = _graph(problem)
    device = np.asarray(assignment, dtype=np.int64)
    nodes, devices = problem.nodes, problem.devices
    queue_starts = np.zeros(devices + 1, dtype=np.int64)
    queue = np.zeros(0, dtype=np.int64)
    if order is not None:
        listed = np.asarray(order, dtype=np.int64)
        ranks = np.zeros(nodes)
        ranks[listed] = np.arange(len(listed))
        tasks = listed[~problem.is_argument[listed]]
        if len(np.unique(listed)) != len(listed) or len(tasks) != nodes - problem.is_argument.sum():
            return None
        queue = tasks[np.argsort(device[tasks], kind="stable")]
        queue_starts = starts(np.bincount(device[tasks], minlength=devices))
        chosen = ranks
    if priority is not None:
        chosen = np.asarray(priority, dtype=np.float64)
    elif order is None:
        chosen = problem.flat.position.astype(np.float64)
    moves = kernel.find_moves(graph, device, chosen)
    start, end = np.zeros(nodes), np.zeros(nodes)
    busy, peak_at = np.zeros(devices), np.zeros(devices)
    peak = np.zeros(devices, dtype=np.int64)
    done, makespan = kernel.play(
        graph,
        device,
        chosen,
        moves,
        order is not None,
        queue_starts,
        queue,
        start,
        end,
        busy,
        peak,
        peak_at,
    )
    if done != nodes:
        return None
    by_number = np.argsort(moves.number)
    tensors = moves.tensor[by_number]
    return Simulation(
        start_seconds=start.tolist(),
        end_seconds=end.tolist(),
        transfers=[
            Transfer(*each)
            for each in zip(
                tensors.tolist(),
                device[problem.producer[tensors]].tolist(),
                moves.target[by_number].tolist(),
                moves.start[by_number].tolist(),
                moves.end[by_number].tolist(),
            )
        ],
        makespan_seconds=makespan,
        peak_bytes=peak.tolist(),
        peak_seconds=peak_at.tolist(),
        busy_seconds=busy.tolist(),
        memory_steps=[[] for _ in range(devices)],
    )


def longest_way_compiled(problem: PlacementProblem, assignment: Sequence[int]) -> list[float]:
    """``judge.longest_way``."""
    from baechi_jax.passes.simulate import _play_kernel as kernel

    device = np.asarray(assignment, dtype=np.int64)
    order = np.asarray(problem.order, dtype=np.int64)
    way: list[float] = kernel.longest_way(_graph(problem), order, device).tolist()
    return way


def _graph(problem: PlacementProblem) -> Graph:
    from baechi_jax.passes.simulate._play_kernel import Graph

    flat, machine = problem.flat, problem.machine
    return Graph(
        np.ascontiguousarray(problem.seconds, dtype=np.float64),
        problem.temporary_bytes,
        problem.is_argument,
        problem.tensor_bytes,
        problem.producer,
        problem.persistent,
        problem.alias,
        flat.read_starts,
        flat.reads,
        flat.reader_starts,
        flat.readers,
        flat.give_starts,
        flat.gives,
        flat.task_reads,
        machine.processor,
        machine.latency_seconds,
        machine.seconds_per_byte,
        machine.wire,
    )
