"""``auto``: a portfolio. Every placer proposes, the simulator judges, the best that fits wins."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from baechi_jax.passes.placement.baselines import expert, single
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.placement import Placement
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.simulate.simulator import Simulation, simulate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement and what the simulator says of it."""

    placement: Placement
    simulation: Simulation
    fits: bool
    #: Seconds that the placer took.
    seconds: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen candidate and all that were looked at."""

    best: Candidate
    candidates: tuple[Candidate, ...]


def choose(problem: PlacementProblem, placer: str, *, time_limit: float, seed: int) -> Choice:
    """Place by ``placer``; ``auto`` tries them all.

    Raises PlacerError for an unknown placer, InfeasiblePlacementError when nothing fits.
    """
    profiles = Profiles(problem)
    proposals: dict[str, Callable[[], Placement]] = {
        "m-topo": lambda: m_topo(problem, profiles),
        "m-etf": lambda: m_etf(problem, profiles),
        "expert": lambda: expert(problem),
    }
    runs: list[Callable[[], Placement]]
    if placer == "auto":
        runs = [lambda device=device: single(problem, device) for device in range(problem.devices)]
        runs += [proposals[name] for name in ("m-topo", "m-etf")]
        if (problem.pinned >= 0).any():
            runs.append(proposals["expert"])
    elif placer == "single":
        runs = [lambda device=device: single(problem, device) for device in range(problem.devices)]
    elif placer in proposals:
        runs = [proposals[placer]]
    else:
        raise PlacerError(
            f"unknown placer '{placer}'; there are: auto, single, {', '.join(sorted(proposals))}"
        )
    candidates: list[Candidate] = []
    for run in runs:
        before = time.perf_counter()
        placement = run()
        seconds = time.perf_counter() - before
        simulation = simulate(problem, placement.assignment)
        fits = simulation.fits(problem.lists.limit_bytes)
        candidates.append(Candidate(placement, simulation, fits, seconds))
    fitting = [each for each in candidates if each.fits]
    if not fitting:
        raise InfeasiblePlacementError("nothing fits")
    best = min(fitting, key=lambda each: each.simulation.makespan_seconds)
    return Choice(best, tuple(candidates))
