"""The compiled simulator against the one in plain Python, to the last bit."""

import random
from dataclasses import replace

import numpy as np
import pytest

from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import random_problem, training_problem
from baechi_jax.passes.simulate import compiled
from baechi_jax.passes.simulate.compiled import longest_way_compiled, simulate_compiled
from baechi_jax.passes.simulate.judge import longest_way
from baechi_jax.passes.simulate.simulator import simulate


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """``simulate`` and ``longest_way`` stay in Python."""
    monkeypatch.setattr(compiled, "KERNEL_NODES", 1 << 60)
    monkeypatch.setattr(compiled, "KERNEL_NODES_LOADED", 1 << 60)


def problems() -> list[PlacementProblem]:
    found = [random_problem(seed, tasks=4 + seed, devices=1 + seed % 4) for seed in range(60)]
    machine = Machine.uniform_of(3, 1 << 30, latency_seconds=1e-4, seconds_per_byte=1e-9)
    return [*found, training_problem(6, machine)]


def test_random_steps() -> None:
    generator = random.Random(7)
    for problem in problems():
        for _ in range(3):
            assignment = [
                generator.choice(problem.allowed[group]) for group in problem.group.tolist()
            ]
            way = longest_way(problem, assignment)
            assert longest_way_compiled(problem, assignment) == way
            assert simulate_compiled(problem, assignment) == simulate(problem, assignment)
            by_way = simulate(problem, assignment, priority=way)
            assert simulate_compiled(problem, assignment, priority=way) == by_way
            ordered = simulate(problem, assignment, problem.order)
            assert simulate_compiled(problem, assignment, problem.order) == ordered


def test_devices_that_share_a_processor() -> None:
    machine = replace(
        Machine.uniform_of(3, 1 << 30, latency_seconds=0.5), processor=np.array([0, 0, 1])
    )
    builder = ProblemBuilder(machine)
    nodes = [builder.add_node(f"n{index}", 1.0 + index) for index in range(8)]
    for index, node in enumerate(nodes[:-3]):
        builder.add_tensor(node, 10, [nodes[index + 1], nodes[index + 3]])
    problem = builder.build()
    assignment = [index % 3 for index in range(8)]
    assert simulate_compiled(problem, assignment) == simulate(problem, assignment)
    ordered = simulate(problem, assignment, problem.order)
    assert simulate_compiled(problem, assignment, problem.order) == ordered


def test_what_cannot_run_is_left_to_the_other() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30))
    a = builder.add_node("a", (1.0, float("inf")))
    b = builder.add_node("b", 1.0)
    builder.add_tensor(a, 4, [b])
    problem = builder.build()
    assert simulate_compiled(problem, [1, 0]) is None
    with pytest.raises(PlacementProblemError, match="'a' cannot run on"):
        simulate(problem, [1, 0])
    assert simulate_compiled(problem, [0, 0], [b, a]) is None
    assert simulate_compiled(problem, [0, 0], [a]) is None
    assert simulate_compiled(problem, [0, 0], [a, a]) is None
