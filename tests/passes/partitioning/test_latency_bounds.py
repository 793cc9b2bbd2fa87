"""Lower bounds on latency against brute force, and the pieces of the proof."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.formats import read_workload
from baechi_jax.passes.placement.latency.bounds import (
    _Graph,
    _Hulls,
    critical_path_seconds,
    longest_path,
    path_bound,
)
from baechi_jax.passes.placement.workload import Workload
from tests.passes.partitioning import workloads as naive


@given(naive.workloads(training=False, host=True, most_nodes=5), st.integers(1, 2))
@settings(max_examples=120, deadline=None)
def test_bounds_are_below_the_optimum(workload: Workload, subgraphs: int) -> None:
    best = naive.best_latency(workload, subgraphs)
    bound = path_bound(workload, subgraphs=subgraphs, paths=8)
    assert bound.seconds <= best * (1 + 1e-9) + 1e-9
    assert critical_path_seconds(workload) <= best + 1e-9


@given(naive.workloads(training=False, host=True, most_nodes=5))
@settings(max_examples=100, deadline=None)
def test_the_bound_of_a_chain_without_colours_is_the_optimum(workload: Workload) -> None:
    size = workload.size
    chain = naive.workload(
        [kind.seconds for kind in workload.classes],
        [(node, node + 1) for node in range(size - 1)],
        counts=[kind.count for kind in workload.classes],
        transfers=(True, False),
        memory=[kind.memory_bytes for kind in workload.classes],
        nbytes=workload.bytes,
        transfer=workload.transfer_seconds,
    )
    assert path_bound(chain).seconds == pytest.approx(naive.best_latency(chain, 1))


@given(naive.workloads(training=False, host=True, most_nodes=7), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_loads_of_intervals_are_what_the_proof_says(workload: Workload, seed: int) -> None:
    path = longest_path(workload, np.random.default_rng(seed).random(workload.size))
    hulls = _Hulls(_Graph(workload, 1), path)
    kind = workload.classes[0]
    cost = hulls.cost(kind)
    edges = workload.edges.tolist()
    after = naive.reachable(edges, range(workload.size))
    colour = workload.colour
    for first, last in itertools.product(range(len(path)), repeat=2):
        if first > last:
            assert cost[first, last] == np.inf
            continue
        hull = {
            node
            for node in range(workload.size)
            if (node == path[first] or node in after[path[first]])
            and (node == path[last] or path[last] in after[node])
        }
        hull_and_mates = hull | {
            node
            for node in range(workload.size)
            for other in hull
            if colour[node] >= 0 and colour[node] == colour[other]
        }
        before = (
            set()
            if first == 0
            else {
                node
                for node in range(workload.size)
                if node == path[first - 1] or path[first - 1] in after[node]
            }
        )
        behind = set() if last == len(path) - 1 else {path[last + 1], *after[path[last + 1]]}
        transfers = sum(
            workload.transfer_seconds[u]
            for u in before
            if any(source == u and target in hull for source, target in edges)
        ) + sum(
            workload.transfer_seconds[u]
            for u in hull
            if any(source == u and target in behind for source, target in edges)
        )
        held = sum(workload.bytes[node] for node in hull_and_mates)
        on_path = set(path) & hull_and_mates
        if held > kind.memory_bytes or on_path != set(path[first : last + 1]):
            assert cost[first, last] == np.inf
        else:
            compute = sum(kind.seconds[node] for node in hull_and_mates)
            assert cost[first, last] == pytest.approx(compute + transfers)


def test_several_classes_of_accelerators() -> None:
    workload = naive.workload(
        [[4, 4, 4], [1, 1, 1], [100, 100, 100]],
        [(0, 1), (1, 2)],
        counts=(1, 1, 1),
        transfers=(True, True, False),
        memory=(2, 2, np.inf),
        nbytes=(1, 1, 1),
        transfer=(1, 5, 0),
    )
    # The first alone on the slow one (4 + 1), the other two on the fast one (1 + 2), not the host.
    assert path_bound(workload).seconds == 8.0
    assert naive.best_latency(workload, 1) == 8.0


def test_what_fits_nowhere_has_an_infinite_bound() -> None:
    workload = naive.workload(
        [[1, 1], [np.inf, np.inf]],
        [(0, 1)],
        counts=(1, 1),
        transfers=(True, False),
        memory=(1, np.inf),
        nbytes=(1, 1),
    )
    assert path_bound(workload).seconds == np.inf


def test_the_longest_path() -> None:
    workload = naive.workload([[1] * 4], [(0, 2), (1, 2), (2, 3)], counts=(1,))
    assert longest_path(workload, np.array([1.0, 2.0, 1.0, 1.0])) == (1, 2, 3)


def test_published_workloads(data_folder: Path) -> None:
    expected = {"LayerGraphs/bert24": 0.100218, "LayerGraphs/inception": 0.87, "l-12": 0.66}
    for name, least in expected.items():
        (path,) = (
            path
            for path in (data_folder / "dnn-partitioning/latency-inputs").glob("*/*.json")
            if name in str(path)
        )
        assert path_bound(read_workload(path), paths=8).seconds > least
