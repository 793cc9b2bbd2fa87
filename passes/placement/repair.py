"""Making a placement fit: move groups off devices whose simulated peak is above their limit.

Each round looks at the device that is furthest above its limit at the moment of its peak, ranks the
groups that have bytes there then by how much of the excess each takes away against what its new
place costs, simulates the most promising moves, and keeps the one that leaves the least excess,
then the shortest step. Where that stops short, ``pack`` fills the devices anew with memory alone in
mind, ``memory_milp.py`` solves the packing as a mixed-integer program, and where there are but few
placements ``enumerate_all`` looks at each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.baselines import group_edges
from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.live import live_bytes
from baechi_jax.passes.placement.m_topo import fill
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.simulate.judge import ALL_RULES, RULES, judge, judge_with_rule, play

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate.simulator import Simulation

#: Moves that are simulated in each round.
_TRIED = 6
#: Most rounds.
_ROUNDS = 60
#: Most nodes simulated in one repair, over all simulations.
_NODE_BUDGET = 40_000
#: Most placements that are looked at one by one.
_MOST_PLACEMENTS = 1500
#: Steps of the search for the least fraction of the limits that packing needs.
_PACK_STEPS = 12


@dataclass(frozen=True, slots=True)
class Repaired:
    """A placement of groups and its simulation; it fits if ``excess_bytes`` is zero."""

    device_of_group: list[int]
    simulation: Simulation
    excess_bytes: int
    moves: int


def repair(
    problem: PlacementProblem,
    profiles: Profiles,
    device_of_group: list[int],
    rules: Sequence[int] = RULES,
) -> Repaired:
    """Move groups until every peak is within its limit, or nothing helps any more.

    Moves are simulated under the rule that is best at the start; the outcome is judged by all
    of ``rules``.
    """
    limits = problem.lists.limit_bytes
    device = list(device_of_group)
    simulation, rule = judge_with_rule(problem, expand(problem, device), rules)
    excess = simulation.excess_bytes(limits)
    edges: list[dict[int, int]] | None = None
    budget = max(_TRIED * 4, _NODE_BUDGET // max(1, problem.nodes))
    moves = 0
    # A placement seen before would send the search in circles.
    seen = {tuple(device)}
    while excess and moves < _ROUNDS and budget > 0:
        if edges is None:
            edges = group_edges(problem)
        best: tuple[int, float, int, int] | None = None
        found: Simulation | None = None
        for group, target in _promising(problem, profiles, device, simulation, edges):
            trial = list(device)
            trial[group] = target
            if tuple(trial) in seen:
                continue
            outcome = play(problem, expand(problem, trial), rule)
            budget -= 1
            left = outcome.excess_bytes(limits)
            key = (left, outcome.makespan_seconds, group, target)
            if best is None or key < best:
                best, found = key, outcome
        if best is None or found is None or best[0] >= excess:
            break
        excess, _, group, target = best
        device[group] = target
        seen.add(tuple(device))
        simulation = found
        moves += 1
    if moves:
        simulation = judge(problem, expand(problem, device), rules)
        excess = simulation.excess_bytes(limits)
    return Repaired(device, simulation, excess, moves)


def _promising(
    problem: PlacementProblem,
    profiles: Profiles,
    device: list[int],
    simulation: Simulation,
    edges: list[dict[int, int]],
) -> list[tuple[int, int]]:
    """Moves ``(group, device)`` worth a simulation, the best few first."""
    limits = problem.lists.limit_bytes
    over = [peak - limit for peak, limit in zip(simulation.peak_bytes, limits)]
    source = max(range(problem.devices), key=lambda each: (over[each], -each))
    assignment = expand(problem, device)
    live = live_bytes(problem, assignment, simulation, source)
    ledger = Ledger(profiles)
    for group, at in enumerate(device):
        ledger.place(group, at)
    scored: list[tuple[float, int, int]] = []
    for group, nbytes in live.items():
        if nbytes <= 0 or len(problem.allowed[group]) < 2 or device[group] != source:
            continue
        # What moving takes off the excess, as far as it is needed.
        gain = min(nbytes, over[source])
        near = edges[group]
        here = sum(nbytes for other, nbytes in near.items() if device[other] == source)
        ledger.device[group] = -1
        for target in problem.allowed[group]:
            if target == source:
                continue
            there = sum(nbytes for other, nbytes in near.items() if device[other] == target)
            new = max(0, ledger.excess([group], target), over[target])
            harm = new - max(0, over[target])
            # Bytes of excess left first, then bytes newly cut.
            scored.append((float(harm - gain) + 1e-3 * (here - there), group, target))
        ledger.device[group] = source
    scored.sort()
    return [(group, target) for _, group, target in scored[:_TRIED]]


def enumerate_all(problem: PlacementProblem) -> list[int] | None:
    """The shortest placement that fits, by looking at all; None when none fits, or too many.

    Too many: more than ``_MOST_PLACEMENTS``, or more than ``_NODE_BUDGET`` nodes in all of them.
    """
    count = 1
    for allowed in problem.allowed:
        count *= len(allowed)
        if count > _MOST_PLACEMENTS:
            return None
    if count * problem.nodes > _NODE_BUDGET:
        return None
    limits = problem.lists.limit_bytes
    best: tuple[float, tuple[int, ...]] | None = None
    for device in product(*problem.allowed):
        simulation = judge(problem, expand(problem, device), ALL_RULES)
        key = (simulation.makespan_seconds, device)
        if simulation.fits(limits) and (best is None or key < best):
            best = key
    return None if best is None else list(best[1])


def pack(problem: PlacementProblem, profiles: Profiles, limits: list[int]) -> list[int]:
    """Contiguous filling in topological order up to the least equal fraction of every limit.

    The fraction is found by bisection. Where not even the whole limits hold everything, that
    filling is returned as it is, above some limit.
    """
    best, overflows = fill(problem, profiles, None, limits)
    if overflows:
        return best
    low, high = 0.0, 1.0
    for _ in range(_PACK_STEPS):
        middle = (low + high) / 2
        found, overflows = fill(problem, profiles, None, [int(limit * middle) for limit in limits])
        if overflows:
            low = middle
        else:
            best, high = found, middle
    return best
