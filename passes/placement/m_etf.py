"""m-ETF: earliest task first, with memory (Baechi, section 3.1.2). See ``list_scheduling.py``.

Nodes of a group that follow one another are scheduled as one (``fusion.py``).
"""

from __future__ import annotations

from baechi_jax.passes.placement.fusion import fuse_groups
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_scheduling import schedule
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem


def m_etf(problem: PlacementProblem, profiles: Profiles | None = None) -> Placement:
    """Place by m-ETF."""
    found = schedule(fuse_groups(problem), profiles)
    return Placement(
        "m-etf",
        expand(problem, found.device_of_group),
        objective_seconds=found.makespan_seconds,
        overflows=found.overflows,
    )
