"""The integer program for latency against brute force, from warm starts and without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.latency import milp
from baechi_jax.passes.placement.latency.bounds import path_bound
from baechi_jax.passes.placement.latency.greedy import solve_greedy
from baechi_jax.passes.placement.latency.judge import latency_of, latency_seconds
from baechi_jax.passes.placement.latency.milp import solve_latency_milp
from baechi_jax.passes.placement.latency.pieces import Pieces
from baechi_jax.passes.placement.latency.timeline import Timeline
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive


def check(workload: Workload, subgraphs: int, *, warm: bool) -> None:
    best = naive.best_latency(workload, subgraphs)
    start = None
    if warm:
        greedy = solve_greedy(workload)
        assert greedy is not None
        start = np.where(greedy < 0, -1, greedy * subgraphs)
    known = path_bound(workload, subgraphs=subgraphs, paths=4).seconds if warm else 0.0
    result = solve_latency_milp(workload, subgraphs=subgraphs, start=start, bound_seconds=known)
    assert result.status == "optimal"
    assert result.piece_of is not None
    report = latency_of(workload, Pieces.of(workload, subgraphs).split(result.piece_of))
    assert report.faults == ()
    assert max(report.subgraphs) <= subgraphs
    assert report.seconds == pytest.approx(best, abs=1e-6)
    assert result.bound_seconds <= best + 1e-6


@given(naive.workloads(training=False, host=True, most_nodes=5, most_devices=3), st.booleans())
@settings(max_examples=200, deadline=None)
def test_one_subgraph_each(workload: Workload, warm: bool) -> None:
    check(workload, 1, warm=warm)


@given(naive.workloads(training=False, host=True, most_nodes=4, most_devices=3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_two_subgraphs_each(workload: Workload, warm: bool) -> None:
    check(workload, 2, warm=warm)


@given(naive.workloads(training=True, host=True, most_nodes=4, most_devices=3), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_training_graphs(workload: Workload, subgraphs: int) -> None:
    check(workload, subgraphs, warm=True)


@pytest.mark.parametrize("subgraphs", [1, 2])
def test_several_kinds_of_accelerators(subgraphs: int) -> None:
    random = np.random.default_rng(subgraphs)
    for _ in range(25):
        size = 4
        pairs = [(u, v) for u in range(size) for v in range(u + 1, size) if random.random() < 0.5]
        seconds = random.integers(0, 9, (3, size)).astype(float) * [[1], [2], [4]]
        seconds[0, random.integers(size)] = np.inf
        workload = naive.workload(
            seconds,
            pairs,
            counts=(1, 1, 1),
            transfers=(True, True, False),
            memory=(float(random.integers(1, 8)), float(random.integers(1, 8)), np.inf),
            nbytes=random.integers(0, 4, size),
            transfer=random.integers(0, 4, size),
        )
        check(workload, subgraphs, warm=bool(random.integers(2)))


def test_without_a_host_and_without_room() -> None:
    workload = naive.workload(
        [[1, 2]], [(0, 1)], counts=(2,), memory=(1,), nbytes=(1, 1), transfer=(3, 0)
    )
    found = solve_latency_milp(workload)
    assert found.piece_of is not None
    assert latency_seconds(workload, found.piece_of) == 9.0
    tight = naive.workload([[1, 2]], [(0, 1)], counts=(2,), memory=(1,), nbytes=(1, 2))
    none = solve_latency_milp(tight)
    assert (none.piece_of, none.status, none.bound_seconds) == (None, "infeasible", np.inf)


def test_pieces_that_take_no_time_must_not_wait_for_each_other() -> None:
    # 0 and 3 share a colour, 1 and 2 another: two pieces would wait for each other, and so one of
    # the pairs is on the host, one of it before the piece and one behind.
    workload = naive.workload(
        [[0, 0, 0, 0], [9, 9, 9, 9]],
        [(0, 1), (2, 3)],
        counts=(2, 1),
        transfers=(True, False),
        memory=(2, np.inf),
        nbytes=(1, 1, 1, 1),
        colour=(0, 1, 1, 0),
    )
    check(workload, 1, warm=False)
    assert naive.best_latency(workload, 1) == 18.0


def test_the_warm_start_and_its_bound_are_returned_when_there_is_no_time() -> None:
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(40) for v in range(u + 1, 40) if random.random() < 0.1]
    seconds = random.integers(1, 20, 40)
    workload = naive.workload(
        [seconds, 10 * seconds],
        pairs,
        counts=(4, 1),
        transfers=(True, False),
        memory=(12, np.inf),
        nbytes=np.ones(40),
        transfer=random.integers(0, 9, 40),
    )
    start = solve_greedy(workload)
    assert start is not None
    result = solve_latency_milp(workload, start=start, bound_seconds=3.0, time_limit_seconds=0.05)
    assert result.status == "time limit"
    assert result.piece_of is not None
    value = latency_seconds(workload, result.piece_of)
    assert 3.0 <= result.bound_seconds <= value <= latency_seconds(workload, start) + 1e-9


def test_ctrl_c_returns_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = naive.workload([[1, 2], [5, 5]], [(0, 1)], counts=(2, 1), transfers=(True, False))

    def interrupt(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(milp, "optimize", interrupt)
    result = solve_latency_milp(workload, start=np.array([-1, -1]), bound_seconds=1.0)
    assert result.status == "interrupted"
    assert result.piece_of is not None
    assert (result.piece_of.tolist(), result.bound_seconds) == ([-1, -1], 1.0)


@given(naive.workloads(training=False, host=True, most_nodes=6), st.integers(1, 2), st.integers(0))
@settings(max_examples=200, deadline=None)
def test_the_timeline_is_the_judges(workload: Workload, subgraphs: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    count = Pieces.of(workload, subgraphs).count
    piece_of = random.integers(-1, count, workload.size)
    expected = naive.naive_latency(workload, tuple(piece_of.tolist()), subgraphs)
    if not np.isfinite(workload.classes[0].seconds[piece_of >= 0]).all():
        return
    if not np.isfinite(expected):
        with pytest.raises(WorkloadError, match="wait for one another"):
            Timeline.of(workload, piece_of, subgraphs)
        return
    line = Timeline.of(workload, piece_of, subgraphs)
    assert line.seconds == pytest.approx(expected)
    assert sorted(line.order) == sorted({piece for piece in piece_of.tolist() if piece >= 0})
    place = {piece: at for at, piece in enumerate(line.order)}
    for source, target in workload.edges.tolist():
        assert line.done_before[source] <= line.done_before[target]
        ends = (place.get(int(piece_of[source]), -1), place.get(int(piece_of[target]), -1))
        assert -1 in ends or ends[0] <= ends[1]
