"""Heuristics for latency: valid, never worse than their start, deterministic, sometimes optimal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.latency.greedy import solve_greedy
from baechi_jax.passes.placement.latency.judge import latency_of, latency_seconds
from baechi_jax.passes.placement.latency.pieces import Pieces
from baechi_jax.passes.placement.latency.search import LatencySearchOptions, search_latency
from baechi_jax.passes.placement.latency.series import solve_series
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive

QUICK = LatencySearchOptions(rounds=8, steps=1000)


@given(naive.workloads(training=False, host=True))
@settings(max_examples=100, deadline=None)
def test_starts_are_valid(workload: Workload) -> None:
    series = solve_series(workload)
    greedy = solve_greedy(workload)
    for piece_of in (None if series is None else series.piece_of, greedy):
        if piece_of is None:
            continue
        report = latency_of(workload, Pieces.of(workload).split(piece_of))
        assert report.faults == ()
        assert np.isfinite(report.seconds)
    # The host can run everything here, so something always fits.
    assert series is not None
    assert greedy is not None
    assert latency_seconds(workload, series.piece_of) <= series.sum_seconds * (1 + 1e-9)


@given(naive.workloads(training=False, host=True, most_nodes=5), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_the_search_is_valid_and_between_the_optimum_and_its_start(
    workload: Workload, subgraphs: int
) -> None:
    greedy = solve_greedy(workload)
    assert greedy is not None
    start = np.where(greedy < 0, -1, greedy * subgraphs)
    options = LatencySearchOptions(subgraphs=subgraphs, rounds=3, steps=300)
    found = search_latency(workload, [start], options)
    report = latency_of(workload, Pieces.of(workload, subgraphs).split(found))
    assert report.faults == ()
    assert report.seconds <= latency_seconds(workload, start, subgraphs=subgraphs) + 1e-9
    assert report.seconds >= naive.best_latency(workload, subgraphs) - 1e-9
    assert np.array_equal(found, search_latency(workload, [start], options))


def test_the_search_finds_the_optimum_of_small_problems() -> None:
    optimal = total = 0
    random = np.random.default_rng(0)
    for _ in range(30):
        size = 5
        pairs = [(u, v) for u in range(size) for v in range(u + 1, size)]
        workload = naive.workload(
            random.integers(1, 9, (2, size)) * [[1], [5]],
            [pair for pair in pairs if random.random() < 0.4],
            counts=(2, 1),
            transfers=(True, False),
            memory=(8, np.inf),
            nbytes=random.integers(1, 4, size),
            transfer=random.integers(0, 5, size),
        )
        greedy = solve_greedy(workload)
        assert greedy is not None
        found = latency_seconds(workload, search_latency(workload, [greedy], QUICK))
        total += 1
        optimal += found <= naive.best_latency(workload, 1) + 1e-9
    assert optimal >= 0.9 * total, f"{optimal} of {total}"


def test_two_subgraphs_can_be_better_than_one() -> None:
    # Fast, slow on the accelerator, fast; memory for two.
    workload = naive.workload(
        [[1, 99, 1], [50, 1, 50]],
        [(0, 1), (1, 2)],
        counts=(1, 1),
        transfers=(True, False),
    )
    start = np.array([-1, -1, -1])
    one = search_latency(workload, [start], QUICK)
    two = search_latency(workload, [start], LatencySearchOptions(subgraphs=2, rounds=3, steps=300))
    assert latency_seconds(workload, one) == 52
    assert latency_seconds(workload, two, subgraphs=2) == 3
    split = Pieces.of(workload, 2).split(two)
    assert split.device_of.tolist() == [0, 1, 0]
    assert latency_of(workload, split).seconds == 3


def test_an_invalid_start_is_refused() -> None:
    workload = naive.workload(
        [[1, 1], [1, 1]],
        [(0, 1)],
        counts=(1, 1),
        transfers=(True, False),
        memory=(1, np.inf),
        nbytes=(1, 1),
    )
    with pytest.raises(WorkloadError, match="needs a valid start: device 0 holds 2 bytes of 1"):
        search_latency(workload, [np.array([0, 0])])


def test_pieces_translate_both_ways() -> None:
    # The host stands between two classes of accelerators.
    workload = naive.workload([[1] * 4] * 3, [], counts=(2, 1, 1), transfers=(True, False, True))
    pieces = Pieces.of(workload, 2)
    assert pieces.devices == (0, 1, 3)
    piece_of = np.array([1, -1, 7, 2])
    compact = pieces.compact(piece_of)
    assert compact.tolist() == [1, 6, 5, 2]
    assert pieces.expand(compact).tolist() == piece_of.tolist()
    split = pieces.split(piece_of)
    assert split.device_of.tolist() == [0, 2, 3, 1]
    assert split.subgraph_of is not None
    assert split.subgraph_of.tolist() == [1, 0, 1, 0]
