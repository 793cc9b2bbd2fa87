"""The simulation that a placement is judged by: the best of a few rules of who goes first.

``schedule`` tries rules too, and placing by the worst of them would be placing for a step that
nobody runs.

- ``LONGEST_WAY``: of the ready nodes, the one whose longest way to the end takes most seconds.
  Short steps.
- ``PROGRAM_ORDER``: of the ready nodes, the first in program order. Keeps less in memory.
- ``STRICT_ORDER``: each device runs its nodes in program order and waits for each. Where a node can
  run long before it is wanted (a value computed again for the backward pass), only this keeps its
  results from lying about. Not among the rules unless asked for: a step that depends on waits is
  easily upset by what later passes do.

Under the communication model ``channel`` there is one rule, the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from baechi_jax.passes.simulate.compiled import longest_way_compiled, worth_compiling
from baechi_jax.passes.simulate.simulator import Simulation, simulate, simulate_within

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem

LONGEST_WAY, PROGRAM_ORDER, STRICT_ORDER = range(3)
#: In the order in which ``judge`` tries them.
RULES = (LONGEST_WAY, PROGRAM_ORDER)
#: With waiting, for when nothing keeps the limits otherwise.
ALL_RULES = (LONGEST_WAY, PROGRAM_ORDER, STRICT_ORDER)


def judge(
    problem: PlacementProblem,
    assignment: Sequence[int],
    rules: Sequence[int] = RULES,
    played: Simulation | None = None,
) -> Simulation:
    """Simulate under one rule after another until one keeps the memory limits.

    If none does, the one that is above them by the fewest bytes; of equals, the shorter. ``played``
    is the simulation under the first rule, where that is known. Raises PlacementProblemError when
    the assignment does not fit the problem.
    """
    return judge_with_rule(problem, assignment, rules, played)[0]


def judge_with_rule(
    problem: PlacementProblem,
    assignment: Sequence[int],
    rules: Sequence[int] = RULES,
    played: Simulation | None = None,
) -> tuple[Simulation, int]:
    """``judge``, and the rule that it chose."""
    limits = problem.lists.limit_bytes
    if problem.machine.communication == "channel":
        rules = rules[:1]
    best: tuple[int, float, int] | None = None
    chosen: Simulation | None = None
    for rule in rules:
        simulation = played if played is not None else play(problem, assignment, rule)
        played = None
        excess = simulation.excess_bytes(limits)
        key = (excess, simulation.makespan_seconds, rule)
        if best is None or key < best:
            best, chosen = key, simulation
        if not excess:
            break
    assert best is not None
    assert chosen is not None
    return chosen, best[2]


def play(problem: PlacementProblem, assignment: Sequence[int], rule: int) -> Simulation:
    """Simulate under one of ``ALL_RULES``."""
    if problem.machine.communication == "channel":
        return simulate(problem, assignment)
    if rule == STRICT_ORDER:
        return simulate(problem, assignment, problem.order)
    if rule == PROGRAM_ORDER:
        return simulate(problem, assignment)
    return simulate(problem, assignment, priority=_task_ways(problem, assignment))


def play_within(
    problem: PlacementProblem, assignment: Sequence[int], limit_seconds: float
) -> Simulation | None:
    """``play`` by ``LONGEST_WAY``, or None where the step surely takes over ``limit_seconds``.

    Much quicker than ``play`` where it does: it ends at the first node that comes too late.
    """
    if problem.machine.communication == "channel":
        return simulate(problem, assignment)
    return simulate_within(problem, assignment, _task_ways(problem, assignment), limit_seconds)


def longest_way(problem: PlacementProblem, assignment: Sequence[int]) -> list[float]:
    """For each node, minus the seconds from its start to the end of the step on its longest way.

    Transfers count where the ends are on different devices. As a priority: longest way first.
    """
    if worth_compiling(problem):
        return longest_way_compiled(problem, assignment)
    return _ways(problem, assignment, problem.order)


def _task_ways(problem: PlacementProblem, assignment: Sequence[int]) -> list[float]:
    """``longest_way`` of the tasks, which is all that a simulation asks for."""
    if worth_compiling(problem):
        return longest_way_compiled(problem, assignment)
    return _ways(problem, assignment, problem.tasks_in_order)


def _ways(
    problem: PlacementProblem, assignment: Sequence[int], order: Sequence[int]
) -> list[float]:
    lists, edges = problem.lists, problem.heaviest_edges
    latency, per_byte, takes = lists.latency_seconds, lists.seconds_per_byte, lists.seconds
    way = [0.0] * problem.nodes
    for node in reversed(order):
        here = assignment[node]
        longest = 0.0
        for reader, nbytes in edges[node]:
            seconds = way[reader]
            there = assignment[reader]
            if there != here:
                seconds -= latency[here][there] + nbytes * per_byte[here][there]
            if seconds < longest:
                longest = seconds
        way[node] = longest - takes[node][here]
    return way
