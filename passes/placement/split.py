"""Splits of a workload over devices: what each device holds, and what that costs.

This is the judge of every partitioning algorithm: it shares no code with them.
Source: Tarnawski et al., NeurIPS 2020, sections 3 (throughput) and 4 (latency).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.workload import Workload, WorkloadError, topological_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """One device of a split. Times are seconds per sample."""

    device: int
    class_name: str
    nodes: int
    compute_seconds: float
    transfer_seconds: float
    bytes: float
    memory_bytes: float
    contiguous: bool

    @property
    def seconds(self) -> float:
        """Compute and transfers one after another."""
        return self.compute_seconds + self.transfer_seconds


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What ``evaluate`` finds; ``faults`` is empty for a valid split."""

    devices: tuple[DeviceLoad, ...]
    max_load_seconds: float
    contiguous: bool
    faults: tuple[str, ...]


def evaluate(
    workload: Workload, device_of: NDArray[np.int64], *, overlap: bool = False
) -> SplitReport:
    """Loads, memory and validity of a split.

    Args:
      workload: the problem.
      device_of: ``[node]``, the device of each node.
      overlap: count a device's load as the larger of compute and transfers, not their sum.
    """
    check_shape(workload, device_of)
    classes = workload.class_of_devices()
    faults: list[str] = []
    loads: list[DeviceLoad] = []
    source, target = workload.edges[:, 0], workload.edges[:, 1]
    crossing = device_of[source] != device_of[target]
    for device in range(workload.devices):
        kind = workload.classes[classes[device]]
        mine = device_of == device
        compute = float(kind.seconds[mine].sum())
        incoming = np.unique(source[crossing & (device_of[target] == device)])
        outgoing = np.unique(source[crossing & (device_of[source] == device)])
        transfer = 0.0
        if kind.transfers:
            transfer = float(
                workload.transfer_seconds[incoming].sum()
                + workload.transfer_seconds[outgoing].sum()
            )
        held = float(workload.bytes[mine].sum())
        forward = mine & ~workload.backward
        loads.append(
            DeviceLoad(
                device,
                kind.name,
                int(mine.sum()),
                compute,
                transfer,
                held,
                kind.memory_bytes,
                is_contiguous(workload, forward, among=~workload.backward),
            )
        )
        if held > kind.memory_bytes * (1 + 1e-12):
            faults.append(f"device {device} holds {held:.0f} bytes of {kind.memory_bytes:.0f}")
        if not np.isfinite(compute):
            node = int(np.flatnonzero(mine & ~np.isfinite(kind.seconds))[0])
            faults.append(
                f"node '{workload.names[node]}' cannot run on device {device} ({kind.name})"
            )
    for colour in np.unique(workload.colour[workload.colour >= 0]):
        members = np.flatnonzero(workload.colour == colour)
        if len(np.unique(device_of[members])) > 1:
            faults.append(f"colour {colour} is split over devices")
    worst = max(
        max(load.compute_seconds, load.transfer_seconds) if overlap else load.seconds
        for load in loads
    )
    return SplitReport(tuple(loads), worst, all(load.contiguous for load in loads), tuple(faults))


def check_shape(workload: Workload, device_of: NDArray[np.int64]) -> None:
    """Raise WorkloadError unless every node has a device that exists."""
    if device_of.shape != (workload.size,):
        raise WorkloadError(
            f"the split assigns {device_of.size} nodes, the workload has {workload.size}"
        )
    wrong = np.flatnonzero((device_of < 0) | (device_of >= workload.devices))
    if len(wrong):
        raise WorkloadError(
            f"node '{workload.names[wrong[0]]}' is on device {device_of[wrong[0]]}; "
            f"the workload has devices 0 to {workload.devices - 1}"
        )


def is_contiguous(
    workload: Workload, members: NDArray[np.bool_], *, among: NDArray[np.bool_] | None = None
) -> bool:
    """Whether no path leaves ``members`` and comes back (within ``among``, if given)."""
    inside = np.ones(workload.size, bool) if among is None else among
    left = np.zeros(workload.size, bool)
    pointers, sources = workload.predecessors()
    for node in topological_order(workload):
        if not inside[node]:
            continue
        reached = False
        for source in sources[pointers[node] : pointers[node + 1]]:
            if inside[source] and (left[source] or (members[source] and not members[node])):
                reached = True
                break
        if reached and members[node]:
            return False
        left[node] = reached
    return True


def latency_seconds(workload: Workload, piece_of: NDArray[np.int64]) -> float:
    """Time of one sample, run alone; infinite where pieces wait for one another in a cycle.

    Args:
      workload: the problem; its classes with ``transfers`` are accelerators.
      piece_of: ``[node]``: which subgraph the node is in; negative for the host. Subgraph p of an
        accelerator with q subgraphs is ``device * q + p``; here every piece is its own resource, so
        pieces of one device must depend on one another or be scheduled apart by
        ``latency_on_devices``.

    A subgraph starts when all its outside inputs are in host memory, takes its transfers and its
    compute, and all its outputs appear at its end. Host nodes start when their inputs are there.
    Source: Tarnawski et al., NeurIPS 2020, section 4.
    """
    return latency_on_devices(workload, piece_of, np.arange(int(piece_of.max(initial=-1)) + 1))


def latency_on_devices(
    workload: Workload, piece_of: NDArray[np.int64], device_of_piece: NDArray[np.int64]
) -> float:
    """``latency_seconds`` where pieces of one device run one after another, first ready first."""
    import heapq

    source, target = workload.edges[:, 0], workload.edges[:, 1]
    # Each host node is a unit of its own, behind the pieces.
    pieces = len(device_of_piece)
    unit = np.where(piece_of >= 0, piece_of, pieces + np.arange(workload.size))
    classes = workload.class_of_devices()
    cost = np.zeros(pieces + workload.size)
    host = next(kind for kind in workload.classes if not kind.transfers)
    on_host = piece_of < 0
    cost[pieces:][on_host] = host.seconds[on_host]
    crossing = unit[source] != unit[target]
    for piece in range(pieces):
        mine = piece_of == piece
        if not mine.any():
            continue
        kind = workload.classes[classes[device_of_piece[piece]]]
        incoming = np.unique(source[crossing & (unit[target] == piece)])
        outgoing = np.unique(source[crossing & (unit[source] == piece)])
        cost[piece] = (
            kind.seconds[mine].sum()
            + workload.transfer_seconds[incoming].sum()
            + workload.transfer_seconds[outgoing].sum()
        )
    links = np.unique(np.stack([unit[source], unit[target]], axis=1)[crossing], axis=0)
    waiting = np.bincount(links[:, 1], minlength=len(cost)) if len(links) else np.zeros(len(cost))
    after: dict[int, list[int]] = {}
    for left, right in links.tolist():
        after.setdefault(left, []).append(right)
    used = np.unique(unit)
    ready = {int(each): 0.0 for each in used}
    free = np.zeros(workload.devices)
    heap = [(0.0, int(each)) for each in used if waiting[each] == 0]
    heapq.heapify(heap)
    finished = 0
    last = 0.0
    while heap:
        start, each = heapq.heappop(heap)
        if each < pieces:
            start = max(start, float(free[device_of_piece[each]]))
        end = start + float(cost[each])
        if each < pieces:
            free[device_of_piece[each]] = end
        finished += 1
        last = max(last, end)
        for following in after.get(each, ()):
            ready[following] = max(ready[following], end)
            waiting[following] -= 1
            if waiting[following] == 0:
                heapq.heappush(heap, (ready[following], following))
    return last if finished == len(used) else float("inf")
