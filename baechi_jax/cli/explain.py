"""``baechi explain``: why something sits where a plan has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from baechi_jax.cli.arguments import INPUT
from baechi_jax.cli.errors import told_errors


@click.command(short_help="Say why something sits where a plan has it.")
@click.argument("plan_file", metavar="PLAN.mlir", type=INPUT)
@click.argument("what", metavar="OP_OR_ARG")
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON, no table.")
def explain(plan_file: Path, what: str, as_json: bool) -> None:
    """Say why OP_OR_ARG is on its device, and what every other device would cost.

    OP_OR_ARG is an argument's path, such as "state.params['w']", or the beginning of one; a source
    line, model.py:12; an operation, dot_general#3; a named scope; or a task of the plan, t4. For
    every other device it is moved there, with all that must share its device, and planned and
    simulated again.
    """
    with told_errors():
        from baechi_jax.explain import explain as explain_module
        from baechi_jax.plan import Plan

        plan = Plan.load(plan_file)
        with _progress() as told:
            found = explain_module(plan.module, what, told)
        if as_json:
            click.echo(json.dumps(found.figures()))
            return
        from rich.console import Console

        # Paths of arguments have brackets that are no markup.
        console = Console(file=sys.stdout, markup=False, highlight=False)
        console.print(found.headline, style="bold")
        for reason in found.reasons:
            console.print(f"- {reason}")
        console.print(found.table())


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; told how many devices are done, of how many."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulating on each device", total=None)

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield told
