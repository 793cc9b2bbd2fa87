"""Searches on the command line: the line that moves meanwhile, and Ctrl-C that ends them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from types import FrameType


@dataclass(slots=True)
class Interrupts:
    """Whether Ctrl-C came; placers end their search on it and return what they have.

    Inside numba, where it would come out as a SystemError, it waits until numba has returned.
    """

    seen: bool = False
    _before: Any = field(default=None, repr=False)
    _again: threading.Timer | None = field(default=None, repr=False)

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._again is not None:
            self._again.cancel()
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("numba."):
                self._again = threading.Timer(0.05, signal.raise_signal, (number,))
                self._again.daemon = True
                self._again.start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt


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
