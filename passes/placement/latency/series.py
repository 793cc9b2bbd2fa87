"""A strong first split for latency: the best way to run the sample in series.

If no two parts overlapped in time, the latency would be the sum of the parts' loads. That sum is
minimised exactly by the dynamic program over ideals with loads added up: each accelerator takes at
most one set I - J within its memory, the host takes any. Along one topological order it takes
milliseconds, and the true latency, with the host beside the accelerators, is at most the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.pieces import accelerators_of, host_seconds
from baechi_jax.passes.placement.throughput.contraction import Contraction, contract
from baechi_jax.passes.placement.throughput.ideals import Lattice, chain, lattice
from baechi_jax.passes.placement.workload import DeviceClass, Workload, compressed

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SeriesResult:
    """A split for latency: ``piece_of[node]``, the accelerator of the node or -1 for the host."""

    piece_of: NDArray[np.int64]
    sum_seconds: float


def solve_series(workload: Workload, *, max_ideals: int = 0) -> SeriesResult | None:
    """The split with the least sum of loads, or None where none fits.

    Over all ideals if there are at most ``max_ideals``, else along one topological order.
    """
    contraction = contract(workload)
    best = _run(workload, contraction, chain(contraction), np.inf)
    if max_ideals > 0:
        bound = np.inf if best is None else best.sum_seconds
        better = _run(workload, contraction, lattice(contraction, max_ideals), bound)
        best = better if better is not None else best
    return best


def _run(
    workload: Workload, contraction: Contraction, ideals: Lattice, bound: float
) -> SeriesResult | None:
    from baechi_jax.passes.placement.throughput._kernels import best_loads

    accelerators = accelerators_of(workload)
    host = DeviceClass("host", 0, np.inf, host_seconds(workload), transfers=False)
    kinds = [host, *(kind for _, kind in accelerators)]
    size, label = contraction.size, contraction.label
    seconds = np.array([np.bincount(label, kind.seconds, size) for kind in kinds])
    if not np.isfinite(bound):
        bound = 1.0 + float(np.where(np.isfinite(seconds), seconds, 0.0).max(axis=0).sum())
        bound += 2.0 * float(workload.transfer_seconds.sum())
    count = len(kinds)
    best, previous, used_kind, _, _ = best_loads(
        ideals.pointers,
        ideals.removed,
        ideals.child,
        ideals.member,
        *compressed(label, np.arange(workload.size), size),
        *workload.predecessors(),
        *workload.successors(),
        label,
        seconds,
        np.bincount(label, workload.bytes, size),
        workload.transfer_seconds,
        np.zeros(size),
        np.array([0, *(kind.count for _, kind in accelerators)]),
        np.array([np.inf, *(kind.memory_bytes * (1 + 1e-12) for _, kind in accelerators)]),
        np.array([False] + [True] * (count - 1)),
        bound,
        False,
        1,
        True,
        np.array([True] + [False] * (count - 1)),
        np.where(np.isfinite(seconds), seconds, np.inf).min(axis=0),
        np.ones(count),
    )
    if not np.isfinite(best[-1, -1]):
        return None
    piece_of = np.full(workload.size, -1, np.int64)
    next_free = [0, *(first for first, _ in accelerators)]
    stride = np.cumprod([1, 1] + [kind.count + 1 for _, kind in accelerators])
    ideal, state = len(best) - 1, best.shape[1] - 1
    while ideal:
        smaller, kind = int(previous[ideal, state]), int(used_kind[ideal, state])
        if kind > 0:
            content = ideals.member[ideal] & ~ideals.member[smaller]
            piece_of[content[label]] = next_free[kind]
            next_free[kind] += 1
            state -= int(stride[kind])
        ideal = smaller
    return SeriesResult(piece_of, float(best[-1, -1]))
