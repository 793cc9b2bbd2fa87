"""``auto``: the placers of throughput one after another, each from the best split so far.

1. Quick placers: one device, the linear dynamic program, PipeDream's, the balanced cut; and the
   quick lower bounds.
2. ``ideals``, where stages may be replicated or splits must be contiguous; else for a little while.
3. A short local search; the mixed-integer program of a small problem for a little while: many such
   end here, with a proof.
4. In turn local search and pairs of devices; where that is at a local optimum, again from
   elsewhere.
5. The mixed-integer program with the best split, for the time that is left: its bound, and
   sometimes a better split.

Where stages may be replicated, ideals, PipeDream's and one device do so; the searches and the
program look for splits without replicas, and the program's bound is not used.

It stops as soon as a value is proved optimal, when the time is over, and on Ctrl-C, always with the
best split so far. With a budget in steps every member gets that many of its own units (rounds of
local search, programs of pairs of devices, nodes of the mixed-integer program), once, and nothing
depends on the clock: same input, seed and steps, same output. With seconds it depends on the clock
how far each gets. Without either it takes ten seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.budget import Budget
from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.partitioning import TOLERANCE, Partitioning, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import members
from baechi_jax.passes.placement.throughput.bounds import lower_bound
from baechi_jax.passes.placement.throughput.dynamic_program import TooManyIdealsError
from baechi_jax.passes.placement.throughput.local_search import LocalSearchOptions, local_search
from baechi_jax.passes.placement.throughput.milp import solve_milp
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.throughput.pairs import PairOptions, improve_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload

#: Seconds without any budget.
DEFAULT_SECONDS = 10.0
#: Shares of the time: of ``ideals`` where it cannot end the search, and where it can; of the first
#: local search and program; of each later local search; when the last program begins; and of one
#: program of a pair.
_IDEALS, _IDEALS_ALONE = 0.08, 0.8
_FIRST_SEARCH, _FIRST_PROGRAM = 0.05, 0.1
_SEARCH, _LAST_PROGRAM, _PAIR = 0.1, 0.75, 0.12
#: Rows of a program that are written within a second, at least; larger programs are left out.
_ROWS_PER_SECOND = 15_000
#: Programs with at most so many rows for each second have a chance of being solved early.
_ROWS_SOLVED = 500
#: Most ideals with a budget in steps; a time limit bounds the others.
_MOST_IDEALS = 20_000


def auto(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """The best split that the portfolio finds; see the module.

    Raises InfeasiblePlacementError where nothing fits, or nothing that fits was found; on Ctrl-C
    before there is any split, KeyboardInterrupt.
    """
    if budget.steps is None and not math.isfinite(budget.seconds):
        budget = replace(budget, seconds=DEFAULT_SECONDS)
    run = _Run(workload, objective, budget, budget.deadline())
    try:
        run.all()
    except _Done as done:
        status = done.status
    except KeyboardInterrupt:
        status = "interrupted"
    else:
        status = "heuristic" if budget.steps is not None else "time limit"
    return run.outcome(status)


class _Done(Exception):
    """The search is over."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True, eq=False)
