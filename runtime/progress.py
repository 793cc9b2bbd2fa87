"""A progress bar on stderr for what takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

#: What takes less shows nothing.
SHOWN_AFTER_SECONDS = 1.0


class Progress:
    """``with Progress("measuring", 40) as bar: ... bar.advance()``.

    ``shown``: whether at all; by default when a terminal is attached. ``started``: when the work
    began, by ``time.monotonic``; by default now.
    """

    def __init__(
        self, title: str, total: int, shown: bool | None = None, started: float | None = None
    ) -> None:
        self._title = title
        self._total = total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._done = 0
        self._started = time.monotonic() if started is None else started
        self._bar: Any = None
        self._job: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.update(self._job, completed=self._done)
            self._bar.stop()

    def until_shown(self) -> float | None:
        """Seconds until a bar is due, for who waits meanwhile; None where there is nothing to wait
        for. ``advance(0)`` shows it then."""
        if not self._shown or self._bar is not None:
            return None
        return max(SHOWN_AFTER_SECONDS - (time.monotonic() - self._started), 0.0)

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._done += count
        if self.until_shown() == 0.0:
            self._start()
        if self._bar is not None:
            self._bar.update(self._job, completed=self._done)

    def _start(self) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        console = Console(stderr=True)
        # A terminal gets its line back; a log keeps the last state.
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn(self._title),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            console=console,
            transient=console.is_terminal,
        )
        self._job = self._bar.add_task(self._title, total=self._total)
        self._bar.start()
