"""From nodes to the classes that dynamic programs over ideals move as one.

Nodes of one colour share a device. Backward nodes ride on their forward node; a backward node
without one gets a stand-in whose edges are the reverse of its own, so that the forward graph alone
decides what is contiguous. Cycles that contraction makes are merged too.

A class that costs nothing anywhere and has a single neighbour joins it: no split gets slower by
that, since the transfer between the two disappears. It is done only where the bytes of all classes
fit every device together, or the class has no bytes, so that memory cannot be the reason to part.
Source: Tarnawski et al., NeurIPS 2020, section 3.1 and appendix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """Classes in topological order of the forward graph."""

    #: ``[node]``: the class of each node.
    label: NDArray[np.int64]
    #: Distinct edges between classes, ``[edge, 2]``; each goes from a lower to a higher class.
    edges: NDArray[np.int64]
    size: int


def contract(workload: Workload) -> Contraction:
    """Contract ``workload`` for contiguous splits."""
    label = _colour_classes(workload)
    count = int(label.max()) + 1 if workload.size else 0
    forward = np.zeros(count, bool)
    forward[label[~workload.backward]] = True
    graph = _class_edges(workload, label, forward)
    label, graph, count = _merge_cycles(label, graph, count)
    label, graph, count = _merge_free_leaves(workload, label, graph, count)
    return Contraction(label, graph, count)


def _colour_classes(workload: Workload) -> NDArray[np.int64]:
    keys = [
        ("colour", int(colour)) if colour >= 0 else ("node", node)
        for node, colour in enumerate(workload.colour)
    ]
    number: dict[tuple[str, int], int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)


def _class_edges(
    workload: Workload, label: NDArray[np.int64], forward: NDArray[np.bool_]
) -> NDArray[np.int64]:
    source, target = workload.edges[:, 0], workload.edges[:, 1]
    backward = workload.backward
    ends = np.stack([label[source], label[target]], axis=1)
    among_forward = ~backward[source] & ~backward[target]
    lone = ~forward[ends[:, 0]] | ~forward[ends[:, 1]]
    mirrored = backward[source] & backward[target] & lone
    edges = np.concatenate([ends[among_forward], ends[mirrored][:, ::-1]])
    return np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)


def _merge_cycles(
    label: NDArray[np.int64], edges: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges.tolist())
    component = np.zeros(count, np.int64)
    members = [sorted(nodes) for nodes in nx.strongly_connected_components(graph)]
    for index, nodes in enumerate(sorted(members)):
        component[nodes] = index
    return _renumber(component[label], _mapped(edges, component), len(members))


def _merge_free_leaves(
    workload: Workload, label: NDArray[np.int64], edges: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    held = np.bincount(label, workload.bytes, count)
    free = np.ones(count, bool)
    for device_class in workload.classes:
        free &= np.bincount(label, device_class.seconds, count) == 0.0
    smallest = min(device_class.memory_bytes for device_class in workload.classes)
    if held.sum() > smallest:
        free &= held == 0.0
    # Every edge counts here, not only the forward ones: any of them may carry a transfer.
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for source, target in label[workload.edges].tolist():
        if source != target:
            neighbours[source].add(target)
            neighbours[target].add(source)
    parent = list(range(count))
    for node in np.flatnonzero(free).tolist():
        if len(neighbours[node]) != 1:
            continue
        (host,) = neighbours[node]
        while parent[host] != host:
            host = parent[host]
        if host != node:
            parent[node] = host
    roots = np.arange(count)
    for node in range(count):
        root = node
        while parent[root] != root:
            root = parent[root]
        roots[node] = root
    return _renumber(roots[label], _mapped(edges, roots), count)


def _mapped(edges: NDArray[np.int64], mapping: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(edges):
        return edges
    moved = mapping[edges]
    return np.unique(moved[moved[:, 0] != moved[:, 1]], axis=0)


def _renumber(
    label: NDArray[np.int64], edges: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Number the classes in use in topological order (depth-first from the sinks)."""
    used = np.unique(label)
    sources: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges.tolist():
        sources[target].append(source)
    position = np.full(count, -1, np.int64)
    order = 0
    for start in used.tolist():
        stack = [(start, 0)]
        while stack:
            node, at = stack.pop()
            if position[node] >= 0:
                continue
            if at < len(sources[node]):
                stack.append((node, at + 1))
                stack.append((sources[node][at], 0))
                continue
            position[node] = order
            order += 1
    moved = position[edges] if len(edges) else edges
    return position[label], np.unique(moved, axis=0) if len(moved) else moved, order
