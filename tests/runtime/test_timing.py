"""Measured timelines: complete, in an order that can be, and with the results of a step."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.passes.simulate.timeline import Timeline, simulate_module
from baechi_jax.place import place
from baechi_jax.report.build import build_view
from baechi_jax.report.html import render_html
from baechi_jax.report.perfetto import trace_events
from baechi_jax.runtime.errors import ExecutionError
from baechi_jax.runtime.instructions import Run
from baechi_jax.stages import Compiled
from tests.four_layers import arguments as _arguments
from tests.four_layers import step as _step


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    topology = baechi.local_topology("72KiB", jax.devices()[:4])
    placed = place(_step, topology=topology, donate_argnums=0, placer="m-etf")
    return placed.lower(*_arguments()).compile()


@pytest.fixture(scope="module")
def timeline(compiled: Compiled) -> Timeline:
    arguments = baechi.device_put(_arguments(), compiled.input_shardings[0])
    found, timeline = compiled.measure_times(*arguments)
    for one, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(jax.jit(_step)(*_arguments())), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert all(leaf.is_deleted() for leaf in arguments[0])
    return timeline


def test_everything_is_there_once(compiled: Compiled, timeline: Timeline) -> None:
    planned = simulate_module(compiled.plan.module)
    for kind in ("task", "transfer"):
        wanted = [(e.name, e.source, e.target, e.nbytes) for e in planned.events if e.kind == kind]
        found = [(e.name, e.source, e.target, e.nbytes) for e in timeline.events if e.kind == kind]
        assert sorted(wanted) == sorted(found)
    assert len(timeline.device_names) == 4
    assert any(event.kind == "transfer" for event in timeline.events)


def test_the_order_is_one_that_can_be(compiled: Compiled, timeline: Timeline) -> None:
    assert all(0 <= event.start_seconds <= event.end_seconds for event in timeline.events)
    starts = [event.start_seconds for event in timeline.events]
    assert starts == sorted(starts)
    assert timeline.makespan_seconds == max(event.end_seconds for event in timeline.events)
    for device in range(4):
        own = [e for e in timeline.events if e.kind == "task" and e.source == device]
        assert all(one.end_seconds <= other.start_seconds for one, other in pairwise(own))
        busy = sum(event.end_seconds - event.start_seconds for event in own)
        assert timeline.busy_seconds[device] == pytest.approx(busy)
    # No task starts before one that it reads from has ended.
    ends = {e.name: e.end_seconds for e in timeline.events if e.kind == "task"}
    begin = {e.name: e.start_seconds for e in timeline.events if e.kind == "task"}
    program = compiled.program
    names = [str(task.attributes["sym_name"]) for task in program.tasks]
    makers: dict[int, str] = {}
    for item in program.instructions:
        if isinstance(item, Run):
            for slot in item.inputs:
                if slot in makers:
                    assert ends[makers[slot]] <= begin[names[item.task]]
            makers.update(dict.fromkeys(item.outputs, names[item.task]))


def test_an_error_in_a_task_is_a_step_s_error() -> None:
    def fails(x: jax.Array) -> Any:
        def callback(_: Any) -> Any:
            raise ValueError("no")

        return jax.pure_callback(callback, x, x)

    compiled = place(fails).lower(jnp.ones(3)).compile()
    with pytest.raises(ExecutionError):
        compiled.measure_times(jnp.ones(3))


def test_the_report_shows_both(compiled: Compiled, timeline: Timeline, tmp_path: Path) -> None:
    module = compiled.plan.module
    view = build_view(module, "step", timeline)
    assert view.measured is not None
    assert view.measured.seconds == timeline.makespan_seconds
    page = render_html(view)
    assert "measured step" in page
    assert '"measured":{"step":' in page
    assert "measured step" not in render_html(build_view(module, "step"))
    compiled.plan.report(tmp_path / "plan.html", timeline)
    compiled.plan.perfetto(tmp_path / "plan.json", timeline)
    assert (tmp_path / "plan.html").read_text(encoding="utf-8").count("measured") > 3
    events = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["traceEvents"]
    measured = [event for event in events if event.get("cat") == "measured"]
    assert len(measured) == len(timeline.events)
    assert {event["pid"] for event in measured} <= set(range(4, 8))
    plain = trace_events(build_view(module, "step"))["traceEvents"]
    assert not any(event.get("cat") == "measured" for event in plain)


def test_a_step_of_another_plan_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    other = place(_step, topology=baechi.local_topology(devices=jax.devices()[:1]))
    plan = other.plan(*_arguments())
    with pytest.raises(ValueError, match="not one of this plan: task '"):
        plan.report(tmp_path / "plan.html", timeline)
    assert not (tmp_path / "plan.html").exists()
