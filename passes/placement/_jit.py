"""Compilation of inner loops by numba, cached on disk.

Modules of kernels are imported inside the functions that run them: numba takes half a second to
load, and the first call of a kernel on a machine compiles it (seconds; later ones read the cache).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """``function`` compiled to machine code when it is first called; its types stay as they are."""
    return cast(_Function, njit(cache=True)(function))


def inlined(function: _Function) -> _Function:
    """``compiled``, and made part of whatever compiled code calls it.

    For small functions with many arrays: each takes seven words or more on every call.
    """
    return cast(_Function, njit(cache=True, forceinline=True)(function))
