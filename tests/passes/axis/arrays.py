"""Arrays for the tests of this folder."""

from typing import Any

import numpy as np


def array(*shape: int, seed: int = 0) -> Any:
    """Standard normal numbers, f32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(*shape: int, high: int, seed: int = 0) -> Any:
    """Numbers below ``high``, i32."""
    return np.random.default_rng(seed).integers(0, high, size=shape).astype(np.int32)
