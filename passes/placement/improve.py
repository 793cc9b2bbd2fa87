"""Improving the best placements of a portfolio within a budget.

Under the channel model by the searches of ``channel_search.py``: sweeps by windows where the
problem is large and every node a group of its own, annealing elsewhere, round after round from the
best so far (the first rounds from different placements). Under the project's links by
``local_search.py``.

With a budget in steps (annealing moves, trials of a sweep, simulations of the local search) the
outcome is the same on every machine; with one in seconds it depends on how many rounds they are
enough for. Ctrl-C between two rounds ends it with the best so far.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.channel_search import MOST_COSTS, ChannelSearch
from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.local_search import local_search
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.simulate.judge import judge

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem

logger = logging.getLogger(__name__)

#: From so many nodes on, sweeps instead of annealing.
SWEEP_NODES = 2500
#: Window, nodes looked ahead, trials for each window; in turn.
_SWEEPS = ((200, 600, 500), (300, 900, 1000), (150, 450, 1000), (250, 750, 2000))
#: Moves of a round of annealing, for each group, and at most.
_MOVES_PER_GROUP, _MOST_MOVES = 30, 20_000
#: Heat at the start of annealing, as a share of the step, in turn.
_HEATS = (3e-3, 1e-3, 6e-3, 2e-3)
#: How many placements get a round of their own first.
_STARTS = 3
#: A gap that is as good as closed, relative.
_CLOSED = 1e-9


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """``steps`` if given, else ``seconds``."""

    seconds: float = 10.0
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Improvement:
    """The best placement of groups found, and what it took."""

    device_of_group: list[int]
    rounds: int
    steps: int


def improve(
    problem: PlacementProblem,
    starts: Sequence[list[int]],
    bound_seconds: float,
    budget: SearchBudget,
    seed: int,
) -> Improvement:
    """Improve on ``starts``, the best first; stops early at ``bound_seconds``."""
    if problem.machine.communication == "links":
        return _by_links(problem, starts, budget)
    if problem.tensors * problem.devices**2 > MOST_COSTS:
        return Improvement(starts[0], 0, 0)
    return _by_channels(problem, starts, bound_seconds, budget, seed)


def _by_links(
    problem: PlacementProblem, starts: Sequence[list[int]], budget: SearchBudget
) -> Improvement:
    evaluations = budget.steps
    if evaluations is None:
        before = now()
        judge(problem, expand(problem, starts[0]))
        each = max(1e-5, now() - before)
        evaluations = int(budget.seconds / each)
    found = local_search(problem, starts[0], evaluations=evaluations, others=starts[1:_STARTS])
    return Improvement(found.device_of_group, 1, found.evaluations)


def _by_channels(
    problem: PlacementProblem,
    starts: Sequence[list[int]],
    bound_seconds: float,
    budget: SearchBudget,
    seed: int,
) -> Improvement:
    search = ChannelSearch(problem)
    deadline = now() + budget.seconds
    ranked = sorted((search.makespan(each), index) for index, each in enumerate(starts))
    shortest, first = ranked[0]
    best = starts[first]
    large = problem.groups == problem.nodes and problem.nodes >= SWEEP_NODES
    play = _sweep if large else _anneal
    steps = rounds = 0
    while shortest > bound_seconds * (1 + _CLOSED):
        if budget.steps is None and now() >= deadline:
            break
        left = None if budget.steps is None else budget.steps - steps
        if left is not None and left <= 0:
            break
        start = best
        if not large and rounds < min(_STARTS, len(starts)):
            start = starts[ranked[rounds][1]]
        try:
            found, length, used = play(search, start, shortest, rounds, seed, left)
        except KeyboardInterrupt:
            logger.info("interrupted after %d rounds; the best so far is kept", rounds)
            break
        steps += used
        rounds += 1
        if length < shortest:
            best, shortest = found, length
    return Improvement(best, rounds, steps)


def _anneal(
    search: ChannelSearch, start: list[int], shortest: float, turn: int, seed: int, left: int | None
) -> tuple[list[int], float, int]:
    groups = search.problem.groups
    steps = max(1000, min(_MOST_MOVES, _MOVES_PER_GROUP * groups))
    steps = steps if left is None else min(steps, left)
    heat = shortest * _HEATS[turn % len(_HEATS)]
    found, length = search.anneal(
        start, steps=steps, seed=seed + turn, hot_seconds=heat, cold_seconds=heat / 30
    )
    return found, length, steps


def _sweep(
    search: ChannelSearch, start: list[int], shortest: float, turn: int, seed: int, left: int | None
) -> tuple[list[int], float, int]:
    window, ahead, trials = _SWEEPS[turn % len(_SWEEPS)]
    windows = -(-search.problem.nodes // window)
    if left is not None:
        trials = max(1, min(trials, left // windows))
    found, length = search.sweep(
        start,
        window=window,
        ahead=ahead,
        trials=trials,
        seed=seed + turn,
        hot_seconds=shortest * 1e-5 / (1 + turn // len(_SWEEPS)),
    )
    return found, length, trials * windows
