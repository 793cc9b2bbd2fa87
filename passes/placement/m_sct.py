"""m-SCT: small communication times, with memory (Baechi, section 3.1.3).

A linear program picks favourite children (``favourite_children.py``); the earliest-task scheduler
then keeps a device awake for the favourite child of what it has just run (``list_scheduling.py``).
"""

from __future__ import annotations

from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_scheduling import ListScheduler
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
    favourites = favourite_children(problem, seed=seed, time_limit=time_limit)
    scheduler = ListScheduler(
        problem, Profiles(problem) if profiles is None else profiles, favourites.child
    )
    device_of_group = scheduler.run()
    return Placement(
        "m-sct",
        expand(problem, device_of_group),
        objective_seconds=scheduler.makespan,
        overflows=scheduler.overflows,
    )
