"""The mixed-integer program for throughput against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import milp
from baechi_jax.passes.placement.throughput.milp import solve_milp, solve_part
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive

objectives = st.builds(
    Throughput, contiguous=st.booleans(), overlap=st.booleans(), sum_of_maxima=st.booleans()
)


def naive_values(workload: Workload, objective: Throughput) -> dict[tuple[int, ...], float]:
    """Every valid split and its value."""
    value = naive.naive_sum_of_maxima if objective.sum_of_maxima else naive.naive_max_load
    return {
        device_of: value(workload, device_of, overlap=objective.overlap)
        for device_of in naive.assignments(workload)
        if not objective.contiguous or naive.naive_contiguous(workload, device_of)
    }


@given(naive.workloads(), objectives, st.booleans(), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_milp_is_optimal(
    workload: Workload, objective: Throughput, with_start: bool, pick: int
) -> None:
    values = naive_values(workload, objective)
    start = None
    if with_start and values:
        start = np.array(sorted(values)[pick % len(values)])
    result = solve_milp(workload, objective, start=start)
    if not values:
        assert result.status == "infeasible"
        assert result.device_of is None
        assert result.bound_seconds == np.inf
        return
    assert result.status == "optimal"
    assert result.device_of is not None
    value, faults = objective.seconds(workload, Split(result.device_of))
    assert faults == ()
    assert value == pytest.approx(min(values.values()), abs=1e-6)
    assert result.bound_seconds <= value + 1e-6


def test_the_warm_start_is_returned_when_there_is_no_time() -> None:
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(60) for v in range(u + 1, 60) if random.random() < 0.1]
    workload = naive.workload(
        [random.integers(1, 20, 60)], pairs, counts=(4,), transfer=random.integers(0, 9, 60)
    )
    start = np.arange(60) // 15
    result = solve_milp(workload, start=start, time_limit_seconds=0.05)
    assert result.status == "time limit"
    assert result.device_of is not None
    value, faults = Throughput().seconds(workload, Split(result.device_of))
    before, _ = Throughput().seconds(workload, Split(start))
    assert faults == ()
    assert 0 <= result.bound_seconds <= value <= before + 1e-9


def test_ctrl_c_returns_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = naive.workload([[1, 2]], [(0, 1)], counts=(2,))

    def interrupt(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(milp, "optimize", interrupt)
    result = solve_milp(workload, start=np.array([0, 0]))
    assert result.status == "interrupted"
    assert result.device_of is not None
    assert result.device_of.tolist() == [0, 0]


@given(naive.workloads(), objectives, st.data())
@settings(max_examples=200, deadline=None)
def test_part_is_the_best_with_the_rest_as_it_is(
    workload: Workload, objective: Throughput, data: st.DataObject
) -> None:
    values = naive_values(workload, objective)
    if not values:
        return
    first = data.draw(st.sampled_from(sorted(values)))
    few = st.sets(st.sampled_from(range(workload.devices)), min_size=1)
    devices = sorted(data.draw(few))
    others = [
        each
        for each in values
        if all(
            a == b if a not in devices else b in devices for a, b in zip(first, each, strict=True)
        )
    ]
    nets = Nets.of(workload)
    result = solve_part(workload, nets, nets.of_classes(np.array(first)), objective, devices)
    found = tuple(result.where[nets.label].tolist())
    assert result.status == "optimal"
    assert found in others

    def value(device_of: tuple[int, ...]) -> float:
        if objective.sum_of_maxima:
            return values[device_of]
        return max(
            naive.naive_load(workload, device_of, each, overlap=objective.overlap)
            for each in devices
        )

    # The gap of such a solve is not zero, in units of its start.
    slack = 1e-3 * max(1.0, values[first])
    assert value(found) <= min(value(each) for each in others) + slack


def test_a_limit_of_nodes_gives_the_same_split_each_time() -> None:
    random = np.random.default_rng(3)
    pairs = [(u, v) for u in range(30) for v in range(u + 1, 30) if random.random() < 0.1]
    workload = naive.workload(
        [random.integers(1, 20, 30)], pairs, counts=(4,), transfer=random.integers(0, 9, 30)
    )
    first = solve_milp(workload, start=np.arange(30) // 8, max_nodes=5)
    again = solve_milp(workload, start=np.arange(30) // 8, max_nodes=5)
    assert first.device_of is not None
    assert again.device_of is not None
    assert first.device_of.tolist() == again.device_of.tolist()
    assert first.bound_seconds == again.bound_seconds


def test_replicas_are_refused() -> None:
    workload = naive.workload([[1, 2]], [(0, 1)], counts=(2,))
    with pytest.raises(WorkloadError, match="ideals and pipedream do"):
        solve_milp(workload, Throughput(replicas=2))
