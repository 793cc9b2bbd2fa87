"""How the command line tells errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


@contextmanager
def told_errors() -> Iterator[None]:
    """Errors of this package as one message; others keep their traceback."""
    from baechi_jax.ir.errors import BaechiError

    try:
        yield
    except BaechiError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        raise click.ClickException(f"{error}{notes}") from error
