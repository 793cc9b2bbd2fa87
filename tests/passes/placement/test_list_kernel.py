"""The compiled list scheduler against the one in plain Python, and fusion before both."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.fusion import fuse_groups
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_arrays import memory_is_ample
from baechi_jax.passes.placement.list_scheduling import schedule
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import (
    layered_problem,
    random_problem,
    training_problem,
)

COMMUNICATIONS = ["links", "channel"]


def favourites(problem: PlacementProblem, seed: int) -> list[int]:
    """Some reader of each node, no reader twice: whatever a program may say."""
    rng = random.Random(seed)
    lists = problem.lists
    taken: set[int] = set()
    child = [-1] * problem.nodes
    for tensor, node in enumerate(lists.producer):
        free = [reader for reader in lists.readers[tensor] if reader not in taken]
        if free and child[node] < 0 and rng.random() < 0.7:
            child[node] = rng.choice(free)
            taken.add(child[node])
    return child


def check_alike(problem: PlacementProblem, seed: int) -> None:
    fused = fuse_groups(problem)
    for child in (None, favourites(fused.problem, seed)):
        plain = schedule(fused, None, child, compiled=False)
        kernel = schedule(fused, None, child, compiled=True)
        assert kernel == plain


@pytest.mark.parametrize("communication", COMMUNICATIONS)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1_000_000),
    tasks=st.integers(1, 25),
    devices=st.integers(1, 4),
    limit=st.sampled_from([150, 300, 600, 1 << 40]),
)
def test_any_problem(communication, seed: int, tasks: int, devices: int, limit: int) -> None:
    problem = random_problem(seed, tasks=tasks, devices=devices, limit_bytes=limit)
    check_alike(problem.with_communication(communication), seed)


@pytest.mark.parametrize("communication", COMMUNICATIONS)
@pytest.mark.parametrize("limit", [30 << 20, 1 << 40])
@pytest.mark.parametrize("width", [4, 16])
def test_layers(communication, limit: int, width: int) -> None:
    machine = Machine.uniform_of(4, limit, latency_seconds=1e-4, seconds_per_byte=2e-10)
    problem = layered_problem(800, width, machine.with_communication(communication), seed=width)
    assert memory_is_ample(problem) == (limit == 1 << 40)
    check_alike(problem, width)


@pytest.mark.parametrize("limit", [12 << 20, 40 << 20])
def test_training(limit: int) -> None:
    machine = Machine.uniform_of(3, limit, latency_seconds=1e-4, seconds_per_byte=2e-10)
    check_alike(training_problem(8, machine), 0)


# Fusion -----------------------------------------------------------------------------------------


def test_a_group_of_a_chain_becomes_one_node() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 100))
    a, b, c = (builder.add_node(name, 1.0, group="g") for name in "abc")
    d = builder.add_node("d", 1.0)
    builder.add_tensor(a, 1, [b])
    builder.add_tensor(b, 2, [c, d])
    fused = fuse_groups(builder.build())
    assert fused.members == ((0, 1, 2), (3,))
    assert fused.problem.seconds[:, 0].tolist() == [3.0, 1.0]
    assert fused.problem.lists.readers == [[], [1]]


def test_nodes_with_another_way_between_them_stay_apart() -> None:
    # a -> x -> b within and without the group: joining a and b would make a cycle.
    builder = ProblemBuilder(Machine.uniform_of(2, 100))
    a, b = (builder.add_node(name, 1.0, group="g") for name in "ab")
    x = builder.add_node("x", 1.0)
    builder.add_tensor(a, 1, [x, b])
    builder.add_tensor(x, 1, [b])
    assert fuse_groups(builder.build()).members == ((0,), (1,), (2,))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1_000_000), tasks=st.integers(1, 30))
def test_fusion_keeps_the_work_and_makes_no_cycle(seed: int, tasks: int) -> None:
    problem = random_problem(seed, tasks=tasks)
    # The problem's own check finds cycles.
    fused = fuse_groups(problem)
    assert sorted(node for each in fused.members for node in each) == list(range(problem.nodes))
    assert fused.problem.seconds.sum() == pytest.approx(problem.seconds.sum())
    for node, members in enumerate(fused.members):
        assert {int(problem.group[each]) for each in members} == {int(fused.problem.group[node])}


def test_fusion_looks_past_what_is_ready_early() -> None:
    # The group's constant is ready at once, its work only after a long node on device 0.
    builder = ProblemBuilder(Machine.uniform_of(2, 100, latency_seconds=5.0))
    first = builder.add_node("first", 3.0)
    constant = builder.add_node("constant", 0.1, group="g")
    work = builder.add_node("work", 1.0, group="g")
    builder.add_tensor(first, 1, [work])
    builder.add_tensor(constant, 1, [work])
    problem = builder.build()
    found = schedule(fuse_groups(problem), Profiles(problem))
    assert found.device_of_group == [0, 0]
