"""Sweeps: what can be written, the machine of each point, the figures, table and picture."""

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.placement.errors import Shortfall
from baechi_jax.report.summary import render_text
from baechi_jax.sweep import Axis, Outcome, Point, SweepError, figures, parse_axis, sweep
from baechi_jax.sweep.axes import points
from baechi_jax.sweep.machines import machine_of
from baechi_jax.sweep.plot import byte_ticks, draw, time_ticks, write_plot
from baechi_jax.sweep.table import sweep_notes, sweep_table


def _step(params: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    return [w - 0.1 * jnp.tanh(x @ w).T @ x for w in params]


WEIGHT = jax.ShapeDtypeStruct((128, 128), jnp.float32)
DEVICE = Device(memory_bytes=400_000, name="dev")


def _modules() -> Callable[[], Module]:
    placed = baechi.place(_step, topology=Topology.uniform(1), donate_argnums=0)
    traced = placed.trace([WEIGHT] * 4, WEIGHT)
    return lambda: traced.module


# What can be written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("devices=1..4", (1, 2, 3, 4)),
        ("devices=1..2,8", (1, 2, 8)),
        (" memory = 2GiB, 1MB", (2 << 30, 1_000_000)),
        ("bandwidth=10GB", (10_000_000_000,)),
        ("latency=10us,1.5 ms,2s", (10e-6, 1.5e-3, 2.0)),
        ("placer=m-etf,single:2", ("m-etf", "single:2")),
    ],
)
def test_what_can_be_varied(text: str, values: tuple[int | float | str, ...]) -> None:
    assert parse_axis(text).values == pytest.approx(values) if "latency" in text else values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices", "is not NAME=VALUES"),
        ("=1", "is not NAME=VALUES"),
        ("devices=", "empty value; write 1..8 or 1,2,4"),
        ("devices=1,,2", "empty value"),
        ("devices=0", "no device at all"),
        ("devices=0..3", "no device at all"),
        ("devices=3..1", "runs backwards; write 1..3"),
        ("devices=many", "no number of devices; write 1..8"),
        ("devices=1..2,2", "2 is given twice"),
        ("devices=1..99999", "99999 plans; at most 1000"),
        ("memory=1GiB..4GiB", "sizes have no ranges; list them, such as 2GiB,4GiB"),
        ("memory=2G", "memory: the size '2G' has the unknown unit 'G'"),
        ("memory=0GiB", "must be positive"),
        ("latency=3", "write a number and ns, us, ms or s"),
        ("placer=best", "there is no 'best'; there are auto"),
        ("colour=red", "there is no 'colour' to vary; there are devices, memory"),
    ],
)
def test_what_cannot(text: str, message: str) -> None:
    with pytest.raises(SweepError, match=re.escape(message)):
        parse_axis(text)


def test_points() -> None:
    axes = [parse_axis("devices=1,2"), parse_axis("memory=1MB,2MB,3MB")]
    found = points(axes)
    assert [tuple(each.values.values()) for each in found[:4]] == [
        (1, 10**6), (1, 2 * 10**6), (1, 3 * 10**6), (2, 10**6),
    ]  # fmt: skip
    assert str(found[0]) == "devices 1, memory 1MB"
    with pytest.raises(SweepError, match="'devices' is varied twice"):
        points([axes[0], axes[0]])
    many = Axis("memory", tuple(range(600)), tuple(map(str, range(600))))
    with pytest.raises(SweepError, match="1200 plans to make; at most 1000"):
        points([axes[0], many])


# Machines ---------------------------------------------------------------------------------------


def _point(**values: int | float | str) -> Point:
    return Point(dict(values), {name: str(value) for name, value in values.items()})


def test_the_machine_of_a_point() -> None:
    topology = Topology.uniform(3, DEVICE)
    fewer = machine_of(topology, _point(devices=2, memory=7, bandwidth=5, latency=0.5))
    assert [device.memory_bytes for device in fewer.devices] == [7, 7]
    assert {(each.source, each.target) for each in fewer.links} == {(0, 1), (1, 0)}
    assert {(each.bytes_per_second, each.latency_seconds) for each in fewer.links} == {(5.0, 0.5)}
    more = machine_of(topology, _point(devices=5))
    assert more.size == 5
    assert {replace(device, name="") for device in more.devices} == {replace(DEVICE, name="")}
    assert {each.bytes_per_second for each in more.links} == {topology.links[0].bytes_per_second}


def test_machines_that_are_not_described() -> None:
    mixed = replace(
        Topology.uniform(2, DEVICE), devices=(DEVICE, replace(DEVICE, memory_bytes=500_000))
    )
    assert machine_of(mixed, _point(devices=1)).size == 1
    with pytest.raises(SweepError, match="5 are asked for, and the topology has 2 that are not"):
        machine_of(mixed, _point(devices=5))
    kept = Topology.uniform(2, replace(DEVICE, reserved_bytes=1000))
    with pytest.raises(SweepError, match=r"memory 500: devices\[0\]: memory_bytes 500 less"):
        machine_of(kept, _point(memory=500))


# Planning ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept() -> tuple[list[Axis], list[Outcome]]:
    axes = [parse_axis("devices=1,2"), parse_axis("memory=300kB,2MB")]
    asked, outcomes = sweep(_modules(), Topology.uniform(1, DEVICE), axes, placer="m-etf")
    found = list(outcomes)
    assert [each.point for each in found] == asked
    return axes, found


