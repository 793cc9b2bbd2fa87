"""From classes to clusters: labels that never fall along an edge."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.passes.clustering.classes import STRIDE, Classes
from baechi_jax.passes.clustering.op_graph import OpGraph
from baechi_jax.passes.clustering.phases import Phases
from baechi_jax.passes.clustering.units import Units
from baechi_jax.passes.reachability import Reachability


def label_operations(graph: OpGraph, units: Units, phases: Phases, classes: Classes) -> list[int]:
    """A label for each operation, so that those of equal label, class and phase can be one task.

    ``label(v) = max(wanted(v), max over predecessors u of label(u) + [u is elsewhere])``, where
    elsewhere means another class or phase. Late operations are then raised to their first reader,
    and join its class if nothing binds them; ``classes`` is changed accordingly.
    """
    size = graph.size
    key = list(zip(classes.of, classes.phase))
    label = list(classes.wanted)
    for index in range(size):
        own, most = key[index], label[index]
        for source in graph.predecessors[index]:
            least = label[source] + (key[source] != own)
            if least > most:
                most = least
        label[index] = most
    for index in range(size - 1, -1, -1):
        if not phases.late[index]:
            continue
        readers = graph.successors[index]
        own = key[index]
        if not units.bound(index):
            first = min(readers, key=lambda reader: (label[reader], key[reader] != own, reader))
            joined = key[first]
            raised = min([label[reader] - (key[reader] != joined) for reader in readers])
            if all(
                label[source] + (key[source] != joined) <= raised
                for source in graph.predecessors[index]
            ):
                key[index], label[index] = joined, raised
                classes.of[index], classes.phase[index] = joined
                continue
        label[index] = min([label[reader] - (key[reader] != own) for reader in readers])
    return label


def collect_clusters(graph: OpGraph, classes: Classes, label: Sequence[int]) -> list[list[int]]:
    """Operations of equal label, class and phase, each ascending, in an order in which they run.

    Clusters of one class and phase whose labels are at most a segment apart are joined where no
    path leads from one to the other through a third: a class that alternates with another leaves
    no crumbs.
    """
    groups: dict[tuple[int, int, int], list[int]] = {}
    for index in range(graph.size):
        key = (label[index], classes.of[index], classes.phase[index])
        groups.setdefault(key, []).append(index)
    keys = sorted(groups, key=lambda key: (key[0], groups[key][0]))
    clusters = [groups[key] for key in keys]
    successors = cluster_successors(graph, clusters)
    reach = Reachability(successors, range(len(clusters)))
    # The last cluster of each class and phase so far, as (its number, its label).
    last: dict[tuple[int, int], tuple[int, int]] = {}
    into = list(range(len(clusters)))
    for number, (at, *own) in enumerate(keys):
        before = last.get((own[0], own[1]))
        if before is not None and at - before[1] <= STRIDE and reach.may_join(before[0], number):
            reach.join(before[0], number)
            into[number] = into[before[0]]
            last[own[0], own[1]] = (before[0], before[1])
        else:
            last[own[0], own[1]] = (number, at)
    joined: dict[int, list[int]] = {}
    for number, cluster in enumerate(clusters):
        joined.setdefault(into[number], []).extend(cluster)
    return in_order(graph, [sorted(cluster) for cluster in joined.values()])


def cluster_successors(graph: OpGraph, clusters: Sequence[Sequence[int]]) -> list[set[int]]:
    """The clusters that read what each cluster gives."""
    home = [0] * graph.size
    for number, cluster in enumerate(clusters):
        for index in cluster:
            home[index] = number
    successors: list[set[int]] = [set() for _ in clusters]
    for index, sources in enumerate(graph.predecessors):
        for source in sources:
            if home[source] != home[index]:
                successors[home[source]].add(home[index])
    return successors


def in_order(graph: OpGraph, clusters: Sequence[list[int]]) -> list[list[int]]:
    """``clusters`` in an order in which they can run, as near to the given one as that allows."""
    import heapq

    successors = cluster_successors(graph, clusters)
    waiting = [0] * len(clusters)
    for readers in successors:
        for reader in readers:
            waiting[reader] += 1
    heap = [number for number, count in enumerate(waiting) if not count]
    order: list[list[int]] = []
    while heap:
        number = heapq.heappop(heap)
        order.append(clusters[number])
        for reader in successors[number]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(heap, reader)
    assert len(order) == len(clusters), "clusters form a cycle"
    return order


def split_components(
    graph: OpGraph, clusters: Sequence[list[int]], max_tasks: int
) -> list[list[int]]:
    """Split each cluster into its connected parts where several are worth a task of their own.

    Parts worth less than ``1 / max_tasks`` of the step stay with the largest part. No path leads
    from one part to another, or the cluster would not be convex.
    """
    worth = sum(graph.seconds) / max_tasks
    spare = max_tasks - len(clusters)
    result: list[list[int]] = []
    for cluster in clusters:
        large = []
        if spare > 0 and sum([graph.seconds[i] for i in cluster]) >= 2 * worth:
            parts = _components(graph, cluster)
            large = [p for p in parts if sum([graph.seconds[i] for i in p]) >= worth]
        if len(large) < 2 or len(large) - 1 > spare:
            result.append(cluster)
            continue
        spare -= len(large) - 1
        apart = {index for part in large[1:] for index in part}
        result.append([index for index in cluster if index not in apart])
        result.extend(large[1:])
    return result


def _components(graph: OpGraph, cluster: Sequence[int]) -> list[list[int]]:
    """Weakly connected parts of ``cluster``, each ascending, by first operation."""
    part = {index: index for index in cluster}

    def root(node: int) -> int:
        while part[node] != node:
            part[node] = part[part[node]]
            node = part[node]
        return node

    for index in cluster:
        for source in graph.predecessors[index]:
            if source in part:
                left, right = root(source), root(index)
                part[max(left, right)] = min(left, right)
    parts: dict[int, list[int]] = {}
    for index in cluster:
        parts.setdefault(root(index), []).append(index)
    return list(parts.values())
