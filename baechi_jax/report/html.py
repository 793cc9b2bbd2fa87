"""A plan as one HTML page that stands alone: no network, no files beside it.

The charts are drawn in the page by its own script from the JSON that is embedded in it; the tables
are there without scripts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baechi_jax.ir.files import write_text_atomically
from baechi_jax.report.summary import loop_note
from baechi_jax.report.view import MeasuredStep, PlanView, TaskView, TransferView
from baechi_jax.units import format_bytes, format_count, format_seconds

#: Rows in the tables of tasks and transfers.
TABLE_ROWS = 100


@dataclass(frozen=True, slots=True)
class Card:
    """One figure at the head of the page."""

    label: str
    value: str
    note: str = ""


def write_html(view: PlanView, path: str | Path) -> None:
    """Write the page to ``path``, whole or not at all; raises OSError where it cannot."""
    write_text_atomically(path, render_html(view))


def render_html(view: PlanView) -> str:
    """The page as text."""
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("baechi_jax.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(bytes=format_bytes, seconds=format_seconds, count=format_count)
    # Inside <script>, only "</" and "<!--" could end the data early.
    data = json.dumps(_data(view), separators=(",", ":")).replace("<", "\\u003c")
    return environment.get_template("report.html").render(
        view=view,
        cards=_cards(view),
        tasks=_longest(view.tasks),
        transfers=_largest(view.transfers),
        measured={} if view.measured is None else {t.name: t for t in view.measured.tasks},
        data=markupsafe.Markup(data),
    )


def _longest(tasks: Sequence[TaskView]) -> list[TaskView]:
    return sorted(tasks, key=lambda task: -task.seconds)[:TABLE_ROWS]


def _largest(transfers: Sequence[TransferView]) -> list[TransferView]:
    return sorted(transfers, key=lambda transfer: -transfer.nbytes)[:TABLE_ROWS]


def _cards(view: PlanView) -> list[Card]:
    step, bound = view.step_seconds, view.lower_bound_seconds
    used = [device for device in view.devices if device.tasks]
    fullest = max(view.devices, key=lambda device: device.peak_bytes / device.limit_bytes)
    return [
        Card("predicted step", format_seconds(step)),
        *_measured_card(view),
        Card(
            "lower bound",
            format_seconds(bound),
            f"the plan takes {step / bound:.2f} times as long" if bound > 0 else "",
        ),
        Card(
            "devices used",
            f"{len(used)} of {len(view.devices)}",
            loop_note(view.loop) if view.loop is not None and len(view.devices) > 1 else "",
        ),
        Card("tasks", str(len(view.tasks)), f"{sum(task.ops for task in view.tasks)} ops"),
        Card("moved between devices", format_bytes(view.transfer_bytes), _transfers_note(view)),
        Card(
            "fullest device",
            f"{100 * fullest.peak_bytes / fullest.limit_bytes:.0f}%",
            f"device {fullest.index}: {format_bytes(fullest.peak_bytes)} of "
            f"{format_bytes(fullest.limit_bytes)}",
        ),
    ]


def _measured_card(view: PlanView) -> list[Card]:
    if view.measured is None:
        return []
    ratio = view.measured.seconds / view.step_seconds if view.step_seconds else 1.0
    return [
        Card("measured step", format_seconds(view.measured.seconds), f"{ratio:.2f} times predicted")
    ]


def _transfers_note(view: PlanView) -> str:
    count = len(view.transfers)
    return f"{count} transfer{'' if count == 1 else 's'}"


def _data(view: PlanView) -> dict[str, Any]:
    # A task of literals alone has a layer that is no layer of the program.
    parts = [part for task in view.tasks for part in task.parts]
    layers = list(dict.fromkeys([*view.layers, *(part.layer for part in parts)]))
    phases = list(dict.fromkeys([*view.phases, *(part.phase for part in parts)]))
    layer_index = {layer: index for index, layer in enumerate(layers)}
    phase_index = {phase: index for index, phase in enumerate(phases)}
    return {
        "step": view.step_seconds,
        "layers": layers,
        "phases": phases,
        "devices": [
            {
                "name": device.name,
                "peak": device.peak_bytes,
                "runAhead": device.run_ahead_bytes,
                "limit": device.limit_bytes,
            }
            for device in view.devices
        ],
        "tasks": [
            {
                "name": task.name,
                "device": task.device,
                "start": task.start_seconds,
                "end": task.end_seconds,
                "layer": layer_index[task.layer],
                "phase": phase_index[task.phase],
                "flops": task.flops,
                "ops": task.ops,
                "output": task.output_bytes,
                "temporary": task.temporary_bytes,
                "origin": task.source,
                "parts": [
                    {
                        "layer": layer_index[part.layer],
                        "phase": phase_index[part.phase],
                        "share": round(part.share, 5),
                    }
                    for part in task.parts
                ],
            }
            for task in view.tasks
        ],
        "transfers": [
            {
                "channel": transfer.channel,
                "source": transfer.source,
                "target": transfer.target,
                "start": transfer.start_seconds,
                "end": transfer.end_seconds,
                "bytes": transfer.nbytes,
                "value": transfer.value,
            }
            for transfer in view.transfers
        ],
        "measured": None if view.measured is None else _measured_data(view.measured),
        "memory": view.memory,
        "nodes": [
            {
                "layer": layer_index[node.layer],
                "phase": phase_index[node.phase],
                "device": node.device,
                "tasks": node.tasks,
                "seconds": node.seconds,
            }
            for node in view.nodes
        ],
        "edges": [
            {"source": edge.source, "target": edge.target, "bytes": edge.nbytes}
            for edge in view.edges
        ],
    }


def _measured_data(step: MeasuredStep) -> dict[str, Any]:
    return {
        "step": step.seconds,
        "tasks": [
            {"name": span.name, "start": span.start_seconds, "end": span.end_seconds}
            for span in step.tasks
        ],
        "transfers": [
            {
                "source": span.source,
                "target": span.target,
                "start": span.start_seconds,
                "end": span.end_seconds,
                "bytes": span.nbytes,
                "value": span.name,
            }
            for span in step.transfers
        ],
    }
