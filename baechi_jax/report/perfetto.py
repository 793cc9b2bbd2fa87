"""A plan as a trace file for https://ui.perfetto.dev and chrome://tracing.

The Chrome trace event format (JSON): one process for each device, its first thread the tasks, one
more for each link out of it; an arrow follows each transfer to the device that receives it; a
counter shows memory. Times are microseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from baechi_jax.ir.files import write_text_atomically
from baechi_jax.report.view import MeasuredStep, PlanView, TaskView, TransferView

_MICROSECONDS = 1e6


def write_perfetto(view: PlanView, path: str | Path) -> None:
    """Write the trace to ``path``, whole or not at all; raises OSError where not possible."""
    write_text_atomically(path, json.dumps(trace_events(view), separators=(",", ":")))


def trace_beside(report: str | Path) -> Path:
    """The trace of the report ``plan.html``: ``plan.trace.json`` in the same folder."""
    path = Path(report)
    stem = path.stem if path.suffix in (".html", ".htm") else path.name
    return path.with_name(f"{stem}.trace.json")


def trace_events(view: PlanView) -> dict[str, Any]:
    """The trace as JSON data."""
    events: list[dict[str, Any]] = []
    for device in view.devices:
        name = f"device {device.index} {device.name or device.kind}"
        events.append(_metadata("process_name", device.index, 0, name))
        events.append(_metadata("thread_name", device.index, 0, "tasks"))
    links = sorted({(transfer.source, transfer.target) for transfer in view.transfers})
    for source, target in links:
        events.append(_metadata("thread_name", source, target + 1, f"link to device {target}"))
    for task in view.tasks:
        events.extend(_task(task))
    for transfer in view.transfers:
        events.extend(_transfer(transfer))
    for device_index, steps in enumerate(view.memory):
        for seconds, nbytes in steps:
            counter = _event("C", "memory", device_index, 0, seconds)
            events.append({**counter, "args": {"bytes": nbytes}})
    if view.measured is not None:
        events.extend(_measured(view, view.measured))
    return {
        "displayTimeUnit": "ms",
        "otherData": {"title": view.title, **dict(view.placement)},
        "traceEvents": events,
    }


def _measured(view: PlanView, step: MeasuredStep) -> list[dict[str, Any]]:
    """The step as it ran: a process for each device below the predicted ones."""
    first = len(view.devices)
    planned = {task.name: task for task in view.tasks}
    events: list[dict[str, Any]] = []
    for device in view.devices:
        name = f"device {device.index} {device.name or device.kind}, measured"
        events.append(_metadata("process_name", first + device.index, 0, name))
        events.append(_metadata("thread_name", first + device.index, 0, "tasks"))
    for source, target in sorted({(span.source, span.target) for span in step.transfers}):
        name = f"link to device {target}"
        events.append(_metadata("thread_name", first + source, target + 1, name))
    for span in step.tasks:
        task = planned[span.name]
        name = task.name if len(task.parts) > 1 else f"{task.layer} {task.phase}"
        events.append(
            {
                **_event("X", name, first + span.source, 0, span.start_seconds),
                "dur": round(span.seconds * _MICROSECONDS, 3),
                "cat": "measured",
                "args": {"task": task.name, "predicted_us": task.seconds * _MICROSECONDS},
            }
        )
    for span in step.transfers:
        name = f"{span.source} to {span.target}"
        events.append(
            {
                **_event("X", name, first + span.source, span.target + 1, span.start_seconds),
                "dur": round(span.seconds * _MICROSECONDS, 3),
                "cat": "measured",
                "args": {"bytes": span.nbytes, "value": span.name},
            }
        )
    return events


def _event(phase: str, name: str, process: int, thread: int, seconds: float) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": round(seconds * _MICROSECONDS, 3),
    }


def _metadata(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _task(task: TaskView) -> list[dict[str, Any]]:
    """The task, and inside it its parts, each for its share of the time."""
    merged = len(task.parts) > 1
    name = task.name if merged else f"{task.layer} {task.phase}"
    events = [
        {
            **_event("X", name, task.device, 0, task.start_seconds),
            "dur": round(task.seconds * _MICROSECONDS, 3),
            "cat": task.phase,
            "args": {
                "task": task.name,
                "ops": task.ops,
                "flops": task.flops,
                "output_bytes": task.output_bytes,
                "temporary_bytes": task.temporary_bytes,
                "source": task.source,
            },
        }
    ]
    start = task.start_seconds
    for part in task.parts if merged else ():
        event = _event("X", f"{part.layer} {part.phase}", task.device, 0, start)
        duration = part.share * task.seconds
        events.append({**event, "dur": round(duration * _MICROSECONDS, 3), "cat": part.phase})
        start += duration
    return events


def _transfer(transfer: TransferView) -> list[dict[str, Any]]:
    thread = transfer.target + 1
    name = f"{transfer.source} to {transfer.target}"
    arrow = {"id": transfer.channel, "cat": "transfer"}
    return [
        {
            **_event("X", name, transfer.source, thread, transfer.start_seconds),
            "dur": round(transfer.seconds * _MICROSECONDS, 3),
            "cat": "transfer",
            "args": {
                "channel": transfer.channel,
                "bytes": transfer.nbytes,
                "value": transfer.value,
            },
        },
        {**_event("s", name, transfer.source, thread, transfer.start_seconds), **arrow},
        {**_event("f", name, transfer.target, 0, transfer.end_seconds), **arrow, "bp": "e"},
    ]
