"""When everything of a latency split happens, and in which order its subgraphs can run.

For warm starts; the judge (``latency/judge.py``) shares no code with it.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.pieces import host_seconds
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Seconds of one sample under a split. Pieces without nodes are left out."""

    seconds: float
    #: The pieces in an order in which none waits for a later one, and when each starts and ends.
    order: tuple[int, ...]
    start: tuple[float, ...]
    finish: tuple[float, ...]
    #: ``[node]``: when its output is in host memory, or its piece ends.
    ready: NDArray[np.float64]
    #: ``[node]``: the number of pieces of ``order`` that come before it, its own included.
    done_before: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, piece_of: NDArray[np.int64], subgraphs: int = 1) -> Timeline:
        """The timeline of ``piece_of`` (see ``latency/pieces.py``).

        Raises WorkloadError if pieces wait for one another in a cycle.
        """
        return _play(workload, piece_of, subgraphs)


def _play(workload: Workload, piece_of: NDArray[np.int64], subgraphs: int) -> Timeline:
    size = workload.size
    classes = workload.class_of_devices()
    host = host_seconds(workload)
    pieces = sorted({int(piece) for piece in piece_of if piece >= 0})
    # Units: nodes on the host by their index, pieces behind them.
    unit = [size + piece if piece >= 0 else node for node, piece in enumerate(piece_of.tolist())]
    members: dict[int, list[int]] = {}
    for node, each in enumerate(unit):
        members.setdefault(each, []).append(node)
    entering: dict[int, set[int]] = {each: set() for each in members}
    leaving: dict[int, set[int]] = {each: set() for each in members}
    after: dict[int, list[int]] = {each: [] for each in members}
    waiting = dict.fromkeys(members, 0)
    for source, target in workload.edges.tolist():
        one, other = unit[source], unit[target]
        if one != other:
            entering[other].add(source)
            leaving[one].add(source)
            after[one].append(other)
            waiting[other] += 1
    previous: dict[int, int] = {}
    for one, other in itertools.pairwise(pieces):
        if one // subgraphs == other // subgraphs:
            after[size + one].append(size + other)
            waiting[size + other] += 1
            previous[size + other] = size + one
    cost: dict[int, float] = {}
    for each, nodes in members.items():
        if each < size:
            cost[each] = float(host[each])
            continue
        kind = workload.classes[classes[(each - size) // subgraphs]]
        cost[each] = float(
            kind.seconds[nodes].sum()
            + workload.transfer_seconds[sorted(entering[each])].sum()
            + workload.transfer_seconds[sorted(leaving[each])].sum()
        )
    heap = [each for each, count in waiting.items() if not count]
    heapq.heapify(heap)
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    order: list[int] = []
    done_before = np.zeros(size, np.int64)
    while heap:
        each = heapq.heappop(heap)
        begin[each] = max((end[unit[source]] for source in entering[each]), default=0.0)
        if each in previous:
            begin[each] = max(begin[each], end[previous[each]])
        end[each] = begin[each] + cost[each]
        if each >= size:
            order.append(each - size)
        done_before[members[each]] = len(order)
        for other in after[each]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(heap, other)
    if len(end) < len(members):
        raise WorkloadError("subgraphs wait for one another in a cycle; there is no timeline")
    ready = np.array([end[each] for each in unit])
    return Timeline(
        seconds=max(end.values(), default=0.0),
        order=tuple(order),
        start=tuple(begin[size + piece] for piece in order),
        finish=tuple(end[size + piece] for piece in order),
        ready=ready,
        done_before=done_before,
    )
