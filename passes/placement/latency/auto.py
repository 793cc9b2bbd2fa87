"""``auto`` for latency: everything there is, under one budget, sharing one incumbent.

1. One device, ``greedy``, ``series``, the contiguous split with the smallest largest load.
2. The path bound. The run ends wherever a bound meets the best split.
3. Where the graph is small, the integer program, for a part of the time.
4. To the end of the budget: rounds of annealing from all these splits and from the best.

A step of the budget is one round of 4, which makes runs without a limit in seconds repeatable. A
budget without any limit is taken as ten seconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.bounds import path_bound
from baechi_jax.passes.placement.latency.candidates import (
    offer_greedy,
    offer_max_load,
    offer_one_device,
    offer_series,
)
from baechi_jax.passes.placement.latency.incumbent import Incumbent
from baechi_jax.passes.placement.latency.milp import solve_latency_milp
from baechi_jax.passes.placement.latency.search import LatencySearch, LatencySearchOptions

if TYPE_CHECKING:
    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.partitioning import Latency, Partitioning
    from baechi_jax.passes.placement.workload import Workload

#: Seconds of a budget without limits.
_SECONDS = 10.0
#: Topological orders that ``series`` tries.
_ORDERS = 8
#: The integer program is tried up to this many nodes times subgraphs, and for this share of the
#: time left (of ten seconds, where there is no limit).
_SMALL = 120
_MILP_SHARE = 0.4


def place_auto(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """The best split that the portfolio finds, its bound, and what each part reached."""
    if budget.seconds == float("inf") and budget.steps is None:
        budget = replace(budget, seconds=_SECONDS)
    best = Incumbent("auto", workload, objective, budget)
    try:
        status = _run(best, budget)
    except KeyboardInterrupt:
        status = "interrupted"
    return best.result(status)


def _run(best: Incumbent, budget: Budget) -> str:
    workload, subgraphs = best.workload, best.pieces.subgraphs
    starts = [] if best.piece_of is None else [best.piece_of]
    starts += offer_greedy(best)
    starts += offer_one_device(best)
    starts += offer_series(best, _ORDERS, budget.seed)
    best.raise_bound(path_bound(workload, subgraphs=subgraphs).seconds)
    if best.closed() or not np.isfinite(best.bound_seconds):
        return "optimal"
    starts += offer_max_load(best)
    if workload.size * best.pieces.count <= _SMALL:
        seconds = min(best.left(), _SECONDS) if budget.seconds == float("inf") else best.left()
        found = solve_latency_milp(
            workload,
            subgraphs=subgraphs,
            start=best.piece_of,
            bound_seconds=best.bound_seconds,
            time_limit_seconds=seconds * _MILP_SHARE,
            seed=budget.seed,
        )
        best.raise_bound(found.bound_seconds)
        best.offer("milp-latency", found.piece_of)
        if found.status in ("optimal", "interrupted"):
            return found.status
        if best.piece_of is not None:
            starts.append(best.piece_of)
    if not starts:
        return "heuristic"
    options = LatencySearchOptions(subgraphs=subgraphs, seed=budget.seed)
    search = LatencySearch(workload, starts, options)
    number = 0
    while budget.steps is None or number < budget.steps:
        if best.left() <= 0:
            return "time limit"
        if best.closed():
            return "optimal"
        search.round(number)
        if search.best_seconds < best.seconds:
            best.offer("local-search", search.best)
        number += 1
    return "heuristic"
