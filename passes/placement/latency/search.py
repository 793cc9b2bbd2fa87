"""``local-search`` for latency: simulated annealing over subgraphs and the host.

Starts from valid splits (``series``, ``greedy``), keeps memory limits and colours, and refuses
splits whose subgraphs wait for one another. A colour class stays within one subgraph. The energy
is the latency plus a small share of the sum of loads, which rewards moves whose effect is hidden
behind the critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.latency.judge import latency_of, latency_seconds
from baechi_jax.passes.placement.latency.pieces import Pieces, host_bytes, host_seconds
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


class LatencySearch:
    """The search, a round at a time; ``best`` is the best split so far, as ``piece_of``."""

    def __init__(
        self,
        workload: Workload,
        starts: Sequence[NDArray[np.int64]],
        options: LatencySearchOptions,
    ) -> None:
        """Raises WorkloadError when there is no start, or one of them is not valid."""
        self.workload = workload
        self.options = options
        self.pieces = Pieces.of(workload, options.subgraphs)
        self.starts: list[NDArray[np.int64]] = []
        self.best_seconds = float("inf")
        self._arguments = _arguments(workload, self.pieces) if self.pieces.count else ()
        if not starts:
            raise WorkloadError("the search needs a start; greedy or series gives one")
        self.best = starts[0]
        for start in starts:
            self.add_start(start)

    def add_start(self, start: NDArray[np.int64]) -> None:
        """One more split that rounds begin from."""
        report = latency_of(self.workload, self.pieces.split(start))
        if report.faults:
            raise WorkloadError(f"the search needs a valid start: {report.faults[0]}")
        self.starts.append(start)
        if report.seconds < self.best_seconds:
            self.best, self.best_seconds = start, report.seconds

    def round(self, number: int) -> None:
        """Anneal once; the number says from which start, how hot, and seeds the randomness."""
        from baechi_jax.passes.placement.latency._kernels import anneal_latency

        if not self.pieces.count or self.best_seconds <= 0.0:
            return
        options = self.options
        turn = number % len(_HOT)
        last = turn == len(_HOT) - 1
        at = (number // len(_HOT) + turn) % len(self.starts)
        origin = self.best if last else self.starts[at]
        hot = self.best_seconds * _HOT[turn]
        call: tuple[Any, ...] = (
            options.steps,
            options.seed * 1_000_003 + number,
            self.pieces.compact(origin),
            self.pieces.count,
            options.subgraphs,
            *self._arguments,
            hot,
            hot * _COOLING,
            _LOAD_WEIGHT,
        )
        _, found = anneal_latency(*call)
        piece_of = self.pieces.expand(found)
        seconds = latency_seconds(self.workload, piece_of, subgraphs=options.subgraphs)
        if seconds < self.best_seconds:
            self.best, self.best_seconds = piece_of, seconds


def search_latency(
    workload: Workload,
    starts: Sequence[NDArray[np.int64]],
    options: LatencySearchOptions | None = None,
) -> NDArray[np.int64]:
    """The best split found, as ``piece_of`` (see ``latency/pieces.py``); never worse than a start.

    ``starts`` are ``piece_of`` too. Raises WorkloadError when one of them is not valid. Ctrl-C
    between rounds returns the best so far.
    """
    options = options if options is not None else LatencySearchOptions()
    search = LatencySearch(workload, starts, options)
    began = now()
    try:
        for number in range(options.first_round, options.first_round + options.rounds):
            if now() - began > options.time_limit_seconds:
                break
            if search.best_seconds <= options.target_seconds:
                break
            search.round(number)
    except KeyboardInterrupt:
        return search.best
    return search.best


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
    limits = [kind.memory_bytes for kind in pieces.kinds]
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
        np.array([*limits, host_bytes(workload)], np.float64) * (1 + 1e-12),
    )
