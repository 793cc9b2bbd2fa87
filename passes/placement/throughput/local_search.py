"""``local-search``: splits of any shape, by simulated annealing on groups, then on their parts.

Each round joins classes that transfers tie together into groups (``multilevel.py``), anneals the
split of the groups, breaks them up, and goes on from there, down to single classes. Rounds start in
turn from the best split so far, whose groups then stay within a device, and from nothing, with
groups of the whole graph.

Unlike the authors' local search it keeps every memory limit, uses the host's cores, moves groups
and exchanges them, and is seeded: the same input, seed and number of rounds give the same result.

The energy is the sum over devices of ``load ** p``, which for p of 4 to 128 follows the largest
load and still rewards moves that only relieve the second largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput.multilevel import balanced, coarsen
from baechi_jax.passes.placement.throughput.nets import Nets, class_neighbours
from baechi_jax.passes.placement.workload import Workload, WorkloadError, compressed

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Decimal logarithm of the temperature at which a round begins, and binary one of the exponent of
#: its energy: drawn between these.
_HOT = (-2.5, -0.3)
_EXPONENT = (2.0, 7.0)
_COLD = 1e-4


@dataclass(frozen=True, slots=True)
class LocalSearchOptions:
    """Options of ``local_search``."""

    seed: int = 0
    #: Rounds; even ones improve the best split so far, odd ones begin anew.
    rounds: int = 12
    #: Number of the first round, for a search that goes on.
    first_round: int = 0
    #: Moves tried per group at each level of a round.
    steps: int = 2000
    #: Stop between levels once this many seconds have passed; infinite for all rounds.
    time_limit_seconds: float = float("inf")
    #: Stop between rounds once the value is at most this.
    target_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class LocalSearchResult:
    """The best split found, and why the search ended."""

    #: ``[node]``
    device_of: NDArray[np.int64]
    #: ``limit``, ``target`` or ``interrupted``.
    status: str
    #: Rounds that were begun.
    rounds: int


def local_search(
    workload: Workload,
    start: NDArray[np.int64],
    objective: Throughput | None = None,
    options: LocalSearchOptions | None = None,
) -> LocalSearchResult:
    """The best split found from ``start``, ``[node]``; never worse than ``start``.

    Does not keep contiguity or replicas. Raises WorkloadError when ``start`` is not valid. Ctrl-C
    returns the best so far.
    """
    objective = objective if objective is not None else Throughput()
    options = options if options is not None else LocalSearchOptions()
    if objective.contiguous or objective.replicas > 1:
        raise WorkloadError("local-search makes splits that are neither contiguous nor replicated")
    best_seconds, faults = objective.seconds(workload, Split(start))
    if faults:
        raise WorkloadError(f"local search needs a valid start: {faults[0]}")
    best = start
    nets = Nets.of(workload)
    deadline = now() + options.time_limit_seconds
    rounds = 0
    try:
        for round_ in range(options.first_round, options.first_round + options.rounds):
            if best_seconds <= options.target_seconds:
                return LocalSearchResult(best, "target", rounds)
            random = np.random.default_rng([options.seed, round_])
            where = None if round_ % 2 else nets.of_classes(best)
            rounds += 1
            found = _round(workload, nets, objective, options, random, where, deadline)
            if found is not None:
                device_of = found[nets.label]
                seconds, faults = objective.seconds(workload, Split(device_of))
                assert not faults
                if seconds < best_seconds:
                    best, best_seconds = device_of, seconds
            if now() > deadline:
                break
    except KeyboardInterrupt:
        return LocalSearchResult(best, "interrupted", rounds)
    return LocalSearchResult(best, "limit", rounds)


def _round(
    workload: Workload,
    nets: Nets,
    objective: Throughput,
    options: LocalSearchOptions,
    random: np.random.Generator,
    where: NDArray[np.int64] | None,
    deadline: float,
) -> NDArray[np.int64] | None:
    """One way down from few groups to single classes; ``[class]`` devices, or None."""
    devices = workload.devices
    total = nets.total_seconds
    fastest = np.min(np.where(np.isfinite(total), total, np.inf), axis=0)
    share = float(fastest[np.isfinite(fastest)].sum()) / devices
    finest = max(2.0, float(np.log2(nets.size / devices)) + 1.0)
    groups = int(devices * 2 ** random.uniform(1.5, finest))
    most = share / random.uniform(1.5, 6.0)
    hot = float(10 ** random.uniform(*_HOT))
    exponent = float(2 ** random.uniform(*_EXPONENT))
    while True:
        last = groups >= 0.7 * nets.size
        if last:
            coarse = nets
        else:
            group = coarsen(nets, random, groups=groups, most_seconds=most, device_of=where)
            coarse = nets.merged(group, int(group.max()) + 1)
        if where is None:
            first = balanced(workload, coarse)
            if first is None:
                return None
        else:
            first = np.zeros(coarse.size, np.int64)
            first[coarse.label] = where[nets.label]
        found = _anneal(workload, coarse, objective, options, random, first, hot, exponent)
        where = nets.of_classes(found[coarse.label])
        if last or now() > deadline:
            return where
        groups *= 3
        most /= 2.0
        hot = max(hot / 3.0, min(hot, 0.003))


def _anneal(
    workload: Workload,
    nets: Nets,
    objective: Throughput,
    options: LocalSearchOptions,
    random: np.random.Generator,
    first: NDArray[np.int64],
    hot: float,
    exponent: float,
) -> NDArray[np.int64]:
    from baechi_jax.passes.placement.throughput._annealing import anneal

    own = [net.source for net in nets.nets]
    reads = [(target, index) for index, net in enumerate(nets.nets) for target in net.targets]
    readers = np.array(reads, np.int64).reshape(len(reads), 2)
    phases = nets.seconds if objective.sum_of_maxima else nets.total_seconds[None]
    part = [int(net.backward and objective.sum_of_maxima) for net in nets.nets]
    kind_of = workload.class_of_devices()
    ends = [(net.source, target) for net in nets.nets for target in net.targets]
    call: tuple[Any, ...] = (
        int(min(1_000_000, max(20_000, options.steps * nets.size))),
        int(random.integers(2**31)),
        first,
        *compressed(np.array(own, np.int64), np.arange(len(own)), nets.size),
        *compressed(readers[:, 0], readers[:, 1], nets.size),
        np.array(own, np.int64),
        np.array([len(net.targets) for net in nets.nets], np.int64),
        np.array([net.seconds for net in nets.nets], np.float64),
        np.array(part, np.int64),
        *class_neighbours(
            np.array(ends, np.int64).reshape(len(ends), 2), np.arange(nets.size), nets.size
        ),
        np.ascontiguousarray(np.where(np.isfinite(phases), phases, 0.0)),
        np.isfinite(nets.total_seconds),
        nets.bytes,
        kind_of,
        np.array([workload.classes[kind].memory_bytes for kind in kind_of]) * (1 + 1e-12),
        np.array([float(kind.transfers) for kind in workload.classes]),
        objective.overlap,
        hot,
        _COLD,
        exponent,
    )
    _, found = anneal(*call)
    return found
