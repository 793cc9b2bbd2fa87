"""``baechi plan --sweep``: what is asked for, and how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from baechi_jax.cli.errors import INTERRUPTED
from baechi_jax.cli.output import say

if TYPE_CHECKING:
    from baechi_jax.ir.topology import Topology
    from baechi_jax.stages import Traced
    from baechi_jax.sweep import Axis, Outcome

SWEEP_HELP = (
    "Plan for each of these: devices=1..8, memory=2GiB,4GiB, bandwidth=10GB,100GB, "
    "latency=10us,1ms, placer=m-etf,m-sct."
)

#: Options that are about one plan.
_ONE_PLAN = {"save": "--save", "dump_ir": "--dump-ir", "report": "--report", "trace": "--trace"}
#: Options that say once what an axis varies.
_VARIED = {"memory": "memory", "placer": "placer", "pipeline": "placer"}


def axes_of(sweeps: Sequence[str], context: click.Context) -> list[Axis]:
    """The axes of ``--sweep``; raises click's errors for what is malformed or contradicts."""
    given = click.core.ParameterSource.COMMANDLINE
    options = {name for name in context.params if context.get_parameter_source(name) == given}
    if not sweeps:
        if "plot" in options:
            raise click.UsageError("--plot draws a sweep; give --sweep, too")
        return []
    from baechi_jax.sweep import SweepError, parse_axis
    from baechi_jax.sweep.axes import points
    from baechi_jax.sweep.plot import check_plot_file

    for name, option in _ONE_PLAN.items():
        if name in options:
            raise click.UsageError(f"{option} is about one plan, and --sweep makes many")
    try:
        axes = [parse_axis(text) for text in sweeps]
        points(axes)
    except SweepError as error:
        raise click.BadParameter(str(error), param_hint="--sweep") from error
    for name, varied in _VARIED.items():
        if name in options and any(axis.name == varied for axis in axes):
            raise click.UsageError(f"--{name} and --sweep {varied}=... exclude each other")
    plot = context.params.get("plot")
    if plot is not None:
        try:
            check_plot_file(plot)
        except SweepError as error:
            raise click.BadParameter(str(error), param_hint="--plot") from error
    return axes


def show_sweep(
    context: click.Context,
    traced: Traced,
    topology: Topology,
    axes: Sequence[Axis],
    placer: str,
    pipeline: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan for every point and show what came of it; the exit status of Ctrl-C after that."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from baechi_jax.passes.placement.interrupts import Interrupts
    from baechi_jax.sweep import figures, sweep
    from baechi_jax.sweep.plot import write_plot
    from baechi_jax.sweep.table import sweep_notes, sweep_table

    asked, outcomes = sweep(lambda: traced.module, topology, axes, placer=placer, pipeline=pipeline)
    done: list[Outcome] = []
    interrupted = False
    told = Console(stderr=True)
    columns = (TextColumn("planning"), BarColumn(), MofNCompleteColumn())
    with (
        Interrupts(),
        Progress(
            *columns,
            TextColumn("{task.description}"),
            console=told,
            transient=True,
            disable=not told.is_terminal,
        ) as bar,
    ):
        task = bar.add_task(str(asked[0]), total=len(asked))
        try:
            for outcome in outcomes:
                done.append(outcome)
                following = str(asked[len(done)]) if len(done) < len(asked) else ""
                bar.update(task, completed=len(done), description=following)
        except KeyboardInterrupt:
            interrupted = True
    title = f"{traced.name}: what if"
    if plot is not None and done:
        write_plot(plot, title, axes, done)
        say(f"plot: {plot}")
    if as_json:
        found = {
            "name": traced.name,
            "axes": {axis.name: list(axis.values) for axis in axes},
            "points": [figures(each) for each in done],
            "interrupted": interrupted,
        }
        click.echo(json.dumps(found))
    elif done:
        console = Console(file=sys.stdout, markup=False, highlight=False)
        console.print(sweep_table(title, axes, done))
        for note in sweep_notes(done):
            console.print(note)
    if interrupted:
        say(f"interrupted; {len(done)} of {len(asked)} are done")
        context.exit(INTERRUPTED)
