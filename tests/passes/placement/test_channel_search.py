"""The compiled channel simulator and its searches, and m-SCT's program in parts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.channel_search import ChannelSearch
from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.m_sct import m_sct
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.synthetic import layered_problem, random_problem
from baechi_jax.passes.simulate.simulator import simulate


def layers(nodes: int, width: int, *, seed: int = 0, latency: float = 134e-6) -> PlacementProblem:
    machine = Machine.uniform_of(4, 1 << 50, latency_seconds=latency, seconds_per_byte=2e-10)
    return layered_problem(nodes, width, machine.with_communication("channel"), seed=seed)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1_000_000), devices=st.integers(1, 4))
def test_the_kernel_is_the_simulator(seed: int, devices: int) -> None:
    problem = random_problem(seed, tasks=20, devices=devices).with_communication("channel")
    rng = random.Random(seed)
    search = ChannelSearch(problem)
    for _ in range(3):
        device = [rng.choice(allowed) for allowed in problem.allowed]
        seconds = simulate(problem, expand(problem, device)).makespan_seconds
        assert search.makespan(device) == pytest.approx(seconds, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_annealing_gives_what_it_says_and_never_loses(seed: int) -> None:
    problem = random_problem(seed, tasks=20, devices=3).with_communication("channel")
    search = ChannelSearch(problem)
    start = [allowed[0] for allowed in problem.allowed]
    runs = [
        search.anneal(start, steps=200, seed=seed, hot_seconds=0.1, cold_seconds=0.01)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    device, seconds = runs[0]
    assert seconds == search.makespan(device) <= search.makespan(start)
    assert all(at in allowed for at, allowed in zip(device, problem.allowed, strict=True))


@pytest.mark.parametrize("width", [8, 32])
def test_a_sweep_gives_what_it_says_and_helps(width: int) -> None:
    problem = layers(1500, width)
    search = ChannelSearch(problem)
    start = [(group * 7) % 4 for group in range(problem.groups)]
    runs = [
        search.sweep(start, window=150, ahead=450, trials=300, seed=3, hot_seconds=1e-6)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    device, seconds = runs[0]
    assert seconds == pytest.approx(search.makespan(device), rel=1e-12)
    assert seconds < 0.9 * search.makespan(start)


def test_m_sct_is_not_beaten_by_its_own_schedule_and_repeats() -> None:
    problem = layers(600, 16)
    first, second = m_sct(problem, seed=1), m_sct(problem, seed=1)
    assert first == second
    seconds = simulate(problem, first.assignment).makespan_seconds
    assert seconds == pytest.approx(first.objective_seconds, rel=1e-12)


# m-SCT's program --------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", [5e-6, 134e-6, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_the_program_in_parts_has_the_value_of_the_whole(latency: float, seed: int) -> None:
    problem = layers(300, 8, seed=seed, latency=latency)
    whole = favourite_children(problem, in_parts=False)
    parts = favourite_children(problem, in_parts=True)
    other = favourite_children(problem, in_parts=False, solver="cbc")
    assert parts.makespan_seconds == pytest.approx(whole.makespan_seconds, rel=1e-6)
    assert other.makespan_seconds == pytest.approx(whole.makespan_seconds, rel=1e-6)
    for found in (whole, parts):
        children = [child for child in found.child if child >= 0]
        assert len(set(children)) == len(children)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_in_parts_on_anything(seed: int) -> None:
    problem = random_problem(seed, tasks=25, devices=3)
    whole = favourite_children(problem, in_parts=False)
    parts = favourite_children(problem, in_parts=True)
    assert parts.makespan_seconds == pytest.approx(whole.makespan_seconds, rel=1e-6)
