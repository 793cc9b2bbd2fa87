"""Lower bounds on the latency of one sample, over all splits.

``work_bound`` and ``critical_path_seconds`` say what they are; the flow bound, stronger than all of
these where the graph has few ideals, is in ``latency/flow_bound.py``.

**Path bound.** Let v_1 .. v_m be a path of the graph and take any split with finite latency.

1. *Intervals.* What a subgraph S of an accelerator holds of the path is an interval v_i .. v_j: if
   v_i and v_j are in S and some v_t between them is not, the path leaves S and comes back, so that
   v_t waits for S to end and S waits for v_t. The other nodes of the path are on the host.
2. *Hull.* If S holds v_i and v_j, it holds every node on every path between them, by the same
   argument. If each accelerator runs one subgraph, S also holds all nodes of the colours of the
   hull; otherwise its device does, which still counts for memory.
3. *Transfers.* S holds no ancestor of v_(i-1) and no descendant of v_(j+1) (themselves included): a
   path from it through v_(i-1) would leave S and come back. So S pays for each node among those
   ancestors with an edge into the hull, and for each node of the hull with an edge to one of those
   descendants.
4. *Time.* A subgraph starts when v_(i-1) is in host memory, takes the compute and transfers of all
   it holds, and v_j appears at its end; a node on the host starts after its predecessor on the
   path. So the latency is at least the sum, over the parts of the path, of host seconds and of the
   least load of each interval.

Therefore the least such sum, over all ways to cut the path into host nodes and as many intervals as
there are subgraphs, each within memory, is a lower bound. A dynamic program finds it: best[j, used]
over the prefixes of the path and the subgraphs used of each class. Bytes and compute of all hulls
come from one two-dimensional sum: x is in the hull of v_i .. v_j exactly if the last node of the
path that reaches x is at i or after, and the first that x reaches is at j or before.

Any path gives a bound; several are tried, and the best is kept. Cost O(m^2 + m E) each.

If no cut of the path fits, the bound is infinite: the problem has no solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.pieces import accelerators_of, host_seconds
from baechi_jax.passes.placement.workload import Workload, topological_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import DeviceClass


@dataclass(frozen=True, slots=True)
class PathBound:
    """The best bound and the path that gives it."""

    seconds: float
    path: tuple[int, ...]


def critical_path_seconds(workload: Workload) -> float:
    """The longest path with every node where it is fastest and all transfers free."""
    weight = critical_weights(workload)
    return float(weight[list(longest_path(workload, weight))].sum())


def critical_weights(workload: Workload) -> NDArray[np.float64]:
    """``[node]``: seconds where it is fastest."""
    times = [kind.seconds for kind in workload.classes if kind.transfers and kind.count]
    weight: NDArray[np.float64] = np.min([*times, host_seconds(workload)], axis=0)
    return weight


def path_bound(
    workload: Workload, *, subgraphs: int = 1, paths: int = 24, seed: int = 0
) -> PathBound:
    """The best path bound over up to ``paths`` long paths.

    ``subgraphs``: how many each accelerator may run. Never below ``critical_path_seconds`` by much,
    usually far above it; infinite where no split fits.
    """
    graph = _Graph(workload, subgraphs)
    best = PathBound(0.0, ())
    for path in likely_paths(workload, paths, seed):
        seconds = graph.bound(path)
        if seconds > best.seconds:
            best = PathBound(seconds, path)
    return best


def work_bound(workload: Workload) -> float:
    """The least time in which the accelerators can take what would keep the host too long.

    In a split with latency T, a node whose longest path takes more than T with that node on the
    host (all others where they are fastest, transfers free) is on an accelerator. Those nodes must
    fit all accelerators' memory together, and their work, where it is fastest, fits T on each. The
    bound is the least such T; infinite if there is none.
    """
    accelerators = [(kind, kind.count) for _, kind in accelerators_of(workload) if kind.count]
    host = host_seconds(workload)
    times = [kind.seconds for kind, _ in accelerators]
    fastest = np.min([*times, host], axis=0)
    if not np.isfinite(fastest).all():
        return float("inf")
    before = _path_seconds(workload, fastest, *workload.predecessors(), reverse=False)
    after = _path_seconds(workload, fastest, *workload.successors(), reverse=True)
    through = before + after - 2.0 * fastest + host
    order = np.argsort(-through, kind="stable")
    work = np.min(times, axis=0)[order] if times else np.full(workload.size, np.inf)
    room = sum(kind.memory_bytes * count for kind, count in accelerators)
    devices = sum(count for _, count in accelerators)
    # With the first ``forced`` nodes on accelerators, the rest allows what the next one takes.
    done = np.concatenate([[0.0], np.cumsum(work)])
    held = np.concatenate([[0.0], np.cumsum(workload.bytes[order])])
    allows = np.concatenate([through[order], [0.0]])
    least = np.maximum(allows, done / max(1, devices))
    fits = (held <= room * (1 + 1e-9)) & np.isfinite(least)
    return float(least[fits].min()) if fits.any() else float("inf")


def _path_seconds(
    workload: Workload,
    weight: NDArray[np.float64],
    pointers: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    *,
    reverse: bool,
) -> NDArray[np.float64]:
    """``[node]``: the longest path that ends there (``reverse``: begins there), itself included."""
    value = weight.astype(np.float64)
    order = topological_order(workload)
    for node in (order[::-1] if reverse else order).tolist():
        near = value[neighbours[pointers[node] : pointers[node + 1]]]
        value[node] += near.max(initial=0.0)
    return value


def likely_paths(workload: Workload, paths: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Up to ``paths`` distinct long paths: by seconds, bytes, transfers, length, and mixtures."""
    if not workload.size:
        return []
    found = [longest_path(workload, weight) for weight in _weights(workload, paths, seed)]
    return list(dict.fromkeys(found))


