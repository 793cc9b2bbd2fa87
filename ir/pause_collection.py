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
    """No automatic collection inside; as before afterwards. May be nested.

    What was made inside counts as old afterwards: else the first allocation that follows would walk
    all of it. Garbage in it is found by the next full collection.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # Freezing and thawing moves all objects to the oldest generation without a look at
            # them. Not where somebody keeps objects frozen, who would lose that.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
