"""Reports: what they read from a module, and what they write."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.location import Location
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.registry import find_pass
from baechi_jax.plan import Plan
from baechi_jax.report.build import build_view
from baechi_jax.report.html import TABLE_ROWS, render_html, write_html
from baechi_jax.report.layers import layer_names, phase_of, scopes
from baechi_jax.report.memory import memory_steps
from baechi_jax.report.perfetto import trace_beside, trace_events, write_perfetto
from baechi_jax.report.summary import caption, render_text, summary_table
from baechi_jax.report.view import (
    DeviceView,
    LayerNode,
    LoopView,
    Part,
    PlanView,
    TaskView,
    TransferView,
)

#: Two tasks on two devices; the first one merges two layers.
PLACED = """
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<64x64xf32>, %x: tensor<8x64xf32>):
    %0 = "baechi.task"(%x, %w) ({
    ^bb0(%a: tensor<8x64xf32>, %b: tensor<64x64xf32>):
      %1 = "jax.dot_general"(%a, %b) {baechi.cost = #baechi.cost<flops = 65536.0, seconds = [3.0e-5], output_bytes = 2048>} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("jvp(layer0)"("/home/me/train.py":12:4))
      %2 = "jax.tanh"(%1) {baechi.cost = #baechi.cost<flops = 512.0, seconds = [1.0e-5], output_bytes = 2048>} : (tensor<8x64xf32>) -> tensor<8x64xf32> loc("jvp(layer1)"("/home/me/train.py":13:4))
      "baechi.yield"(%2) : (tensor<8x64xf32>) -> ()
    }) {sym_name = "t0", baechi.devices = [0], baechi.cost = #baechi.cost<flops = 66048.0, seconds = [4.0e-5], temporary_bytes = 2048, output_bytes = 2048>} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %3 = "baechi.task"(%0) ({
    ^bb0(%c: tensor<8x64xf32>):
      %4 = "jax.mul"(%c, %c) {baechi.cost = #baechi.cost<flops = 512.0, seconds = [2.0e-5], output_bytes = 2048>} : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32> loc("transpose(jvp(layer1))"("/home/me/train.py":14:4))
      "baechi.yield"(%4) : (tensor<8x64xf32>) -> ()
    }) {sym_name = "t1", baechi.devices = [1], baechi.cost = #baechi.cost<flops = 512.0, seconds = [2.0e-5], output_bytes = 2048>} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    "func.return"(%3) : (tensor<8x64xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<64x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>, arg_attrs = [{baechi.name = "params['w']", baechi.devices = [0]}, {baechi.name = "x", baechi.devices = [0]}], res_attrs = [{baechi.name = "out"}]} : () -> ()
}) {baechi.placement = {placer = "m-sct", status = "heuristic", gap = 0.125, candidates = [{placer = "m-sct", status = "heuristic", makespan_seconds = 1.0e-4, fits = true}, {placer = "single:0", status = "one device", makespan_seconds = 5.0e-5, fits = false}]}, baechi.topology = #baechi.topology<devices = [#baechi.device<memory_bytes = 1048576, name = "cpu:0">, #baechi.device<memory_bytes = 1048576>], links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>} : () -> ()
"""  # noqa: E501


def planned() -> Module:
    """PLACED with transfers, order and memory."""
    module = parse_module(PLACED)
    for name in ("insert-transfers", "schedule", "plan-memory"):
        find_pass(name)().run(module)
    return module


def view_of(tasks: int = 3, devices: int = 2) -> PlanView:
    """A made-up plan: a chain of tasks that goes round the devices."""
    spans = tuple(
        TaskView(
            name=f"t{index}",
            device=index % devices,
            start_seconds=index * 1e-3,
            end_seconds=(index + 1) * 1e-3,
            layer=f"layer{index}",
            phase="forward",
            parts=(Part(f"layer{index}", "forward", 1.0),),
            flops=1e6,
            ops=3,
            output_bytes=100 + index,
            temporary_bytes=10,
            source="f.py:1",
        )
        for index in range(tasks)
    )
    moves = tuple(
        TransferView(i, i % devices, (i + 1) % devices, (i + 1) * 1e-3, (i + 1) * 1e-3, 64, f"v{i}")
        for i in range(tasks - 1 if devices > 1 else 0)
    )
    views = tuple(
        DeviceView(
            index=index,
            name=f"cpu:{index}",
            kind="cpu",
            tasks=sum(span.device == index for span in spans),
            busy_seconds=1e-3 * sum(span.device == index for span in spans),
            flops=1e6,
            peak_bytes=1 << 20,
            run_ahead_bytes=1 << 20,
            resident_bytes=1 << 19,
            limit_bytes=1 << 21,
            sent_bytes=64,
            received_bytes=64,
        )
        for index in range(devices)
    )
    return PlanView(
        title="step",
        devices=views,
        tasks=spans,
        transfers=moves,
        memory=tuple(((0.0, 1 << 19), (1e-3, 1 << 20)) for _ in range(devices)),
        values=(),
        layers=tuple(span.layer for span in spans),
        phases=("forward",),
        nodes=tuple(LayerNode(s.layer, s.phase, s.device, 1, s.seconds) for s in spans),
        edges=(),
        step_seconds=tasks * 1e-3,
        lower_bound_seconds=2e-3,
    )


# Layers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("layer1", ("layer1",)),
        ("transpose(jvp(layer1))", ("layer1",)),
        ("transpose(jvp(layer1))/attention", ("layer1", "attention")),
        ("jvp(model/layer1)/mlp", ("model", "layer1", "mlp")),
        ("jvp()", ()),
        ("layer1/checkpoint/rematted_computation/mul", ("layer1", "mul")),
        ("vmap(layer1)/baechi.device:1/dot", ("layer1", "dot")),
        ("bqhd,bkhd->bhqk", ("bqhd,bkhd->bhqk",)),
        ("", ()),
    ],
)
def test_scopes(stack: str, expected: tuple[str, ...]) -> None:
    assert scopes(stack) == expected


def test_phases() -> None:
    assert phase_of("transpose(jvp(a))", True) == "backward"
    assert phase_of("jvp(a)", True) == "forward"
    assert phase_of("adam", True) == "update"
    assert phase_of("a", False) == "compute"


def test_a_scope_around_everything_is_looked_through() -> None:
    inner = {Location(name=f"jvp(model/layer{i})/dot"): 1.0 for i in range(4)}
    adam = Location(name="adam")
    names = layer_names({**inner, adam: 0.5})
    assert [names[location] for location in inner] == ["layer0", "layer1", "layer2", "layer3"]
    assert names[adam] == "adam"


def test_without_scopes_the_source_line_names_the_layer() -> None:
    location = Location("/home/me/train.py", 12, 4)
    assert layer_names({location: 1.0})[location] == "train.py:12"


def test_a_lone_scope_stays() -> None:
    location = Location(name="layer0")
    assert layer_names({location: 1.0})[location] == "layer0"


# From the module --------------------------------------------------------------------------------


def test_what_is_read_from_a_planned_module() -> None:
    view = build_view(planned(), "f")
    first, second = view.tasks
    assert [(part.layer, part.phase) for part in first.parts] == [
        ("layer0", "forward"),
        ("layer1", "forward"),
    ]
    assert first.parts[0].share == pytest.approx(0.75)
    assert (first.layer, first.source, first.ops) == ("layer0", "train.py:12", 2)
    assert (second.device, second.phase) == (1, "backward")
    (transfer,) = view.transfers
    assert (transfer.source, transfer.target, transfer.nbytes) == (0, 1, 2048)
    assert transfer.value == "t0: tanh in layer1 forward"
    assert first.end_seconds <= transfer.start_seconds
    assert transfer.end_seconds <= second.start_seconds
    assert view.step_seconds == second.end_seconds
    assert [(n.layer, n.phase, n.device) for n in view.nodes] == [
        ("layer0", "forward", 0),
        ("layer1", "forward", 0),
        ("layer1", "backward", 1),
    ]
    assert [(e.source, e.target, e.nbytes) for e in view.edges] == [(0, 1, 2048), (1, 2, 2048)]
    assert view.values[0].name == "params['w']"
    assert view.placement == (("placer", "m-sct"), ("status", "heuristic"))
    assert [(tried.placer, tried.fits) for tried in view.candidates] == [
        ("m-sct", True),
        ("single:0", False),
    ]
    assert "Placed by m-sct (heuristic)" in caption(view)


def test_memory_over_time_reaches_the_planned_peak() -> None:
    view = build_view(planned(), "f")
    for device, steps in zip(view.devices, view.memory, strict=True):
        assert max(held for _, held in steps) == device.peak_bytes
        assert steps == tuple(sorted(steps, key=lambda step: step[0]))
    # Arguments that are not donated and the result live to the end.
    assert view.memory[0][-1][1] == 64 * 64 * 4 + 8 * 64 * 4
    assert view.memory[1][-1][1] == 2048


def test_a_task_without_duration_takes_before_it_gives_back() -> None:
    module = planned()
    times = dict.fromkeys(module.main.body.ops, (0.0, 0.0))
    steps = memory_steps(module.main, times, 2)
    assert min(held for _, held in steps[0]) == 64 * 64 * 4 + 8 * 64 * 4


def test_a_module_that_is_not_placed_is_refused() -> None:
    with pytest.raises(PassError):
        build_view(parse_module(PLACED.replace(", baechi.devices = [1]", "")), "f")


# HTML -------------------------------------------------------------------------------------------


def data_of(page: str) -> dict[str, object]:
    """The JSON that is embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def test_the_page_stands_alone() -> None:
    page = render_html(view_of())
    assert page.startswith("<!doctype html>")
    assert "{{" not in page
    assert "{%" not in page
    for outside in ("http://", "https://", "<link", "src=", "@import", "url("):
        assert outside not in page, outside


def test_the_page_shows_figures_and_tables() -> None:
    page = render_html(build_view(planned(), "f"))
    for text in ("predicted step", "lower bound", "m-sct", "t0", "train.py:12", "2.00 KiB"):
        assert text in page, text
    assert page.index("single:0") < page.index("m-sct</td>")
    data = data_of(page)
    assert data["layers"] == ["layer0", "layer1"]
    assert data["phases"] == ["forward", "backward"]


def test_names_cannot_break_out_of_the_page() -> None:
    view = view_of()
    evil = "</script><script>alert(1)</script>"
    tasks = (
        replace(view.tasks[0], name=evil, parts=(Part(evil, "forward", 1.0),)),
        *view.tasks[1:],
    )
    page = render_html(replace(view, title=evil, tasks=tasks))
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert evil in data_of(page)["layers"]  # type: ignore[operator]


def test_a_large_plan_lists_the_longest_tasks_and_draws_all() -> None:
    page = render_html(view_of(tasks=1500, devices=4))
    assert f"The longest {TABLE_ROWS} of 1500" in page
    assert page.count("<tr>") < 3 * TABLE_ROWS + 20
    tasks = data_of(page)["tasks"]
    assert isinstance(tasks, list)
    assert len(tasks) == 1500
    assert len(page) < 1_500_000


def test_one_device_has_no_transfers() -> None:
    assert "Nothing moves between devices." in render_html(view_of(devices=1))


def test_the_page_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.html"
    write_html(view_of(), path)
    assert path.read_text(encoding="utf-8") == render_html(view_of())
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.html"]


# Perfetto ---------------------------------------------------------------------------------------


def test_the_trace_has_processes_threads_spans_arrows_and_counters(tmp_path: Path) -> None:
    view = build_view(planned(), "f")
    write_perfetto(view, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(0, 0): "tasks", (1, 0): "tasks", (0, 2): "link to device 1"}
    spans = [e for e in events if e["ph"] == "X"]
    task = next(e for e in spans if e["name"] == "t0")
    parts = [e for e in spans if e["name"] in ("layer0 forward", "layer1 forward")]
    assert task["dur"] == pytest.approx(40)
    assert sum(e["dur"] for e in parts) == pytest.approx(40)
    start, finish = (next(e for e in events if e["ph"] == ph) for ph in "sf")
    assert start["id"] == finish["id"]
    assert (start["pid"], finish["pid"]) == (0, 1)
    assert {e["pid"] for e in events if e["ph"] == "C"} == {0, 1}


@pytest.mark.parametrize(
    ("report", "trace"),
    [
        ("plan.html", "plan.trace.json"),
        ("out/step.2.htm", "out/step.2.trace.json"),
        ("v1.2", "v1.2.trace.json"),
    ],
)
def test_where_the_trace_of_a_report_goes(report: str, trace: str) -> None:
    assert trace_beside(report) == Path(trace)


def test_a_plan_leaves_its_trace_beside_its_report(tmp_path: Path) -> None:
    plan = Plan(planned(), "f")
    plan.report(tmp_path / "plan.html")
    plan.perfetto(tmp_path / "other.json")
    beside = (tmp_path / "plan.trace.json").read_text(encoding="utf-8")
    assert beside == (tmp_path / "other.json").read_text(encoding="utf-8")
    assert "<!doctype html>" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_every_event_has_what_the_format_asks_for() -> None:
    for event in trace_events(view_of(tasks=20, devices=3))["traceEvents"]:
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0


# Tables -----------------------------------------------------------------------------------------


def test_the_summary() -> None:
    text = render_text(summary_table(view_of()))
    assert "Placement of step" in text
    assert "1.00 MiB" in text
    assert re.search(r"1\.00 MiB +2\.00 MiB +50%", text)
    assert max(map(len, text.splitlines())) <= 100
    assert "1.50 x its lower bound of 2.00 ms" in text


def test_the_caption_says_when_one_device_does_it_all() -> None:
    view = view_of(tasks=2, devices=1)
    idle = replace(view.devices[0], index=1, tasks=0, busy_seconds=0.0)
    text = caption(replace(view, devices=(*view.devices, idle)))
    assert "All on device 0" in text
    assert "transfer" not in text


def test_a_loop_with_most_of_the_work_is_told() -> None:
    loop = LoopView("while loop", "train.py:12", 0.984, 1)
    view = replace(view_of(), loop=loop)
    said = "98% of the work is in one while loop at train.py:12: it cannot be divided, so device 1"
    assert said in caption(view)
    assert said in render_html(view)
    assert "while loop" not in caption(view_of())
    alone = replace(view, devices=view.devices[:1])
    assert "while loop" not in caption(alone)


def _with_loop(primitive: str, seconds: float) -> Module:
    """PLACED, where the second task runs a loop for so long."""
    text = PLACED.replace("#baechi.cost<flops = 512.0, seconds = [2.0e-5]", "COST", 1)
    text = text.replace(
        '"jax.mul"(%c, %c) {baechi.cost = COST, output_bytes = 2048>}',
        f'"jax.{primitive}"(%c, %c) ({{\n^bb0(%d: tensor<8x64xf32>, %e: tensor<8x64xf32>):\n'
        '"baechi.yield"(%d) : (tensor<8x64xf32>) -> ()\n}) '
        f"{{baechi.cost = #baechi.cost<flops = 512.0, seconds = [{seconds:e}], "
        "output_bytes = 2048>}",
        1,
    )
    module = parse_module(text)
    find_pass("insert-transfers")().run(module)
    return module


@pytest.mark.parametrize(
    ("primitive", "what"),
    [
        ("while", "while loop"),
        ("scan", "scan"),
        ("cond", "conditional"),
        ("odd", "operation 'odd'"),
    ],
)
def test_the_view_finds_the_loop(primitive: str, what: str) -> None:
    loop = build_view(_with_loop(primitive, 3.6e-4), "step").loop
    assert loop == LoopView(what, "train.py:14", pytest.approx(0.9), 1)  # type: ignore[arg-type]
    assert build_view(_with_loop(primitive, 3e-5), "step").loop is None
    assert build_view(planned(), "step").loop is None


def test_a_plan_says_which_loop_holds_the_work() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(
            lambda carry: carry[1] < 9, lambda c: (jnp.tanh(c[0] @ c[0]), c[1] + 1), (x, 0)
        )[0]

    placed = baechi.place(step, topology=Topology.uniform(2))
    plan = placed.plan(jax.ShapeDtypeStruct((64, 64), jnp.float32))
    line = step.__code__.co_firstlineno + 1
    text = " ".join(str(plan).split())
    assert "% of the work is in one while loop at test_report.py:" in text
    assert f"while loop at test_report.py:{line}: it cannot be divided, so device" in text
