"""``baechi place`` and ``baechi evaluate``: workload files, and splits of them over devices.

A workload is a graph with times and bytes from a file, not a JAX program; see
``passes/placement/formats``. Results go to the standard output stream, everything else to the
standard error stream. The exit status is 0, 1 for an error of this package and for a split that is
not valid, 2 for wrong usage, 130 after Ctrl-C, also where the best split so far was written.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from baechi_jax.cli.arguments import COUNT, INPUT, OUTPUT
from baechi_jax.cli.errors import INTERRUPTED, told_errors
from baechi_jax.cli.output import say
from baechi_jax.cli.progress import progress_line
from baechi_jax.passes.placement.interrupts import Interrupts

if TYPE_CHECKING:
    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.formats import Machine
    from baechi_jax.passes.placement.partitioning import Latency, Partitioning, Throughput
    from baechi_jax.passes.placement.workload import Workload


def _workload_options(command: Any) -> Any:
    """The options that say what the problem is."""
    for option in (
        click.option(
            "--bandwidth", metavar="SIZE", help="Bytes per second, such as 10GB; where it is free."
        ),
        click.option("--memory", metavar="SIZE", help="Memory of each accelerator, such as 16GiB."),
        click.option("--devices", type=COUNT, help="Number of accelerators."),
        click.option(
            "--workload",
            "workload_file",
            type=INPUT,
            required=True,
            help="dnn-partitioning, Piper or our own JSON, or PipeDream's graph.txt; also as .gz.",
        ),
    ):
        command = option(command)
    return command


def _load_options(command: Any) -> Any:
    """The options that say what a load is."""
    for option in (
        click.option(
            "--replica-bandwidth",
            default="10GB",
            show_default=True,
            metavar="SIZE",
            help="Bytes per second of the all-reduce between replicas.",
        ),
        click.option(
            "--overlap", is_flag=True, help="A load is the larger of compute and transfers."
        ),
        click.option(
            "--contiguous", is_flag=True, help="No path may leave a device and come back."
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Split a workload file over devices.")
@_workload_options
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency", "step"]),
    required=True,
    help="The largest load of a device; the time of one sample alone; one step of Baechi's graphs.",
)
@click.option("--placer", default="auto", show_default=True, help="See docs/placers.md.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds.",
)
@click.option("--steps", type=COUNT, help="Limit the work, too: the same result on any machine.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@_load_options
@click.option(
    "--sum-of-maxima",
    is_flag=True,
    help="Minimise the largest forward load plus the largest backward load (GPipe).",
)
@click.option("--replicas", type=COUNT, default=1, help="Devices that a stage may be copied to.")
@click.option("--subgraphs", type=COUNT, default=1, help="Subgraphs of an accelerator (latency).")
@click.option(
    "--split",
    "split_file",
    type=INPUT,
    help="The split of the placer 'expert'; others start from it.",
)
@click.option("--out", type=OUTPUT, help="Write the split, JSON as dnn-partitioning has it.")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON, no table.")
@click.pass_context
def place(
    context: click.Context,
    workload_file: Path,
    devices: int | None,
    memory: str | None,
    bandwidth: str | None,
    objective: str,
    placer: str,
    time_limit: float,
    steps: int | None,
    seed: int,
    contiguous: bool,
    overlap: bool,
    replica_bandwidth: str,
    sum_of_maxima: bool,
    replicas: int,
    subgraphs: int,
    split_file: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Split a workload over devices for throughput or for latency; place a graph of Baechi's.

    Ctrl-C and the time limit end the search, and the best split so far is what comes out.
    """
    _refuse_options_of_the_other(context, objective)
    with told_errors():
        from baechi_jax.passes.placement.budget import Budget
        from baechi_jax.passes.placement.formats import read_split, split_content, write_split
        from baechi_jax.passes.placement.partitioning import Latency, Throughput
        from baechi_jax.units import parse_bytes
        from baechi_jax.workload_report import partitioning_figures, partitioning_tables

        if objective == "step":
            _place_step(context, workload_file, placer, time_limit, steps, seed, out, as_json)
            return
        workload = _workload(workload_file, devices, memory, bandwidth)
        asked: Throughput | Latency = Latency(subgraphs)
        if objective == "throughput":
            asked = Throughput(
                contiguous, overlap, sum_of_maxima, replicas, float(parse_bytes(replica_bandwidth))
            )
        start = None
        if split_file is not None and placer != "expert":
            start = read_split(split_file, workload, complete=True)
        budget = Budget(time_limit, seed, steps, start)
        began = time.monotonic()
        with Interrupts() as interrupts, progress_line(f"{placer} for {objective}", time_limit):
            found = _run(placer, workload, asked, budget, split_file)
        if found is None:
            _leave_without(context)
        seconds = time.monotonic() - began
        if out is not None:
            write_split(out, workload, found.split)
        if as_json:
            figures: dict[str, Any] = {"workload": str(workload_file)}
            figures |= {"objective": objective, "placer": placer}
            figures |= partitioning_figures(workload, asked, found)
            figures |= {"elapsed_seconds": seconds, "interrupted": interrupts.seen}
            figures["out"] = None if out is None else str(out)
            figures["split"] = split_content(workload, found.split)
            click.echo(json.dumps(figures))
        else:
            title = workload_file.name
            _print(*partitioning_tables(workload, asked, found, title, seconds, wide=_wide()))
        _leave(context, out, interrupts)


