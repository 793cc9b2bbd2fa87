"""How the command line tells errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from baechi_jax.passes.peak_table import PeakTable
    from baechi_jax.passes.placement.errors import InfeasiblePlacementError

#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


class OutOfMemory(click.ClickException):
    """No placement fits: its message with the table of the largest buffers as a table."""

    def __init__(self, error: InfeasiblePlacementError, notes: str) -> None:
        super().__init__(f"{error}{notes}")
        self.error = error
        self.notes = notes

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, to the standard error stream by default."""
        click.echo(f"Error: {self.error.message}", file=file, err=True)
        if self.error.peak is not None:
            from rich.console import Console

            Console(file=file, stderr=True, highlight=False).print(_table(self.error.peak))
        for part in (self.error.advice, self.notes.strip()):
            if part:
                click.echo(part, file=file, err=True)


@contextmanager
def told_errors() -> Iterator[None]:
    """Errors of this package as one message; others keep their traceback."""
    from baechi_jax.ir.errors import BaechiError
    from baechi_jax.passes.placement.errors import InfeasiblePlacementError

    try:
        yield
    except InfeasiblePlacementError as error:
        raise OutOfMemory(error, _notes(error)) from error
    except BaechiError as error:
        raise click.ClickException(f"{error}{_notes(error)}") from error


def _notes(error: BaseException) -> str:
    return "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))


def _table(peak: PeakTable) -> Any:
    from rich import box
    from rich.table import Table

    from baechi_jax.passes.peak_table import size_text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("buffer", overflow="fold")
    table.add_column("made at", overflow="fold")
    for each in peak.shown:
        table.add_row(size_text(each.nbytes), peak.share(each.nbytes), each.what, each.source)
    if peak.others:
        rest = sum(each.nbytes for each in peak.others)
        count = f"{len(peak.others)} smaller buffers"
        table.add_row(size_text(rest), peak.share(rest), count, "")
    return table
