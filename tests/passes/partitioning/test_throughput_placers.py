"""The placers of throughput by name: valid, within bounds, repeatable, and clear about limits."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.budget import Budget
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.partitioning import Partitioning, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import auto, members
from baechi_jax.passes.placement.throughput.placers import PLACERS
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive

objectives = st.builds(
    Throughput, contiguous=st.booleans(), overlap=st.booleans(), sum_of_maxima=st.booleans()
)
QUICK = Budget(steps=3)


def naive_values(workload: Workload, objective: Throughput) -> list[float]:
    """The values of all valid splits."""
    value = naive.naive_sum_of_maxima if objective.sum_of_maxima else naive.naive_max_load
    return [
        value(workload, device_of, overlap=objective.overlap)
        for device_of in naive.assignments(workload)
        if not objective.contiguous or naive.naive_contiguous(workload, device_of)
    ]


def _attempt(
    name: str, workload: Workload, objective: Throughput
) -> tuple[Partitioning | None, InfeasiblePlacementError | None]:
    try:
        return PLACERS[name](workload, objective, _budget(name)), None
    except InfeasiblePlacementError as error:
        return None, error


def _budget(name: str) -> Budget:
    return Budget(steps=1000) if name in ("ideals", "milp-throughput") else QUICK


@pytest.mark.parametrize("name", sorted(set(PLACERS) - {"auto"}))
@given(workload=naive.workloads(most_nodes=5), objective=objectives)
@settings(max_examples=30, deadline=None)
def test_valid_bounded_and_repeatable(name: str, workload: Workload, objective: Throughput) -> None:
    if not members.honours(name, objective):
        with pytest.raises(PlacerError, match=f"placer '{name}' cannot honour the option"):
            PLACERS[name](workload, objective, QUICK)
        return
    values = naive_values(workload, objective)
    found, error = _attempt(name, workload, objective)
    if found is None:
        assert error is not None
        assert not (error.proven and values)
        return
    value, faults = objective.seconds(workload, found.split)
    assert faults == ()
    assert value == pytest.approx(found.seconds)
    assert found.bound_seconds <= min(values) * (1 + 1e-6) + 1e-6
    assert min(values) <= value + 1e-6
    if found.status == "optimal" and name != "ideals":
        assert value == pytest.approx(min(values), abs=1e-6)
    if name == "milp-throughput":
        assert found.status == "optimal"
    again = PLACERS[name](workload, objective, _budget(name))
    assert again.device_of.tolist() == found.device_of.tolist()


@given(naive.workloads(most_nodes=5), objectives)
@settings(max_examples=30, deadline=None)
def test_auto_finds_the_optimum_of_small_problems(
    workload: Workload, objective: Throughput
) -> None:
    values = naive_values(workload, objective)
    budget = Budget(steps=25)
    if not values:
        with pytest.raises(InfeasiblePlacementError) as caught:
            PLACERS["auto"](workload, objective, budget)
        assert caught.value.proven
        return
    found = PLACERS["auto"](workload, objective, budget)
    value, faults = objective.seconds(workload, found.split)
    assert faults == ()
    assert found.status == "optimal"
    pipelines = members.PIPELINES_ONLY in found.notes
    if not pipelines:
        assert value == pytest.approx(min(values), abs=1e-6)
    assert found.bound_seconds <= min(values) + 1e-6
    assert found.history
    assert found.seconds == min(entry[1] for entry in found.history)


@given(naive.workloads(most_nodes=5), st.integers(2, 3), st.booleans())
@settings(max_examples=30, deadline=None)
def test_auto_replicates(workload: Workload, replicas: int, overlap: bool) -> None:
    objective = Throughput(replicas=replicas, overlap=overlap, replica_bytes_per_second=2.0)
    try:
        found = PLACERS["auto"](workload, objective, Budget(steps=25))
    except InfeasiblePlacementError:
        return
    assert objective.seconds(workload, found.split)[1] == ()
    exact = PLACERS["ideals"](workload, objective, Budget(steps=1000))
    assert found.seconds <= exact.seconds + 1e-9
    alone = naive_values(workload, Throughput(overlap=overlap))
    assert found.seconds <= min(alone) + 1e-6
    assert found.bound_seconds <= found.seconds


SIZE = 18


def _problem() -> Workload:
    """A row of nodes with some shortcuts."""
    random = np.random.default_rng(5)
    pairs = [(u, u + 1) for u in range(SIZE - 1)]
    pairs += [(u, u + 3) for u in range(SIZE - 3) if random.random() < 0.3]
    return naive.workload(
        [random.integers(1, 20, SIZE), random.integers(50, 90, SIZE)],
        pairs,
        counts=(3, 1),
        transfers=(True, False),
        transfer=random.integers(0, 9, SIZE),
    )


def test_auto_is_the_same_again_with_steps() -> None:
    budget = Budget(steps=4, seed=3)
    first = PLACERS["auto"](_problem(), Throughput(), budget)
    again = PLACERS["auto"](_problem(), Throughput(), budget)
    assert first.device_of.tolist() == again.device_of.tolist()
    assert first.bound_seconds == again.bound_seconds
    assert [entry[:2] for entry in first.history] == [entry[:2] for entry in again.history]


def test_auto_keeps_its_time() -> None:
    PLACERS["auto"](_problem(), Throughput(), Budget(steps=1))
    began = time.monotonic()
    found = PLACERS["auto"](_problem(), Throughput(), Budget(seconds=2.0))
    # Much more than it should be, for a machine that is busy.
    assert time.monotonic() - began < 8.0
    assert found.status in ("time limit", "optimal")
    assert found.gap < 0.5
    assert any(note.startswith("bound by") for note in found.notes)


@pytest.mark.parametrize(
    "stage", ["lower_bound", "local_search", "solve_milp", "improve_pairs", "members.ideals"]
)
def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner = members if stage.startswith("members.") else auto
    monkeypatch.setattr(owner, stage.removeprefix("members."), interrupt)
    start = Split(np.zeros(SIZE, np.int64))
    found = PLACERS["auto"](_problem(), Throughput(), Budget(steps=2, start=start))
    assert found.status == "interrupted"
    assert Throughput().seconds(_problem(), found.split)[1] == ()
    if stage == "lower_bound":
        assert found.placer == "start"
        with pytest.raises(KeyboardInterrupt):
            PLACERS["auto"](_problem(), Throughput(), Budget(steps=2))


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_never_worse_than_the_start(name: str) -> None:
    workload, objective = _problem(), Throughput()
    best = PLACERS["auto"](workload, objective, Budget(steps=3))
    start = Split(best.device_of)
    found = PLACERS[name](workload, objective, dataclasses.replace(_budget(name), start=start))
    assert found.seconds <= best.seconds
    wrong = Split(np.ones(5, np.int64))
    narrow = naive.workload([[1.0] * 5], [], counts=(2,), memory=(3,), nbytes=[1.0] * 5)
    with pytest.raises(WorkloadError, match="to start from is not valid: device 1 holds 5"):
        PLACERS[name](narrow, objective, dataclasses.replace(_budget(name), start=wrong))


def test_what_a_placer_cannot_do_names_those_that_can() -> None:
    workload = naive.workload([[1, 1]], [(0, 1)], counts=(2,))
    with pytest.raises(
        PlacerError,
        match="'local-search' cannot honour the option contiguous; these can: auto, ideals",
    ):
        PLACERS["local-search"](workload, Throughput(contiguous=True), Budget())
    with pytest.raises(
        PlacerError, match="option replicas; these can: auto, ideals, ideals-linear"
    ):
        PLACERS["milp-throughput"](workload, Throughput(replicas=2), Budget())
    with pytest.raises(PlacerError, match="sum_of_maxima; these can: auto, local-search, milp"):
        PLACERS["ideals"](workload, Throughput(sum_of_maxima=True), Budget())


def test_what_fits_nowhere_is_an_error() -> None:
    # Three classes of two bytes on two devices of three: fractions fit, classes do not.
    workload = naive.workload([[1] * 3], [], counts=(2,), memory=(3,), nbytes=[2] * 3)
    for name in PLACERS:
        with pytest.raises(InfeasiblePlacementError) as caught:
            PLACERS[name](workload, Throughput(), _budget(name))
        assert "6 bytes, on 2 class0 of 3 bytes" in str(caught.value)
        if name in ("auto", "milp-throughput"):
            assert caught.value.proven
            assert "no split exists" in str(caught.value)
    huge = dataclasses.replace(workload, bytes=np.array([2.0, 2.0, 9.0]))
    with pytest.raises(InfeasiblePlacementError, match="the bound by longest class is infinite"):
        PLACERS["one-device"](huge, Throughput(), Budget())


def test_one_device_is_the_best_one() -> None:
    workload = naive.workload([[5.0] * 2, [1.0] * 2], [(0, 1)], counts=(1, 3), parameters=[1, 1])
    found = PLACERS["one-device"](workload, Throughput(), Budget())
    assert (found.device_of.tolist(), found.seconds) == ([1, 1], 2.0)
    objective = Throughput(replicas=4, replica_bytes_per_second=1e6)
    shared = PLACERS["one-device"](workload, objective, Budget())
    assert shared.split.replicas is not None
    assert shared.split.replicas.tolist() == [1, 3, 1, 1]
    assert shared.seconds == pytest.approx(2 / 3, rel=1e-4)


def test_multilevel_is_balanced_and_cuts_little() -> None:
    # Two tight clusters and a thin edge between them.
    pairs = [(u, v) for u in range(5) for v in range(u + 1, 5)]
    edges = [*pairs, *((u + 5, v + 5) for u, v in pairs), (4, 5)]
    workload = naive.workload([[1.0] * 10], edges, counts=(2,), transfer=[1.0] * 10)
    found = PLACERS["multilevel"](workload, Throughput(), Budget())
    halves = found.device_of.tolist()
    assert len(set(halves[:5])) == len(set(halves[5:])) == 1
    assert found.seconds == 6.0


def test_auto_leaves_out_programs_that_are_too_large() -> None:
    size = 1200
    workload = naive.workload(
        [np.arange(size) % 7 + 1.0],
        [(u, u + 1) for u in range(size - 1)],
        counts=(4,),
        transfer=np.ones(size),
    )
    found = PLACERS["auto"](workload, Throughput(), Budget(seconds=0.5))
    assert Throughput().seconds(workload, found.split)[1] == ()
    names = [entry[0] for entry in found.history]
    assert "ideals-linear" in names
    assert "milp-throughput" not in names
    if found.status != "optimal":
        assert any("its program is too large for 0.5 seconds" in note for note in found.notes)