class _Run:
    """One run of the portfolio: limits, and what is known so far."""

    workload: Workload
    objective: Throughput
    budget: Budget
    deadline: float
    best: Split | None = None
    seconds: float = float("inf")
    winner: str = ""
    #: The best split without replicas, from which searches start: its value, and ``[node]``.
    base: tuple[float, NDArray[np.int64]] | None = None
    #: The worst split of a member, ``[node]``, and its value: where a search starts that is to end
    #: elsewhere than the best.
    worst: tuple[float, NDArray[np.int64]] = (-1.0, np.zeros(0, np.int64))
    bound: float = 0.0
    rule: str = ""
    #: Rows of the mixed-integer program for each device that it covers, about.
    rows_per_device: int = 0
    proven_infeasible: bool = False
    history: list[tuple[str, float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def plain(self) -> Throughput:
        """The objective of searches, which do not replicate stages (and need not)."""
        return replace(self.objective, replicas=1)

    def all(self) -> None:
        """Every stage in turn, until one ends the search."""
        start = members.check_start(self.workload, self.objective, self.budget)
        if start is not None:
            self._offer("start", start[0], now())
        self._quick()
        self._ideals()
        searches = members.honours("local-search", self.plain)
        if searches and self.base is not None:
            self._search(0, _FIRST_SEARCH, self.base[1])
        rows = self.rows_per_device * self.workload.devices
        if self.base is None or rows <= _ROWS_SOLVED * _FIRST_PROGRAM * self.budget.seconds:
            self._program(_FIRST_PROGRAM)
        turn = 0
        while self._left(_LAST_PROGRAM) > 0 and self.base is not None:
            base = self.base[1] if turn == 0 else self.worst[1]
            if searches:
                # Odd rounds begin from nothing, even ones from the best so far.
                first = 1000 * (turn + 1) + min(turn, 1)
                base = self._search(first, _SEARCH, base)
            self._pairs(turn, base)
            turn += 1
            if self.budget.steps is not None or not searches:
                break
        if self.budget.steps is None:
            self._program(1.0)

    def outcome(self, status: str) -> Partitioning:
        """The result, or the error that says why there is none."""
        if self.best is None:
            if status == "interrupted":
                raise KeyboardInterrupt
            # Says what there is and what it would have to fit.
            terms = members.Terms(proven=self.proven_infeasible)
            return members.conclude("auto", self.workload, self.objective, self.budget, None, terms)
        bound = min(self.bound, self.seconds)
        notes = (*self.notes, f"bound by {self.rule}") if bound > 0 else tuple(self.notes)
        return Partitioning(
            self.winner, self.best, self.seconds, bound, status, notes, tuple(self.history)
        )

    def _quick(self) -> None:
        nets = Nets.of(self.workload)
        pins = sum(len(net.targets) for net in nets.nets)
        self.rows_per_device = nets.size + 2 * pins
        self.bound, self.rule = lower_bound(self.workload, self.objective)
        if not math.isfinite(self.bound):
            self.proven_infeasible = True
            raise _Done("infeasible")
        quick: tuple[tuple[str, Callable[..., Partitioning]], ...] = (
            ("one-device", members.one_device),
            ("ideals-linear", members.ideals_linear),
            ("pipedream", members.pipedream),
            ("multilevel", members.multilevel),
        )
        for name, placer in quick:
            self._member(name, placer, Budget(self._share(_SEARCH), self.budget.seed))

    def _ideals(self) -> None:
        objective = self.objective
        alone = (objective.contiguous or objective.replicas > 1) and not objective.sum_of_maxima
        seconds = self._share(_IDEALS_ALONE if alone else _IDEALS)
        steps = _MOST_IDEALS if self.budget.steps is not None and not alone else None
        if seconds <= 0:
            return
        try:
            status = self._member(
                "ideals", members.ideals, Budget(seconds, self.budget.seed, steps)
            )
        except TooManyIdealsError as error:
            self.notes.append(str(error))
            return
        if status == "optimal" and not objective.sum_of_maxima:
            self.notes.append(members.PIPELINES_ONLY)
            raise _Done("optimal")

    def _member(self, name: str, placer: Callable[..., Partitioning], budget: Budget) -> str:
        """The status of a placer's run; its split is taken if it is the best.

        Where a placer can only minimise the largest load it does, and its split is a start.
        """
        objective = self.objective
        if not members.honours(name, objective):
            objective = replace(objective, sum_of_maxima=False)
        if not members.honours(name, objective):
            return "unable"
        began = now()
        try:
            found = placer(self.workload, objective, budget)
        except InfeasiblePlacementError:
            self.history.append((name, float("inf"), now() - began))
            return "infeasible"
        self._offer(name, found.split, began)
        if found.status == "interrupted":
            raise KeyboardInterrupt
        return found.status

    def _search(self, first_round: int, share: float, base: NDArray[np.int64]) -> NDArray[np.int64]:
        steps = self.budget.steps
        began = now()
        options = LocalSearchOptions(
            seed=self.budget.seed,
            rounds=steps if steps is not None else 1_000_000,
            first_round=first_round,
            time_limit_seconds=self._share(share),
            target_seconds=self._target(),
        )
        result = local_search(self.workload, base, self.plain, options)
        self._offer("local-search", Split(result.device_of), began)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        return result.device_of

    def _pairs(self, turn: int, base: NDArray[np.int64]) -> None:
        steps = self.budget.steps
        began = now()
        if self._too_long("pairs", 2, self.budget.seconds * _PAIR):
            return
        options = PairOptions(
            seed=self.budget.seed + turn,
            solves=steps,
            deadline=began + self._left(_LAST_PROGRAM) if steps is None else float("inf"),
            solve_seconds=self.budget.seconds * _PAIR,
            target_seconds=self._target(),
        )
        result = improve_pairs(self.workload, base, self.plain, options)
        self._offer("pairs", Split(result.device_of), began)
        if result.status == "interrupted":
            raise KeyboardInterrupt

    def _program(self, share: float) -> None:
        began = now()
        seconds = self._share(share)
        limit = share * self.budget.seconds
        if self._too_long("milp-throughput", self.workload.devices, limit) or seconds <= 0:
            return
        result = solve_milp(
            self.workload,
            self.plain,
            start=None if self.base is None else self.base[1],
            time_limit_seconds=seconds,
            max_nodes=self.budget.steps,
            seed=self.budget.seed,
        )
        if result.status == "infeasible":
            self.proven_infeasible = True
            raise _Done("infeasible")
        replicated = self.objective.replicas > 1
        if result.bound_seconds > self.bound and not replicated:
            self.bound, self.rule = result.bound_seconds, "the mixed-integer program"
        if result.device_of is not None:
            self._offer("milp-throughput", Split(result.device_of), began)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if result.status == "optimal":
            raise _Done("heuristic" if replicated else "optimal")

    def _too_long(self, name: str, devices: int, seconds: float) -> bool:
        """Whether a program for so many devices takes longer to write than it may take to solve."""
        rows = self.rows_per_device * devices
        if rows <= _ROWS_PER_SECOND * seconds:
            return False
        note = f"{name} left out: its program is too large for {self.budget.seconds:.3g} seconds"
        if note not in self.notes:
            self.notes.append(note)
        return True

    def _offer(self, name: str, split: Split, began: float) -> None:
        """Take the split if it is the best; end the search if it is proved optimal."""
        value, faults = self.objective.seconds(self.workload, split)
        assert not faults, (name, faults)
        self.history.append((name, value, now() - began))
        if value < self.seconds:
            self.best, self.seconds, self.winner = split, value, name
        shared = split.replicas is not None and bool((split.replicas > 1).any())
        if not shared and (self.base is None or value < self.base[0]):
            self.base = (value, split.device_of)
        if value > self.worst[0]:
            self.worst = (value, split.device_of)
        if self.seconds <= self._target():
            raise _Done("optimal")

    def _target(self) -> float:
        return self.bound * (1 + TOLERANCE)

    def _left(self, share: float) -> float:
        """Seconds until so much of the time is over."""
        if self.budget.steps is not None and not math.isfinite(self.budget.seconds):
            return float("inf")
        return self.deadline - now() - (1.0 - share) * self.budget.seconds

    def _share(self, share: float) -> float:
        """Seconds that a member gets; infinite with a budget in steps alone."""
        if not math.isfinite(self.budget.seconds):
            return float("inf")
        return max(0.0, min(share * self.budget.seconds, self.deadline - now()))
