"""Local search on the simulator: move groups, swap them, empty devices.

Only what is on the critical chain of the simulated step can shorten it: the nodes, transfers and
waits that lead from the start of the step to its end without a gap. So that is where moves come
from. For a transfer on the chain: its readers go to the producer, or the producer to them. For a
node that waits for its processor: it, or what it waits for, goes elsewhere. A move that shortens
the step but passes a memory limit is tried once more as a swap. Moves are tried in order of the
seconds that they are about; the first that helps is kept. Before a simulation, a bound
(``latency_model.py``) tells whether it could help at all, and the simulation of a step that turns
out too long is given up.

Deterministic; stops after a number of simulations, when too many in a row did not help, or when
nothing is left to try.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.baselines import group_edges
from baechi_jax.passes.placement.latency_model import LatencyGraph
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.simulate.judge import LONGEST_WAY, judge, play, play_within

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate.simulator import Simulation

#: An improvement is at least this share of the step.
_LEAST_GAIN = 1e-3
#: Partners that are tried for a swap.
_PARTNERS = 3


@dataclass(frozen=True, slots=True)
class Improved:
    """What the search ends with."""

    device_of_group: list[int]
    simulation: Simulation
    evaluations: int
    improvements: int


@dataclass(frozen=True, slots=True)
class _Link:
    """One piece of the critical chain.

    A transfer of ``tensor`` to ``device``, or (``tensor`` -1) the wait of ``node`` for ``blocker``.
    """

    seconds: float
    tensor: int
    device: int
    node: int
    blocker: int


@dataclass(frozen=True, slots=True)
class _Graph:
    """What does not depend on where a search starts."""

    latency: LatencyGraph
    edges: list[dict[int, int]]


def local_search(
    problem: PlacementProblem,
    device_of_group: list[int],
    *,
    evaluations: int,
    others: Iterable[list[int]] = (),
    patience: int | None = None,
) -> Improved:
    """Improve a placement with at most ``evaluations`` simulations beyond the first.

    When nothing helps any more, what is left of them is spent on improving ``others``, one after
    another; the best of all is returned, the given placement before an equal one. ``patience``: the
    whole ends after so many simulations in a row that do not help.

    One of the others that the search came by already is left out: from there it would go the same
    way.
    """
    graph = _Graph(LatencyGraph.of(problem), group_edges(problem))
    patience = evaluations if patience is None else patience
    search = _Search(problem, graph, device_of_group, evaluations, patience)
    best = search.run()
    passed = set(search.passed)
    used, improvements = best.evaluations, best.improvements
    limits = problem.lists.limit_bytes
    remaining = iter(others)
    while used < evaluations and search.patience > 0:
        other = next(remaining, None)
        if other is None:
            break
        if tuple(other) in passed:
            continue
        search = _Search(problem, graph, other, evaluations - used - 1, patience, search.patience)
        found = search.run()
        used += found.evaluations + 1
        passed.update(search.passed)
        key = (found.simulation.excess_bytes(limits), found.simulation.makespan_seconds)
        if key < (best.simulation.excess_bytes(limits), best.simulation.makespan_seconds):
            best, improvements = found, improvements + found.improvements + 1
    return Improved(best.device_of_group, best.simulation, used, improvements)


class _Search:
    def __init__(
        self,
        problem: PlacementProblem,
        graph: _Graph,
        device_of_group: list[int],
        evaluations: int,
        patience: int,
        patience_left: int | None = None,
    ) -> None:
        self.problem = problem
        self.limits = problem.lists.limit_bytes
        self.device = list(device_of_group)
        self.simulation = judge(problem, expand(problem, self.device))
        self.excess = self.simulation.excess_bytes(self.limits)
        self.allowance = evaluations
        self.full_patience = patience
        #: Simulations that may still fail in a row.
        self.patience = patience if patience_left is None else patience_left
        self.used = 0
        self.improvements = 0
        self.graph = graph
        self.seen = {tuple(self.device)}
        #: The placements that it had, one better than the other.
        self.passed = [tuple(self.device)]

    def run(self) -> Improved:
        """Climb until nothing helps."""
        while not self._is_over() and self._improve():
            self.improvements += 1
        return Improved(self.device, self.simulation, self.used, self.improvements)

    def _is_over(self) -> bool:
        return self.used >= self.allowance or self.patience <= 0

    def _improve(self) -> bool:
        """Make the first change that helps; False when none does."""
        for change in self._changes():
            if self._is_over():
                return False
            excess = self._try(change)
            if excess < 0:
                return True
            if excess > 0 and len(change) == 1:
                for swap in self._swaps(*change[0]):
                    if self._is_over():
                        return False
                    if self._try(swap) < 0:
                        return True
        return False

    def _try(self, change: list[tuple[int, int]]) -> int:
        """Apply ``change`` if it helps.

        Returns -1 when it does; the bytes above the limits when only they stand against it; else 0.
        """
        device = list(self.device)
        for group, target in change:
            device[group] = target
        key = tuple(device)
        if key in self.seen:
            return 0
        self.seen.add(key)
        longest = self.simulation.makespan_seconds
        wanted = longest * (1 - _LEAST_GAIN)
        if not self.excess and self.graph.latency.exceeds(device, wanted):
            return 0
        self.used += 1
        self.patience -= 1
        assignment = expand(self.problem, device)
        if self.excess:
            outcome = play(self.problem, assignment, LONGEST_WAY)
        else:
            within = play_within(self.problem, assignment, wanted)
            if within is None:
                return 0
            outcome = within
        excess = outcome.excess_bytes(self.limits)
        shorter = outcome.makespan_seconds <= wanted
        if excess and (shorter or self.excess):
            # Other rules take less memory, and seldom less time.
            outcome = judge(self.problem, assignment, played=outcome)
            excess = outcome.excess_bytes(self.limits)
            shorter = outcome.makespan_seconds <= wanted
        if excess < self.excess or (excess == self.excess and shorter):
            self.device, self.simulation, self.excess = device, outcome, excess
            self.patience = self.full_patience
            self.passed.append(key)
            return -1
        return excess if shorter else 0

    # Changes ------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[list[tuple[int, int]]]:
        problem, lists = self.problem, self.problem.lists
        links = self._chain()
        links.sort(key=lambda link: (-link.seconds, link.node, link.tensor))
        busy = self.simulation.busy_seconds
        idle_first = sorted(range(problem.devices), key=lambda each: (busy[each], each))
        for link in links:
            if link.tensor >= 0:
                producer = lists.group[lists.producer[link.tensor]]
                source = self.device[producer]
                readers = dict.fromkeys(
                    lists.group[reader]
                    for reader in lists.readers[link.tensor]
                    if self.device[lists.group[reader]] == link.device
                )
                movable = [group for group in readers if source in problem.allowed[group]]
                for group in movable:
                    yield [(group, source)]
                if len(movable) > 1:
                    yield [(group, source) for group in movable]
                if link.device in problem.allowed[producer]:
                    yield [(producer, link.device)]
            else:
                for node in (link.blocker, link.node):
                    group = lists.group[node]
                    for target in idle_first:
                        if target in problem.allowed[group] and target != self.device[group]:
                            yield [(group, target)]
        yield from self._emptied()

    def _emptied(self) -> Iterator[list[tuple[int, int]]]:
        """Everything from one device to another."""
        problem = self.problem
        for source in range(problem.devices):
            here = [group for group, device in enumerate(self.device) if device == source]
            for target in range(problem.devices):
                if target == source:
                    continue
                change = [(group, target) for group in here if target in problem.allowed[group]]
                if change:
                    yield change

    def _swaps(self, group: int, target: int) -> Iterator[list[tuple[int, int]]]:
        """``group`` to ``target``, and one group from there in its place: those nearest to it."""
        source = self.device[group]
        near: list[tuple[int, int]] = []
        for other, device in enumerate(self.device):
            if device != target or source not in self.problem.allowed[other]:
                continue
            gain = sum(
                nbytes if self.device[each] == source else -nbytes
                for each, nbytes in self.graph.edges[other].items()
                if self.device[each] in (source, target)
            )
            near.append((-gain, other))
        near.sort()
        for _, other in near[:_PARTNERS]:
            yield [(group, target), (other, source)]

    # The critical chain -------------------------------------------------------------------------

    def _chain(self) -> list[_Link]:
        """What leads to the end of the step without a gap, last first."""
        problem, lists, simulation = self.problem, self.problem.lists, self.simulation
        start, end = simulation.start_seconds, simulation.end_seconds
        assignment = expand(problem, self.device)
        arrival = {(move.tensor, move.target): move for move in simulation.transfers}
        before = self._run_before(assignment)
        tasks = [node for node in range(problem.nodes) if not lists.is_argument[node]]
        links: list[_Link] = []
        if not tasks:
            return links
        node = max(tasks, key=lambda each: (end[each], each))
        while start[node] > 0:
            device = assignment[node]
            cause, latest = -1, -1.0
            for tensor in lists.reads[node]:
                move = arrival.get((tensor, device))
                time = end[lists.producer[tensor]] if move is None else move.end_seconds
                if time > latest:
                    cause, latest = tensor, time
            blocker = before[node]
            if blocker >= 0 and end[blocker] > latest:
                waited = start[node] - max(latest, 0.0)
                links.append(_Link(waited, -1, device, node, blocker))
                node = blocker
                continue
            if cause < 0:
                break
            move = arrival.get((cause, device))
            if move is not None:
                producer = lists.producer[cause]
                links.append(_Link(move.end_seconds - end[producer], cause, device, node, producer))
            node = lists.producer[cause]
        return links

    def _run_before(self, assignment: tuple[int, ...]) -> list[int]:
        """The node that ran before each on its processor, or -1."""
        problem = self.problem
        start, end = self.simulation.start_seconds, self.simulation.end_seconds
        order = sorted(
            (node for node in range(problem.nodes) if not problem.lists.is_argument[node]),
            key=lambda node: (start[node], end[node], problem.position[node]),
        )
        last = [-1] * problem.machine.processors
        before = [-1] * problem.nodes
        for node in order:
            processor = problem.lists.processor[assignment[node]]
            before[node] = last[processor]
            last[processor] = node
        return before
