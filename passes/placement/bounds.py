"""Lower bounds on the makespan, and on memory: what no placement and no order can beat.

They hold for the simulator's rules (``simulate/simulator.py``): the makespan of any simulation of
any assignment is at least ``makespan_bound``, and one whose peaks are within the limits exists only
if ``memory_gap`` finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.problem import PlacementProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Most nodes for which ``memory_gap`` compares every pair of nodes.
_MOST_NODES = 3000
#: Steps of the ascent in ``work_bound``.
_ASCENT_STEPS = 60


def makespan_bound(problem: PlacementProblem) -> float:
    """The best of the bounds below, seconds."""
    return max(critical_path_bound(problem), work_bound(problem), group_bound(problem))


def critical_path_bound(problem: PlacementProblem) -> float:
    """Longest path, each node on the fastest device it may go to, seconds.

    A transfer counts where the two ends have no device in common.
    """
    lists, machine = problem.lists, problem.machine
    allowed = problem.allowed
    quickest = [
        min(lists.seconds[node][device] for device in allowed[lists.group[node]])
        for node in range(problem.nodes)
    ]
    ready = [0.0] * problem.nodes
    longest = 0.0
    for node in problem.order:
        end = ready[node] + quickest[node]
        longest = max(longest, end)
        here = allowed[lists.group[node]]
        for tensor in lists.gives[node]:
            for reader in lists.readers[tensor]:
                there = allowed[lists.group[reader]]
                arrival = end
                if not set(here) & set(there):
                    arrival += min(
                        machine.transfer_seconds(a, b, lists.tensor_bytes[tensor])
                        for a in here
                        for b in there
                    )
                ready[reader] = max(ready[reader], arrival)
    return longest


def work_bound(problem: PlacementProblem) -> float:
    """Total work spread over all processors as well as fractions of groups allow, seconds.

    For weights of the processors that sum to one, the weighted sum of their loads is at most the
    largest load; so the sum over groups of the least weighted time is a bound. A short ascent looks
    for good weights (a linear program's dual); any weights give a valid bound. With equal devices
    that is the work divided by the number of processors.
    """
    times = _group_seconds(problem)
    processors = problem.machine.processors
    processor = problem.machine.processor
    weights = np.full(processors, 1.0 / processors)
    best = 0.0
    for step in range(_ASCENT_STEPS):
        weighted = times * weights[processor]
        choice = weighted.argmin(axis=1)
        taken = np.arange(len(choice)), choice
        best = max(best, float(weighted[taken].sum()))
        loads = np.zeros(processors)
        np.add.at(loads, processor[choice], times[taken])
        mean = loads.mean()
        if mean == 0 or np.ptp(loads) <= 1e-12 * mean:
            break
        # Weigh down what carries little: it takes more of the groups next time.
        weights = weights * (loads / mean + 1e-3) ** (0.5 / (1 + 0.1 * step))
        weights /= weights.sum()
    return best


def group_bound(problem: PlacementProblem) -> float:
    """The largest group, all of it on its best device, seconds."""
    times = _group_seconds(problem)
    return float(times.min(axis=1).max()) if len(times) else 0.0


def _group_seconds(problem: PlacementProblem) -> NDArray[np.float64]:
    """Seconds of each group on each device, infinite where it may not go, ``[g, d]``."""
    times = np.zeros((problem.groups, problem.devices))
    np.add.at(times, problem.group, problem.seconds)
    for group, devices in enumerate(problem.allowed):
        if len(devices) < problem.devices:
            mask = np.ones(problem.devices, dtype=bool)
            mask[list(devices)] = False
            times[group, mask] = np.inf
    return times


# Memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryGap:
    """Why no placement can fit.

    ``group`` needs ``needed_bytes`` on one device and the largest that it may go to allows
    ``limit_bytes``; with ``group`` -1, all devices together. ``node`` is what runs then.
    """

    group: int
    node: int
    needed_bytes: int
    limit_bytes: int


def memory_gap(problem: PlacementProblem) -> MemoryGap | None:
    """A proof that nothing fits, or None; None proves nothing.

    While a node runs, certain tensors live whatever the order: what it reads and gives, results of
    what must come before it that persist or are read by what must come after it, and undonated
    arguments. Those of one group that are read again in that group are on the group's device.
    """
    if problem.nodes == 0:
        return None
    if problem.nodes > _MOST_NODES:
        return _resident_gap(problem)
    lists = problem.lists
    before = _before(problem)
    nodes = problem.nodes
    group = np.asarray(lists.group)
    nbytes = np.asarray(lists.tensor_bytes, dtype=np.int64)
    total = problem.temporary_bytes.astype(np.int64).copy()
    by_group = np.zeros((problem.groups, nodes), dtype=np.int64)
    by_group[group, np.arange(nodes)] += problem.temporary_bytes
    for (node, readers, persistent), size in _alike(problem).items():
        home_group = group[node]
        if lists.is_argument[node]:
            born = np.ones(nodes, dtype=bool)
        else:
            born = before[node].copy()
            born[node] = True
        own = [reader for reader in readers if group[reader] == home_group]
        if persistent:
            anywhere = home = born
        else:
            anywhere = home = born & _until(before, readers, node)
            if len(own) < len(readers):
                home = born & _until(before, own, node)
        total += size * anywhere
        by_group[home_group] += size * home
    # A state value may take over its argument's buffer while its producer runs.
    for tensor, old in enumerate(lists.alias):
        if old >= 0:
            node = lists.producer[tensor]
            total[node] -= nbytes[old]
            by_group[group[node], node] -= nbytes[old]
    limits = lists.limit_bytes
    for each in range(problem.groups):
        most = max(limits[device] for device in problem.allowed[each])
        worst = int(by_group[each].argmax())
        if by_group[each, worst] > most:
            return MemoryGap(each, worst, int(by_group[each, worst]), most)
    worst = int(total.argmax())
    if total[worst] > sum(limits):
        return MemoryGap(-1, worst, int(total[worst]), sum(limits))
    return None


def _resident_gap(problem: PlacementProblem) -> MemoryGap | None:
    """The same from the arguments alone, all of which live at the start."""
    is_argument = problem.is_argument[problem.producer]
    resident = np.zeros(problem.groups, dtype=np.int64)
    np.add.at(
        resident,
        problem.group[problem.producer[is_argument]],
        problem.tensor_bytes[is_argument],
    )
    limits = problem.lists.limit_bytes
    for group, needed in enumerate(resident.tolist()):
        most = max(limits[device] for device in problem.allowed[group])
        if needed > most:
            return MemoryGap(group, problem.members[group][0], needed, most)
    total = int(resident.sum())
    return MemoryGap(-1, problem.order[0], total, sum(limits)) if total > sum(limits) else None


def _before(problem: PlacementProblem) -> NDArray[np.bool_]:
    """``before[a, b]``: ``a`` must end before ``b`` starts."""
    lists = problem.lists
    after = np.zeros((problem.nodes, problem.nodes), dtype=bool)
    for node in reversed(problem.order):
        for tensor in lists.gives[node]:
            for reader in lists.readers[tensor]:
                after[node] |= after[reader]
                after[node, reader] = True
    return after


def _alike(problem: PlacementProblem) -> dict[tuple[int, tuple[int, ...], bool], int]:
    """Bytes of the tensors that have the same producer, readers and end.

    Arguments of a group that are read alike, in the group too, count as one's: what runs before
    one of the readers finds all of them there.
    """
    lists, group = problem.lists, problem.lists.group
    first: dict[tuple[int, tuple[int, ...]], int] = {}
    found: dict[tuple[int, tuple[int, ...], bool], int] = {}
    for node, reading, persistent, size in zip(
        lists.producer, lists.readers, lists.persistent, lists.tensor_bytes
    ):
        readers = tuple(reading)
        made_by, own = node, group[node]
        if lists.is_argument[node] and any(group[reader] == own for reader in readers):
            made_by = first.setdefault((own, readers), node)
        key = (made_by, readers, persistent)
        found[key] = found.get(key, 0) + size
    return found


def _until(before: NDArray[np.bool_], readers: Sequence[int], producer: int) -> NDArray[np.bool_]:
    """Nodes that surely run no later than the last of ``readers``."""
    alive = np.zeros(len(before), dtype=bool)
    alive[producer] = True
    for reader in readers:
        alive |= before[:, reader]
        alive[reader] = True
    return alive
