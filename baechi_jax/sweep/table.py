"""A sweep as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from baechi_jax.sweep.axes import Axis
from baechi_jax.sweep.run import Outcome
from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table


def sweep_table(title: str, axes: Sequence[Axis], outcomes: Sequence[Outcome]) -> Table:
    """One row for each point: step, how it compares with the best, the fullest device."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for axis in axes:
        justify: Literal["left", "right"] = "left" if axis.name == "placer" else "right"
        table.add_column(axis.name, justify=justify, no_wrap=True)
    cramped = any(each.shortfalls for each in outcomes)
    for heading in ("step", "x best", "used", "peak", "limit", "full"):
        table.add_column(heading, justify="right", no_wrap=True)
    if cramped:
        table.add_column("missing", justify="right", no_wrap=True)
    best = min((each.step_seconds for each in outcomes if each.step_seconds is not None), default=0)
    for outcome in outcomes:
        labels = [outcome.point.labels[axis.name] for axis in axes]
        cells = _cells(outcome, best)
        if cramped:
            missing = format_bytes(outcome.missing_bytes) if outcome.missing_bytes else ""
            cells.append(missing)
        table.add_row(*labels, *cells, style=_style(outcome, best))
    return table


def _cells(outcome: Outcome, best: float) -> list[str]:
    if outcome.error:
        return ["error", *"-----"]
    peak, limit = outcome.fullest
    memory = [format_bytes(peak), format_bytes(limit), f"{100 * peak / limit:.0f}%"]
    if outcome.step_seconds is None:
        return ["no room", "-", "-", *memory]
    ratio = f"{outcome.step_seconds / best:.2f}" if best else "-"
    used = f"{outcome.devices_used} of {len(outcome.peak_bytes)}"
    return [format_seconds(outcome.step_seconds), ratio, used, *memory]


def _style(outcome: Outcome, best: float) -> str:
    if outcome.step_seconds is None:
        return "dim"
    return "bold" if outcome.step_seconds == best else ""


def sweep_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What went wrong where, beside memory; one sentence for each message."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.error:
            found.setdefault(outcome.error, []).append(str(outcome.point))
    return [
        f"{places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {error}"
        for error, places in found.items()
    ]
