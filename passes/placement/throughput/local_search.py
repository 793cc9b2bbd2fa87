"""``local-search``: splits of any shape, by simulated annealing from a valid start.

Unlike the authors' local search it starts from a good split, keeps every memory limit, uses the
host's cores, exchanges classes as well as moving them, and is seeded: the same input, seed and
number of rounds give the same result.

The energy is the sum over devices of ``load ** p``, which for p of 8 to 16 follows the largest load
and still rewards moves that only relieve the second largest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.passes.placement.split import evaluate
from baechi_jax.passes.placement.workload import Workload, WorkloadError, compressed

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Hot and cold temperature and exponent of each round, in turn.
_ROUNDS = ((0.3, 1e-4, 8.0), (0.1, 1e-4, 16.0), (1.0, 1e-4, 8.0), (0.03, 1e-5, 8.0))


@dataclass(frozen=True, slots=True)
class LocalSearchOptions:
    """Options of ``local_search``."""

    seed: int = 0
    #: Rounds of annealing; each starts from the best split so far or from the start, in turn.
    rounds: int = 4
    #: Moves tried in a round.
    steps: int = 1_000_000
    #: Stop between rounds once this many seconds have passed; infinite for all rounds.
    time_limit_seconds: float = float("inf")
    overlap: bool = False


def local_search(
    workload: Workload, start: NDArray[np.int64], options: LocalSearchOptions | None = None
) -> NDArray[np.int64]:
    """The best split found from ``start``, ``[node]``; never worse than ``start``.

    Raises WorkloadError when ``start`` is not valid. Ctrl-C between rounds returns the best so far.
    """
    from baechi_jax.passes.placement.throughput._annealing import anneal

    options = options if options is not None else LocalSearchOptions()
    report = evaluate(workload, start, overlap=options.overlap)
    if report.faults:
        raise WorkloadError(f"local search needs a valid start: {report.faults[0]}")
    arguments = _arguments(workload)
    best, best_seconds = start, report.max_load_seconds
    began = time.monotonic()
    try:
        for round_ in range(options.rounds):
            if time.monotonic() - began > options.time_limit_seconds:
                break
            hot, cold, exponent = _ROUNDS[round_ % len(_ROUNDS)]
            origin = best if round_ % 2 else start
            call: tuple[Any, ...] = (
                options.steps,
                options.seed * 1_000_003 + round_,
                origin,
                *arguments,
                options.overlap,
                hot,
                cold,
                exponent,
            )
            _, found = anneal(*call)
            seconds = evaluate(workload, found, overlap=options.overlap).max_load_seconds
            if seconds < best_seconds:
                best, best_seconds = found, seconds
    except KeyboardInterrupt:
        return best
    return best


def colour_classes(workload: Workload) -> tuple[NDArray[np.int64], int]:
    """``([node] class, number of classes)``: nodes of one colour are one class."""
    keys = np.where(workload.colour >= 0, workload.colour, -1 - np.arange(workload.size))
    _, first, label = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[label], len(first)


def class_neighbours(
    workload: Workload, label: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Classes joined to each class by an edge, either way, as CSR ``(pointers, classes)``."""
    ends = label[workload.edges]
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    return compressed(ends[:, 0], ends[:, 1], count)


def _arguments(workload: Workload) -> tuple[Any, ...]:
    label, count = colour_classes(workload)
    kind_of = workload.class_of_devices()
    seconds = np.array([kind.seconds for kind in workload.classes])
    allowed = np.array(
        [np.bincount(label, ~np.isfinite(kind.seconds), count) == 0 for kind in workload.classes]
    )
    return (
        *compressed(label, np.arange(workload.size), count),
        *class_neighbours(workload, label, count),
        *workload.predecessors(),
        *workload.successors(),
        workload.transfer_seconds,
        np.where(np.isfinite(seconds), seconds, 0.0),
        allowed,
        workload.bytes,
        kind_of,
        np.array([workload.classes[kind].memory_bytes for kind in kind_of]) * (1 + 1e-12),
        np.array([float(kind.transfers) for kind in workload.classes]),
    )
