"""``baechi``: plan a function, look at a plan, simulate it on another machine; split workloads.

JAX is imported by the commands that need it, when they run. Results go to the standard output
stream, everything else to the standard error stream. The exit status is 0, 1 for an error of this
package (one line, no traceback), 2 for wrong usage. ``place`` and ``evaluate`` are in
``cli_workloads.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from baechi_jax.cli_errors import told_errors
from baechi_jax.cli_workloads import evaluate, place

if TYPE_CHECKING:
    from baechi_jax.ir.topology import Topology
    from baechi_jax.plan import Plan
    from baechi_jax.report.view import PlanView

_OUTPUT = click.Path(dir_okay=False, path_type=Path)
_INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="baechi-jax", prog_name="baechi")
def main() -> None:
    """Place JAX programs over several, unequal, memory-limited devices."""


def _outputs(command: Any) -> Any:
    """The options that say what to write about a plan."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print figures as JSON, no table."),
        click.option("--trace", type=_OUTPUT, help="Write a Perfetto (Chrome) trace, JSON."),
        click.option("--report", type=_OUTPUT, help="Write the report, one HTML page."),
    ):
        command = option(command)
    return command


@main.command(short_help="Plan a function of a file.")
@click.argument("target", metavar="FILE.py:NAME")
@click.option(
    "--topology", "topology_file", type=_INPUT, help="The machine, JSON; else the devices at hand."
)
@click.option("--memory", help="Memory of every device, such as 6GiB.")
@click.option("--placer", default="auto", show_default=True, help="m-sct, milp, auto, ...")
@click.option("--pipeline", help="A pipeline's text, instead of the default one.")
@click.option(
    "--donate-argnums", default="", metavar="0,1", help="Arguments that the caller gives away."
)
@click.option("--save", type=_OUTPUT, help="Write the plan, MLIR text.")
@click.option("--dump-ir", type=_FOLDER, help="Write the IR after each pass to this folder.")
@_outputs
def plan(
    target: str,
    topology_file: Path | None,
    memory: str | None,
    placer: str,
    pipeline: str | None,
    donate_argnums: str,
    save: Path | None,
    dump_ir: Path | None,
    report: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Plan the function NAME of FILE.py; nothing is allocated and nothing runs.

    FILE.py says what NAME is called with: a function NAME_args(), or example_args(), that returns a
    tuple of arrays or jax.ShapeDtypeStruct. NAME is a plain function, or one that jax.jit or
    baechi.place has decorated; what those say about donated arguments counts here, too.
    """
    with told_errors():
        from baechi_jax.targets import load_target, place_target

        if pipeline is not None and placer != "auto":
            raise click.UsageError("give --pipeline or --placer, not both")
        donated = _numbers(donate_argnums)
        found = load_target(target)
        placed = place_target(
            found,
            topology=_machine(topology_file, memory),
            placer=placer,
            pipeline=pipeline,
            donate_argnums=donated,
            dump_folder=dump_ir,
        )
        made = placed.plan(*found.arguments)
        if dump_ir is not None:
            _say(f"IR after each pass: {dump_ir}")
        if save is not None:
            made.save(save)
            _say(f"plan: {save}")
        _show(made, report, trace, as_json)


@main.command(short_help="Simulate a plan, also on another machine.")
@click.argument("plan_file", metavar="PLAN.mlir", type=_INPUT)
@click.option(
    "--topology", "topology_file", type=_INPUT, help="Simulate on this machine instead, JSON."
)
@_outputs
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
                _say(f"note: {note}")
        _show(loaded, report, trace, as_json)


@main.command(short_help="Show what a plan decided.")
@click.argument("plan_file", metavar="PLAN.mlir", type=_INPUT)
@_outputs
def show(plan_file: Path, report: Path | None, trace: Path | None, as_json: bool) -> None:
    """Show what a plan decided: the table, the report, the trace."""
    with told_errors():
        from baechi_jax.plan import Plan

        _show(Plan.load(plan_file), report, trace, as_json)


@main.command(short_help="Print the topology of the devices at hand.")
@click.option("--memory", help="Memory of every device, such as 6GiB.")
@click.option("--count", type=click.IntRange(min=1), help="That many devices like the first one.")
@click.option("-o", "output", type=_OUTPUT, help="A file, instead of the standard output stream.")
def topology(memory: str | None, count: int | None, output: Path | None) -> None:
    """Print the topology of the devices at hand, JSON to edit and to plan for."""
    with told_errors():
        from baechi_jax.ir.files import write_text_atomically
        from baechi_jax.local import local_topology, repeated

        found = local_topology(memory)
        text = (found if count is None else repeated(found, count)).to_json()
        if output is None:
            click.echo(text)
        else:
            write_text_atomically(output, text + "\n")


main.add_command(place)
main.add_command(evaluate)


# Helpers ----------------------------------------------------------------------------------------


def _say(text: str) -> None:
    click.echo(text, err=True)


def _numbers(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is not a list of argument numbers such as 0,1", param_hint="donate-argnums"
        ) from None


def _machine(topology_file: Path | None, memory: str | None) -> Topology:
    from baechi_jax.ir.topology import Topology
    from baechi_jax.local import local_topology
    from baechi_jax.units import parse_bytes

    if topology_file is None:
        return local_topology(memory)
    topology = Topology.load(topology_file)
    return topology if memory is None else topology.with_memory(parse_bytes(memory))


def _show(plan: Plan, report: Path | None, trace: Path | None, as_json: bool) -> None:
    from baechi_jax.report.build import build_view

    view = build_view(plan.module, plan.name)
    if report is not None:
        from baechi_jax.report.html import write_html

        write_html(view, report)
        _say(f"report: {report}")
    if trace is not None:
        from baechi_jax.report.perfetto import write_perfetto

        write_perfetto(view, trace)
        _say(f"trace: {trace}")
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


if __name__ == "__main__":
    main()
