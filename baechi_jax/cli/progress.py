"""Searches on the command line: the line that moves meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress_line(what: str, seconds: float) -> Iterator[None]:
    """A line that moves while a placer runs; where there is no terminal, one that does not."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    limit = f"up to {seconds:g} s; Ctrl-C: best so far"
    if not console.is_terminal:
        click.echo(f"{what}, {limit}", err=True)
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, TextColumn(limit), console=console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield
