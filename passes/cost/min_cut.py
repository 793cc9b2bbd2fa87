"""Minimum vertex cut of a small directed graph, by Dinic's maximum flow.

Each vertex has a capacity; edges between vertices cannot be cut. Of all minimum cuts the one
nearest to the sinks is given. Written out because the graphs are many and tiny (a few dozen
vertices each), where a library's set-up costs more than the flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

_INFINITE = 1 << 62


def min_vertex_cut(
    capacity: Sequence[int],
    edges: Iterable[tuple[int, int]],
    sources: Iterable[int],
    sinks: Iterable[int],
) -> tuple[list[bool], list[bool]]:
    """``(cut, behind)`` per vertex: whether it is in the cut, and whether it lies behind it.

    Every path from a source to a sink passes a vertex of the cut (which may be the source or the
    sink itself). ``behind`` are the vertices on the sinks' side, from which a sink can be reached
    without passing the cut, those of the cut left out.
    """
    count = len(capacity)
    network = _Network(2 * count + 2)
    source, sink = 2 * count, 2 * count + 1
    for vertex, each in enumerate(capacity):
        network.add(2 * vertex, 2 * vertex + 1, each)
    for tail, head in edges:
        network.add(2 * tail + 1, 2 * head, _INFINITE)
    for vertex in sources:
        network.add(source, 2 * vertex, _INFINITE)
    for vertex in sinks:
        network.add(2 * vertex + 1, sink, _INFINITE)
    network.saturate(source, sink)
    reaches = network.reaching(sink)
    cut = [reaches[2 * v + 1] and not reaches[2 * v] for v in range(count)]
    behind = [reaches[2 * v + 1] and reaches[2 * v] for v in range(count)]
    return cut, behind


class _Network:
    """Arcs in pairs: arc ``e`` and its reverse ``e ^ 1``."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.rest: list[int] = []

    def add(self, tail: int, head: int, capacity: int) -> None:
        self.out[tail].append(len(self.head))
        self.head.append(head)
        self.rest.append(capacity)
        self.out[head].append(len(self.head))
        self.head.append(tail)
        self.rest.append(0)

    def saturate(self, source: int, sink: int) -> None:
        """Push as much flow as possible."""
        while True:
            level = self._levels(source, sink)
            if level[sink] < 0:
                return
            cursor = [0] * len(self.out)
            while self._augment(source, sink, level, cursor):
                pass

    def _levels(self, source: int, sink: int) -> list[int]:
        level = [-1] * len(self.out)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self.out[node]:
                head = self.head[arc]
                if self.rest[arc] and level[head] < 0:
                    level[head] = level[node] + 1
                    if head == sink:
                        return level
                    queue.append(head)
        return level

    def _augment(self, source: int, sink: int, level: list[int], cursor: list[int]) -> bool:
        """Push flow along one path that climbs the levels; whether there was one."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = self.out[node]
            while cursor[node] < len(arcs):
                arc = arcs[cursor[node]]
                head = self.head[arc]
                if self.rest[arc] and level[head] == level[node] + 1:
                    path.append(arc)
                    node = head
                    break
                cursor[node] += 1
            else:
                if not path:
                    return False
                # A dead end: step back and try the next arc there.
                node = self.head[path.pop() ^ 1]
                cursor[node] += 1
        amount = min(self.rest[arc] for arc in path)
        for arc in path:
            self.rest[arc] -= amount
            self.rest[arc ^ 1] += amount
        return True

    def reaching(self, sink: int) -> list[bool]:
        """The nodes from which ``sink`` can still be reached."""
        seen = [False] * len(self.out)
        seen[sink] = True
        stack = [sink]
        while stack:
            node = stack.pop()
            for arc in self.out[node]:
                tail = self.head[arc]
                if self.rest[arc ^ 1] and not seen[tail]:
                    seen[tail] = True
                    stack.append(tail)
        return seen
