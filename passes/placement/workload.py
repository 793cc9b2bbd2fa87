"""Partitioning workloads: the problem of Tarnawski et al. (NeurIPS 2020) as arrays.

A node takes ``seconds`` on a device of a class and ``bytes`` there. Devices talk through host
memory: a node's output costs ``transfer_seconds`` once at each accelerator end, however many of its
readers sit there; classes with ``transfers = False`` (the host's own cores) read and write it for
free. Colour classes must share a device. Backward nodes carry the colour of their forward node.

The published problem has two classes, accelerators and CPU cores; here there may be any number,
each with its own speed, memory and count, which is how unequal devices are expressed.

Everything is in seconds and bytes (the published files give milliseconds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.placement.flat import starts

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WorkloadError(BaechiError):
    """A workload or split is malformed; the message names the file, the field and the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """Equal devices: how many, how much memory each, how fast each node runs there.

    ``seconds[node]`` is infinite where the node cannot run. ``memory_bytes`` is infinite for none.
    """

    name: str
    count: int
    memory_bytes: float
    seconds: NDArray[np.float64]
    transfers: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Nodes, edges, colours, and the device classes they may run on. Arrays are per node."""

    names: tuple[str, ...]
    #: Identifiers in the file the workload came from.
    ids: tuple[int, ...]
    bytes: NDArray[np.float64]
    transfer_seconds: NDArray[np.float64]
    backward: NDArray[np.bool_]
    #: Equal non-negative colours share a device; -1 is free.
    colour: NDArray[np.int64]
    #: Distinct edges, ``[edge, 2]``: source, target; sorted.
    edges: NDArray[np.int64]
    classes: tuple[DeviceClass, ...]
    #: Bytes of weights that replicas of a node must reduce; zero where unknown.
    parameter_bytes: NDArray[np.float64]
    warnings: tuple[str, ...] = field(default=())

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.names)

    @property
    def devices(self) -> int:
        """Number of devices of all classes."""
        return sum(device_class.count for device_class in self.classes)

    def device_class(self, device: int) -> int:
        """Index of the class of ``device``; devices are numbered class by class."""
        for index, device_class in enumerate(self.classes):
            if device < device_class.count:
                return index
            device -= device_class.count
        raise IndexError("no such device")

    def class_of_devices(self) -> NDArray[np.int64]:
        """The class of each device, ``[devices]``."""
        return np.repeat(
            np.arange(len(self.classes)), [device_class.count for device_class in self.classes]
        )

    def predecessors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sources of the edges into each node, as CSR ``(pointers, sources)``."""
        return compressed(self.edges[:, 1], self.edges[:, 0], self.size)

    def successors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Targets of the edges out of each node, as CSR ``(pointers, targets)``."""
        return compressed(self.edges[:, 0], self.edges[:, 1], self.size)


def compressed(
    keys: NDArray[np.int64], values: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``values`` grouped by ``keys`` in ``[0, size)``, in CSR form; order within a key is kept."""
    order = np.argsort(keys, kind="stable")
    return starts(np.bincount(keys, minlength=size)), np.ascontiguousarray(values[order])


def topological_order(workload: Workload) -> NDArray[np.int64]:
    """Nodes in an order in which each comes after its predecessors; ties by index (Kahn)."""
    import heapq

    pointers, targets = workload.successors()
    waiting = np.bincount(workload.edges[:, 1], minlength=workload.size)
    heap = [int(node) for node in np.flatnonzero(waiting == 0)]
    order = []
    while heap:
        node = heapq.heappop(heap)
        order.append(node)
        for target in targets[pointers[node] : pointers[node + 1]]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(heap, int(target))
    if len(order) != workload.size:
        stuck = workload.names[int(np.flatnonzero(waiting > 0)[0])]
        raise WorkloadError(f"the edges form a cycle through node '{stuck}'")
    return np.array(order, np.int64)
