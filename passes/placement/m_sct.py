"""m-SCT: small communication times, with memory (Baechi, section 3.1.3).

A linear program picks favourite children (``favourite_children.py``); the earliest-task scheduler
then keeps a device awake for the favourite child of what it has just run (``list_scheduling.py``).
Nodes of a group that follow one another are scheduled as one (``fusion.py``).

Under the channel model the scheduler and the simulator disagree by a tenth and more: the simulator
serves a channel in the order in which nodes become ready, also for what is sent much later. There
the schedule with awake devices is compared in the simulator with the one without, and the better
one gets a short pass of moves that the simulator judges (``channel_search.py``), unless memory is
so tight that a move might pass a limit.
"""

from __future__ import annotations

from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.fusion import fuse_groups
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.list_arrays import memory_is_ample
from baechi_jax.passes.placement.list_scheduling import Scheduled, schedule
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem

#: Moves of the pass at the end, for each group.
_MOVES_PER_GROUP = 10
#: From so many nodes on, by windows; trials for each.
_SWEEP_NODES = 2500
_WINDOW, _AHEAD, _TRIALS = 200, 400, 50


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
    ample = memory_is_ample(problem)
    if problem.machine.communication == "channel" and problem.devices > 1 and ample:
        found = _settle(problem, [found, schedule(fused, profiles)], seed)
    return Placement(
        "m-sct",
        expand(problem, found.device_of_group),
        objective_seconds=found.makespan_seconds,
        overflows=found.overflows,
    )


def _settle(problem: PlacementProblem, schedules: list[Scheduled], seed: int) -> Scheduled:
    """The best of ``schedules`` in the simulator, with a few moves."""
    from baechi_jax.passes.placement.channel_search import ChannelSearch

    search = ChannelSearch(problem)
    lengths = [search.makespan(each.device_of_group) for each in schedules]
    length = min(lengths)
    best = schedules[lengths.index(length)]
    if problem.groups == problem.nodes and problem.nodes >= _SWEEP_NODES:
        moved, shorter = search.sweep(
            best.device_of_group,
            window=_WINDOW,
            ahead=_AHEAD,
            trials=_TRIALS,
            seed=seed,
            hot_seconds=length * 1e-6,
        )
    else:
        moved, shorter = search.anneal(
            best.device_of_group,
            steps=min(2000, _MOVES_PER_GROUP * problem.groups),
            seed=seed,
            hot_seconds=length * 1e-3,
            cold_seconds=length * 1e-4,
        )
    if shorter < length:
        return Scheduled(moved, shorter, best.overflows)
    return Scheduled(best.device_of_group, length, best.overflows)
