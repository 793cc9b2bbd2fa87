"""``baechi profile``: fill, show and clear the cache of measured costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from baechi_jax.cli.arguments import FOLDER, INPUT, OUTPUT, machine, numbers
from baechi_jax.cli.errors import told_errors
from baechi_jax.cli.output import output_options, say, show_plan

if TYPE_CHECKING:
    from baechi_jax.runtime.profile_cache import Costs

_FOLDER = click.option(
    "--folder", type=FOLDER, help="Of measured costs; by default in your cache folder."
)


@click.group()
def profile() -> None:
    """Measured costs: fill, show and clear the cache that costs="profile" reads."""


@profile.command(short_help="Measure the tasks of a function.")
@click.argument("target", metavar="FILE.py:NAME")
@click.option(
    "--topology", "topology_file", type=INPUT, help="The machine, JSON; else the devices at hand."
)
@click.option("--memory", help="Memory of every device, such as 6GiB.")
@click.option("--placer", default="auto", show_default=True, help="m-sct, milp, auto, ...")
@click.option(
    "--donate-argnums", default="", metavar="0,1", help="Arguments that the caller gives away."
)
@click.option(
    "--seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0.0),
    help="The most that running tasks and pings may take; compiling comes on top.",
)
@click.option("--save", type=OUTPUT, help="Write the plan that is best by what was measured.")
@_FOLDER
@output_options
def fill(
    target: str,
    topology_file: Path | None,
    memory: str | None,
    placer: str,
    donate_argnums: str,
    seconds: float,
    save: Path | None,
    folder: Path | None,
    report: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Plan the function NAME of FILE.py, compile and measure its tasks, and plan again.

    FILE.py says what NAME is called with, as for 'baechi plan'; shapes are enough. Tasks run on
    made-up values, on the devices at hand. What the cache knows is not measured again.
    """
    with told_errors():
        from baechi_jax.runtime.profile_cache import default_folder
        from baechi_jax.targets import load_target, place_target

        found = load_target(target)
        placed = place_target(
            found,
            topology=machine(topology_file, memory),
            placer=placer,
            donate_argnums=numbers(donate_argnums, "donate-argnums"),
            costs="profile",
            profile_seconds=seconds,
            profile_folder=folder,
        )
        made = placed.plan(*found.arguments)
        say(f"measured costs: {default_folder() if folder is None else folder}")
        if save is not None:
            made.save(save)
            say(f"plan: {save}")
        show_plan(made, report, trace, as_json)


@profile.command(short_help="Show what was measured.")
@_FOLDER
@click.option("--all", "every", is_flag=True, help="Every task, not the longest twenty.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, no table.")
def show(folder: Path | None, every: bool, as_json: bool) -> None:
    """Show what was measured, by environment: tasks, longest first, and links."""
    with told_errors():
        from baechi_jax.runtime.profile_cache import cache_files, default_folder, read_costs

        where = default_folder() if folder is None else folder
        found = [(path, *read_costs(path)) for path in cache_files(where)]
        if as_json:
            click.echo(json.dumps([json.loads(path.read_text("utf-8")) for path, *_ in found]))
            return
        if not found:
            say(f"nothing was measured yet: {where} has no costs; 'baechi profile fill' measures")
        for path, costs, environment in found:
            _show(path, costs, environment, None if every else 20)


@profile.command(short_help="Forget what was measured.")
@_FOLDER
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(folder: Path | None, yes: bool) -> None:
    """Delete the files of measured costs in the folder, and nothing else there.

    Files that are no measured costs stay; each is named.
    """
    with told_errors():
        from baechi_jax.runtime.profile_cache import (
            CostCacheError,
            cache_files,
            default_folder,
            is_ours,
        )

        where = default_folder() if folder is None else folder
        files = [path for path in cache_files(where) if is_ours(path)]
        for path in cache_files(where):
            if path not in files:
                say(f"left alone, since it is no file of measured costs: {path}")
        if not files:
            say(f"nothing to delete: {where} has no measured costs")
            return
        if not yes:
            click.confirm(f"Delete {len(files)} files of measured costs in {where}?", abort=True)
        for path in files:
            try:
                path.unlink()
                path.with_suffix(".lock").unlink(missing_ok=True)
            except OSError as error:
                raise CostCacheError(f"cannot delete {path}: {error}") from error
        say(f"deleted {len(files)} files in {where}")


def _show(path: Path, costs: Costs, environment: dict[str, str], most: int | None) -> None:
    import sys

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from baechi_jax.units import format_bytes, format_seconds

    console = Console(file=sys.stdout, highlight=False)
    known = ", ".join(f"{key} {value}" for key, value in environment.items() if value)
    console.print(f"{path.name}: {known}", soft_wrap=True)
    tasks = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="tasks")
    for name in ("time", "spread", "runs", "model", "mostly", "task"):
        tasks.add_column(name, justify="left" if name in ("mostly", "task") else "right")
    longest = sorted(costs.tasks.items(), key=lambda entry: (-entry[1].seconds, entry[0]))
    for key, entry in longest[:most]:
        model = sum(entry.families.values())
        tasks.add_row(
            format_seconds(entry.seconds),
            f"{entry.spread:.0%}",
            str(int(entry.samples)),
            format_seconds(model),
            max(entry.families, key=lambda family: entry.families[family], default=""),
            f"{entry.name} {key[:12]}",
        )
    if most is not None and len(longest) > most:
        tasks.caption = f"{len(longest) - most} shorter ones are not shown (--all)"
    console.print(tasks)
    if costs.links:
        links = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="links")
        for name in ("link", "latency", "per second"):
            links.add_column(name, justify="left" if name == "link" else "right")
        for name, link in costs.links.items():
            links.add_row(
                name,
                format_seconds(link.latency_seconds),
                format_bytes(int(link.bytes_per_second)),
            )
        console.print(links)
