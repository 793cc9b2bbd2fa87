"""The dynamic programs over ideals against brute force."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.formats import read_workload
from baechi_jax.passes.placement.latency.series import solve_series
from baechi_jax.passes.placement.split import evaluate
from baechi_jax.passes.placement.throughput import dynamic_program
from baechi_jax.passes.placement.throughput.contraction import contract
from baechi_jax.passes.placement.throughput.ideals import (
    IdealsOptions,
    TooManyIdealsError,
    solve_ideals,
    solve_linear,
)
from baechi_jax.passes.placement.workload import Workload
from tests.passes.partitioning import workloads as naive


@given(naive.workloads(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_ideals_is_optimal_among_pipelines(workload: Workload, overlap: bool) -> None:
    values = [
        naive.naive_max_load(workload, device_of, overlap=overlap)
        for device_of in naive.assignments(workload)
        if naive.naive_pipeline(workload, device_of)
    ]
    result = solve_ideals(workload, IdealsOptions(overlap=overlap))
    if result is None:
        assert not values
        return
    assert result.max_load_seconds == pytest.approx(min(values))
    assert result.optimal
    report = evaluate(workload, result.device_of, overlap=overlap)
    assert report.faults == ()
    assert report.contiguous
    assert report.max_load_seconds == pytest.approx(result.max_load_seconds)
    linear = solve_linear(workload, IdealsOptions(overlap=overlap, orders=3))
    if linear is not None:
        assert linear.max_load_seconds >= result.max_load_seconds - 1e-9
        report = evaluate(workload, linear.device_of, overlap=overlap)
        assert report.faults == ()
        assert report.contiguous
        assert report.max_load_seconds == pytest.approx(linear.max_load_seconds)


@given(naive.workloads(most_nodes=5), st.integers(2, 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_replicas_are_optimal(workload: Workload, replicas: int, overlap: bool) -> None:
    speed = 2.0
    best = min(
        (
            _best_replicated(workload, device_of, replicas, overlap, speed)
            for device_of in naive.assignments(workload)
            if naive.naive_pipeline(workload, device_of)
        ),
        default=np.inf,
    )
    options = IdealsOptions(overlap=overlap, replicas=replicas, replica_bytes_per_second=speed)
    result = solve_ideals(workload, options)
    if result is None:
        assert best == np.inf
        return
    assert result.max_load_seconds == pytest.approx(best)
    report = evaluate(
        workload,
        result.device_of,
        overlap=overlap,
        replicas=result.replicas,
        replica_bytes_per_second=speed,
    )
    assert report.faults == ()
    assert report.max_load_seconds == pytest.approx(best)


def _best_replicated(
    workload: Workload, device_of: tuple[int, ...], replicas: int, overlap: bool, speed: float
) -> float:
    """The least largest load when idle devices of the most numerous class copy busy ones."""
    counts = [kind.count for kind in workload.classes]
    # Ties go to the later class, as in the program.
    most = max(range(len(counts)), key=lambda kind: (counts[kind], kind))
    kind_of = workload.class_of_devices().tolist()
    busy = sorted(set(device_of))
    load = {each: naive.naive_load(workload, device_of, each, overlap=overlap) for each in busy}
    reduce = {
        each: sum(
            workload.parameter_bytes[node]
            for node in range(workload.size)
            if device_of[node] == each
        )
        / speed
        for each in busy
    }
    spare = counts[most] - sum(kind_of[each] == most for each in busy)
    copies = dict.fromkeys(busy, 1)
    value = dict(load)
    # Give each device the number of copies that is best within the spare ones, exhaustively.
    candidates = [each for each in busy if kind_of[each] == most]

    def best_from(index: int, left: int) -> float:
        if index == len(candidates):
            return max(value.values())
        each = candidates[index]
        found = np.inf
        for count in range(1, min(replicas, left + 1) + 1):
            value[each] = load[each] / count + reduce[each] * 2 * (count - 1) / count
            found = min(found, best_from(index + 1, left - count + 1))
        value[each] = load[each]
        return found

    assert copies
    return best_from(0, spare)


@given(naive.workloads(training=False, host=True, most_nodes=5))
@settings(max_examples=100, deadline=None)
def test_series_is_the_least_sum_over_ideals(workload: Workload) -> None:
    result = solve_series(workload, max_ideals=10_000)
    linear = solve_series(workload)
    assert result is not None
    assert linear is not None
    assert result.sum_seconds <= linear.sum_seconds + 1e-9
    # Any pipeline over the accelerators and one host, its loads added up.
    values = []
    for device_of in naive.assignments(workload):
        if _series_order(workload, device_of):
            values.append(
                sum(
                    naive.naive_load(workload, device_of, device)
                    for device in range(workload.devices)
                )
            )
    if values:
        assert result.sum_seconds == pytest.approx(min(values))


def _series_order(workload: Workload, device_of: tuple[int, ...]) -> bool:
    """Whether the accelerators and single host nodes can run one after another."""
    host = workload.devices - 1
    # Nodes of one class (of one colour, or on a cycle with it) run together on the host; with a
    # part of the class on an accelerator, the cycle shows in the links.
    label = contract(workload).label.tolist()
    unit = [device if device != host else -1 - label[node] for node, device in enumerate(device_of)]
    links = {(unit[u], unit[v]) for u, v in workload.edges.tolist() if unit[u] != unit[v]}
    return not any(each in found for each, found in naive.reachable(links, set(unit)).items())


def test_a_wide_graph_is_refused() -> None:
    workload = naive.workload([[1.0] * 12], [], counts=(2,), transfer=[1] * 12)
    with pytest.raises(TooManyIdealsError, match="more than 1000 ideals; use ideals-linear"):
        solve_ideals(workload, IdealsOptions(max_ideals=1000))


def test_the_time_limit_gives_the_linear_solution() -> None:
    pairs = [(u, v) for u in range(30) for v in range(u + 1, 30) if (u * v) % 7 == 1]
    workload = naive.workload([range(1, 31)], pairs, counts=(3,), transfer=[1.0] * 30)
    options = IdealsOptions(time_limit_seconds=0.0, max_ideals=10**6)
    result = solve_ideals(workload, options)
    assert result is not None
    assert not result.optimal
    linear = solve_linear(workload, IdealsOptions(orders=1))
    assert linear is not None
    assert result.max_load_seconds == linear.max_load_seconds


def test_ctrl_c_gives_the_linear_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = naive.workload([[3, 1, 2]], [(0, 2), (1, 2)], counts=(2,))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("baechi_jax.passes.placement.throughput.ideals.lattice", interrupt)
    result = solve_ideals(workload)
    assert result is not None
    assert not result.optimal


def test_slices_of_the_program_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(u, v) for u in range(14) for v in range(u + 1, 14) if (u * v) % 5 == 1]
    workload = naive.workload(
        [range(1, 15)], pairs, counts=(3,), transfer=[1.0] * 14, parameters=[1.0] * 14
    )
    whole = solve_ideals(workload)
    monkeypatch.setattr(dynamic_program, "_SLICE_SECONDS", 0.0)
    sliced = solve_ideals(workload)
    assert whole is not None
    assert sliced is not None
    assert np.array_equal(whole.device_of, sliced.device_of)
    assert whole.max_load_seconds == sliced.max_load_seconds


def test_published_optimum(data_folder: Path) -> None:
    folder = data_folder / "dnn-partitioning/throughput-inputs"
    for name, optimum in {
        "LayerGraphs/bert24_training": 41.7458125e-3,
        "LayerGraphs/resnet50_training": 78.63181250000001e-3,
        "OperatorGraphs/bert_l-3_inference": 27.9185676799125e-3,
        "OperatorGraphs/resnet50_training": 255.19441645217384e-3,
    }.items():
        result = solve_ideals(read_workload(folder / f"{name}.json"))
        assert result is not None
        assert result.max_load_seconds == pytest.approx(optimum)
