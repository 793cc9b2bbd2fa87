"""``baechi plan``: plan a function of a file, for one machine or for many (``--sweep``)."""

from __future__ import annotations

from pathlib import Path

import click

from baechi_jax.cli.arguments import FOLDER, INPUT, OUTPUT, machine, numbers
from baechi_jax.cli.errors import told_errors
from baechi_jax.cli.output import output_options, say, show_plan
from baechi_jax.cli.sweep import SWEEP_HELP, axes_of, show_sweep


@click.command(short_help="Plan a function of a file.")
@click.argument("target", metavar="FILE.py:NAME")
@click.option(
    "--topology", "topology_file", type=INPUT, help="The machine, JSON; else the devices at hand."
)
@click.option("--memory", help="Memory of every device, such as 6GiB.")
@click.option("--placer", default="auto", show_default=True, help="m-sct, milp, auto, ...")
@click.option("--pipeline", help="A pipeline's text, instead of the default one.")
@click.option(
    "--donate-argnums", default="", metavar="0,1", help="Arguments that the caller gives away."
)
@click.option("--save", type=OUTPUT, help="Write the plan, MLIR text.")
@click.option("--dump-ir", type=FOLDER, help="Write the IR after each pass to this folder.")
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME=VALUES", help=SWEEP_HELP)
@click.option("--plot", type=OUTPUT, help="Draw the sweep, .svg or .html.")
@output_options
@click.pass_context
def plan(
    context: click.Context,
    target: str,
    topology_file: Path | None,
    memory: str | None,
    placer: str,
    pipeline: str | None,
    donate_argnums: str,
    save: Path | None,
    dump_ir: Path | None,
    sweeps: tuple[str, ...],
    plot: Path | None,
    report: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Plan the function NAME of FILE.py; nothing is allocated and nothing runs.

    FILE.py says what NAME is called with: a function NAME_args(), or example_args(), that returns a
    tuple of arrays or jax.ShapeDtypeStruct. NAME is a plain function, or one that jax.jit or
    baechi.place has decorated; what those say about donated arguments counts here, too.

    With --sweep, which may be given several times, every combination is planned and compared, for
    example --sweep devices=1..8 --sweep memory=2GiB,4GiB. Ctrl-C shows what is done so far.
    """
    with told_errors():
        from baechi_jax.targets import load_target, place_target

        if pipeline is not None and placer != "auto":
            raise click.UsageError("give --pipeline or --placer, not both")
        axes = axes_of(sweeps, context)
        donated = numbers(donate_argnums, "donate-argnums")
        found = load_target(target)
        topology = machine(topology_file, memory)
        placed = place_target(
            found,
            topology=topology,
            placer=placer,
            pipeline=pipeline,
            donate_argnums=donated,
            dump_folder=dump_ir,
        )
        if axes:
            traced = placed.trace(*found.arguments)
            show_sweep(context, traced, topology, axes, placer, pipeline, plot, as_json)
            return
        made = placed.plan(*found.arguments)
        if dump_ir is not None:
            say(f"IR after each pass: {dump_ir}")
        if save is not None:
            made.save(save)
            say(f"plan: {save}")
        show_plan(made, report, trace, as_json)
