"""What commands say about a plan: the table or JSON, the report, the trace."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from baechi_jax.cli.arguments import OUTPUT

if TYPE_CHECKING:
    from baechi_jax.plan import Plan
    from baechi_jax.report.view import PlanView


def output_options(command: Any) -> Any:
    """The options that say what to write about a plan."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print figures as JSON, no table."),
        click.option(
            "--trace",
            type=OUTPUT,
            help="Write a Perfetto (Chrome) trace, JSON; by default beside the report.",
        ),
        click.option(
            "--report",
            type=OUTPUT,
            help="Write the report, one HTML page, and beside plan.html its plan.trace.json.",
        ),
    ):
        command = option(command)
    return command


def say(text: str) -> None:
    """A line that is no result, to the standard error stream."""
    click.echo(text, err=True)


def show_plan(plan: Plan, report: Path | None, trace: Path | None, as_json: bool) -> None:
    """Write what was asked for, and print the table or the figures."""
    from baechi_jax.report.build import build_view
    from baechi_jax.report.perfetto import trace_beside, write_perfetto

    view = build_view(plan.module, plan.name)
    if report is not None:
        from baechi_jax.report.html import write_html

        write_html(view, report)
        say(f"report: {report}")
        trace = trace or trace_beside(report)
    if trace is not None:
        write_perfetto(view, trace)
        say(f"trace: {trace}")
    if as_json:
        click.echo(json.dumps(_figures(view)))
    else:
        from rich.console import Console

        from baechi_jax.report.summary import summary_table

        Console(file=sys.stdout).print(summary_table(view))


def _figures(view: PlanView) -> dict[str, Any]:
    return {
        "name": view.title,
        "placement": dict(view.placement),
        "step_seconds": view.step_seconds,
        "lower_bound_seconds": view.lower_bound_seconds,
        "tasks": len(view.tasks),
        "transfers": len(view.transfers),
        "transfer_bytes": view.transfer_bytes,
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "tasks": device.tasks,
                "busy_seconds": device.busy_seconds,
                "peak_bytes": device.peak_bytes,
                "run_ahead_bytes": device.run_ahead_bytes,
                "limit_bytes": device.limit_bytes,
                "sent_bytes": device.sent_bytes,
                "received_bytes": device.received_bytes,
            }
            for device in view.devices
        ],
    }
