"""Choosing a placement: placers propose, the simulator judges, what does not fit is repaired.

``auto`` is a portfolio of all placers and of each single device; the shortest step that fits wins.
It is never worse than any one of them by itself, since each is judged and repaired alike. ``milp``
comes last, where there may be something to gain; its search is limited by nodes, not by seconds, so
that the choice is the same on every machine. Where repair falls short, devices are also filled with
memory alone in mind; where that does not fit either, by a program (``memory_milp.py``), and then
with devices that wait for program order (``simulate/judge.py``). With a budget, ``auto`` then
improves on the best (``improve.py``) until the budget is spent or the lower bound is reached.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from baechi_jax.passes.placement.baselines import expert, single
from baechi_jax.passes.placement.bounds import MemoryGap, makespan_bound, memory_gap
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.improve import SearchBudget, improve
from baechi_jax.passes.placement.infeasible import infeasible
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_arrays import memory_is_ample
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_sct import m_sct
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.memory_milp import pack_by_milp
from baechi_jax.passes.placement.milp import milp
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.repair import enumerate_all, pack, repair
from baechi_jax.passes.simulate.judge import ALL_RULES, RULES, judge
from baechi_jax.passes.simulate.simulator import Simulation

logger = logging.getLogger(__name__)

#: Names that ``choose`` takes; ``single:2`` is device 2 alone.
PLACERS = ("auto", "single", "expert", "m-topo", "m-etf", "m-sct", "milp")

#: Nodes that ``milp`` searches in the portfolio, and the pairs of group and device up to which it
#: does. It runs where more than this share of the step might be gained.
MILP_NODES = 100
_MILP_CHOICES = 400
_MILP_GAIN = 0.01

#: Shares of the limits within which the packing program leaves room for copies, tried in turn.
_PACKING_SHARES = (0.97, 0.88)
#: Most seconds for each run of the packing program.
_PACKING_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement and what the simulator says of it."""

    placement: Placement
    simulation: Simulation
    fits: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen candidate, and all that were looked at in the order in which they came.

    No step of any placement is shorter than ``bound_seconds``.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    bound_seconds: float

    @property
    def gap(self) -> float:
        """How much shorter the best step could be at most, as a share of it."""
        makespan = self.best.simulation.makespan_seconds
        return (makespan - self.bound_seconds) / makespan if makespan > 0 else 0.0


def choose(
    problem: PlacementProblem,
    placer: str = "auto",
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    auto_milp_nodes: int = MILP_NODES,
    budget: SearchBudget | None = None,
) -> Choice:
    """Place by ``placer``, one of ``PLACERS``.

    ``time_limit``: seconds for each solver run. ``auto_milp_nodes``: nodes of its search that
    ``milp`` gets in ``auto``; zero leaves it out. ``budget``: what ``auto`` may spend on improving
    the best; with steps the outcome depends on nothing but the problem and ``seed``. Raises
    PlacerError for an unknown placer or one that cannot be used on this problem,
    InfeasiblePlacementError when nothing fits.
    """
    chooser = _Chooser(problem, placer, time_limit, seed)
    for propose in chooser.proposals():
        chooser.consider(propose)
    if placer == "auto" and auto_milp_nodes > 0 and chooser.is_worth_solving():
        chooser.consider(partial(chooser.milp, auto_milp_nodes))
    choice = chooser.decide()
    if placer == "auto" and budget is not None and problem.devices > 1:
        choice = chooser.improved(choice, budget)
    return choice


