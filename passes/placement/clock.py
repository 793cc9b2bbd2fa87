"""The clock of every limit in seconds that a placer keeps."""

from __future__ import annotations

import time

_left_out = 0.0


def now() -> float:
    """Seconds of wall-clock time since some moment, without those in which kernels were compiled.

    A machine compiles them once (``_jit.py``); a limit in seconds is about the search.
    """
    return time.monotonic() - _left_out


def leave_out(seconds: float) -> None:
    """These ``seconds`` have just passed, and are not to count."""
    global _left_out
    _left_out += seconds
