"""The mixed-integer program for throughput against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import milp
from baechi_jax.passes.placement.throughput.milp import solve_milp
from baechi_jax.passes.placement.workload import Workload
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

    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(milp, "optimize", interrupt)
    result = solve_milp(workload, start=np.array([0, 0]))
    assert result.status == "interrupted"
    assert result.device_of is not None
    assert result.device_of.tolist() == [0, 0]
