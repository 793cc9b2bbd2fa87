"""The flow and work bounds against brute force, and what the flow bound is made of."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.formats import read_workload
from baechi_jax.passes.placement.latency import flow_bound as flow_bound_module
from baechi_jax.passes.placement.latency.bounds import path_bound, work_bound
from baechi_jax.passes.placement.latency.flow_bound import _CUT_SHORT, FlowBound, flow_bound
from baechi_jax.passes.placement.latency.judge import latency_of
from baechi_jax.passes.placement.throughput.dynamic_program import TooManyIdealsError
from baechi_jax.passes.placement.workload import Workload
from tests.passes.partitioning import workloads as naive


@given(naive.workloads(training=False, host=True, most_nodes=5), st.booleans())
@settings(max_examples=250, deadline=None)
def test_the_flow_bound_is_below_the_optimum(workload: Workload, with_path: bool) -> None:
    best = naive.best_latency(workload, 1)
    path = path_bound(workload, paths=4).path if with_path else ()
    assert flow_bound(workload, path=path) <= best * (1 + 1e-9) + 1e-9


@given(naive.workloads(training=False, host=True, most_nodes=4, most_devices=3))
@settings(max_examples=120, deadline=None)
def test_with_two_subgraphs_too(workload: Workload) -> None:
    best = naive.best_latency(workload, 2)
    path = path_bound(workload, subgraphs=2, paths=4).path
    assert flow_bound(workload, subgraphs=2, path=path) <= best * (1 + 1e-9) + 1e-9


@given(naive.workloads(training=True, host=True, most_nodes=5))
@settings(max_examples=80, deadline=None)
def test_with_training_graphs_too(workload: Workload) -> None:
    assert flow_bound(workload) <= naive.best_latency(workload, 1) * (1 + 1e-9) + 1e-9


@given(naive.workloads(training=False, host=True, most_nodes=5))
@settings(max_examples=150, deadline=None)
def test_known_splits_change_no_bound_for_the_worse(workload: Workload) -> None:
    best = naive.best_latency(workload, 1)
    bound = FlowBound(workload, path=path_bound(workload, paths=4).path)
    bound.add_split(np.full(workload.size, -1))
    for _ in range(12):
        bound.step()
        assert bound.seconds <= best * (1 + 1e-9) + 1e-9
        if bound.closed():
            break


@given(naive.workloads(training=False, host=True, most_nodes=5))
@settings(max_examples=100, deadline=None)
def test_a_path_gives_at_least_the_path_bound(workload: Workload) -> None:
    path = path_bound(workload, paths=4)
    bound = FlowBound(workload, path=path.path)
    found = bound.step()
    if not np.isfinite(path.seconds):
        assert found is None
        assert bound.seconds == np.inf
        return
    # Bytes of nodes that are merged into a neighbour of another colour are left out.
    if (workload.bytes == 0).all():
        assert bound.seconds >= path.seconds * (1 - 1e-6)


@given(naive.workloads(training=False, host=True, most_nodes=5), st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_the_work_bound_is_below_the_optimum(workload: Workload, subgraphs: int) -> None:
    assert work_bound(workload) <= naive.best_latency(workload, subgraphs) + 1e-9


@given(
    naive.workloads(training=False, host=True, most_nodes=5),
    st.integers(1, 2),
    st.sampled_from(_CUT_SHORT[1:]),
    st.integers(0, 3),
)
@settings(max_examples=120, deadline=None)
def test_chains_that_are_cut_short_leave_a_bound(
    workload: Workload, subgraphs: int, share: float, extra: int
) -> None:
    # Mostly a chain, so that there is something to cut.
    edges = [(node, node + 1) for node in range(workload.size - 1)]
    edges += [(int(source), int(target)) for source, target in workload.edges[:extra]]
    chain = naive.workload(
        [kind.seconds for kind in workload.classes],
        edges,
        counts=[min(kind.count, 3 - subgraphs) for kind in workload.classes],
        transfers=(True, False),
        memory=[kind.memory_bytes for kind in workload.classes],
        nbytes=workload.bytes,
        transfer=workload.transfer_seconds,
        colour=workload.colour,
    )
    best = naive.best_latency(chain, subgraphs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_bound_module, "_CUT_SHORT", (share,))
        bound = FlowBound(chain, subgraphs=subgraphs)
        for _ in range(8):
            bound.step()
            assert bound.seconds <= best * (1 + 1e-9) + 1e-9


def test_a_chain_is_cut_short_where_it_has_too_many_ideals() -> None:
    workload = naive.workload(
        [[3, 1, 2], [30, 10, 20]],
        [(0, 1), (1, 2)],
        counts=(2, 1),
        transfers=(True, False),
        memory=(2, np.inf),
        nbytes=(1, 1, 1),
        transfer=(2, 1, 0),
    )
    exact, short = FlowBound(workload), FlowBound(workload, max_ideals=3)
    assert (exact.classes.size, short.classes.size) == (3, 2)
    assert short.classes.bytes.tolist() == [1, 1]
    assert short.classes.bytes_behind.tolist() == [1, 0]
    assert short.classes.transfer.tolist() == [1, 0]
    exact.step()
    short.step()
    # 3 + 1 + 1 and 1 + 2; cut short, the node in the middle is on neither side.
    assert exact.seconds == pytest.approx(8)
    assert short.seconds == pytest.approx(7)
    assert naive.best_latency(workload, 1) == 8


def test_the_work_bound_counts_bytes_and_seconds() -> None:
    # Room for two of the three: the third is on the host.
    given_bytes = naive.workload(
        [[1, 1, 1], [7, 8, 9]],
        [],
        counts=(2, 1),
        transfers=(True, False),
        memory=(1, np.inf),
        nbytes=(1, 1, 1),
    )
    assert work_bound(given_bytes) == 7.0
    given_seconds = naive.workload(
        [[4, 4, 4], [9, 9, 9]], [], counts=(2, 1), transfers=(True, False)
    )
    assert work_bound(given_seconds) == 6.0


def test_parallel_branches_count_together() -> None:
    # A path sees one branch only; both must be somewhere, and one accelerator holds one of them.
    workload = naive.workload(
        [[0, 1, 1, 0], [0, 10, 10, 0]],
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        counts=(1, 1),
        transfers=(True, False),
        memory=(1, np.inf),
        nbytes=(0, 1, 1, 0),
        transfer=(1, 1, 1, 0),
    )
    best = naive.best_latency(workload, 1)
    assert best == 10.0
    assert path_bound(workload).seconds == 2.0
    # Either branch may be the fast one: the mean of 3 and 10 along a path that takes each half.
    assert flow_bound(workload) == pytest.approx(6.5, rel=1e-3)


def test_a_wide_graph_is_refused() -> None:
    workload = naive.workload([[1] * 12, [1] * 12], [], counts=(1, 1), transfers=(True, False))
    with pytest.raises(TooManyIdealsError, match="more than 100 ideals"):
        flow_bound(workload, max_ideals=100)


def test_no_time_gives_no_bound() -> None:
    workload = naive.workload([[1] * 8, [1] * 8], [], counts=(1, 1), transfers=(True, False))
    assert flow_bound(workload, time_limit_seconds=-1.0) == 0.0


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("LayerGraphs/bert24", 0.1002185),
        ("LayerGraphs/gnmt", 0.2256478906),
        ("LayerGraphs/resnet50", 1.1568812812),
        ("OperatorGraphs/bert_l-3", 0.4084744082),
        ("OperatorGraphs/bert_l-6", 0.4380624866),
        ("OperatorGraphs/resnet50", 0.6511207590),
    ],
)
def test_published_workloads_are_solved(name: str, optimum: float, data_folder: Path) -> None:
    folder = data_folder / "dnn-partitioning/latency-inputs"
    (path,) = (path for path in folder.glob("*/*.json") if name in str(path))
    workload = read_workload(path)
    bound = FlowBound(workload, path=path_bound(workload).path)
    found = []
    for _ in range(40):
        piece_of = bound.step()
        if piece_of is not None:
            found.append(latency_of(workload, bound.pieces.split(piece_of)))
        if bound.seconds >= optimum * (1 - 1e-6):
            break
    assert bound.seconds == pytest.approx(optimum, rel=1e-6)
    assert all(report.seconds >= optimum * (1 - 1e-6) for report in found if not report.faults)
