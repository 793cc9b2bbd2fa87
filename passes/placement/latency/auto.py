"""``auto`` for latency: everything there is, under one budget, sharing one incumbent.

1. ``greedy``, one device, ``series``.
2. The path and work bounds. The run ends wherever a bound meets the best split.
3. The flow bound, where the graph has few ideals: it often proves the best split, or finds it.
4. Where the graph is small, the integer program, for a part of the time.
5. To the end of the budget: rounds of annealing from all these splits, the contiguous one with the
   smallest largest load, and the best; a flow more for the bound after each.

A step of the budget is one round of 5, which makes runs without a limit in seconds repeatable. A
budget without any limit is taken as ten seconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.latency.bounds import path_bound, work_bound
from baechi_jax.passes.placement.latency.candidates import (
    offer_greedy,
    offer_max_load,
    offer_one_device,
    offer_series,
)
from baechi_jax.passes.placement.latency.flow_bound import FlowBound
from baechi_jax.passes.placement.latency.incumbent import Incumbent
from baechi_jax.passes.placement.latency.milp import solve_latency_milp
from baechi_jax.passes.placement.latency.search import LatencySearch, LatencySearchOptions
from baechi_jax.passes.placement.throughput.dynamic_program import (
    OutOfTimeError,
    TooManyIdealsError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.partitioning import Latency, Partitioning
    from baechi_jax.passes.placement.workload import Workload

#: Seconds of a budget without limits.
_SECONDS = 10.0
#: Topological orders that ``series`` tries.
_ORDERS = 8
#: The flow bound is tried up to this many ideals, for so many flows at first, and for at most this
#: share of the time left.
_MOST_IDEALS = 20_000
_FLOWS = 20
_FLOW_SHARE = 0.4
#: The integer program is tried up to this many nodes times subgraphs, and for this share of the
#: time left (of ten seconds, where there is no limit).
_SMALL = 120
_MILP_SHARE = 0.4


def place_auto(workload: Workload, objective: Latency, budget: Budget) -> Partitioning:
    """The best split that the portfolio finds, its bound, and what each part reached."""
    if budget.seconds == float("inf") and budget.steps is None:
        budget = replace(budget, seconds=_SECONDS)
    run = _Run(Incumbent("auto", workload, objective, budget), budget)
    try:
        status = run.all()
    except KeyboardInterrupt:
        status = "interrupted"
    return run.best.result(status)


class _Run:
    """One run: the incumbent, the splits that searches start from, the flow bound."""

    def __init__(self, best: Incumbent, budget: Budget) -> None:
        self.best = best
        self.budget = budget
        self.starts: list[NDArray[np.int64]] = []
        self.flow: FlowBound | None = None

    def all(self) -> str:
        """Every part in turn; the status."""
        best = self.best
        if best.piece_of is not None:
            self.starts.append(best.piece_of)
        self.starts += offer_greedy(best)
        self.starts += offer_one_device(best)
        self.starts += offer_series(best, _ORDERS, self.budget.seed)
        bound = path_bound(best.workload, subgraphs=best.pieces.subgraphs)
        best.raise_bound(max(bound.seconds, work_bound(best.workload)))
        if self.done():
            return "optimal"
        self.begin_flows(bound.path)
        if self.done():
            return "optimal"
        if best.workload.size * best.pieces.count <= _SMALL:
            status = self.solve_exactly()
            if status in ("optimal", "infeasible", "interrupted"):
                return status
        self.starts += offer_max_load(best)
        return self.search() if self.starts else "heuristic"

    def done(self) -> bool:
        """Whether the best split is proved optimal, or that there is none."""
        return self.best.closed() or not np.isfinite(self.best.bound_seconds)

    def begin_flows(self, path: tuple[int, ...]) -> None:
        """The flow bound from the best path on."""
        best = self.best
        deadline = now() + best.left() * _FLOW_SHARE
        try:
            self.flow = FlowBound(
                best.workload,
                subgraphs=best.pieces.subgraphs,
                path=path,
                max_ideals=_MOST_IDEALS,
                deadline=deadline,
            )
        except TooManyIdealsError:
            best.notes.append(f"no flow bound: the graph has more than {_MOST_IDEALS} ideals")
            return
        except OutOfTimeError:
            return
        if best.piece_of is not None and best.pieces.subgraphs == 1:
            self.flow.add_split(best.piece_of)
        for _ in range(_FLOWS):
            if not self.another_flow(deadline):
                break

    def another_flow(self, deadline: float) -> bool:
        """One more flow; whether yet another may help."""
        if self.flow is None or self.done() or self.flow.closed():
            return False
        try:
            piece_of = self.flow.step(deadline)
        except OutOfTimeError:
            return False
        self.best.raise_bound(self.flow.seconds)
        if piece_of is not None and not self.best.offer("flow-bound", piece_of, record=False):
            self.starts.append(piece_of)
        return True

    def solve_exactly(self) -> str:
        """The integer program from the best split; its status."""
        best = self.best
        seconds = best.left() if self.budget.seconds < float("inf") else _SECONDS
        found = solve_latency_milp(
            best.workload,
            subgraphs=best.pieces.subgraphs,
            start=best.piece_of,
            bound_seconds=best.bound_seconds,
            time_limit_seconds=seconds * _MILP_SHARE,
            seed=self.budget.seed,
        )
        best.raise_bound(found.bound_seconds)
        if not best.offer("milp-latency", found.piece_of) and found.piece_of is not None:
            self.starts.append(found.piece_of)
        return found.status

    def search(self) -> str:
        """Annealing to the end of the budget."""
        best, steps = self.best, self.budget.steps
        options = LatencySearchOptions(subgraphs=best.pieces.subgraphs, seed=self.budget.seed)
        search = LatencySearch(best.workload, self.starts, options)
        known = len(self.starts)
        number = 0
        while steps is None or number < steps:
            if best.left() <= 0:
                return "time limit"
            if self.done():
                return "optimal"
            search.round(number)
            if search.best_seconds < best.seconds:
                best.offer("local-search", search.best)
            self.another_flow(best.deadline)
            for start in self.starts[known:]:
                search.add_start(start)
            known = len(self.starts)
            number += 1
        return "heuristic"
