"""The placers for the latency of one sample, by name.

Each takes a workload, the objective and a budget, and returns a split that the judge finds valid;
``Latency.subgraphs`` is the most that an accelerator may run, and all honour it (``greedy``,
``series`` and ``one-device`` by needing one only). All return the best so far when the time is over
and on Ctrl-C, and never anything worse than the budget's start. They raise InfeasiblePlacementError
where they find no split, and WorkloadError where the start is not valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interrupts import hears_interrupts
from baechi_jax.passes.placement.latency.auto import place_auto
from baechi_jax.passes.placement.latency.bounds import path_bound, work_bound
from baechi_jax.passes.placement.latency.candidates import (
    offer_greedy,
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

#: Rounds of ``local-search`` where the budget has no limit.
_ROUNDS = 16
#: Orders of ``series`` where the budget has no steps.
_ORDERS = 16
#: Seconds of ``milp-latency`` where the budget has no limit.
_MILP_SECONDS = 60.0


def place_one_device(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """Everything on the one device, an accelerator or the host, where it takes least."""
    best = Incumbent("one-device", workload, objective, budget)
    offer_one_device(best)
    return best.result()


def place_greedy(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """Fill one accelerator after another along a topological order."""
    best = Incumbent("greedy", workload, objective, budget)
    offer_greedy(best)
    return best.result()


def place_series(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """The least sum of loads: over all ideals where they are few, else along several orders.

    A step of the budget is one order.
    """
    best = Incumbent("series", workload, objective, budget)
    try:
        offer_series(best, budget.steps if budget.steps is not None else _ORDERS, budget.seed)
    except KeyboardInterrupt:
        return best.result("interrupted")
    return best.result("heuristic" if best.left() > 0 else "time limit")


def place_local_search(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """Simulated annealing from ``series``, ``greedy`` and the budget's start.

    A step of the budget is a round of annealing.
    """
    best = Incumbent("local-search", workload, objective, budget)
    rounds = budget.steps
    if rounds is None and best.left() == float("inf"):
        rounds = _ROUNDS
    try:
        starts = [] if best.piece_of is None else [best.piece_of]
        starts += offer_series(best, 1, budget.seed)
        starts += offer_greedy(best)
        if not starts:
            return best.result()
        options = LatencySearchOptions(subgraphs=objective.subgraphs, seed=budget.seed)
        search = LatencySearch(workload, starts, options)
        number = 0
        while (rounds is None or number < rounds) and best.left() > 0:
            search.round(number)
            if search.best_seconds < best.seconds:
                best.offer("local-search", search.best)
            number += 1
    except KeyboardInterrupt:
        return best.result("interrupted")
    return best.result("heuristic" if best.left() > 0 else "time limit")


def place_milp(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """The integer program, from the better of the heuristics; optimal if it ends in time.

    It knows no steps: the budget's seconds (60 where there are none) are its limit.
    """
    best = Incumbent("milp-latency", workload, objective, budget)
    try:
        offer_greedy(best)
        offer_series(best, 1, budget.seed)
        bound = path_bound(workload, subgraphs=objective.subgraphs, paths=8)
        best.raise_bound(max(bound.seconds, work_bound(workload)))
        if best.closed() or not np.isfinite(best.bound_seconds):
            return best.result()
        found = solve_latency_milp(
            workload,
            subgraphs=objective.subgraphs,
            start=best.piece_of,
            bound_seconds=best.bound_seconds,
            time_limit_seconds=min(best.left(), _MILP_SECONDS)
            if budget.seconds == float("inf")
            else best.left(),
            seed=budget.seed,
        )
    except KeyboardInterrupt:
        return best.result("interrupted")
    best.raise_bound(found.bound_seconds)
    best.offer("milp-latency", found.piece_of)
    return best.result(found.status)


#: Every placer for latency.
PLACERS: Mapping[str, Callable[[Workload, Latency, Budget], Partitioning]] = {
    name: hears_interrupts(placer)
    for name, placer in {
        "auto": place_auto,
        "greedy": place_greedy,
        "local-search": place_local_search,
        "milp-latency": place_milp,
        "one-device": place_one_device,
        "series": place_series,
    }.items()
}
