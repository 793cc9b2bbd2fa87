"""A plan as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baechi_jax.report.view import DeviceView, PlanView
from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table


def summary_table(view: PlanView) -> Table:
    """One row for each device: tasks, share of the step it computes, memory, bytes moved."""
    from rich.table import Table

    table = Table(title=f"Placement of {view.title}", caption=caption(view), caption_justify="left")
    table.add_column("device")
    table.add_column("kind")
    for heading in ("tasks", "busy", "share of work", "peak", "of limit", "sent", "received"):
        table.add_column(heading, justify="right")
    work = sum(device.busy_seconds for device in view.devices)
    for device in view.devices:
        table.add_row(*_cells(device, view.step_seconds, work))
    return table


def caption(view: PlanView) -> str:
    """The plan in a few sentences: step time, its lower bound, transfers, how it was placed."""
    bound = view.lower_bound_seconds
    parts = [f"Predicted step {format_seconds(view.step_seconds)}"]
    if bound > 0:
        ratio = view.step_seconds / bound
        parts[0] += f", {ratio:.2f} x its lower bound of {format_seconds(bound)}"
    count = len(view.transfers)
    if count:
        plural = "" if count == 1 else "s"
        parts.append(f"{count} transfer{plural} of {format_bytes(view.transfer_bytes)}")
    used = [device.index for device in view.devices if device.tasks]
    if len(used) == 1 and len(view.devices) > 1:
        parts.append(f"All on device {used[0]}: it fits there, and no spread was predicted faster")
    if view.placement:
        parts.append(", ".join(f"{key} {value}" for key, value in view.placement))
    return ". ".join(parts) + "."


def _cells(device: DeviceView, step_seconds: float, work_seconds: float) -> list[str]:
    label = f"{device.index} {device.name}".strip()
    return [
        label,
        device.kind,
        str(device.tasks),
        _percent(device.busy_seconds, step_seconds),
        _percent(device.busy_seconds, work_seconds),
        format_bytes(device.peak_bytes),
        f"{_percent(device.peak_bytes, device.limit_bytes)} of {format_bytes(device.limit_bytes)}",
        format_bytes(device.sent_bytes),
        format_bytes(device.received_bytes),
    ]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def render_text(table: Table, width: int = 120) -> str:
    """The table as plain text."""
    import io

    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(table)
    return stream.getvalue()
