"""m-ETF: earliest task first, with memory (Baechi, section 3.1.2). See ``list_scheduling.py``."""

from __future__ import annotations

from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_scheduling import ListScheduler
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem


def m_etf(problem: PlacementProblem, profiles: Profiles | None = None) -> Placement:
    """Place by m-ETF."""
    scheduler = ListScheduler(problem, Profiles(problem) if profiles is None else profiles)
    device_of_group = scheduler.run()
    return Placement(
        "m-etf",
        expand(problem, device_of_group),
        objective_seconds=scheduler.makespan,
        overflows=scheduler.overflows,
    )
