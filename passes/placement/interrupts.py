"""Ctrl-C in a search that runs compiled kernels.

Inside numba the KeyboardInterrupt of Python's own handler comes out as a SystemError, and a search
that keeps its best split on KeyboardInterrupt would lose it. The handler here waits until numba has
returned. Handlers belong to the main thread: in any other one nothing is changed, and nothing
arrives.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from types import FrameType

#: Seconds after which a signal that came inside numba is tried again.
_AGAIN_SECONDS = 0.05

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Interrupts:
    """A context in which Ctrl-C raises KeyboardInterrupt, but never inside numba.

    A handler that is not Python's own stays: whoever set it wants to hear of Ctrl-C first.
    """

    #: Whether Ctrl-C came.
    seen: bool = False
    _installed: bool = False
    _again: threading.Timer | None = field(default=None, repr=False)

    def __enter__(self) -> Interrupts:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("numba."):
                self._again = threading.Timer(_AGAIN_SECONDS, _send, (number,))
                self._again.daemon = True
                self._again.start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt


def _send(number: int) -> None:
    """Send a signal to the main thread, which may be asleep: it wakes up then."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


def hears_interrupts(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function``, in which Ctrl-C is a KeyboardInterrupt wherever it comes."""

    @functools.wraps(function)
    def heard(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> Any:
        with Interrupts():
            return function(*args, **kwargs)

    return heard
