"""A plan as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baechi_jax.report.view import DeviceView, LoopView, PlanView
from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table


def summary_table(view: PlanView) -> Table:
    """One row for each device: tasks, share of the step and of all work, memory, bytes moved.

    Narrow enough for 80 columns while device names are short and all devices are of one kind.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"Placement of {view.title}",
        caption=caption(view),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    kinds = len({device.kind for device in view.devices}) > 1
    table.add_column("device", no_wrap=True)
    if kinds:
        table.add_column("kind")
    for heading in ("tasks", "busy", "work", "peak", "limit", "full", "sent", "received"):
        table.add_column(heading, justify="right", no_wrap=True)
    work = sum(device.busy_seconds for device in view.devices)
    for device in view.devices:
        label = f"{device.index} {device.name}".strip()
        kind = [device.kind] if kinds else []
        table.add_row(label, *kind, *_figures(device, view.step_seconds, work))
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
    if view.loop is not None and len(view.devices) > 1:
        parts.append(loop_note(view.loop))
    if view.placement:
        decided = dict(view.placement)
        status = decided.get("status", "")
        parts.append(f"Placed by {decided.get('placer', '?')}" + (f" ({status})" if status else ""))
        if "costs" in decided:
            parts.append(f"Costs {decided['costs']}")
    if view.memory_note:
        parts.append(view.memory_note.removesuffix("."))
    return ". ".join(parts) + "."


def loop_note(loop: LoopView) -> str:
    """Why one device works so much: ``98% of the work is in one while loop at f.py:12: ...``."""
    where = f" at {loop.source}" if loop.source else ""
    return (
        f"{_percent(loop.share, 1.0)} of the work is in one {loop.what}{where}: it cannot be "
        f"divided, so device {loop.device} does all of that"
    )


def _figures(device: DeviceView, step_seconds: float, work_seconds: float) -> list[str]:
    return [
        str(device.tasks),
        _percent(device.busy_seconds, step_seconds),
        _percent(device.busy_seconds, work_seconds),
        format_bytes(device.peak_bytes),
        format_bytes(device.limit_bytes),
        _percent(device.peak_bytes, device.limit_bytes),
        format_bytes(device.sent_bytes),
        format_bytes(device.received_bytes),
    ]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def render_text(table: Table, width: int = 100) -> str:
    """The table as plain text."""
    import io

    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(table)
    return stream.getvalue()