def longest_path(workload: Workload, weight: NDArray[np.float64]) -> tuple[int, ...]:
    """A path of the largest sum of ``weight``, from a source to a sink; ties by index."""
    pointers, targets = workload.successors()
    value = weight.astype(np.float64)
    following = np.full(workload.size, -1)
    order = topological_order(workload)
    for node in order[::-1].tolist():
        after = targets[pointers[node] : pointers[node + 1]]
        if len(after):
            chosen = after[int(np.argmax(value[after]))]
            following[node] = chosen
            value[node] += value[chosen]
    sources = np.setdiff1d(np.arange(workload.size), workload.edges[:, 1])
    node = int(sources[int(np.argmax(value[sources]))])
    path = []
    while node >= 0:
        path.append(node)
        node = int(following[node])
    return tuple(path)


def _weights(workload: Workload, paths: int, seed: int) -> list[NDArray[np.float64]]:
    """Node weights whose longest paths are worth trying."""
    size = workload.size
    shares = []
    for row in (
        *(kind.seconds for kind in workload.classes),
        workload.bytes,
        workload.transfer_seconds,
        np.ones(size),
    ):
        finite = np.where(np.isfinite(row), row, 0.0)
        total = float(finite.sum())
        if total > 0:
            shares.append(finite / total + 1e-9)
    random = np.random.default_rng(seed)
    mixed = [
        sum((random.random() * share for share in shares), np.zeros(size))
        + random.random() * random.random(size) / size
        for _ in range(max(0, paths - len(shares)))
    ]
    return [*shares, *mixed][:paths]


class _Graph:
    """What all paths share: reachability and colour classes."""

    def __init__(self, workload: Workload, subgraphs: int) -> None:
        self.workload = workload
        self.subgraphs = subgraphs
        size = workload.size
        reaches = np.eye(size, dtype=bool)
        pointers, targets = workload.successors()
        for node in topological_order(workload)[::-1].tolist():
            for target in targets[pointers[node] : pointers[node + 1]].tolist():
                reaches[node] |= reaches[target]
        #: ``[u, v]``: whether there is a path from u to v; true for u = v.
        self.reaches = reaches
        self.host = host_seconds(workload)
        self.kinds: list[DeviceClass] = [
            kind for _, kind in accelerators_of(workload) if kind.count
        ]
        keys = np.where(workload.colour >= 0, workload.colour, -1 - np.arange(size))
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order][0] - 1))
        self.groups = [group.tolist() for group in np.split(order, starts[1:])]

    def bound(self, path: tuple[int, ...]) -> float:
        """The bound of one path."""
        hulls = _Hulls(self, path)
        size = len(path)
        counts = [kind.count * self.subgraphs for kind in self.kinds]
        costs = [hulls.cost(kind) for kind in self.kinds]
        best = np.full((size + 1, *(count + 1 for count in counts)), np.inf)
        best[0] = 0.0
        for end in range(size):
            best[end + 1] = best[end] + self.host[path[end]]
            for axis, cost in enumerate(costs, 1):
                # One interval that begins anywhere and ends here, on one more of this class.
                fewer = np.take(best[: end + 1], np.arange(counts[axis - 1]), axis=axis)
                column = cost[: end + 1, end].reshape(-1, *[1] * len(counts))
                found = (fewer + column).min(axis=0)
                target = np.moveaxis(best[end + 1], axis - 1, 0)[1:]
                np.minimum(target, np.moveaxis(found, axis - 1, 0), out=target)
        return float(best[size].min())


