"""``milp``: placement as a mixed-integer program.

It minimises ``model_seconds`` (``latency_model.py``), a lower bound on the simulated makespan of
each assignment, so its own bound holds for every placement within the memory rows. With few pairs
of nodes that may overlap in time (``ORDERED_PAIRS``), the order of nodes on a processor is in the
program too; then only waiting for links is left out.

Memory: at the worst moments of program order, groups and copies on a device take at most its limit
(``ledger.py``). Copies live from the producer to the last reader in any other group.

Warm start: the best of the heuristics that keeps the memory rows. Equal devices are numbered in the
order in which groups come to them, which takes away their permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.baselines import single
from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.latency_model import LatencyGraph
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.milp_model import MilpModel
from baechi_jax.passes.placement.milp_solve import keeps_memory, solve, start_from, value
from baechi_jax.passes.placement.placement import Placement, expand

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem

#: Most pairs of nodes whose order the program decides.
ORDERED_PAIRS = 250
#: Most variables that say which group is on which device.
MOST_CHOICES = 3000
#: Most nodes after contraction.
MOST_NODES = 1500
#: A solution is called optimal within this share of its value.
TOLERANCE = 1e-4


def milp(
    problem: PlacementProblem,
    profiles: Profiles | None = None,
    *,
    time_limit: float = 10.0,
    max_nodes: int | None = None,
    seed: int = 0,
    solver: str = "auto",
    hints: Sequence[Sequence[int]] = (),
) -> Placement:
    """Solve the program for at most ``time_limit`` seconds, or ``max_nodes`` nodes of the search.

    ``hints``: further device-per-group placements to start from. A limit that is hit gives the best
    placement so far, with its bound. Raises PlacerError when the problem is too large.
    """
    profiles = Profiles(problem) if profiles is None else profiles
    graph = LatencyGraph.of(problem)
    choices = sum(len(allowed) for allowed in problem.allowed)
    if choices > MOST_CHOICES or len(graph.group) > MOST_NODES:
        raise PlacerError(
            f"placer 'milp' takes up to {MOST_CHOICES} pairs of group and device and {MOST_NODES} "
            f"tasks, found {choices} and {len(graph.group)}; lower fuse-tasks{{max-tasks}}, or use "
            "m-sct"
        )
    starts = [
        _device_of_group(problem, placement.assignment)
        for placement in (
            *(single(problem, device) for device in range(problem.devices)),
            m_topo(problem, profiles),
            m_etf(problem, profiles),
        )
    ]
    starts += [list(hint) for hint in hints]
    if problem.groups == 0 or choices == problem.groups:
        return Placement(
            "milp",
            expand(problem, starts[0]),
            status="optimal",
            bound_seconds=graph.model_seconds(starts[0]),
            objective_seconds=graph.model_seconds(starts[0]),
        )
    model = MilpModel.build(problem, profiles, graph, ORDERED_PAIRS, seed=seed, solver=solver)
    feasible = [start for start in starts if keeps_memory(model, start)]
    best = min(feasible, key=lambda start: value(model, start), default=None)
    if best is not None:
        start_from(model, best)
    outcome = solve(model, time_limit=time_limit, max_nodes=max_nodes, tolerance=TOLERANCE)
    if outcome.device_of_group is None:
        fallback = min(starts, key=graph.model_seconds) if best is None else best
        return Placement(
            "milp",
            expand(problem, fallback),
            status=outcome.status,
            bound_seconds=outcome.bound_seconds,
            notes=("the program gave no placement; this is the heuristic that it started from",),
        )
    return Placement(
        "milp",
        expand(problem, outcome.device_of_group),
        status=outcome.status,
        bound_seconds=outcome.bound_seconds,
        objective_seconds=outcome.objective_seconds,
    )


def _device_of_group(problem: PlacementProblem, assignment: Sequence[int]) -> list[int]:
    return [assignment[members[0]] for members in problem.members]