class _Chooser:
    def __init__(
        self, problem: PlacementProblem, placer: str, time_limit: float, seed: int
    ) -> None:
        self.problem = problem
        self.placer = placer
        self.time_limit = time_limit
        self.seed = seed
        self.limits = problem.lists.limit_bytes
        self.candidates: list[Candidate] = []
        self.rules: Sequence[int] = RULES
        #: Outcomes of assignments simulated before.
        self.known: dict[tuple[int, ...], Simulation] = {}

    @cached_property
    def profiles(self) -> Profiles:
        """What ledgers share; not needed where memory cannot run out."""
        return Profiles(self.problem)

    # Proposing ----------------------------------------------------------------------------------

    def proposals(self) -> list[Callable[[], Placement]]:
        """The placers to run."""
        problem, placer = self.problem, self.placer
        profiles = None if memory_is_ample(problem) else self.profiles
        singles = [partial(single, problem, device) for device in range(problem.devices)]
        named: dict[str, Callable[[], Placement]] = {
            "m-topo": partial(m_topo, problem, profiles),
            "m-etf": partial(m_etf, problem, profiles),
            "m-sct": partial(m_sct, problem, profiles, seed=self.seed, time_limit=self.time_limit),
            "milp": self.milp,
            "expert": partial(expert, problem),
        }
        if placer == "auto":
            runs: list[Callable[[], Placement]] = [*singles]
            if problem.devices > 1:
                runs += [named["m-topo"], named["m-etf"], named["m-sct"]]
                if bool((problem.pinned >= 0).any()):
                    runs.append(named["expert"])
            return runs
        if placer == "single":
            return [*singles]
        if placer.startswith("single:"):
            device = placer.removeprefix("single:")
            if device.isdecimal() and int(device) < problem.devices:
                return [singles[int(device)]]
            raise PlacerError(
                f"placer '{placer}': there is no device '{device}'; the machine has "
                f"{problem.devices}, from 0"
            )
        if placer not in named:
            raise PlacerError(f"unknown placer '{placer}'; there are: {', '.join(PLACERS)}")
        return [named[placer]]

    def milp(self, max_nodes: int | None = None) -> Placement:
        """The program, started from the best candidate so far as well."""
        return milp(
            self.problem,
            self.profiles,
            time_limit=self.time_limit,
            max_nodes=max_nodes,
            seed=self.seed,
            hints=[self._device_of_group(each.placement.assignment) for each in self.candidates],
        )

    # Judging ------------------------------------------------------------------------------------

    def consider(self, propose: Callable[[], Placement]) -> None:
        """Run a placer, simulate what it proposes, repair it where it does not fit.

        One that cannot be used on this problem is left out of the portfolio.
        """
        before = time.perf_counter()
        try:
            placement = propose()
        except PlacerError as error:
            if self.placer != "auto":
                raise
            logger.warning("left out of the portfolio: %s", error)
            return
        logger.debug("%s took %.3f s", placement.placer, time.perf_counter() - before)
        candidate = self._judge(placement)
        one_device = placement.placer.startswith("single")
        if not candidate.fits and not one_device and self.gap is None:
            candidate = self._repaired(candidate)
        self.candidates.append(candidate)

    def is_worth_solving(self) -> bool:
        """Whether a program of reasonable size may find what is much shorter, or what fits."""
        choices = sum(map(len, self.problem.allowed))
        if self.problem.devices == 1 or self.gap is not None or choices > _MILP_CHOICES:
            return False
        best = min(
            (each.simulation.makespan_seconds for each in self.candidates if each.fits),
            default=math.inf,
        )
        return makespan_bound(self.problem) < (1 - _MILP_GAIN) * best

    @cached_property
    def gap(self) -> MemoryGap | None:
        """The proof that nothing fits, if there is one."""
        return memory_gap(self.problem)

    def _judge(self, placement: Placement) -> Candidate:
        simulation = self.known.get(placement.assignment)
        if simulation is None:
            simulation = judge(self.problem, placement.assignment, self.rules)
            self.known[placement.assignment] = simulation
        return Candidate(placement, simulation, simulation.fits(self.limits))

    def _repaired(self, candidate: Candidate) -> Candidate:
        group_device = self._device_of_group(candidate.placement.assignment)
        outcome = repair(self.problem, self.profiles, group_device, self.rules)
        if not outcome.moves:
            return candidate
        placement = replace(
            candidate.placement,
            assignment=expand(self.problem, outcome.device_of_group),
            status="repaired",
            notes=(
                *candidate.placement.notes,
                f"{outcome.moves} groups were moved to keep the memory limits",
            ),
        )
        return Candidate(placement, outcome.simulation, outcome.excess_bytes == 0)

    def _device_of_group(self, assignment: Sequence[int]) -> list[int]:
        return [assignment[members[0]] for members in self.problem.members]

    # Deciding -----------------------------------------------------------------------------------

    def decide(self) -> Choice:
        """The best that fits, after packing for memory alone where nothing does."""
        if self.gap is None and not self.placer.startswith("single"):
            proposals = [
                each for each in self.candidates if not each.placement.placer.startswith("single")
            ]
            if any(not each.fits for each in proposals):
                # Memory is what matters here.
                self._pack()
            if not self._something_fits():
                self._pack_by_program()
        if self.gap is None and not self._something_fits():
            self._wait()
        fitting = [candidate for candidate in self.candidates if candidate.fits]
        if not fitting:
            raise self._infeasible()
        # The first of equals: single devices come first.
        best = min(fitting, key=lambda each: each.simulation.makespan_seconds)
        bound = max(makespan_bound(self.problem), best.placement.bound_seconds)
        # A solver's bound is as exact as its arithmetic.
        bound = min(bound, best.simulation.makespan_seconds)
        return Choice(best, tuple(self.candidates), bound)

    def improved(self, choice: Choice, budget: SearchBudget) -> Choice:
        """The choice after ``budget`` more; never a worse one."""
        fitting = sorted(
            (each for each in self.candidates if each.fits),
            key=lambda each: each.simulation.makespan_seconds,
        )
        if choice.gap <= 0:
            return choice
        starts = [self._device_of_group(each.placement.assignment) for each in fitting]
        found = improve(self.problem, starts, choice.bound_seconds, budget, self.seed)
        candidate = self._judge(
            Placement(
                f"{choice.best.placement.placer}+search",
                expand(self.problem, found.device_of_group),
                status="improved",
                notes=(f"{found.steps} steps of search in {found.rounds} rounds",),
            )
        )
        if not candidate.fits:
            candidate = self._repaired(candidate)
        self.candidates.append(candidate)
        best = choice.best
        if candidate.fits and (
            candidate.simulation.makespan_seconds < best.simulation.makespan_seconds
        ):
            best = candidate
        bound = min(choice.bound_seconds, best.simulation.makespan_seconds)
        return Choice(best, tuple(self.candidates), bound)

    def _something_fits(self) -> bool:
        return any(candidate.fits for candidate in self.candidates)

    def _pack(self) -> None:
        if self.problem.devices == 1 or not self.problem.groups:
            return
        self._add_packing("packing", pack(self.problem, self.profiles, self.limits))

    def _pack_by_program(self) -> None:
        if self.problem.devices == 1 or not self.problem.groups:
            return
        packed = self._device_of_group(self.candidates[-1].placement.assignment)
        for share in _PACKING_SHARES:
            if self.candidates[-1].fits:
                return
            found = pack_by_milp(
                self.problem,
                self.profiles,
                packed,
                [int(limit * share) for limit in self.limits],
                time_limit=min(self.time_limit, _PACKING_SECONDS),
                seed=self.seed,
            )
            if found is not None:
                self._add_packing("packing program", found)

    def _wait(self) -> None:
        """Judge once more, now with devices that wait where that saves memory; then try all."""
        self.rules = ALL_RULES
        self.known.clear()
        before, self.candidates = self.candidates, []
        for candidate in before:
            again = self._judge(candidate.placement)
            one_device = candidate.placement.placer.startswith("single")
            self.candidates.append(again if again.fits or one_device else self._repaired(again))
        if not self._something_fits() and not self.placer.startswith("single"):
            found = enumerate_all(self.problem)
            if found is not None:
                self._add_packing("all placements", found)

    def _add_packing(self, name: str, device_of_group: list[int]) -> None:
        candidate = self._judge(
            Placement(
                name,
                expand(self.problem, device_of_group),
                status="packed",
                notes=("no placer's proposal kept the memory limits; placed by memory alone",),
            )
        )
        self.candidates.append(candidate if candidate.fits else self._repaired(candidate))

    def _infeasible(self) -> InfeasiblePlacementError:
        tried = [
            (each.placement.placer, each.placement.assignment, each.simulation)
            for each in self.candidates
        ]
        return infeasible(self.problem, self.profiles, tried, self.gap, self.placer)
