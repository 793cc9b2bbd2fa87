"""What a step takes on one device, from which limits are derived."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.zoo.examine import jit_leaves


def one_device_bytes(step: Any, arguments: Any) -> int:
    """Bytes of ``jax.jit`` of ``step`` with its first argument donated: arguments, results that
    take no argument's buffer, XLA's temporaries. ``arguments`` may be shapes."""
    return jit_leaves(step, arguments)[1]
