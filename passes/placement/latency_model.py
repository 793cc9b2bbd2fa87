"""What the ``milp`` placer minimises: a lower bound on the makespan of each assignment.

``model_seconds(assignment)`` is the largest of

- the longest path, where a node takes its time on its device, and an edge between devices the
  transfer of the largest tensor on it over a free link;
- for windows (a, b) and each processor: a + the time there of the nodes which cannot start before a
  and after whose end at least b must pass + b. The window (0, 0) is the processor's load.

Both hold whatever the order and the contention of links, so it never exceeds the simulated
makespan, and its minimum over all assignments bounds them all. What it leaves out is waiting: for
the processor within a window, and for links.

Nodes of one group that only have each other as successor and predecessor are one node here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem

#: Distinct values of a (and of b) among the windows.
_WINDOWS = 6


@dataclass(frozen=True, slots=True)
class LatencyEdge:
    """``target`` reads ``nbytes`` (its largest tensor) of ``source``; nodes of a LatencyGraph."""

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Window:
    """``nodes`` start no earlier than ``head`` and end at least ``tail`` before the step does."""

    head: float
    tail: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LatencyGraph:
    """The contracted graph, nodes in topological order."""

    problem: PlacementProblem
    group: list[int]
    #: Seconds on each device, ``[node][device]``.
    seconds: list[list[float]]
    is_argument: list[bool]
    edges: list[LatencyEdge]
    #: Least seconds before the start and after the end of each node.
    head: list[float]
    tail: list[float]
    windows: list[Window]

    @staticmethod
    def of(problem: PlacementProblem) -> LatencyGraph:
        """Contract ``problem``."""
        return _build(problem)

    def model_seconds(self, device_of_group: Sequence[int]) -> float:
        """The bound for one assignment of groups."""
        path = self.start_times(device_of_group)[1]
        windows = (self._window_seconds(window, device_of_group) for window in self.windows)
        return max(path, *windows) if self.windows else path

    def exceeds(self, device_of_group: Sequence[int], seconds: float) -> bool:
        """Whether the bound is above ``seconds``; quicker than the bound itself."""
        return self.start_times(device_of_group)[1] > seconds or any(
            self._window_seconds(window, device_of_group) > seconds for window in self.windows
        )

    def start_times(self, device_of_group: Sequence[int]) -> tuple[list[float], float]:
        """Earliest starts when nodes and links never wait for one another, and the last end."""
        lists = self.problem.lists
        latency, per_byte = lists.latency_seconds, lists.seconds_per_byte
        device = [device_of_group[group] for group in self.group]
        takes = [row[each] for row, each in zip(self.seconds, device)]
        start = [0.0] * len(device)
        for edge in self.edges:
            source, target = device[edge.source], device[edge.target]
            arrival = start[edge.source] + takes[edge.source]
            if source != target:
                arrival += latency[source][target] + edge.nbytes * per_byte[source][target]
            if arrival > start[edge.target]:
                start[edge.target] = arrival
        return start, max((begin + each for begin, each in zip(start, takes)), default=0.0)

    def _window_seconds(self, window: Window, device_of_group: Sequence[int]) -> float:
        processor, group, seconds = self.problem.lists.processor, self.group, self.seconds
        load = [0.0] * self.problem.machine.processors
        for node in window.nodes:
            device = device_of_group[group[node]]
            load[processor[device]] += seconds[node][device]
        return window.head + max(load) + window.tail


def _build(problem: PlacementProblem) -> LatencyGraph:
    lists = problem.lists
    largest: dict[tuple[int, int], int] = {}
    for tensor, node in enumerate(lists.producer):
        for reader in lists.readers[tensor]:
            key = (node, reader)
            if lists.is_argument[node] and lists.group[node] == lists.group[reader]:
                continue
            largest[key] = max(largest.get(key, 0), lists.tensor_bytes[tensor])
    successors = [0] * problem.nodes
    predecessors = [0] * problem.nodes
    for node, reader in largest:
        successors[node] += 1
        predecessors[reader] += 1
    chain = list(range(problem.nodes))
    for node, reader in sorted(largest, key=lambda edge: problem.position[edge[0]]):
        alone = successors[node] == 1 and predecessors[reader] == 1
        if alone and lists.group[node] == lists.group[reader] and not lists.is_argument[node]:
            chain[reader] = chain[node]
    number: dict[int, int] = {}
    group: list[int] = []
    seconds: list[list[float]] = []
    is_argument: list[bool] = []
    read = {node for node, _ in largest}
    for node in problem.order:
        if lists.is_argument[node] and node not in read:
            continue
        index = number.setdefault(chain[node], len(number))
        if index == len(group):
            group.append(lists.group[node])
            seconds.append(list(lists.seconds[node]))
            is_argument.append(lists.is_argument[node])
        else:
            seconds[index] = [a + b for a, b in zip(seconds[index], lists.seconds[node])]
    merged: dict[tuple[int, int], int] = {}
    for (node, reader), nbytes in largest.items():
        key = (number[chain[node]], number[chain[reader]])
        if key[0] != key[1]:
            merged[key] = max(merged.get(key, 0), nbytes)
    rank = _topological_rank(len(group), list(merged))
    order = sorted(range(len(group)), key=rank.__getitem__)
    edges = sorted(
        (LatencyEdge(rank[a], rank[b], nbytes) for (a, b), nbytes in merged.items()),
        key=lambda edge: (edge.source, edge.target),
    )
    group = [group[node] for node in order]
    seconds = [seconds[node] for node in order]
    is_argument = [is_argument[node] for node in order]
    quickest = [
        min(row[device] for device in problem.allowed[own]) for row, own in zip(seconds, group)
    ]
    head = [0.0] * len(group)
    tail = [0.0] * len(group)
    for edge in edges:
        head[edge.target] = max(head[edge.target], head[edge.source] + quickest[edge.source])
    for edge in reversed(edges):
        tail[edge.source] = max(tail[edge.source], tail[edge.target] + quickest[edge.target])
    windows = _windows(head, tail, is_argument)
    return LatencyGraph(problem, group, seconds, is_argument, edges, head, tail, windows)


def _topological_rank(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Rank of each contracted node; contracting chains may have put a reader before its source."""
    import heapq

    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for a, b in edges:
        out[a].append(b)
        missing[b] += 1
    heap = [node for node, waiting in enumerate(missing) if waiting == 0]
    rank = [0] * count
    position = 0
    while heap:
        node = heapq.heappop(heap)
        rank[node] = position
        position += 1
        for other in out[node]:
            missing[other] -= 1
            if missing[other] == 0:
                heapq.heappush(heap, other)
    assert position == count
    return rank


def _windows(head: list[float], tail: list[float], is_argument: list[bool]) -> list[Window]:
    nodes = [node for node, yes in enumerate(is_argument) if not yes]
    windows: dict[tuple[int, ...], Window] = {}
    for a in _quantiles([head[node] for node in nodes]):
        for b in _quantiles([tail[node] for node in nodes]):
            inside = tuple(node for node in nodes if head[node] >= a and tail[node] >= b)
            if inside:
                least_head = min(head[node] for node in inside)
                least_tail = min(tail[node] for node in inside)
                windows.setdefault(inside, Window(least_head, least_tail, inside))
    return list(windows.values())


def _quantiles(values: list[float]) -> list[float]:
    distinct = sorted(set(values))
    if len(distinct) <= _WINDOWS:
        return distinct
    return [distinct[index * (len(distinct) - 1) // (_WINDOWS - 1)] for index in range(_WINDOWS)]
