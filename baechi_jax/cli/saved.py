"""``baechi show`` and ``baechi simulate``: what a saved plan decided, and how long it takes."""

from __future__ import annotations

from pathlib import Path

import click

from baechi_jax.cli.arguments import INPUT
from baechi_jax.cli.errors import told_errors
from baechi_jax.cli.output import output_options, say, show_plan


@click.command(short_help="Show what a plan decided.")
@click.argument("plan_file", metavar="PLAN.mlir", type=INPUT)
@output_options
def show(plan_file: Path, report: Path | None, trace: Path | None, as_json: bool) -> None:
    """Show what a plan decided: the table, the report, the trace."""
    with told_errors():
        from baechi_jax.plan import Plan

        show_plan(Plan.load(plan_file), report, trace, as_json)


@click.command(short_help="Simulate a plan, also on another machine.")
@click.argument("plan_file", metavar="PLAN.mlir", type=INPUT)
@click.option(
    "--topology", "topology_file", type=INPUT, help="Simulate on this machine instead, JSON."
)
@output_options
def simulate(
    plan_file: Path,
    topology_file: Path | None,
    report: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Simulate one step of a plan, on its own machine or on another with as many devices.

    With --topology, every cost is predicted anew by the analytic model, also where the plan was
    made with measured costs. Placement, order and memory stay as planned.
    """
    with told_errors():
        from baechi_jax.ir.topology import Topology
        from baechi_jax.plan import Plan
        from baechi_jax.retarget import retarget

        loaded = Plan.load(plan_file)
        if topology_file is not None:
            for note in retarget(loaded.module, Topology.load(topology_file)):
                say(f"note: {note}")
        show_plan(loaded, report, trace, as_json)
