"""The worked example of docs/placers.md: each placer does what its section says."""

import re
from pathlib import Path

import numpy as np
import pytest

from baechi_jax.passes.placement.auto import choose
from baechi_jax.passes.placement.bounds import critical_path_bound
from baechi_jax.passes.placement.budget import Budget
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.formats import read_workload
from baechi_jax.passes.placement.latency import bounds as latency_bounds
from baechi_jax.passes.placement.latency.flow_bound import flow_bound
from baechi_jax.passes.placement.latency.pieces import Pieces
from baechi_jax.passes.placement.latency.placers import PLACERS as LATENCY
from baechi_jax.passes.placement.latency.series import solve_series
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.partitioning import Latency, Throughput
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.throughput import bounds as throughput_bounds
from baechi_jax.passes.placement.throughput.ideals import solve_ideals, solve_linear
from baechi_jax.passes.placement.throughput.pipedream import solve_pipedream
from baechi_jax.passes.placement.throughput.placers import PLACERS as THROUGHPUT
from baechi_jax.passes.placement.workload import Workload

DOCS = Path(__file__).resolve().parents[3] / "docs"
WORKLOAD = read_workload(DOCS / "placers" / "six-nodes.json")


def rows(page: str) -> list[tuple[str, str, float, bool]]:
    """Placer, split, milliseconds and whether proved optimal, from the page's table."""
    text = (DOCS / "placers" / page).read_text(encoding="utf-8")
    pattern = r"^\| `([a-z-]+)`(, one order)? \| (\{.*\}) \| (\d+) ms(.*) \|$"
    found = re.findall(pattern, text, flags=re.MULTILINE)
    return [
        (name + order, split, float(value), "proved optimal" in rest)
        for name, order, split, value, rest in found
    ]


def sets(split: str) -> list[str]:
    """What each device holds, ``["ac", "bdf", ""]``."""
    return ["".join(re.findall("[a-f]", part)) for part in re.findall(r"\{(.*?)\}", split)]


def held(device_of: np.ndarray, devices: int) -> list[str]:
    return ["".join("abcdef"[n] for n in np.flatnonzero(device_of == d)) for d in range(devices)]


def check_split(device_of: np.ndarray, split: str) -> None:
    """The accelerators are equal, so their order does not matter; the host is last."""
    one, other, host = held(device_of, 3)
    *accelerators, last = sets(split)
    assert sorted([one, other]) == sorted(accelerators)
    assert host == last


@pytest.mark.parametrize(("name", "split", "value", "proved"), rows("throughput.md"))
def test_throughput(name: str, split: str, value: float, proved: bool) -> None:
    budget = Budget(steps=20) if name == "pairs" else Budget()
    found = THROUGHPUT[name](WORKLOAD, Throughput(), budget)
    assert found.seconds * 1e3 == pytest.approx(value)
    assert (found.status == "optimal") == proved
    check_split(found.device_of, split)


def test_throughput_has_a_row_for_each_placer() -> None:
    assert {name for name, *_ in rows("throughput.md")} == set(THROUGHPUT) - {"auto"}
    found = THROUGHPUT["auto"](WORKLOAD, Throughput(), Budget(seconds=60))
    assert found.status == "optimal"
    assert found.seconds == pytest.approx(12e-3)
    reached = {name: value * 1e3 for name, value, _ in found.history}
    assert reached["one-device"] == pytest.approx(160)
    assert reached["ideals-linear"] == pytest.approx(14)
    assert reached["pipedream"] == pytest.approx(15)
    assert reached["multilevel"] == pytest.approx(13)
    assert reached["ideals"] == pytest.approx(14)
    assert reached["local-search"] == pytest.approx(12)


def test_throughput_in_detail() -> None:
    objective = Throughput()
    every = solve_ideals(WORKLOAD)
    assert every is not None
    assert every.ideals == 11
    row = solve_linear(WORKLOAD)
    assert row is not None
    assert (row.ideals, row.max_load_seconds) == (7, pytest.approx(15e-3))
    check_split(row.device_of, "{a, b, c} {e, f} {d}")
    stages = solve_pipedream(WORKLOAD)
    assert stages is not None
    assert stages.model_seconds == pytest.approx(10e-3)
    bounds = throughput_bounds
    assert bounds.work_bound(WORKLOAD, objective) == pytest.approx(16e-3 / 2.1)
    assert bounds.memory_bound(WORKLOAD, objective) == pytest.approx(16e-3 / 2.1)
    assert bounds.class_bound(WORKLOAD, objective) == pytest.approx(5e-3)
    assert bounds.cluster_bound(WORKLOAD, objective) == pytest.approx(6e-3, rel=1e-5)
    assert bounds.cut_bound(WORKLOAD, objective) == pytest.approx(10e-3)
    assert bounds.relaxation_bound(WORKLOAD, objective) == pytest.approx(16e-3 / 2.1)


