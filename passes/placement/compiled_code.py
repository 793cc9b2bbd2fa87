"""When compiled inner loops pay: numba takes half a second to load."""

from __future__ import annotations

import sys


def pays(size: int, *, loaded: int, unloaded: int) -> bool:
    """Whether a problem of ``size`` is large enough for compiled code.

    ``loaded``: from what size on where numba is loaded already, ``unloaded``: where it is not.
    """
    return size >= (loaded if "numba" in sys.modules else unloaded)
