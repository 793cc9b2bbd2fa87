"""Lower bounds on the throughput objectives against brute force."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.throughput.bounds import (
    class_bound,
    cluster_bound,
    lower_bound,
    memory_bound,
    relaxation_bound,
    work_bound,
)
from baechi_jax.passes.placement.throughput.cut_bound import cut_bound
from baechi_jax.passes.placement.workload import Workload
from tests.passes.partitioning import workloads as naive

BOUNDS = [class_bound, cluster_bound, cut_bound, memory_bound, relaxation_bound, work_bound]
objectives = st.builds(Throughput, overlap=st.booleans(), sum_of_maxima=st.booleans())


def optimum(workload: Workload, objective: Throughput) -> float:
    """The least value of any valid split, infinite without one."""
    value = naive.naive_sum_of_maxima if objective.sum_of_maxima else naive.naive_max_load
    return min(
        (
            value(workload, device_of, overlap=objective.overlap)
            for device_of in naive.assignments(workload)
        ),
        default=np.inf,
    )


@pytest.mark.parametrize("bound", BOUNDS)
@given(workload=naive.workloads(), objective=objectives)
@settings(max_examples=150, deadline=None)
def test_never_above_the_optimum(
    bound: Callable[[Workload, Throughput], float], workload: Workload, objective: Throughput
) -> None:
    assert bound(workload, objective) <= optimum(workload, objective) * (1 + 1e-9) + 1e-9


@given(naive.workloads(), objectives)
@settings(max_examples=50, deadline=None)
def test_the_best_of_them(workload: Workload, objective: Throughput) -> None:
    value, name = lower_bound(workload, objective)
    assert value >= class_bound(workload, objective)
    assert value >= cluster_bound(workload, objective)
    assert value >= cut_bound(workload, objective)
    assert value >= memory_bound(workload, objective) >= work_bound(workload, objective) * 0.999999
    assert name


@given(naive.workloads(most_nodes=5, training=False), st.integers(2, 3))
@settings(max_examples=60, deadline=None)
def test_replicas_share_the_load(workload: Workload, replicas: int) -> None:
    # Replicating everything everywhere, for free, is the best that could happen.
    objective = Throughput(replicas=replicas)
    alone = Throughput()
    assert class_bound(workload, objective) >= class_bound(workload, alone) / replicas - 1e-9
    assert work_bound(workload, objective) == work_bound(workload, alone)
    assert cluster_bound(workload, objective) == relaxation_bound(workload, objective) == 0.0


def test_work_uses_each_class_where_it_is_good() -> None:
    # Fast devices do 4 per second, slow ones 1: 20 units take 20 / (2 * 4 + 2) seconds.
    workload = naive.workload([[0.25] * 20, [1.0] * 20], [], counts=(2, 2))
    assert work_bound(workload, Throughput()) == pytest.approx(2.0)
    training = replace(workload, backward=np.arange(20) >= 10)
    assert work_bound(training, Throughput(sum_of_maxima=True)) == pytest.approx(2.0)


def test_memory_sends_work_to_slow_devices() -> None:
    # Half of the bytes fit the fast device; the other half takes 10 seconds on the slow one.
    workload = naive.workload(
        [[0.1] * 20, [1.0] * 20], [], counts=(1, 1), memory=(10, np.inf), nbytes=[1.0] * 20
    )
    assert memory_bound(workload, Throughput()) == pytest.approx(10.0)
    assert work_bound(workload, Throughput()) == pytest.approx(20 / 11)


def test_dear_transfers_hold_clusters_together() -> None:
    # Parting any two neighbours costs 11; together they take 4.
    workload = naive.workload(
        [[1.0] * 4], [(0, 1), (1, 2), (2, 3)], counts=(4,), transfer=[10.0] * 4
    )
    assert cluster_bound(workload, Throughput()) == pytest.approx(4.0, rel=1e-5)
    assert work_bound(workload, Throughput()) == pytest.approx(1.0)


def test_the_cheapest_device_with_a_class() -> None:
    # With node 1 a device pays 5 seconds and, on either side, the smaller of a neighbour's work
    # and the cut before it: 2 (its work) and 3 (the cut).
    workload = naive.workload(
        [[2.0, 5.0, 9.0]], [(0, 1), (1, 2)], counts=(3,), transfer=[4.0, 3.0, 0.0]
    )
    # Node 2 alone: 9 + 3; with node 1 it is 9 + 5 + min(4, 2).
    assert cut_bound(workload, Throughput()) == pytest.approx(12.0, rel=1e-6)
    less = replace(workload, classes=(replace(workload.classes[0], seconds=np.array([2, 5, 0.5])),))
    assert cut_bound(less, Throughput()) == pytest.approx(7.5, rel=1e-6)
    assert cut_bound(less, Throughput(overlap=True)) == 0.0
    assert cut_bound(less, Throughput(replicas=2)) == 0.0


def test_one_device_gets_two_of_three() -> None:
    workload = naive.workload([[3.0, 4.0, 5.0]], [], counts=(2,))
    assert cluster_bound(workload, Throughput()) == pytest.approx(7.0, rel=1e-5)


def test_what_cannot_run_has_no_bound() -> None:
    workload = naive.workload([[np.inf, 1.0]], [], counts=(2,))
    assert work_bound(workload, Throughput()) == np.inf
    assert class_bound(workload, Throughput()) == np.inf
    assert lower_bound(workload, Throughput())[0] == np.inf