class _Hulls:
    """Least loads of the intervals of one path, ``[first, last]``."""

    def __init__(self, graph: _Graph, path: tuple[int, ...]) -> None:
        self.graph = graph
        nodes = np.array(path)
        self.size = len(path)
        #: ``[node]``: the last position of the path that reaches it (-1: none), and the first that
        #: it reaches (``size``: none).
        self.last_before = graph.reaches[nodes].sum(axis=0) - 1
        self.first_after = self.size - graph.reaches[:, nodes].sum(axis=1)
        self.position = {node: index for index, node in enumerate(path)}
        self.corners = [self._corners(group) for group in graph.groups]
        held = graph.workload.bytes
        self.bytes = self._sums([float(held[group].sum()) for group in graph.groups])
        self.transfers = self._incoming() + self._outgoing()
        self.impossible = self._impossible()

    def cost(self, kind: DeviceClass) -> NDArray[np.float64]:
        """Least load of a subgraph on a device of ``kind`` that holds just that of the path."""
        can = np.isfinite(kind.seconds)
        seconds = np.where(can, kind.seconds, 0.0)
        if self.graph.subgraphs == 1:
            groups = self.graph.groups
            compute = self._sums([float(seconds[group].sum()) for group in groups])
            cannot = self._sums([float((~can[group]).any()) for group in groups])
        else:
            compute = self._hull_sums(seconds)
            cannot = self._hull_sums((~can).astype(np.float64))
        cost = compute + self.transfers
        wrong = self.impossible | (cannot > 0.5)
        wrong |= self.bytes > kind.memory_bytes * (1 + 1e-9)
        wrong |= np.tri(len(wrong), k=-1, dtype=bool)
        cost[wrong] = np.inf
        return cost

    def _corners(self, group: list[int]) -> list[tuple[int, int, int]]:
        """``(first, last, sign)``: the sum of signs over first >= i, last <= j is 1 if some node of
        the group is in the hull of i .. j, else 0.
        """
        found = {
            (int(self.last_before[node]), int(self.first_after[node]))
            for node in group
            if self.last_before[node] >= 0 and self.first_after[node] < self.size
        }
        corners: list[tuple[int, int, int]] = []
        least = self.size
        for before, after in sorted(found, key=lambda pair: (-pair[0], pair[1])):
            if after < least:
                if corners:
                    corners.append((before, least, -1))
                corners.append((before, after, 1))
                least = after
        return corners

    def _sums(self, weight: list[float]) -> NDArray[np.float64]:
        """Sum of the weights of the groups that have a node in the hull, ``[first, last]``."""
        table = np.zeros((self.size, self.size))
        for corners, value in zip(self.corners, weight):
            for before, after, sign in corners:
                table[before, after] += sign * value
        return _accumulated(table)

    def _hull_sums(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of the weights of the nodes of the hull, ``[first, last]``."""
        table = np.zeros((self.size, self.size))
        inside = (self.last_before >= 0) & (self.first_after < self.size)
        np.add.at(table, (self.last_before[inside], self.first_after[inside]), weight[inside])
        return _accumulated(table)

    def _incoming(self) -> NDArray[np.float64]:
        source, target = self.graph.workload.edges.T
        transfer = self.graph.workload.transfer_seconds
        table = np.zeros((self.size, self.size))
        for first in range(1, self.size):
            enters = (self.first_after[source] <= first - 1) & (self.last_before[target] >= first)
            enters &= self.first_after[target] < self.size
            # The interval must reach this far for the source to have a reader in the hull.
            needs = np.full(len(transfer), self.size)
            np.minimum.at(needs, source[enters], self.first_after[target[enters]])
            paying = needs < self.size
            at = np.bincount(needs[paying], transfer[paying], self.size)
            table[first] = np.cumsum(at)
        return table

    def _outgoing(self) -> NDArray[np.float64]:
        source, target = self.graph.workload.edges.T
        transfer = self.graph.workload.transfer_seconds
        table = np.zeros((self.size, self.size))
        for last in range(self.size - 1):
            leaves = (self.last_before[target] >= last + 1) & (self.first_after[source] <= last)
            paying = np.zeros(len(transfer), bool)
            paying[source[leaves]] = True
            paying &= self.last_before >= 0
            at = np.bincount(self.last_before[paying], transfer[paying], self.size)
            table[:, last] = np.cumsum(at[::-1])[::-1]
        return table

    def _impossible(self) -> NDArray[np.bool_]:
        """Intervals that end before they begin, or hold a colour of the path in part."""
        index = np.arange(self.size)
        wrong = index[:, None] > index[None, :]
        if self.graph.subgraphs > 1:
            return wrong
        for group in self.graph.groups:
            places = [self.position[node] for node in group if node in self.position]
            if len(places) > 1:
                before = np.zeros(self.size + 1, np.int64)
                before[1:] = np.cumsum(np.isin(index, places))
                inside = before[index + 1][None, :] - before[index][:, None]
                wrong |= (inside > 0) & (inside < len(places))
        return wrong


def _accumulated(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[i, j]``: sum of ``table`` over rows >= i and columns <= j."""
    return np.cumsum(np.cumsum(table[::-1], axis=0)[::-1], axis=1)
