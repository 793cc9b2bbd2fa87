"""Compilation of inner loops by numba, cached on disk.

Modules of kernels are imported inside the functions that run them: numba takes half a second to
load, and the first call of a kernel on a machine compiles it (seconds; later ones read the cache).
No limit in seconds counts that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit
from numba.core.event import Event, Listener, register

from baechi_jax.passes.placement.clock import leave_out

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """``function`` compiled to machine code when it is first called; its types stay as they are."""
    return cast(_Function, njit(cache=True)(function))


def inlined(function: _Function) -> _Function:
    """``compiled``, and made part of whatever compiled code calls it.

    For small functions with many arrays: each takes seven words or more on every call.
    """
    return cast(_Function, njit(cache=True, forceinline=True)(function))


class _Compiling(Listener):
    """Takes the time of compilations out of the clock; one may run inside another."""

    def __init__(self) -> None:
        self._depth = 0
        self._began = 0.0

    def on_start(self, event: Event) -> None:
        if self._depth == 0:
            self._began = time.monotonic()
        self._depth += 1

    def on_end(self, event: Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            leave_out(time.monotonic() - self._began)


register("numba:compile", _Compiling())
