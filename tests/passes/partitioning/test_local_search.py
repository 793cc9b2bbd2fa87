"""The local search for throughput, and the groups that it moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput.local_search import LocalSearchOptions, local_search
from baechi_jax.passes.placement.throughput.multilevel import balanced, coarsen
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive

QUICK = LocalSearchOptions(rounds=4, steps=1000)
objectives = st.builds(Throughput, overlap=st.booleans(), sum_of_maxima=st.booleans())


@given(naive.workloads(), st.data(), objectives)
@settings(max_examples=100, deadline=None)
def test_valid_and_between_the_optimum_and_its_start(
    workload: Workload, data: st.DataObject, objective: Throughput
) -> None:
    valid = list(naive.assignments(workload))
    if not valid:
        return
    start = np.array(data.draw(st.sampled_from(valid)))
    found = local_search(workload, start, objective, QUICK).device_of
    value, faults = objective.seconds(workload, Split(found))
    before, _ = objective.seconds(workload, Split(start))
    naive_value = naive.naive_sum_of_maxima if objective.sum_of_maxima else naive.naive_max_load
    best = min(naive_value(workload, each, overlap=objective.overlap) for each in valid)
    assert faults == ()
    assert best - 1e-9 <= value <= before + 1e-9
    assert np.array_equal(found, local_search(workload, start, objective, QUICK).device_of)


@pytest.mark.parametrize("sum_of_maxima", [False, True])
def test_the_optimum_of_small_problems_is_found(sum_of_maxima: bool) -> None:
    random = np.random.default_rng(1)
    objective = Throughput(sum_of_maxima=sum_of_maxima)
    naive_value = naive.naive_sum_of_maxima if sum_of_maxima else naive.naive_max_load
    optimal = 0
    for _ in range(30):
        size = 7
        pairs = [(u, v) for u in range(size) for v in range(u + 1, size)]
        workload = naive.workload(
            random.integers(1, 9, (2, size)) * [[1], [3]],
            [pair for pair in pairs if random.random() < 0.4],
            counts=(2, 1),
            transfers=(True, False),
            memory=(10, np.inf),
            nbytes=random.integers(1, 4, size),
            transfer=random.integers(0, 5, size),
            backward=[False] * 4 + [True] * 3,
        )
        best = min(naive_value(workload, each) for each in naive.assignments(workload))
        found = local_search(workload, np.full(size, 2), objective, QUICK).device_of
        optimal += objective.seconds(workload, Split(found))[0] <= best + 1e-9
    assert optimal >= 28, f"{optimal} of 30"


@given(naive.workloads(), st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_nets_cost_what_the_judge_says(workload: Workload, seed: int) -> None:
    nets = Nets.of(workload)
    where = np.random.default_rng(seed).integers(0, workload.devices, nets.size)
    device_of = tuple(where[nets.label].tolist())
    kind_of = workload.class_of_devices()
    for device in range(workload.devices):
        kind = workload.classes[kind_of[device]]
        load = nets.total_seconds[kind_of[device]][where == device].sum()
        for net in nets.nets:
            inside = [where[target] == device for target in net.targets]
            pays = not all(inside) if where[net.source] == device else any(inside)
            load += net.seconds * pays * kind.transfers
        assert load == pytest.approx(naive.naive_load(workload, device_of, device))


@given(naive.workloads(most_nodes=12), st.integers(0, 100), st.booleans())
@settings(max_examples=100, deadline=None)
def test_groups(workload: Workload, seed: int, kept: bool) -> None:
    nets = Nets.of(workload)
    random = np.random.default_rng(seed)
    where = random.integers(0, workload.devices, nets.size) if kept else None
    group = coarsen(nets, random, groups=3, most_seconds=5.0, device_of=where)
    assert sorted(set(group.tolist())) == list(range(int(group.max()) + 1))
    finite = np.where(np.isfinite(nets.total_seconds), nets.total_seconds, 0.0).min(axis=0)
    for each in range(int(group.max()) + 1):
        members = np.flatnonzero(group == each)
        assert len(members) == 1 or finite[members].sum() <= 5.0 + 1e-9
        if where is not None:
            assert len(set(where[members].tolist())) == 1
    coarse = nets.merged(group, int(group.max()) + 1)
    assert np.array_equal(coarse.label, group[nets.label])
    assert coarse.bytes.sum() == pytest.approx(workload.bytes.sum())


@given(naive.workloads())
@settings(max_examples=100, deadline=None)
def test_balanced_splits_are_valid(workload: Workload) -> None:
    nets = Nets.of(workload)
    where = balanced(workload, nets)
    if where is not None:
        _, faults = Throughput().seconds(workload, Split(where[nets.label]))
        assert faults == ()


def test_what_it_cannot_do_is_refused() -> None:
    workload = naive.workload([[1, 1]], [(0, 1)], counts=(2,), memory=(1,), nbytes=(1, 1))
    with pytest.raises(WorkloadError, match="needs a valid start: device 0 holds 2 bytes of 1"):
        local_search(workload, np.array([0, 0]))
    with pytest.raises(WorkloadError, match="neither contiguous nor replicated"):
        local_search(workload, np.array([0, 1]), Throughput(contiguous=True))


def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = naive.workload([[1, 1]], [(0, 1)], counts=(2,))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("baechi_jax.passes.placement.throughput.local_search._round", interrupt)
    start = np.array([0, 0])
    result = local_search(workload, start)
    assert result.device_of is start
    assert (result.status, result.rounds) == ("interrupted", 1)
