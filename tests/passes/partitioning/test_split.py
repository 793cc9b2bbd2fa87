"""The judges of splits against the definitions written down naively."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.latency.judge import (
    latency_of,
    latency_seconds,
    natural_subgraphs,
)
from baechi_jax.passes.placement.split import Split, evaluate
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive


@given(naive.workloads(), st.data(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_loads_follow_the_definition(
    workload: Workload, data: st.DataObject, overlap: bool
) -> None:
    device_of = _any_split(workload, data)
    report = evaluate(workload, np.array(device_of), overlap=overlap)
    loads = [
        naive.naive_load(workload, device_of, device, overlap=overlap)
        for device in range(workload.devices)
    ]
    assert [load.seconds for load in report.devices] == pytest.approx(loads)
    assert report.max_load_seconds == pytest.approx(max(loads))
    assert report.sum_of_maxima_seconds == pytest.approx(
        naive.naive_sum_of_maxima(workload, device_of, overlap=overlap)
    )
    assert report.contiguous == naive.naive_contiguous(workload, device_of)
    assert (not report.faults) == (device_of in set(naive.assignments(workload)))


@given(naive.workloads(training=False, host=True), st.data(), st.integers(1, 2))
@settings(max_examples=200, deadline=None)
def test_latency_follows_the_definition(
    workload: Workload, data: st.DataObject, subgraphs: int
) -> None:
    pieces = st.integers(-1, workload.classes[0].count * subgraphs - 1)
    piece_of = tuple(data.draw(st.lists(pieces, min_size=workload.size, max_size=workload.size)))
    expected = naive.naive_latency(workload, piece_of, subgraphs)
    found = latency_seconds(workload, np.array(piece_of), subgraphs=subgraphs)
    assert found == pytest.approx(expected)


@given(naive.workloads(training=False, host=True), st.data())
@settings(max_examples=100, deadline=None)
def test_natural_subgraphs_are_the_fewest(workload: Workload, data: st.DataObject) -> None:
    device_of = _any_split(workload, data)
    number = natural_subgraphs(workload, np.array(device_of))
    after = naive.reachable(workload.edges.tolist(), range(workload.size))
    exits = [0] * workload.size
    for _ in range(workload.size):
        for a in range(workload.size):
            for b in after[a]:
                if device_of[a] == device_of[b]:
                    left = any(b in after[c] and device_of[c] != device_of[a] for c in after[a])
                    exits[b] = max(exits[b], exits[a] + left)
    assert number.tolist() == exits


def test_a_device_in_two_parts_is_two_subgraphs() -> None:
    workload = naive.workload(
        [[1, 2, 3], [10, 5, 30]],
        [(0, 1), (1, 2)],
        counts=(1, 1),
        transfers=(True, False),
        transfer=[1, 1, 1],
    )
    report = latency_of(workload, Split(np.array([0, 1, 0])))
    assert report.subgraphs == (2, 0)
    # Compute 1 and out 1; 5 on the host; in 1 and compute 3.
    assert report.seconds == 2 + 5 + 4
    one = latency_of(workload, Split(np.array([0, 1, 0]), subgraph_of=np.zeros(3, np.int64)))
    assert one.seconds == np.inf
    assert "wait for one another" in one.faults[0]


def test_replicas_share_the_load_and_reduce_their_parameters() -> None:
    workload = naive.workload([[8, 4]], [(0, 1)], counts=(4,), transfer=[2, 0], parameters=[0, 30])
    report = evaluate(
        workload,
        np.array([0, 1]),
        replicas=np.array([1, 3, 0, 0]),
        replica_bytes_per_second=10.0,
    )
    assert not report.faults
    assert report.devices[0].seconds == 10
    assert report.devices[1].seconds == pytest.approx((4 + 2) / 3 + 2 * (2 / 3) * 3)
    assert report.max_load_seconds == 10


def test_replicas_need_idle_devices_of_the_same_class() -> None:
    workload = naive.workload([[1, 1], [1, 1]], [(0, 1)], counts=(2, 1))
    busy = evaluate(workload, np.array([0, 1]), replicas=np.array([2, 1, 1]))
    assert any("in use" in fault for fault in busy.faults)
    other = evaluate(workload, np.array([1, 1]), replicas=np.array([1, 2, 1]))
    assert any("no 1 devices of its class" in fault for fault in other.faults)


def test_faults_are_named() -> None:
    workload = naive.workload(
        [[1, np.inf]], [(0, 1)], counts=(2,), memory=(3,), nbytes=(4, 0), colour=(7, 7)
    )
    faults = evaluate(workload, np.array([0, 1])).faults
    assert "device 0 holds 4 bytes of 3" in faults[0]
    assert "node 'n1' cannot run on device 1 (class0)" in faults[1]
    assert "colour 7 is split" in faults[2]
    assert evaluate(workload, np.array([0, 1])).split_colours == (7,)


def test_wrong_shapes_are_refused() -> None:
    workload = naive.workload([[1, 1]], [], counts=(2,))
    with pytest.raises(WorkloadError, match="assigns 1 nodes, the workload has 2"):
        evaluate(workload, np.array([0]))
    with pytest.raises(WorkloadError, match="node 'n1' is on device 2"):
        evaluate(workload, np.array([0, 2]))
    with pytest.raises(WorkloadError, match="on the host, and the workload has none"):
        latency_seconds(workload, np.array([-1, 0]))


def _any_split(workload: Workload, data: st.DataObject) -> tuple[int, ...]:
    devices = st.integers(0, workload.devices - 1)
    return tuple(data.draw(st.lists(devices, min_size=workload.size, max_size=workload.size)))
