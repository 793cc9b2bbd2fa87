"""PipeDream's optimiser against its recurrence written down naively."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput.contraction import contract
from baechi_jax.passes.placement.throughput.pipedream import cut_seconds, solve_pipedream
from baechi_jax.passes.placement.workload import Workload
from tests.passes.partitioning import workloads as naive

SPEED = 2.0


def naive_value(workload: Workload, replicas: int) -> float:
    """The least slowest stage or link over all rows of stages, one after another."""
    contraction = contract(workload)
    label, size = contraction.label, contraction.size
    kind = max(workload.classes, key=lambda each: (each.transfers, each.count))
    best = np.inf
    for cuts in itertools.product([False, True], repeat=size - 1):
        stage = np.concatenate([[0], np.cumsum(cuts)])[label]
        count = int(stage.max()) + 1
        times = [0.0]
        for border in range(1, count):
            crosses = {
                u
                for u, v in workload.edges.tolist()
                if min(stage[[u, v]]) < border <= max(stage[[u, v]])
            }
            times.append(2.0 * sum(workload.transfer_seconds[sorted(crosses)]) * kind.transfers)
        for copies in itertools.product(range(1, replicas + 1), repeat=count):
            if sum(copies) > kind.count:
                continue
            found = list(times)
            for number, share in enumerate(copies):
                mine = stage == number
                if workload.bytes[mine].sum() > kind.memory_bytes:
                    found.append(np.inf)
                reduced = 2.0 * (share - 1) * workload.parameter_bytes[mine].sum() / SPEED
                found.append(max(kind.seconds[mine].sum(), reduced) / share)
            best = min(best, max(found))
    return best


@given(naive.workloads(most_nodes=6), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_it_is_the_optimum_of_its_own_model(workload: Workload, replicas: int) -> None:
    result = solve_pipedream(workload, replicas=replicas, replica_bytes_per_second=SPEED)
    value = naive_value(workload, replicas)
    if result is None:
        assert value == np.inf
        return
    assert result.model_seconds == pytest.approx(value)
    objective = Throughput(
        contiguous=True, replicas=replicas, replica_bytes_per_second=SPEED, overlap=True
    )
    seconds, faults = objective.seconds(workload, Split(result.device_of, replicas=result.replicas))
    assert faults == ()
    assert np.isfinite(seconds)


def test_a_short_row_by_hand() -> None:
    # Two layers of 4 seconds and two of 1: the first two stages of one layer, then the rest.
    workload = naive.workload(
        [[4, 4, 1, 1], [40, 40, 10, 10]],
        [(0, 1), (1, 2), (2, 3)],
        counts=(3, 1),
        transfers=(True, False),
        transfer=[1, 1, 1, 1],
    )
    result = solve_pipedream(workload)
    assert result is not None
    assert result.model_seconds == 4.0
    assert len(set(result.device_of.tolist())) == 3
    assert cut_seconds(workload, contract(workload)).tolist() == [0, 1, 1, 1]


def test_dear_links_are_not_cut_but_stages_are_replicated() -> None:
    workload = naive.workload(
        [[4, 4, 4]], [(0, 1), (1, 2)], counts=(3,), transfer=[9, 9, 9], parameters=[1, 1, 1]
    )
    whole = solve_pipedream(workload)
    assert whole is not None
    assert whole.model_seconds == 12.0
    shared = solve_pipedream(workload, replicas=3, replica_bytes_per_second=100.0)
    assert shared is not None
    assert shared.model_seconds == pytest.approx(4.0)
    assert shared.replicas.tolist() == [3, 1, 1]


def test_nothing_fits() -> None:
    workload = naive.workload([[1, 1]], [(0, 1)], counts=(1,), memory=(1,), nbytes=(1, 1))
    assert solve_pipedream(workload) is None
