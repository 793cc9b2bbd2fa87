"""``local-search`` for latency: simulated annealing over subgraphs and the host.

Starts from valid splits (``series``, ``greedy``), keeps memory limits and colours, and refuses
splits whose subgraphs wait for one another. A colour class stays within one subgraph. The energy
is the latency plus a small share of the sum of loads, which rewards moves whose effect is hidden
behind the critical path.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.passes.placement.latency.judge import latency_of, latency_seconds
from baechi_jax.passes.placement.latency.pieces import Pieces, host_seconds
from baechi_jax.passes.placement.throughput.nets import class_neighbours, colour_classes
from baechi_jax.passes.placement.workload import (
    Workload,
    WorkloadError,
    compressed,
    topological_order,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Hot temperature of each round in turn, as a share of the best latency.
_HOT = (0.01, 0.05, 0.3, 0.002)
#: Cold temperature as a share of the hot one.
_COOLING = 1e-3
#: What a second of load weighs beside a second of latency.
_LOAD_WEIGHT = 1e-3


@dataclass(frozen=True, slots=True)
class LatencySearchOptions:
    """Options of ``search_latency``."""

    #: Subgraphs that each accelerator may run, one after another.
    subgraphs: int = 1
    seed: int = 0
    #: Rounds of annealing. Every fourth starts from the best so far, the others from the starts in
    #: turn.
    rounds: int = 8
    #: Moves tried in a round.
    steps: int = 100_000
    #: Stop between rounds once this many seconds have passed; infinite for all rounds.
    time_limit_seconds: float = float("inf")
    #: Stop between rounds once the latency is at most this.
    target_seconds: float = 0.0
    #: Number of the first round, for a search that goes on.
    first_round: int = 0


def search_latency(
    workload: Workload,
    starts: Sequence[NDArray[np.int64]],
    options: LatencySearchOptions | None = None,
) -> NDArray[np.int64]:
    """The best split found, as ``piece_of`` (see ``latency/pieces.py``); never worse than a start.

    ``starts`` are ``piece_of`` too. Raises WorkloadError when one of them is not valid. Ctrl-C
    between rounds returns the best so far.
    """
    from baechi_jax.passes.placement.latency._kernels import anneal_latency

    options = options if options is not None else LatencySearchOptions()
    pieces = Pieces.of(workload, options.subgraphs)
    values = []
    for start in starts:
        report = latency_of(workload, pieces.split(start))
        if report.faults:
            raise WorkloadError(f"the search needs a valid start: {report.faults[0]}")
        values.append(report.seconds)
    best_seconds = min(values)
    best = starts[values.index(best_seconds)]
    if not pieces.count:
        return best
    arguments = _arguments(workload, pieces)
    began = time.monotonic()
    try:
        for round_ in range(options.first_round, options.first_round + options.rounds):
            if time.monotonic() - began > options.time_limit_seconds:
                break
            if best_seconds <= options.target_seconds:
                break
            turn = round_ % len(_HOT)
            last = turn == len(_HOT) - 1
            origin = best if last else starts[(round_ // len(_HOT) + turn) % len(starts)]
            hot = best_seconds * _HOT[turn]
            call: tuple[Any, ...] = (
                options.steps,
                options.seed * 1_000_003 + round_,
                pieces.compact(origin),
                pieces.count,
                options.subgraphs,
                *arguments,
                hot,
                hot * _COOLING,
                _LOAD_WEIGHT,
            )
            _, found = anneal_latency(*call)
            piece_of = pieces.expand(found)
            seconds = latency_seconds(workload, piece_of, subgraphs=options.subgraphs)
            if seconds < best_seconds:
                best, best_seconds = piece_of, seconds
    except KeyboardInterrupt:
        return best
    return best


def _arguments(workload: Workload, pieces: Pieces) -> tuple[Any, ...]:
    label, count = colour_classes(workload)
    position = np.zeros(workload.size, np.int64)
    position[topological_order(workload)] = np.arange(workload.size)
    first = np.full(count, workload.size, np.int64)
    np.minimum.at(first, label, position)
    host = host_seconds(workload)
    kinds = list({id(kind): kind for kind in pieces.kinds}.values())
    seconds = np.array([kind.seconds for kind in kinds]).reshape(len(kinds), workload.size)
    allowed = [np.bincount(label, ~np.isfinite(row), count) == 0 for row in [*seconds, host]]
    kind_of = [kinds.index(kind) for kind in pieces.kinds for _ in range(pieces.subgraphs)]
    return (
        *compressed(label, np.arange(workload.size), count),
        *class_neighbours(workload.edges, label, count),
        first,
        *workload.successors(),
        workload.transfer_seconds,
        np.where(np.isfinite(seconds), seconds, 0.0),
        np.where(np.isfinite(host), host, 0.0),
        np.array(allowed),
        workload.bytes,
        np.array(kind_of, np.int64),
        np.array([kind.memory_bytes for kind in pieces.kinds], np.float64) * (1 + 1e-12),
    )
