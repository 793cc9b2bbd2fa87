"""The latency of one sample under a split: the judge of every latency algorithm.

Each accelerator runs its subgraphs one after another. A subgraph starts when all its inputs from
elsewhere are in host memory, takes its incoming transfers, its compute and its outgoing transfers,
and all its outputs appear in host memory at its end. A node on the host starts when its inputs are
there; the host has as many cores as the graph is wide.
Source: Tarnawski et al., NeurIPS 2020, section 4 and appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.split import Split, check_shape, evaluate
from baechi_jax.passes.placement.workload import Workload, WorkloadError, topological_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Latency of a split; infinite where subgraphs wait for one another in a cycle."""

    seconds: float
    #: ``[device]``: number of subgraphs on it; zero for the host.
    subgraphs: tuple[int, ...]
    faults: tuple[str, ...]


def latency_of(workload: Workload, split: Split) -> LatencyReport:
    """Latency and validity of ``split``.

    Where it does not say which subgraphs a device has, they are the fewest that are contiguous:
    a node is in the subgraph numbered by how often a path to it has left its device.
    """
    check_shape(workload, split.device_of)
    host = _on_host(workload, split.device_of)
    if not any(not kind.transfers for kind in workload.classes) and workload.size:
        host = np.zeros(workload.size, bool)
    subgraph_of = split.subgraph_of
    if subgraph_of is None:
        subgraph_of = natural_subgraphs(workload, split.device_of)
    count = int(subgraph_of.max(initial=0)) + 1
    piece_of = np.where(host, -1, split.device_of * count + subgraph_of)
    subgraphs = [
        len(np.unique(subgraph_of[(split.device_of == device) & ~host]))
        for device in range(workload.devices)
    ]
    seconds = latency_seconds(workload, piece_of, subgraphs=count)
    faults = list(evaluate(workload, split.device_of).faults)
    if not np.isfinite(seconds) and not faults:
        faults.append("subgraphs wait for one another in a cycle (a device is not contiguous)")
    return LatencyReport(seconds, tuple(subgraphs), tuple(faults))


def latency_seconds(
    workload: Workload, piece_of: NDArray[np.int64], *, subgraphs: int = 1
) -> float:
    """Time of one sample, run alone; infinite where pieces wait for one another in a cycle.

    Args:
      workload: the problem.
      piece_of: ``[node]``: ``device * subgraphs + number`` for a node in that subgraph of an
        accelerator, in order of execution; negative for the host. A subgraph that is not contiguous
        waits for itself.
      subgraphs: the most that a device may have.
    """
    source, target = workload.edges[:, 0], workload.edges[:, 1]
    pieces = workload.devices * subgraphs
    # A node on the host is a unit of its own, behind the pieces.
    unit = np.where(piece_of >= 0, piece_of, pieces + np.arange(workload.size))
    crossing = unit[source] != unit[target]
    classes = workload.class_of_devices()
    cost = np.zeros(pieces + workload.size)
    on_host = piece_of < 0
    if on_host.any():
        host = [kind for kind in workload.classes if not kind.transfers]
        if not host:
            raise WorkloadError("a node is on the host, and the workload has none")
        cost[pieces:][on_host] = host[0].seconds[on_host]
    links = set(zip(unit[source[crossing]].tolist(), unit[target[crossing]].tolist()))
    for piece in range(pieces):
        mine = piece_of == piece
        kind = workload.classes[classes[piece // subgraphs]]
        incoming = np.unique(source[crossing & (unit[target] == piece)])
        outgoing = np.unique(source[crossing & (unit[source] == piece)])
        if mine.any():
            cost[piece] = (
                kind.seconds[mine].sum()
                + workload.transfer_seconds[incoming].sum()
                + workload.transfer_seconds[outgoing].sum()
            )
        if (piece + 1) % subgraphs:
            links.add((piece, piece + 1))
    return _longest_path(cost, sorted(links))


def natural_subgraphs(workload: Workload, device_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[node]``: how often, at most, a path to the node has left its device and come back.

    Nodes of a device with equal numbers are contiguous, and no smaller numbering is.
    """
    pointers, sources = workload.predecessors()
    # Greatest number seen on a path to the node, by device, counting what has left it by then.
    inside = np.zeros((workload.size, workload.devices), np.int64)
    number = np.zeros(workload.size, np.int64)
    for node in topological_order(workload):
        home = device_of[node]
        reached = inside[node]
        for source in sources[pointers[node] : pointers[node + 1]]:
            np.maximum(reached, inside[source], out=reached)
        # ``reached`` is the least number that a node of each device may have from here on; what
        # leaves a device raises it by one for those who come back.
        number[node] = reached[home]
        for source in sources[pointers[node] : pointers[node + 1]]:
            left = device_of[source]
            if left != home:
                reached[left] = max(reached[left], number[source] + 1)
    return number


def _on_host(workload: Workload, device_of: NDArray[np.int64]) -> NDArray[np.bool_]:
    transfers = np.array([kind.transfers for kind in workload.classes])
    return ~transfers[workload.class_of_devices()[device_of]]


def _longest_path(cost: NDArray[np.float64], links: list[tuple[int, int]]) -> float:
    after: dict[int, list[int]] = {}
    waiting = np.zeros(len(cost), np.int64)
    for left, right in links:
        after.setdefault(left, []).append(right)
        waiting[right] += 1
    start = np.zeros(len(cost))
    stack = np.flatnonzero(waiting == 0).tolist()
    last = 0.0
    finished = 0
    while stack:
        unit = stack.pop()
        finished += 1
        end = float(start[unit] + cost[unit])
        last = max(last, end)
        for following in after.get(unit, ()):
            start[following] = max(start[following], end)
            waiting[following] -= 1
            if waiting[following] == 0:
                stack.append(following)
    return last if finished == len(cost) else float("inf")
