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

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.latency.pieces import accelerators_of, host_seconds
from baechi_jax.passes.placement.throughput.contraction import Contraction, contract
from baechi_jax.passes.placement.throughput.dynamic_program import (
    Kinds,
    Lattice,
    Model,
    OutOfTimeError,
    chain,
    lattice,
    run,
)
from baechi_jax.passes.placement.throughput.ideals import reordered
from baechi_jax.passes.placement.workload import DeviceClass, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SeriesResult:
    """A split for latency: ``piece_of[node]``, the accelerator of the node or -1 for the host."""

    piece_of: NDArray[np.int64]
    sum_seconds: float


def solve_series(
    workload: Workload,
    *,
    max_ideals: int = 0,
    orders: int = 1,
    seed: int = 0,
    time_limit_seconds: float = float("inf"),
) -> SeriesResult | None:
    """The split with the least sum of loads, or None where none is found.

    Over all ideals if ``max_ideals`` is positive, else along a depth-first topological order and
    ``orders - 1`` random ones. Raises TooManyIdealsError where the graph has more ideals. After the
    time limit the best so far is returned; one order is always tried.
    """
    deadline = now() + time_limit_seconds
    contraction = contract(workload)
    best = _run(workload, contraction, chain(contraction), np.inf, np.inf)
    try:
        if max_ideals > 0:
            ideals = lattice(contraction, max_ideals, deadline)
            return _better(workload, contraction, ideals, best, deadline)
        random = np.random.default_rng(seed)
        for _ in range(1, orders):
            shuffled = reordered(contraction, random.random(contraction.size))
            best = _better(workload, shuffled, chain(shuffled), best, deadline)
    except OutOfTimeError:
        return best
    return best


def _better(
    workload: Workload,
    contraction: Contraction,
    ideals: Lattice,
    best: SeriesResult | None,
    deadline: float,
) -> SeriesResult | None:
    bound = np.inf if best is None else best.sum_seconds
    found = _run(workload, contraction, ideals, bound, deadline)
    return best if found is None else found


def _run(
    workload: Workload,
    contraction: Contraction,
    ideals: Lattice,
    bound: float,
    deadline: float,
) -> SeriesResult | None:
    accelerators = accelerators_of(workload)
    host = DeviceClass("host", 1, np.inf, host_seconds(workload), transfers=False)
    classes = [host, *(kind for _, kind in accelerators)]
    size, label = contraction.size, contraction.label
    seconds = np.array([np.bincount(label, kind.seconds, size) for kind in classes])
    finite = np.where(np.isfinite(seconds), seconds, 0.0)
    if not np.isfinite(bound):
        bound = 1.0 + float(finite.max(axis=0).sum())
        bound += 2.0 * float(workload.transfer_seconds.sum()) * (1 + len(workload.edges))
    found = run(
        workload,
        contraction,
        ideals,
        Kinds(classes, [True] + [False] * len(accelerators), seconds),
        Model(in_series=True),
        bound=bound,
        effort=np.where(np.isfinite(seconds), seconds, np.inf).min(axis=0, initial=np.inf),
        exchange=np.ones(len(classes)),
        deadline=deadline,
    )
    if found is None:
        return None
    value, stages, _ = found
    piece_of = np.full(workload.size, -1, np.int64)
    next_free = [0, *(first for first, _ in accelerators)]
    for stage in stages:
        if stage.kind > 0:
            piece_of[stage.content[label]] = next_free[stage.kind]
            next_free[stage.kind] += 1
    return SeriesResult(piece_of, value)
