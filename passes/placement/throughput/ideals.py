"""``ideals`` and ``ideals-linear``: optimal contiguous splits by dynamic programming.

best[I, a, b, ...] is the smallest largest load with which a, b, ... devices of each class can hold
the ideal I (a set closed under predecessors): the minimum, over the ideals J within I, of the
larger of best[J, one device less] and the load of that device holding I - J. Optimal among the
splits whose devices can be put in an order that all edges follow. ``ideals-linear`` does the same
along topological orders, whose prefixes are the only ideals: near-optimal, and fast enough for any
size.

Unlike the authors' program, no pair of ideals is stored, and the walk is bounded by the linear
solution: nothing whose load already reaches it is continued, and no ideal is entered that no number
of devices could have computed while leaving the rest to the others.

Extensions: any number of device classes, each with its own speed and memory; transfers overlapped
with compute; a stage replicated over r equal devices of the most numerous class, with load
``(compute + transfers) / r + 2 (r - 1) / r * parameter bytes / bandwidth``.

Source: Tarnawski et al., NeurIPS 2020 (arXiv 2006.16423), section 3.1; replication: PipeDream
(SOSP 2019), section 3.1.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.throughput.contraction import Contraction, contract
from baechi_jax.passes.placement.throughput.dynamic_program import (
    Kinds,
    Lattice,
    Model,
    OutOfTimeError,
    TooManyIdealsError,
    chain,
    lattice,
    run,
)
from baechi_jax.passes.placement.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IdealsOptions", "IdealsResult", "TooManyIdealsError", "solve_ideals", "solve_linear"]

#: Orders that the linear program tries before ``ideals``: milliseconds that make its bound tighter.
_ORDERS = 8


@dataclass(frozen=True, slots=True)
class IdealsOptions:
    """Options of both dynamic programs."""

    #: A device's load is the larger of compute and transfers, not their sum.
    overlap: bool = False
    #: A stage may be replicated over up to this many devices of the most numerous class.
    replicas: int = 1
    #: Bytes per second of the all-reduce between replicas.
    replica_bytes_per_second: float = 1e10
    #: Give up beyond this many ideals.
    max_ideals: int = 300_000
    #: ``ideals`` returns the linear solution after this many seconds; ``ideals-linear`` tries no
    #: further order.
    time_limit_seconds: float = float("inf")
    #: Topological orders that ``ideals-linear`` tries: a depth-first one, then random ones.
    orders: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class IdealsResult:
    """An optimal (or, for the linear variant, good) contiguous split."""

    #: ``[node]``: the device of each node; of a replicated stage, its first device.
    device_of: NDArray[np.int64]
    #: ``[device]``: over how many devices the stage on this device is replicated; one if not.
    replicas: NDArray[np.int64]
    max_load_seconds: float
    ideals: int
    visited_pairs: int
    optimal: bool
    #: Ctrl-C ended the program.
    interrupted: bool = False


def solve_ideals(workload: Workload, options: IdealsOptions | None = None) -> IdealsResult | None:
    """The optimal contiguous split, or None where none fits.

    When the time limit passes, or on Ctrl-C, the linear solution is returned, not ``optimal``; None
    then means that the linear program found none (on Ctrl-C KeyboardInterrupt goes on). Raises
    TooManyIdealsError where the graph has more than ``options.max_ideals``.
    """
    options = options if options is not None else IdealsOptions()
    deadline = now() + options.time_limit_seconds
    contraction = contract(workload)
    linear = solve_linear(workload, replace(options, orders=max(options.orders, _ORDERS)))
    if linear is not None and linear.interrupted:
        return linear
    bound = np.inf if linear is None else linear.max_load_seconds
    try:
        ideals = lattice(contraction, options.max_ideals, deadline)
        better = _run(workload, contraction, ideals, options, bound, deadline)
    except OutOfTimeError:
        return linear
    except KeyboardInterrupt:
        if linear is None:
            raise
        return replace(linear, interrupted=True)
    best = better if better is not None else linear
    if best is None:
        return None
    visited = better.visited_pairs if better is not None else 0
    return IdealsResult(
        best.device_of, best.replicas, best.max_load_seconds, len(ideals.member), visited, True
    )


def solve_linear(workload: Workload, options: IdealsOptions | None = None) -> IdealsResult | None:
    """The best split whose devices hold intervals of one of the topological orders, or None."""
    options = options if options is not None else IdealsOptions()
    deadline = now() + options.time_limit_seconds
    contraction = contract(workload)
    best = _run(workload, contraction, chain(contraction), options, np.inf, np.inf)
    random = np.random.default_rng(options.seed)
    try:
        for _ in range(1, options.orders):
            if now() > deadline:
                break
            shuffled = reordered(contraction, random.random(contraction.size))
            bound = np.inf if best is None else best.max_load_seconds
            found = _run(workload, shuffled, chain(shuffled), options, bound, deadline)
            best = found if found is not None else best
    except OutOfTimeError:
        return best
    except KeyboardInterrupt:
        if best is None:
            raise
        return replace(best, interrupted=True)
    return best


def reordered(contraction: Contraction, key: NDArray[np.float64]) -> Contraction:
    """The same classes, numbered in the topological order that takes the least ``key`` first."""
    waiting = np.bincount(contraction.edges[:, 1], minlength=contraction.size)
    after: list[list[int]] = [[] for _ in range(contraction.size)]
    for source, target in contraction.edges.tolist():
        after[source].append(target)
    heap = [(float(key[group]), group) for group in np.flatnonzero(waiting == 0).tolist()]
    heapq.heapify(heap)
    rank = np.zeros(contraction.size, np.int64)
    count = 0
    while heap:
        _, group = heapq.heappop(heap)
        rank[group] = count
        count += 1
        for target in after[group]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(heap, (float(key[target]), target))
    edges = rank[contraction.edges] if len(contraction.edges) else contraction.edges
    return Contraction(rank[contraction.label], edges, contraction.size)


def _run(
    workload: Workload,
    contraction: Contraction,
    ideals: Lattice,
    options: IdealsOptions,
    bound: float,
    deadline: float,
) -> IdealsResult | None:
    """The best split over ``ideals`` whose largest load is below ``bound``."""
    order = sorted(range(len(workload.classes)), key=lambda kind: workload.classes[kind].count)
    classes = [workload.classes[kind] for kind in order]
    size, label = contraction.size, contraction.label
    seconds = np.array([np.bincount(label, kind.seconds, size) for kind in classes])
    effort = np.where(np.isfinite(seconds[-1]), seconds[-1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(effort > 0, effort / seconds, 0.0)
    if not np.isfinite(bound):
        bound = 1.0 + float(np.where(np.isfinite(seconds), seconds, 0.0).sum(axis=1).max())
        bound += 2.0 * float(workload.transfer_seconds.sum())
    replicas = min(options.replicas, classes[-1].count)
    found = run(
        workload,
        contraction,
        ideals,
        Kinds(classes, [False] * len(classes), seconds),
        Model(
            overlap=options.overlap,
            replicas=max(1, replicas),
            replica_bytes_per_second=options.replica_bytes_per_second,
        ),
        bound=bound,
        effort=effort,
        exchange=rates.max(axis=1) if size else np.zeros(len(classes)),
        deadline=deadline,
    )
    if found is None:
        return None
    value, stages, visited = found
    first = np.concatenate([[0], np.cumsum([kind.count for kind in workload.classes])])
    next_free = [int(first[kind]) for kind in order]
    device_of = np.zeros(workload.size, np.int64)
    copies = np.ones(workload.devices, np.int64)
    for stage in stages:
        device = next_free[stage.kind]
        next_free[stage.kind] += stage.replicas
        device_of[stage.content[label]] = device
        copies[device] = stage.replicas
    return IdealsResult(device_of, copies, value, len(ideals.member), visited, False)
