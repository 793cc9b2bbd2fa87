"""The program of m-SCT, made smaller and solved in parts, against the program as it is written."""

from __future__ import annotations

import random
from collections import defaultdict

import mip
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.solver import new_model
from baechi_jax.passes.placement.synthetic import layered_problem

LATENCY, PER_BYTE = 2e-4, 1e-9


def machine(latency: float = LATENCY, per_byte: float = PER_BYTE) -> Machine:
    return Machine.uniform_of(3, 1 << 40, latency_seconds=latency, seconds_per_byte=per_byte)


def as_it_is_written(problem: PlacementProblem, latency: float, per_byte: float) -> float:
    """The value of Hanen and Munier's program: one variable an edge, nothing left out."""
    cost: dict[tuple[int, int], float] = defaultdict(float)
    for tensor in range(problem.tensors):
        for reader in problem.lists.readers[tensor]:
            edge = int(problem.producer[tensor]), reader
            cost[edge] += latency + per_byte * int(problem.tensor_bytes[tensor])
    seconds = problem.seconds.min(axis=1)
    unit = float(seconds.max())
    model = new_model("m-sct as it is written")
    end = model.add_var(name="w")
    start = [model.add_var(name=f"s{node}") for node in range(problem.nodes)]
    apart = {edge: model.add_var(lb=0.0, ub=1.0) for edge in cost}
    model.objective = mip.minimize(end)
    for node in range(problem.nodes):
        model.add_constr(start[node] + seconds[node] / unit <= end)
    outgoing, incoming = defaultdict(list), defaultdict(list)
    for (source, target), x in apart.items():
        takes = cost[source, target] / unit
        model.add_constr(start[source] + seconds[source] / unit + takes * x <= start[target])
        outgoing[source].append(x)
        incoming[target].append(x)
    for ends in (*outgoing.values(), *incoming.values()):
        model.add_constr(mip.xsum(ends) >= len(ends) - 1)
    assert model.optimize(max_seconds=60) is mip.OptimizationStatus.OPTIMAL
    return float(model.objective_value) * unit


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(("nodes", "width", "seed"), [(60, 4, 0), (120, 8, 1), (200, 16, 2)])
def test_layers(nodes: int, width: int, seed: int, in_parts: bool) -> None:
    problem = layered_problem(nodes, width, machine(), seed=seed)
    found = favourite_children(problem, in_parts=in_parts)
    wanted = as_it_is_written(problem, LATENCY, PER_BYTE)
    assert found.makespan_seconds == pytest.approx(wanted, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000_000), in_parts=st.booleans())
def test_anything(seed: int, in_parts: bool) -> None:
    rng = random.Random(seed)
    size = rng.randrange(3, 14)
    latency = rng.choice([0.0, 0.1, 1.0])
    builder = ProblemBuilder(machine(latency, 1e-4))
    for node in range(size):
        builder.add_node(f"n{node}", rng.uniform(0.5, 2.0))
    for node in range(size - 1):
        for _ in range(rng.randrange(0, 3)):
            most = min(3, size - 1 - node)
            readers = rng.sample(range(node + 1, size), rng.randrange(0, most + 1))
            builder.add_tensor(node, rng.randrange(1, 9000), sorted(readers))
    problem = builder.build()
    found = favourite_children(problem, in_parts=in_parts)
    wanted = as_it_is_written(problem, latency, 1e-4)
    assert found.makespan_seconds == pytest.approx(wanted, rel=1e-6)
