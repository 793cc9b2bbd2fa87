"""The authors' communication model by hand and on their data; the memory walk."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.baechi_graph import read_baechi_graph
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import random_problem
from baechi_jax.passes.simulate.judge import ALL_RULES, judge
from baechi_jax.passes.simulate.memory_curve import memory_curve
from baechi_jax.passes.simulate.simulator import simulate

US = 1e-6


def channels(count: int, latency_us: float = 10.0, per_byte_us: float = 0.0) -> Machine:
    return Machine.uniform_of(
        count, 1 << 40, latency_seconds=latency_us * US, seconds_per_byte=per_byte_us * US
    ).with_communication("channel")


def microseconds(problem: PlacementProblem, assignment: list[int]) -> dict[str, tuple[int, int]]:
    outcome = simulate(problem, assignment)
    return {
        name: (round(start / US), round(end / US))
        for name, start, end in zip(
            problem.node_names, outcome.start_seconds, outcome.end_seconds, strict=True
        )
    }


def test_both_channels_are_busy_for_the_whole_transfer() -> None:
    # a and b send to device 2 one after the other: its channel takes one at a time.
    builder = ProblemBuilder(channels(3))
    a, b = builder.add_node("a", 5 * US), builder.add_node("b", 5 * US)
    c = builder.add_node("c", 1 * US)
    builder.add_tensor(a, 0, [c])
    builder.add_tensor(b, 0, [c])
    problem = builder.build()
    assert microseconds(problem, [0, 1, 2])["c"] == (25, 26)
    moves = {move.source: move for move in simulate(problem, [0, 1, 2]).transfers}
    # The second is sent at once and received when the channel there is free.
    assert round(moves[1].start_seconds / US) == 5
    assert round(moves[1].end_seconds / US) == 25


def test_one_direction_holds_up_the_other() -> None:
    builder = ProblemBuilder(channels(2))
    a, b = builder.add_node("a", 5 * US), builder.add_node("b", 8 * US)
    c, d = builder.add_node("c", 1 * US), builder.add_node("d", 1 * US)
    builder.add_tensor(a, 0, [d])
    builder.add_tensor(b, 0, [c])
    # a sends from 5 to 15; b, at 8, waits for the channel of its own device until 15.
    assert microseconds(builder.build(), [0, 1, 0, 1])["c"] == (25, 26)


def test_a_tensor_goes_to_a_device_once() -> None:
    builder = ProblemBuilder(channels(2))
    a = builder.add_node("a", 5 * US)
    readers = [builder.add_node(name, 1 * US) for name in "bc"]
    builder.add_tensor(a, 0, readers)
    problem = builder.build()
    assert len(simulate(problem, [0, 1, 1]).transfers) == 1
    assert microseconds(problem, [0, 1, 1])["c"] == (16, 17)


def test_transfers_take_whole_microseconds() -> None:
    builder = ProblemBuilder(channels(2, 1.0, 0.1))
    a = builder.add_node("a", 1 * US)
    b = builder.add_node("b", 1 * US)
    builder.add_tensor(a, 26, [b])
    problem = builder.build()
    assert microseconds(problem, [0, 1])["b"] == (5, 6)
    assert problem.machine.transfer_seconds(0, 1, 26) == pytest.approx(4 * US)


def test_ready_together_go_in_breadth_first_order() -> None:
    # r's queue order: x (index 1) before y (index 3), though p comes in between.
    builder = ProblemBuilder(channels(1))
    names = ("r", "p", "y", "x")
    r, p, y, x = (builder.add_node(name, 1 * US) for name in names)
    builder.add_tensor(r, 0, [x])
    builder.add_tensor(p, 0, [y])
    problem = builder.build()
    assert problem.breadth_first.tolist() == [0, 1, 3, 2]
    # x is ready at 1, p runs from 1 to 2: only ties ask for the order.
    assert microseconds(problem, [0, 0, 0, 0])["x"] == (2, 3)


def test_no_orders_and_no_unknown_models() -> None:
    builder = ProblemBuilder(channels(1))
    builder.add_node("a", 1 * US)
    problem = builder.build()
    with pytest.raises(PlacementProblemError, match="give no order or priority"):
        simulate(problem, [0], [0])
    with pytest.raises(PlacementProblemError, match=r"'communication' is 'bus', expected one of"):
        Machine.uniform_of(1, 1).with_communication("bus")  # type: ignore[arg-type]


def test_a_node_that_cannot_run_there() -> None:
    builder = ProblemBuilder(channels(2))
    builder.add_node("a", [1 * US, float("inf")])
    with pytest.raises(PlacementProblemError, match="'a' cannot run on device:1"):
        simulate(builder.build(), [1])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_channel_steps_keep_the_rules(seed: int) -> None:
    problem = random_problem(seed, tasks=14, devices=3).with_communication("channel")
    rng = random.Random(seed)
    device = [rng.choice(allowed) for allowed in problem.allowed]
    assignment = [device[group] for group in problem.group]
    outcome = judge(problem, assignment, ALL_RULES)
    lists = problem.lists
    arrival = {(move.tensor, move.target): move.end_seconds for move in outcome.transfers}
    for node in range(problem.nodes):
        for tensor in lists.reads[node]:
            source = lists.producer[tensor]
            here = assignment[node]
            there = outcome.end_seconds[source]
            if assignment[source] != here:
                there = arrival[tensor, here]
            assert outcome.start_seconds[node] >= there - 1e-12
    spans: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
    for move in outcome.transfers:
        takes = problem.machine.transfer_seconds(
            move.source, move.target, lists.tensor_bytes[move.tensor]
        )
        spans[move.source].append((move.start_seconds, move.start_seconds + takes))
        spans[move.target].append((move.end_seconds - takes, move.end_seconds))
    for channel in spans:
        busy = sorted(span for span in channel if span[1] > span[0])
        assert all(first[1] <= then[0] + 1e-9 for first, then in itertools.pairwise(busy))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1_000_000), devices=st.integers(1, 4))
def test_the_memory_walk_is_the_simulators(seed: int, devices: int) -> None:
    problem = random_problem(seed, tasks=12, devices=devices)
    rng = random.Random(seed)
    device = [rng.choice(allowed) for allowed in problem.allowed]
    assignment = [device[group] for group in problem.group]
    outcome = simulate(problem, assignment)
    moves = outcome.transfers
    walked = memory_curve(
        problem,
        assignment,
        np.array(outcome.start_seconds),
        np.array(outcome.end_seconds),
        (
            np.array([move.tensor for move in moves], dtype=np.int64),
            np.array([move.target for move in moves], dtype=np.int64),
            np.array([move.start_seconds for move in moves]),
            np.array([move.end_seconds for move in moves]),
        ),
    )
    assert walked.peak_bytes == outcome.peak_bytes


def test_the_authors_own_makespans(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--data")
    if folder is None:
        pytest.skip("needs --data")
    for path in sorted((Path(folder) / "baechi").glob("*.json.gz")):
        graph = read_baechi_graph(path)
        for placement in graph.authors.values():
            outcome = simulate(graph.problem, placement.assignment)
            assert outcome.makespan_seconds / US == pytest.approx(placement.makespan_us, abs=1e-6)
