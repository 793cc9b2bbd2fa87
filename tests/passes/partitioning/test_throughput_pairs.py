"""The search that shares the loads of few devices at a time anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import pairs
from baechi_jax.passes.placement.throughput.milp import PartResult
from baechi_jax.passes.placement.throughput.pairs import PairOptions, improve_pairs
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive

objectives = st.builds(
    Throughput, contiguous=st.booleans(), overlap=st.booleans(), sum_of_maxima=st.booleans()
)


@given(naive.workloads(most_nodes=5), st.data(), objectives)
@settings(max_examples=60, deadline=None)
def test_valid_and_between_the_optimum_and_its_start(
    workload: Workload, data: st.DataObject, objective: Throughput
) -> None:
    value_of = naive.naive_sum_of_maxima if objective.sum_of_maxima else naive.naive_max_load
    values = {
        device_of: value_of(workload, device_of, overlap=objective.overlap)
        for device_of in naive.assignments(workload)
        if not objective.contiguous or naive.naive_contiguous(workload, device_of)
    }
    if not values:
        return
    start = data.draw(st.sampled_from(sorted(values)))
    result = improve_pairs(workload, np.array(start), objective)
    value, faults = objective.seconds(workload, Split(result.device_of))
    assert faults == ()
    assert result.status in ("local optimum", "target")
    assert min(values.values()) - 1e-9 <= value <= values[start] + 1e-9


def _problem(size: int = 24) -> Workload:
    random = np.random.default_rng(2)
    pairs_ = [(u, v) for u in range(size) for v in range(u + 1, size) if random.random() < 0.1]
    return naive.workload(
        [random.integers(1, 20, size)], pairs_, counts=(4,), transfer=random.integers(0, 5, size)
    )


def test_it_improves_and_stops_at_its_limits() -> None:
    workload, objective = _problem(), Throughput()
    start = np.zeros(workload.size, np.int64)
    before, _ = objective.seconds(workload, Split(start))
    none = improve_pairs(workload, start, objective, PairOptions(solves=0))
    assert (none.status, none.solves) == ("limit", 0)
    late = improve_pairs(workload, start, objective, PairOptions(deadline=0.0))
    assert late.status == "limit"
    done = improve_pairs(workload, start, objective, PairOptions(target_seconds=before))
    assert (done.status, done.solves) == ("target", 0)
    some = improve_pairs(workload, start, objective, PairOptions(solves=6))
    again = improve_pairs(workload, start, objective, PairOptions(solves=6))
    value, _ = objective.seconds(workload, Split(some.device_of))
    assert value < before / 2
    assert some.device_of.tolist() == again.device_of.tolist()


def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = _problem()
    start = np.zeros(workload.size, np.int64)

    def interrupted(*arguments: object, **_: object) -> PartResult:
        where = arguments[2]
        assert isinstance(where, np.ndarray)
        return PartResult(where, "interrupted")

    monkeypatch.setattr(pairs, "solve_part", interrupted)
    result = improve_pairs(workload, start, Throughput())
    assert (result.status, result.solves) == ("interrupted", 1)
    assert result.device_of.tolist() == start.tolist()


def test_what_it_cannot_do_is_refused() -> None:
    workload = naive.workload([[1, 1]], [(0, 1)], counts=(2,), memory=(1,), nbytes=(1, 1))
    with pytest.raises(WorkloadError, match="valid start: device 0 holds 2 bytes of 1"):
        improve_pairs(workload, np.array([0, 0]), Throughput())
    with pytest.raises(WorkloadError, match="may be replicated"):
        improve_pairs(workload, np.array([0, 1]), Throughput(replicas=2))
