"""m-SCT: small communication times, with memory (Baechi, section 3.1.3).

A linear program picks favourite children (``favourite_children.py``); the earliest-task scheduler
then keeps a device awake for the favourite child of what it has just run (``list_scheduling.py``).
Nodes of a group that follow one another are scheduled as one (``fusion.py``).
"""

from __future__ import annotations

from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.fusion import fuse_groups
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_scheduling import schedule
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem


def m_sct(
    problem: PlacementProblem,
    profiles: Profiles | None = None,
    *,
    seed: int = 0,
    time_limit: float = 10.0,
) -> Placement:
    """Place by m-SCT; raises PlacerError when its program takes longer than ``time_limit``."""
    fused = fuse_groups(problem)
    favourites = favourite_children(fused.problem, seed=seed, time_limit=time_limit)
    found = schedule(fused, profiles, favourites.child)
    return Placement(
        "m-sct",
        expand(problem, found.device_of_group),
        objective_seconds=found.makespan_seconds,
        overflows=found.overflows,
    )
