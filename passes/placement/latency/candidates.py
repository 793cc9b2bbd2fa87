"""The quick heuristics for latency, each offering its splits to an incumbent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.greedy import solve_greedy
from baechi_jax.passes.placement.latency.series import solve_series
from baechi_jax.passes.placement.throughput.dynamic_program import TooManyIdealsError
from baechi_jax.passes.placement.throughput.ideals import IdealsOptions, solve_linear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.latency.incumbent import Incumbent

#: ``series`` goes over all ideals where there are at most so many.
_MOST_IDEALS = 20_000


def offer_one_device(best: Incumbent) -> list[NDArray[np.int64]]:
    """Offer every device alone, one of each class, and the host; those that are valid."""
    found = []
    pieces, seen = best.pieces, set[int]()
    for device, kind in zip(pieces.devices, pieces.kinds):
        if id(kind) not in seen:
            seen.add(id(kind))
            piece_of = np.full(best.workload.size, device * pieces.subgraphs)
            found += _offered(best, "one-device", piece_of)
    if any(not kind.transfers and kind.count for kind in best.workload.classes):
        found += _offered(best, "one-device", np.full(best.workload.size, -1))
    return found


def offer_greedy(best: Incumbent) -> list[NDArray[np.int64]]:
    """Offer the split of ``greedy``; it, if it is valid."""
    device_of = solve_greedy(best.workload)
    return _offered(best, "greedy", _as_pieces(best, device_of))


def offer_series(best: Incumbent, orders: int, seed: int) -> list[NDArray[np.int64]]:
    """Offer the best splits in series, those that are valid.

    Along ``orders`` orders, and over all ideals if there are few, for a quarter of the time left.
    """
    workload = best.workload
    found = []
    limit = best.left() / 4
    one = solve_series(workload, orders=orders, seed=seed, time_limit_seconds=limit)
    found += _offered(best, "series", _as_pieces(best, one.piece_of if one else None))
    try:
        every = solve_series(workload, max_ideals=_MOST_IDEALS, time_limit_seconds=best.left() / 4)
    except TooManyIdealsError:
        return found
    if every is not None and one is not None and every.sum_seconds < one.sum_seconds:
        found += _offered(best, "series", _as_pieces(best, every.piece_of))
    return found


def offer_max_load(best: Incumbent) -> list[NDArray[np.int64]]:
    """Offer the split of ``ideals-linear`` (smallest largest load), if it is valid."""
    split = solve_linear(best.workload, IdealsOptions(time_limit_seconds=best.left() / 4))
    device_of = None if split is None else split.device_of
    if device_of is not None:
        on_host = ~np.isin(device_of, best.pieces.devices)
        device_of = np.where(on_host, -1, device_of)
    return _offered(best, "max-load", _as_pieces(best, device_of))


def _as_pieces(best: Incumbent, device_of: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """``piece_of`` of one subgraph on each device; -1 for the host."""
    if device_of is None:
        return None
    return np.where(device_of < 0, -1, device_of * best.pieces.subgraphs)


def _offered(
    best: Incumbent, name: str, piece_of: NDArray[np.int64] | None
) -> list[NDArray[np.int64]]:
    fault = best.offer(name, piece_of)
    return [] if fault or piece_of is None else [piece_of]
