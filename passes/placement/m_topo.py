"""m-TOPO: fill the devices one after another in topological order (Baechi, section 3.1.1).

``Cap = (sum of memory) / n + largest memory``, the memory of a group being the most that it has in
use by itself. With unequal devices, each takes the share of the sum that its limit is of all
limits. Beyond the paper, a device is never filled above its real limit, and a group that fits on no
device from the current one on goes where its device stays farthest below its limit.
"""

from __future__ import annotations

from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.units import Units


def m_topo(problem: PlacementProblem, profiles: Profiles | None = None) -> Placement:
    """Place by m-TOPO."""
    profiles = Profiles(problem) if profiles is None else profiles
    memory = profiles.group_peak
    total, largest = sum(memory), max(memory, default=0)
    limits = problem.lists.limit_bytes
    caps = [total * limit / sum(limits) + largest for limit in limits]
    device_of_group, overflows = fill(problem, profiles, caps, limits)
    return Placement("m-topo", expand(problem, device_of_group), overflows=overflows)


def fill(
    problem: PlacementProblem,
    profiles: Profiles,
    caps: list[float] | None,
    limits: list[int],
) -> tuple[list[int], int]:
    """Fill device 0, 1, ... in topological order, each up to its cap of group memory and its limit.

    ``caps`` bounds the sum of what groups have in use each by itself (None: no such bound),
    ``limits`` the bytes in use at once. Returns the device of each group, and how many were placed
    above a limit.
    """
    ledger = Ledger(profiles, limits)
    units = Units(problem, profiles, ledger)
    memory = profiles.group_peak
    filled = [0.0] * problem.devices
    current = 0
    overflows = 0
    is_argument = problem.lists.is_argument
    # A group's place in the order is that of its first task; arguments all come before any task.
    for node in sorted(problem.order, key=is_argument.__getitem__):
        group = problem.lists.group[node]
        if ledger.device[group] >= 0 or units.waits(group):
            continue
        allowed = problem.allowed[group]
        together = units.of(group)
        weight = sum(memory[each] for each in together)
        chosen = -1
        for device in allowed:
            if len(allowed) > 1 and (
                device < current or (caps is not None and filled[device] + weight > caps[device])
            ):
                continue
            if ledger.excess(together, device) <= 0:
                chosen = device
                break
        if chosen < 0:
            excess = {device: ledger.excess(together, device) for device in allowed}
            chosen = min(allowed, key=lambda each: (excess[each], each))
            overflows += excess[chosen] > 0
        elif len(allowed) > 1:
            current = chosen
        for each in together:
            filled[chosen] += memory[each]
            ledger.place(each, chosen)
    overflows += units.place_rest()
    return list(ledger.device), overflows
