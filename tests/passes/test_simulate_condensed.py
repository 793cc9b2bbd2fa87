"""Tensors that live alike played as one, and simulations that are given up early."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import random_problem, training_problem
from baechi_jax.passes.simulate.condensed import StepGraph
from baechi_jax.passes.simulate.judge import longest_way, play_within
from baechi_jax.passes.simulate.simulation import Simulation
from baechi_jax.passes.simulate.simulator import simulate, simulate_within


def grouped(problem: PlacementProblem, rng: random.Random) -> tuple[int, ...]:
    return expand(problem, [rng.choice(allowed) for allowed in problem.allowed])


def uncondensed(problem: PlacementProblem, assignment: tuple[int, ...], **options) -> Simulation:
    found = simulate(problem, assignment, memory_steps=True, **options)
    return replace(found, memory_steps=[[] for _ in found.memory_steps])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 14), st.integers(1, 4))
def test_every_figure_is_that_of_the_whole_graph(seed: int, tasks: int, devices: int) -> None:
    problem = random_problem(seed, tasks=tasks, devices=devices)
    rng = random.Random(seed)
    assignment = grouped(problem, rng)
    way = longest_way(problem, assignment)
    for options in ({}, {"priority": way}, {"order": problem.order}):
        expected = uncondensed(problem, assignment, **options)
        assert simulate(problem, assignment, **options) == expected


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 6), st.integers(1, 3))
def test_a_training_step_is_condensed_and_plays_alike(seed: int, layers: int, devices: int) -> None:
    machine = Machine.uniform_of(devices, 1 << 30, latency_seconds=1e-4, seconds_per_byte=1e-9)
    problem = training_problem(layers, machine)
    # The two moments, the three next values, and the residuals of each layer are one.
    assert len(problem.condensed.original) < problem.tensors - 4 * layers
    assignment = grouped(problem, random.Random(seed))
    assert simulate(problem, assignment) == uncondensed(problem, assignment)


def state_problem(second_reader: str) -> PlacementProblem:
    """Two donated arguments that one node replaces; a second node reads the one or both."""
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30, latency_seconds=1.0))
    old = [builder.add_argument(name, 100, donated=True, group="g") for name in ("a", "b")]
    first = builder.add_node("first", 1.0, group="g")
    second = builder.add_node("second", 3.0, group="g")
    for name, (_, tensor) in zip("ab", old):
        builder.set_readers(tensor, [first, second] if name in second_reader else [first])
        builder.add_tensor(first, 100, persistent=True, alias=tensor)
    return builder.build()


def test_what_is_read_by_other_nodes_stays_apart() -> None:
    # Nothing is read, but for what takes over: the results are one, the arguments are two.
    assert len(state_problem("b").condensed.original) == 3
    assert len(state_problem("ab").condensed.original) == 2
    for second in ("", "a", "b", "ab"):
        problem = state_problem(second)
        assignment = (0, 0, 0, 0)
        found = simulate(problem, assignment)
        assert found == uncondensed(problem, assignment)
        # A buffer that is still to be read cannot be taken over.
        assert found.peak_bytes[0] == 200 + 100 * len(second)


def test_split_groups_are_played_whole() -> None:
    problem = state_problem("ab")
    assert not problem.condensed.suits([0, 0, 0, 1])
    assert StepGraph.whole(problem).suits([0, 0, 0, 1])
    found = simulate(problem, (0, 0, 0, 1))
    assert found == uncondensed(problem, (0, 0, 0, 1))
    assert [(move.tensor, move.target) for move in found.transfers] == [(0, 1), (1, 1)]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 14), st.integers(1, 4), st.floats(0.5, 1.5))
def test_only_what_is_too_long_is_given_up(
    seed: int, tasks: int, devices: int, share: float
) -> None:
    problem = random_problem(seed, tasks=tasks, devices=devices)
    assignment = grouped(problem, random.Random(seed))
    way = longest_way(problem, assignment)
    expected = simulate(problem, assignment, priority=way)
    limit = share * expected.makespan_seconds
    found = simulate_within(problem, assignment, way, limit)
    assert found == play_within(problem, assignment, limit)
    if found is None:
        assert expected.makespan_seconds > limit
    else:
        assert found == expected


def test_a_step_that_waits_too_long_is_given_up() -> None:
    # Neither the longest way nor the load of a device says so: the wire is what is busy.
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30, latency_seconds=1.0))
    makers = [builder.add_node(f"make{index}", 1.0) for index in range(3)]
    for index, maker in enumerate(makers):
        builder.add_tensor(maker, 8, [builder.add_node(f"use{index}", 0.5)])
    problem = builder.build()
    assignment = [0 if name.startswith("make") else 1 for name in problem.node_names]
    latency = problem.machine.latency_seconds * 3
    problem = problem.with_machine(
        replace(problem.machine, latency_seconds=latency), problem.seconds
    )
    assert simulate(problem, assignment).makespan_seconds == 10.5
    assert play_within(problem, assignment, 10.5) is not None
    assert play_within(problem, assignment, 10.4) is None
