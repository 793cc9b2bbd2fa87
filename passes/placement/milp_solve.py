"""The mixed-integer program of the ``milp`` placer: first solution, solve, decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.latency_model import LatencyEdge
from baechi_jax.passes.placement.milp_model import MilpModel

if TYPE_CHECKING:
    import mip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the solver found. ``status``: optimal, time limit, search limit, infeasible."""

    device_of_group: list[int] | None
    status: str
    objective_seconds: float
    bound_seconds: float


def keeps_memory(model: MilpModel, device_of_group: Sequence[int]) -> bool:
    """Whether a placement keeps the memory rows."""
    used = np.zeros((model.problem.devices, model.curve.shape[1]), dtype=np.int64)
    for group, device in enumerate(device_of_group):
        used[device] += model.curve[group]
    for copy in model.copies:
        home = device_of_group[copy.source]
        for device in dict.fromkeys(device_of_group[target] for target in copy.targets):
            if device != home:
                used[device, list(copy.moments)] += copy.nbytes
    return bool((used.max(axis=1) <= model.problem.machine.limit_bytes).all())


def value(model: MilpModel, device_of_group: Sequence[int]) -> float:
    """Objective of a placement, seconds."""
    if model.unordered:
        return ordered_starts(model, device_of_group)[1]
    return model.graph.model_seconds(device_of_group)


def ordered_starts(model: MilpModel, device_of_group: Sequence[int]) -> tuple[list[float], float]:
    """Starts on processors that run nodes in topological order, and the objective."""
    graph, machine = model.graph, model.problem.machine
    processor = model.problem.lists.processor
    start = [0.0] * len(graph.group)
    free = [0.0] * machine.processors
    out: list[list[LatencyEdge]] = [[] for _ in graph.group]
    for edge in graph.edges:
        out[edge.source].append(edge)
    last = 0.0
    for node, group in enumerate(graph.group):
        device = device_of_group[group]
        if not graph.is_argument[node]:
            start[node] = max(start[node], free[processor[device]])
        end = start[node] + graph.seconds[node][device]
        if not graph.is_argument[node]:
            free[processor[device]] = end
        last = max(last, end)
        for edge in out[node]:
            there = device_of_group[graph.group[edge.target]]
            arrival = end + machine.transfer_seconds(device, there, edge.nbytes)
            start[edge.target] = max(start[edge.target], arrival)
    return start, max(last, graph.model_seconds(device_of_group))


def start_from(model: MilpModel, device_of_group: Sequence[int]) -> None:
    """Give the solver a first solution."""
    device = list(device_of_group)
    if model.numbers_devices:
        number: dict[int, int] = {}
        for group in model.numbering_order():
            number.setdefault(device[group], len(number))
        for each in range(model.problem.devices):
            number.setdefault(each, len(number))
        device = [number[each] for each in device]
    graph = model.graph
    if model.unordered:
        starts, makespan = ordered_starts(model, device)
    else:
        starts, makespan = graph.start_times(device)[0], graph.model_seconds(device)
    values: list[tuple[mip.Var, float]] = [(model.makespan, makespan / model.unit)]
    values += [(v, float(device[g] == d)) for (g, d), v in model.on.items()]
    values += [(v, float(device[h] == d != device[g])) for (g, h, d), v in model.comes.items()]
    values += [
        (v, float(device[g] == d and device[h] == e)) for (g, h, d, e), v in model.flow.items()
    ]
    values += [(variable, begin / model.unit) for variable, begin in zip(model.start, starts)]
    for copy in model.copies:
        if len(copy.targets) > 1:
            there = {device[target] for target in copy.targets} - {device[copy.source]}
            values += [
                (model.copy[copy.tensor, each], float(each in there))
                for each in range(model.problem.devices)
            ]
    values += [(v, float(starts[i] <= starts[j])) for (i, j), v in model.first.items()]
    processor = model.problem.lists.processor
    values += [
        (v, float(processor[device[g]] == p == processor[device[h]]))
        for (g, h, p), v in model.same.items()
    ]
    model.model.start = values


def solve(
    model: MilpModel, *, time_limit: float, max_nodes: int | None, tolerance: float
) -> Outcome:
    """Run the solver. Ctrl-C ends it and passes through."""
    solver = model.model
    solver.max_mip_gap = tolerance
    status = optimize(solver, time_limit, max_nodes=max_nodes)
    bound = float(solver.objective_bound) * model.unit if status != "INFEASIBLE" else 0.0
    bound = bound if np.isfinite(bound) and bound > 0 else 0.0
    if status in ("INFEASIBLE", "INT_INFEASIBLE"):
        return Outcome(None, "infeasible", 0.0, 0.0)
    stopped = "time limit" if max_nodes is None else "search limit"
    if not solver.num_solutions:
        return Outcome(None, stopped, 0.0, bound)
    name = "optimal" if status == "OPTIMAL" else stopped
    return Outcome(decode(model), name, float(solver.objective_value) * model.unit, bound)


def decode(model: MilpModel) -> list[int]:
    """The device of each group in the solver's solution."""
    device = [-1] * model.problem.groups
    for (group, each), variable in model.on.items():
        if variable.x > 0.5:
            device[group] = each
    assert min(device, default=0) >= 0
    return device
