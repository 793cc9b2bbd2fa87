"""The search at the end of ``auto``: budgets, determinism, both models of communication."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.auto import choose
from baechi_jax.passes.placement.bounds import makespan_bound
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.improve import SearchBudget, improve
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import ProblemBuilder
from baechi_jax.passes.placement.synthetic import layered_problem, random_problem
from baechi_jax.passes.simulate.judge import judge

COMMUNICATIONS = ["links", "channel"]


@pytest.mark.parametrize("communication", COMMUNICATIONS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1_000_000), limit=st.sampled_from([250, 500, 1 << 40]))
def test_never_worse_never_above_a_limit_and_repeats(communication, seed: int, limit: int) -> None:
    problem = random_problem(seed, tasks=12, devices=3, limit_bytes=limit)
    problem = problem.with_communication(communication)
    try:
        plain = choose(problem)
    except InfeasiblePlacementError:
        return
    found, again = (choose(problem, budget=SearchBudget(steps=300), seed=seed) for _ in range(2))
    assert found.best.placement == again.best.placement
    assert found.best.fits
    makespan = found.best.simulation.makespan_seconds
    assert makespan <= plain.best.simulation.makespan_seconds
    # A program in the portfolio may prove more.
    assert makespan_bound(problem) * (1 - 1e-9) <= found.bound_seconds <= makespan
    assert 0 <= found.gap + 1e-9 <= 1 + 1e-9


@pytest.mark.parametrize("communication", COMMUNICATIONS)
def test_the_search_helps(communication) -> None:
    machine = Machine.uniform_of(4, 1 << 40, latency_seconds=1e-4, seconds_per_byte=2e-10)
    problem = layered_problem(120, 8, machine.with_communication(communication))
    plain = choose(problem)
    found = choose(problem, budget=SearchBudget(steps=2000 if communication == "channel" else 60))
    assert found.best.placement.placer.endswith("+search")
    assert found.best.placement.status == "improved"
    assert found.best.simulation.makespan_seconds < plain.best.simulation.makespan_seconds
    again = judge(problem, found.best.placement.assignment)
    assert again.makespan_seconds == found.best.simulation.makespan_seconds


def test_nothing_is_spent_where_the_bound_is_reached() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 100).with_communication("channel"))
    for name in "ab":
        builder.add_node(name, 1.0)
    problem = builder.build()
    assert improve(problem, [[0, 1]], 1.0, SearchBudget(seconds=60), 0).steps == 0
    choice = choose(problem, budget=SearchBudget(seconds=60))
    assert choice.gap == 0
    assert not choice.best.placement.placer.endswith("+search")


def test_seconds_are_kept() -> None:
    machine = Machine.uniform_of(4, 1 << 40, latency_seconds=1e-4).with_communication("channel")
    problem = layered_problem(3000, 16, machine)
    start = [group % 4 for group in range(problem.groups)]
    by_steps = [improve(problem, [start], 0.0, SearchBudget(steps=3000), 0) for _ in range(2)]
    assert by_steps[0] == by_steps[1]
    assert by_steps[0].steps >= 3000
    assert improve(problem, [start], 0.0, SearchBudget(seconds=0.01), 0).rounds <= 1