@pytest.mark.parametrize(("name", "split", "value", "proved"), rows("latency.md"))
def test_latency(name: str, split: str, value: float, proved: bool) -> None:
    objective = Latency()
    if name == "series, one order":
        series = solve_series(WORKLOAD)
        assert series is not None
        device_of = Pieces.of(WORKLOAD).split(series.piece_of).device_of
        assert series.sum_seconds * 1e3 == pytest.approx(value)
    else:
        budget = Budget(steps=2) if name == "local-search" else Budget()
        found = LATENCY[name](WORKLOAD, objective, budget)
        assert found.seconds * 1e3 == pytest.approx(value)
        assert (found.status == "optimal") == proved
        device_of = found.device_of
    check_split(device_of, split)


def test_latency_has_a_row_for_each_placer() -> None:
    names = {name for name, *_ in rows("latency.md")} - {"series, one order"}
    assert names == set(LATENCY) - {"auto"}
    found = LATENCY["auto"](WORKLOAD, Latency(), Budget(seconds=60))
    assert found.status == "optimal"
    assert found.seconds == pytest.approx(22e-3)
    assert latency_bounds.path_bound(WORKLOAD).seconds == pytest.approx(16e-3)
    assert latency_bounds.critical_path_seconds(WORKLOAD) == pytest.approx(14e-3)
    assert latency_bounds.work_bound(WORKLOAD) == pytest.approx(8e-3)
    assert flow_bound(WORKLOAD) == pytest.approx(22e-3)


def step_problem(workload: Workload, pins: dict[str, int] | None = None) -> PlacementProblem:
    """The example for one step: weights are arguments, an output's bytes are its microseconds."""
    apart = 1.0 - np.eye(2)
    machine = Machine(
        limit_bytes=np.array([5_000_500_000] * 2, np.int64),
        processor=np.arange(2),
        latency_seconds=np.zeros((2, 2)),
        seconds_per_byte=1e-6 * apart,
        wire=np.arange(4).reshape(2, 2),
        names=("dev0", "dev1"),
        kinds=("gpu", "gpu"),
    )
    builder = ProblemBuilder(machine)
    seconds = workload.classes[0].seconds.tolist()
    nodes = [builder.add_node(n, s, group=n) for n, s in zip(workload.names, seconds)]
    for node, name in zip(nodes, workload.names):
        builder.add_argument(f"weights {name}", int(workload.bytes[node]), [node], group=name)
    for node in nodes:
        readers = [target for source, target in workload.edges.tolist() if source == node]
        builder.add_tensor(node, round(workload.transfer_seconds[node] * 1e6), readers)
    for name, device in (pins or {}).items():
        builder.pin(workload.names.index(name), device)
    return builder.build()


@pytest.mark.parametrize(("name", "split", "value", "proved"), rows("step.md"))
def test_step(name: str, split: str, value: float, proved: bool) -> None:
    best = choose(step_problem(WORKLOAD), name).best
    assert best.simulation.makespan_seconds * 1e3 == pytest.approx(value)
    assert (best.placement.status == "optimal") == proved
    device_of = np.array(best.placement.assignment[:6])
    assert sorted(held(device_of, 2)) == sorted(sets(split))


def test_step_in_detail() -> None:
    problem = step_problem(WORKLOAD)
    assert {name for name, *_ in rows("step.md")} == {"m-topo", "m-etf", "m-sct", "milp"}
    with pytest.raises(InfeasiblePlacementError):
        choose(problem, "single")
    assert critical_path_bound(problem) == pytest.approx(14e-3)
    favourites = favourite_children(problem)
    assert favourites.makespan_seconds == pytest.approx(14e-3)
    assert list(favourites.child[:6]) == [2, 3, 4, -1, 5, -1]
    assert choose(problem).best.simulation.makespan_seconds == pytest.approx(15e-3)
    pinned = choose(step_problem(WORKLOAD, {"a": 0, "f": 1}), "expert").best
    assert held(np.array(pinned.placement.assignment[:6]), 2) == ["abce", "df"]
    assert pinned.simulation.makespan_seconds == pytest.approx(16e-3)