def _place_step(
    context: click.Context,
    file: Path,
    placer: str,
    time_limit: float,
    steps: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    from baechi_jax.cli.step import place_step, step_figures, step_tables, write_step

    began = time.monotonic()
    with Interrupts() as interrupts, progress_line(f"{placer} for step", time_limit):
        found = place_step(file, placer, time_limit=time_limit, steps=steps, seed=seed)
    if found is None:
        _leave_without(context)
    seconds = time.monotonic() - began
    if out is not None:
        write_step(out, found)
    if as_json:
        figures: dict[str, Any] = {"workload": str(file), "objective": "step", "placer": placer}
        figures |= step_figures(found)
        figures |= {"elapsed_seconds": seconds, "interrupted": interrupts.seen}
        click.echo(json.dumps(figures | {"out": None if out is None else str(out)}))
    else:
        _print(*step_tables(found, file.name, seconds))
    _leave(context, out, interrupts)


@click.command(short_help="Judge a split of a workload file.")
@_workload_options
@click.option(
    "--split", "split_file", type=INPUT, required=True, help="JSON as dnn-partitioning has it."
)
@_load_options
@click.option("--subgraphs", type=COUNT, help="Most subgraphs that an accelerator may run.")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON, no table.")
@click.pass_context
def evaluate(
    context: click.Context,
    workload_file: Path,
    devices: int | None,
    memory: str | None,
    bandwidth: str | None,
    split_file: Path,
    contiguous: bool,
    overlap: bool,
    replica_bandwidth: str,
    subgraphs: int | None,
    as_json: bool,
) -> None:
    """Judge a split: load and memory of each device, contiguity, colours, latency.

    A backward node that the split leaves out is where its forward node is. The exit status is 1 for
    a split that is not valid.
    """
    with told_errors():
        from baechi_jax.passes.placement.formats import read_split
        from baechi_jax.passes.placement.partitioning import Throughput
        from baechi_jax.units import parse_bytes
        from baechi_jax.workload_report import judge, judgement_figures, judgement_tables

        workload = _workload(workload_file, devices, memory, bandwidth)
        split = read_split(split_file, workload, complete=True)
        objective = Throughput(
            contiguous, overlap, replica_bytes_per_second=float(parse_bytes(replica_bandwidth))
        )
        judgement = judge(workload, split, objective, subgraphs)
        if as_json:
            figures = {"workload": str(workload_file), "split": str(split_file)}
            click.echo(json.dumps(figures | judgement_figures(workload, judgement)))
        else:
            _print(*judgement_tables(workload, judgement, split_file.name, wide=_wide()))
        if judgement.faults:
            context.exit(1)


# Helpers ----------------------------------------------------------------------------------------


def _workload(
    file: Path, devices: int | None, memory: str | None, bandwidth: str | None
) -> Workload:
    """The workload of ``file``; what it warns of is said."""
    from baechi_jax.passes.placement.formats import read_workload

    workload = read_workload(file, _machine(devices, memory, bandwidth))
    for warning in workload.warnings:
        say(f"warning: {warning}")
    return workload


def _machine(devices: int | None, memory: str | None, bandwidth: str | None) -> Machine:
    from baechi_jax.passes.placement.formats import Machine
    from baechi_jax.units import parse_bytes

    return Machine(
        devices,
        None if memory is None else float(parse_bytes(memory)),
        None if bandwidth is None else float(parse_bytes(bandwidth)),
    )


_PARTITIONING = ("throughput", "latency")
#: The objectives that an option is for, where it is not for all.
_OBJECTIVES_OF = {
    **dict.fromkeys(("devices", "memory", "bandwidth", "split_file"), _PARTITIONING),
    **dict.fromkeys(("contiguous", "overlap", "sum_of_maxima"), ("throughput",)),
    **dict.fromkeys(("replicas", "replica_bandwidth"), ("throughput",)),
    "subgraphs": ("latency",),
}


def _refuse_options_of_the_other(context: click.Context, objective: str) -> None:
    given = click.core.ParameterSource.COMMANDLINE
    for option in context.command.params:
        wanted = _OBJECTIVES_OF.get(option.name or "", (objective,))
        source = context.get_parameter_source(option.name or "")
        if objective not in wanted and source == given:
            names = " or ".join(wanted)
            raise click.UsageError(f"{option.opts[0]} is for --objective {names}, not {objective}")


def _leave_without(context: click.Context) -> NoReturn:
    """End after a Ctrl-C that came too early."""
    say("interrupted before there was a valid split; nothing is written")
    context.exit(INTERRUPTED)


def _leave(context: click.Context, out: Path | None, interrupts: Interrupts) -> None:
    """Say what was written; end with the status of Ctrl-C if that came."""
    if out is not None:
        say(f"split: {out}")
    if interrupts.seen:
        say("interrupted; this is the best split so far")
        context.exit(INTERRUPTED)


def _run(
    placer: str,
    workload: Workload,
    objective: Throughput | Latency,
    budget: Budget,
    split_file: Path | None,
) -> Partitioning | None:
    """What ``placer`` finds; None if Ctrl-C came before it had anything."""
    from baechi_jax.passes.placement.errors import PlacerError
    from baechi_jax.passes.placement.formats import expert

    kind, runs = _placers(workload, objective, budget)
    names = sorted([*runs, "expert"])
    if placer not in names:
        raise PlacerError(
            f"unknown placer '{placer}'; for the objective {kind} there are: {', '.join(names)}"
        )
    try:
        if placer != "expert":
            return runs[placer]()
        if split_file is None:
            raise click.UsageError("--placer expert needs --split FILE, the split that it judges")
        return expert(split_file, workload, objective)
    except KeyboardInterrupt:
        return None


def _placers(
    workload: Workload, objective: Throughput | Latency, budget: Budget
) -> tuple[str, Mapping[str, Callable[[], Partitioning]]]:
    """The objective's name and the runs of its placers."""
    from baechi_jax.passes.placement.partitioning import Throughput

    if isinstance(objective, Throughput):
        from baechi_jax.passes.placement.throughput.placers import PLACERS as THROUGHPUT

        return "throughput", {
            name: partial(run, workload, objective, budget) for name, run in THROUGHPUT.items()
        }
    from baechi_jax.passes.placement.latency.placers import PLACERS as LATENCY

    return "latency", {
        name: partial(run, workload, objective, budget) for name, run in LATENCY.items()
    }


#: Columns from which tables are wide; a pipe, which has no width of its own, has so many.
_WIDE = 120


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE


def _wide() -> bool:
    return _columns() >= _WIDE


def _print(*parts: Any) -> None:
    from rich.console import Console

    # Messages have brackets that are no markup.
    console = Console(file=sys.stdout, markup=False, highlight=False, width=_columns())
    for part in parts:
        console.print(part)
