"""Lower bounds never exceed the best there is."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.bounds import (
    critical_path_bound,
    group_bound,
    makespan_bound,
    memory_gap,
    work_bound,
)
from baechi_jax.passes.placement.latency_model import LatencyGraph
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import random_problem, training_problem
from baechi_jax.passes.simulate.judge import ALL_RULES, play
from baechi_jax.passes.simulate.simulator import Simulation


def everything(problem: PlacementProblem) -> Iterator[tuple[tuple[int, ...], Simulation]]:
    """Every assignment of groups under every rule."""
    for device_of_group in itertools.product(*problem.allowed):
        for rule in ALL_RULES:
            yield device_of_group, play(problem, expand(problem, device_of_group), rule)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000))
def test_no_assignment_beats_the_bounds(seed: int) -> None:
    problem = random_problem(seed, tasks=5, devices=2)
    bounds = [bound(problem) for bound in (critical_path_bound, work_bound, group_bound)]
    graph = LatencyGraph.of(problem)
    best = float("inf")
    for device_of_group, simulation in everything(problem):
        best = min(best, simulation.makespan_seconds)
        assert graph.model_seconds(device_of_group) <= simulation.makespan_seconds * (1 + 1e-9)
    assert max(bounds) <= best * (1 + 1e-9)
    assert makespan_bound(problem) == max(bounds)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(20, 400))
def test_a_memory_gap_is_a_proof(seed: int, limit: int) -> None:
    problem = random_problem(seed, tasks=5, devices=2, limit_bytes=limit)
    if memory_gap(problem) is not None:
        limits = problem.lists.limit_bytes
        assert not any(simulation.fits(limits) for _, simulation in everything(problem))


def test_critical_path_counts_transfers_between_pins() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 10, latency_seconds=0.5))
    a, b = builder.add_node("a", [1.0, 2.0]), builder.add_node("b", [3.0, 4.0])
    builder.add_tensor(a, 1, [b])
    builder.pin(a, 0)
    builder.pin(b, 1)
    assert critical_path_bound(builder.build()) == 5.5


def test_work_is_spread_over_unequal_devices() -> None:
    # The second device is three times slower: four units of work take three.
    builder = ProblemBuilder(Machine.uniform_of(2, 10))
    for index in range(40):
        builder.add_node(f"n{index}", [0.1, 0.3])
    assert work_bound(builder.build()) == pytest.approx(3.0, rel=0.02)


def test_work_on_shared_hardware_is_not_spread() -> None:
    machine = Machine.uniform_of(2, 10)
    shared = Machine(
        limit_bytes=machine.limit_bytes,
        processor=np.zeros(2, dtype=np.int64),
        latency_seconds=machine.latency_seconds,
        seconds_per_byte=machine.seconds_per_byte,
        wire=machine.wire,
        names=machine.names,
        kinds=machine.kinds,
    )
    builder = ProblemBuilder(shared)
    for index in range(4):
        builder.add_node(f"n{index}", 1.0)
    assert work_bound(builder.build()) == 4.0


def test_memory_gap_names_the_group_that_is_too_large() -> None:
    machine = Machine.uniform_of(4, 5 << 20)
    problem = training_problem(3, machine, parameter_bytes=2 << 20, activation_bytes=1 << 10)
    gap = memory_gap(problem)
    assert gap is not None
    assert problem.group_names[gap.group].startswith("layer")
    assert gap.needed_bytes > gap.limit_bytes == 5 << 20


@pytest.mark.parametrize(("limit", "needed"), [(299, 300), (300, None)])
def test_arguments_that_are_read_alike_add_up(limit: int, needed: int | None) -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, limit))
    arguments = [builder.add_argument(f"a{i}", 100, donated=i > 0, group="g") for i in range(3)]
    reader = builder.add_node("reader", 1.0, group="g")
    builder.add_node("other", 1.0)
    for _, tensor in arguments:
        builder.set_readers(tensor, [reader])
    gap = memory_gap(builder.build())
    assert (gap.needed_bytes if gap is not None else None) == needed


def test_memory_gap_of_all_devices_together() -> None:
    machine = Machine.uniform_of(2, 16 << 20)
    problem = training_problem(12, machine, parameter_bytes=1 << 20)
    gap = memory_gap(problem)
    assert gap is not None
    assert gap.group == -1
    assert gap.limit_bytes == 32 << 20
    assert gap.needed_bytes >= 36 << 20


def test_memory_gap_of_large_problems_counts_what_is_there_at_the_start() -> None:
    machine = Machine.uniform_of(2, 1 << 19)
    problem = training_problem(600, machine, parameter_bytes=1 << 10, activation_bytes=1)
    assert problem.nodes > 3000
    gap = memory_gap(problem)
    assert gap is not None
    assert gap.needed_bytes == (600 * 3 << 10) + 1
