"""The report's own script, run as a reader runs it: in a browser, and in node without one."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baechi_jax.report.build import build_view
from baechi_jax.report.html import render_html
from baechi_jax.report.view import LayerEdge, MeasuredSpan, MeasuredStep, Part, PlanView
from tests.test_report import planned, view_of

#: Runs a page's scripts in this folder; what the page then says, or the error of a script.
Run = Callable[[str, Path], dict[str, Any]]

_FILES = Path(__file__).parent / "report_page"
_DRIVE = _FILES / "drive.js"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: A browser that takes so long is stuck.
_SECONDS = 120


def in_node(page: str, folder: Path) -> dict[str, Any]:
    """What the page says in node, with a made-up document; it has no tables."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [node, str(_FILES / "node.js"), str(file), str(_DRIVE)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert isinstance(seen, dict)
    return seen


def in_browser(page: str, folder: Path) -> dict[str, Any]:
    """What the page says in a browser without a window."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(_BROWSERS)} is installed")
    told = "addEventListener('error', (e) => document.getElementById('faults').append(e.message));"
    added = f'<pre id="faults"></pre><pre id="outcome"></pre><script>{told}</script>'
    page = page.replace('<div id="tip"', f'{added}<div id="tip"')
    page = page.replace("</body>", f"<script>{_DRIVE.read_text(encoding='utf-8')}</script></body>")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1280,1000", "--dump-dom",
        file.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    found = re.search(r'<pre id="faults">(.*?)</pre><pre id="outcome">(.*?)</pre>', ran.stdout)
    assert found is not None, ran.stderr
    assert not found[1]
    seen = json.loads(html.unescape(found[2]))
    assert isinstance(seen, dict)
    return seen


ENGINES = pytest.mark.parametrize(
    "run", [in_node, pytest.param(in_browser, marks=pytest.mark.slow)]
)


def measured(view: PlanView) -> PlanView:
    """The plan with a step as it ran, a little later than planned."""
    tasks = tuple(
        MeasuredSpan(t.name, t.device, t.device, t.start_seconds, 1.5 * t.end_seconds, 0)
        for t in view.tasks
    )
    moves = tuple(
        MeasuredSpan(t.value, t.source, t.target, t.end_seconds, 1.5 * t.end_seconds, t.nbytes)
        for t in view.transfers
    )
    return replace(view, measured=MeasuredStep(1.5 * view.step_seconds, tasks, moves))


def layered() -> PlanView:
    """A made-up plan with every kind of edge: to the right, to the left, within a column."""
    view = view_of(tasks=12, devices=3)
    edges = tuple(LayerEdge(a, b, 100 * (1 + a)) for a, b in ((0, 1), (3, 2), (4, 7)))
    nodes = (*view.nodes[:7], replace(view.nodes[7], layer="layer4"), *view.nodes[8:])
    moves = tuple(replace(t, end_seconds=t.start_seconds + 5e-4) for t in view.transfers)
    return replace(view, nodes=nodes, edges=edges, transfers=moves)


@ENGINES
@pytest.mark.parametrize(
    "view",
    [build_view(planned(), "f"), layered(), measured(layered()), view_of(devices=1)],
    ids=["planned", "layered", "measured", "one device"],
)
def test_what_a_reader_sees(run: Run, view: PlanView, tmp_path: Path) -> None:
    seen = run(render_html(view), tmp_path)
    assert not re.search(r"NaN|undefined|Infinity|\[object", json.dumps(seen))
    # Everything is drawn, and pointing at it says what it is.
    for device in range(len(view.devices)):
        assert f">device {device}</text>" in seen["first"]
        assert f">device {device}</text>" in seen["memory"]
    assert seen["layers"].count("<g ") == len(view.nodes) == len(seen["layerTips"])
    assert seen["layers"].count('class="edge') == len(view.edges)
    timeline = "".join(seen["timelineTips"])
    for task in view.tasks:
        assert f"<b>{task.name}</b> on device {task.device}" in timeline
    for move in view.transfers:
        assert f"<b>device {move.source} to {move.target}</b>" in timeline
    assert ("predicted" in timeline) == (view.measured is not None)
    assert "running" in "".join(seen["memoryTips"])
    assert all("<b>layer" in tip for tip in seen["layerTips"])
    assert seen["unfocused"] == 0
    assert seen["hidden"] is True
    # Zoom, pan, and back.
    assert len({seen["first"], seen["zoomed"], seen["panned"]}) == 3
    assert seen["reset"] == seen["first"]
    assert view.phases[0] in seen["phases"]
    assert view.layers[0] not in seen["phases"]
    assert view.layers[0] in seen["byLayer"]


@ENGINES
def test_pointing_at_a_layer_leaves_its_neighbours(run: Run, tmp_path: Path) -> None:
    # The last of twelve has no edge: eleven boxes and three edges fade.
    assert run(render_html(layered()), tmp_path)["focused"] == 14


@ENGINES
def test_names_stay_text(run: Run, tmp_path: Path) -> None:
    odd = '<b data-odd="">&"\'</b>'
    view = view_of()
    task = replace(view.tasks[0], name=odd, layer=odd, parts=(Part(odd, odd, 1.0),), source=odd)
    first = replace(view.nodes[0], layer=odd, phase=odd)
    view = replace(
        view,
        tasks=(task, *view.tasks[1:]),
        transfers=tuple(replace(each, value=odd) for each in view.transfers),
        devices=tuple(replace(each, name=odd) for each in view.devices),
        layers=(odd, *view.layers[1:]),
        phases=(odd, *view.phases),
        nodes=(first, *view.nodes[1:]),
    )
    seen = run(render_html(view), tmp_path)
    charts = [seen[name] for name in ("first", "layers", "phases", "byLayer")]
    drawn = "".join(charts + seen["timelineTips"] + seen["memoryTips"] + seen["layerTips"])
    assert "<b data-odd" not in drawn
    assert drawn.count("data-odd") > 8
    assert seen["elements"] == 0


@pytest.mark.slow
def test_a_click_on_a_heading_sorts(tmp_path: Path) -> None:
    # Numbers in names by their value: t9 before t10.
    seen = in_browser(render_html(view_of(tasks=12)), tmp_path)
    tasks = [f"t{index}" for index in range(12)]
    assert seen["sorted"][0] == [tasks[::-1], tasks]


@ENGINES
@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        ("  draw();\n  drawLayers();", "  draw();\n  drawLayer();"),
        ("nodeTip(index)", "tipOf(index)"),
    ],
    ids=["drawing", "pointing"],
)
def test_an_error_in_the_script_is_seen(run: Run, sound: str, broken: str, tmp_path: Path) -> None:
    page = render_html(layered())
    assert sound in page
    with pytest.raises(AssertionError, match=broken.split()[-1].split("(")[0]):
        run(page.replace(sound, broken), tmp_path)
