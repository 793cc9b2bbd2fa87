"""Pausing the cyclic garbage collector while thousands of objects are made that all live on.

Each would bring the next collection nearer, and a full one walks the whole heap, JAX's included:
it costs more than the work it interrupts.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """No automatic collection inside; as before afterwards."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
