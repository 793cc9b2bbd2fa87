"""Where to cut a sequence of operations into segments of about equal weight."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation


def cut_positions(
    ops: Sequence[Operation],
    weights: Sequence[float],
    spans: Sequence[tuple[int, int]],
    segments: int,
) -> list[int]:
    """Ascending positions p, 0 < p < len(ops), at most ``segments - 1``: a segment starts at p.

    ``spans`` are ``(first, last)`` positions that had better stay together.
    """
    total = sum(weights)
    cuts: list[int] = []
    done = 0.0
    for place, weight in enumerate(weights):
        if place and done >= total * (len(cuts) + 1) / segments and len(cuts) < segments - 1:
            cuts.append(place)
        done += weight
    return cuts