def test_each_point_is_the_plan_for_its_machine(swept: tuple[list[Axis], list[Outcome]]) -> None:
    topology = Topology.uniform(1, DEVICE)
    fitting = [each for each in swept[1] if each.fits]
    assert len(fitting) == 2
    for outcome in fitting:
        machine = machine_of(topology, outcome.point)
        placed = baechi.place(_step, topology=machine, placer="m-etf", donate_argnums=0)
        plan = placed.plan([WEIGHT] * 4, WEIGHT)
        assert outcome.step_seconds == plan.step_seconds
        assert outcome.peak_bytes == plan.peak_bytes
        assert outcome.limit_bytes == (2_000_000,) * machine.size
        assert outcome.devices_used == len(plan.devices_used)


def test_no_room_says_how_much_is_missing(swept: tuple[list[Axis], list[Outcome]]) -> None:
    outcome = next(each for each in swept[1] if each.point.values == {
        "devices": 1, "memory": 300_000,
    })  # fmt: skip
    assert not outcome.fits
    peak, limit = outcome.fullest
    assert limit == 300_000
    assert outcome.missing_bytes == peak - limit > 0
    assert figures(outcome)["missing_bytes"] == outcome.missing_bytes
    assert figures(outcome)["needed_bytes"] == list(outcome.needed_bytes)
    # One device: there is nothing to arrange.
    assert limit < outcome.needed_bytes[0] <= 1.01 * peak


def test_what_goes_wrong_at_one_point_is_told_there() -> None:
    axes = [parse_axis("placer=single:3,m-etf")]
    _, outcomes = sweep(_modules(), Topology.uniform(1, replace(DEVICE, memory_bytes=10**7)), axes)
    wrong, right = outcomes
    assert "there is no device '3'" in wrong.error
    assert "there is no device '3'" in figures(wrong)["error"]
    assert right.fits
    assert sweep_notes([wrong, right]) == [f"placer single:3: {wrong.error}"]


# Showing ----------------------------------------------------------------------------------------

_AXES = [parse_axis("devices=1..3"), parse_axis("memory=1MiB,4MiB")]


def _outcomes() -> list[Outcome]:
    found = []
    for number, point in enumerate(points(_AXES)):
        limit = int(point.values["memory"])
        if number == 0:
            found.append(Outcome(point, shortfalls=(Shortfall(0, "dev", 3 << 20, limit),)))
        elif number == 5:
            found.append(Outcome(point, error="<no> luck"))
        else:
            found.append(Outcome(point, 0.01 * (6 - number), 0.001, (limit // 2,), (limit,), 1))
    return found


def test_the_table() -> None:
    text = render_text(sweep_table("step: what if", _AXES, _outcomes()), width=80)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert re.search(r"1 +1MiB +no room +- +- +3.00 MiB +1.00 MiB +300% +2.00 MiB", text)
    assert re.search(r"3 +1MiB +20.0 ms +1.00 +1 of 1 +512 KiB +1.00 MiB +50%", text)
    assert re.search(r"1 +4MiB +50.0 ms +2.50 ", text)
    assert re.search(r"3 +4MiB +error", text)


def _elements(picture: str, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(picture).iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def test_the_picture() -> None:
    picture = draw("a < b", _AXES, _outcomes())
    told = [element.text or "" for element in _elements(picture, "title")]
    # Twice each (step and peak), the error once, and the legend.
    assert told.count("devices 2, memory 1MiB: step 40.0 ms, peak 512 KiB of 1.00 MiB") == 2
    assert sum("no room, 2.00 MiB missing (3.00 MiB of 1.00 MiB)" in each for each in told) == 2
    assert told.count("devices 3, memory 4MiB: <no> luck") == 1
    assert len(_elements(picture, "path")) == 3
    texts = [element.text for element in _elements(picture, "text")]
    assert texts.count("devices") == 1
    assert {"a < b", "1", "2", "3", "memory 1MiB", "memory 4MiB", "50.0 ms"} <= set(texts)
    # No line goes through what is not there: memory 1MiB has two points, as has memory 4MiB.
    for line in _elements(picture, "polyline"):
        assert len(line.attrib["points"].split()) == 2
    # The shorter step is drawn lower.
    places = {
        (element.find("{*}title").text or "").partition(":")[0]: float(element.attrib["cy"])  # type: ignore[union-attr]
        for element in reversed(_elements(picture, "circle"))
    }
    assert places["devices 3, memory 1MiB"] > places["devices 2, memory 1MiB"]


def test_one_point_and_none() -> None:
    axes = [parse_axis("placer=m-etf")]
    outcome = Outcome(points(axes)[0], error="no")
    assert "placer" in draw("x", axes, [outcome])
    assert "error" in render_text(sweep_table("x", axes, [outcome]))


@pytest.mark.parametrize("most", [1e-9, 3.3e-4, 1.0, 7.0, 1234.0])
def test_ticks(most: float) -> None:
    for ticks in (time_ticks(most), byte_ticks(most * 1e9)):
        assert ticks[0] == 0
        assert 3 <= len(ticks) <= 7
        steps = [b - a for a, b in itertools.pairwise(ticks)]
        assert steps == pytest.approx([steps[0]] * len(steps))
    assert time_ticks(most)[-2] < most <= time_ticks(most)[-1] * (1 + 1e-9)


def test_files(tmp_path: Path) -> None:
    write_plot(tmp_path / "s.svg", "x", _AXES, _outcomes())
    assert (tmp_path / "s.svg").read_text(encoding="utf-8").startswith("<svg ")
    write_plot(tmp_path / "s.html", "x", _AXES, _outcomes())
    assert (tmp_path / "s.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(SweepError, match=r"\.svg or \.html, not '\.png'"):
        write_plot(tmp_path / "s.png", "x", _AXES, _outcomes())
