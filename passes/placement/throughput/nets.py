"""A workload as a hypergraph of classes of nodes, for algorithms that place classes freely.

Nodes of one colour are one class; coarser classes can be made of those. A node's output is a net: a
device that holds its class pays while some reader is elsewhere, every other device pays while it
has a reader. Nets with the same ends are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.workload import compressed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Net:
    """What the outputs of a class to certain readers cost at each end, per sample."""

    source: int
    #: Classes that read it, without the source, in order.
    targets: tuple[int, ...]
    #: Whether the nodes are backward nodes.
    backward: bool
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Nets:
    """Classes and nets."""

    #: ``[node]``: the class of each node.
    label: NDArray[np.int64]
    size: int
    #: ``[phase, kind, class]``: seconds of the forward (0) and backward (1) nodes; infinite where a
    #: node cannot run.
    seconds: NDArray[np.float64]
    #: ``[class]``
    bytes: NDArray[np.float64]
    nets: tuple[Net, ...]

    @classmethod
    def of(cls, workload: Workload) -> Nets:
        """The nets of ``workload``, by colour classes."""
        label, size = colour_classes(workload)
        pointers, targets = workload.successors()
        nets = [
            Net(
                node,
                tuple(targets[pointers[node] : pointers[node + 1]].tolist()),
                bool(workload.backward[node]),
                float(workload.transfer_seconds[node]),
            )
            for node in range(workload.size)
        ]
        seconds = np.array(
            [
                [
                    np.where(workload.backward == phase, kind.seconds, 0.0)
                    for kind in workload.classes
                ]
                for phase in (False, True)
            ]
        )
        nodes = cls(np.arange(workload.size), workload.size, seconds, workload.bytes, tuple(nets))
        return nodes.merged(label, size)

    def merged(self, group: NDArray[np.int64], size: int) -> Nets:
        """The nets of coarser classes: class ``c`` becomes part of class ``group[c]``."""
        found: dict[tuple[int, tuple[int, ...], bool], float] = {}
        where = group.tolist()
        for net in self.nets:
            source = where[net.source]
            ends = {where[target] for target in net.targets}
            ends.discard(source)
            if net.seconds > 0 and ends:
                key = (source, tuple(sorted(ends)), net.backward)
                found[key] = found.get(key, 0.0) + net.seconds
        return Nets(
            group[self.label],
            size,
            np.array(
                [[np.bincount(group, row, size) for row in phase] for phase in self.seconds]
            ).reshape(*self.seconds.shape[:2], size),
            np.bincount(group, self.bytes, size).astype(np.float64),
            tuple(Net(*ends, cost) for ends, cost in found.items()),
        )

    @property
    def total_seconds(self) -> NDArray[np.float64]:
        """``[kind, class]``: seconds of all nodes."""
        total: NDArray[np.float64] = self.seconds.sum(axis=0)
        return total

    def of_classes(self, device_of: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[class]``: the device of each class, from that of each node."""
        where = np.zeros(self.size, np.int64)
        where[self.label] = device_of
        return where


def colour_classes(workload: Workload) -> tuple[NDArray[np.int64], int]:
    """``([node] class, number of classes)``: nodes of one colour are one class."""
    keys = np.where(workload.colour >= 0, workload.colour, -1 - np.arange(workload.size))
    _, first, label = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[label], len(first)


def class_neighbours(
    edges: NDArray[np.int64], label: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Classes joined to each class by an edge, either way, as CSR ``(pointers, classes)``."""
    ends = label[edges]
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    return compressed(ends[:, 0], ends[:, 1], count)
