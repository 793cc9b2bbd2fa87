"""Memory bookkeeping for placers that build a placement group by group.

A group is placed whole: its arguments, its results that live on, and its tasks later in the step
(backward, update). Whether that fits must be known when its first task is placed, so the ledger
looks ahead: every tensor is given the lifetime that it has when all nodes run one by one in program
order (``problem.order``), and each device has a curve of the bytes in use over that order. Copies
of tensors that other devices read are counted over the part in which they live.

In a training step the order of a device's own nodes is close to program order whatever the
placement, so the curve's maximum is close to the simulated peak; the simulator has the last word
(``repair.py``). With more nodes than ``SLOTS``, the curve is kept at the worst position of each of
``SLOTS`` stretches only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.problem import PlacementProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Most positions at which a curve is kept.
SLOTS = 512
#: Most entries of the table of group curves.
_TABLE_ENTRIES = 8_000_000


class Profiles:
    """Lifetimes in program order, and the bytes that each group has in use over it.

    One per problem; ledgers share it. ``curve[g, s]``: bytes of group ``g`` at slot ``s``.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        first, last = _lifetimes(problem)
        group_of_tensor = problem.group[problem.producer]
        position = np.asarray(problem.position, dtype=np.int64)
        total = _one_device_curve(problem, first, last, position)
        slots = min(SLOTS, max(16, _TABLE_ENTRIES // max(1, problem.groups)), problem.nodes)
        where = _worst_positions(total, slots)
        #: First and last slot in which each tensor lives on its own device (empty: first > last).
        self.first = np.searchsorted(where, first, side="left")
        self.last = np.searchsorted(where, last, side="right") - 1
        #: Last slot at or before each node's position.
        self.slot_of_node = (np.searchsorted(where, position, side="right") - 1).tolist()
        #: First slot at or after each tensor's production.
        self.first_list = np.searchsorted(where, position[problem.producer], side="left").tolist()
        self.slots = len(where)
        difference = np.zeros((problem.groups, self.slots + 1), dtype=np.int64)
        alive = self.first <= self.last
        np.add.at(
            difference,
            (group_of_tensor[alive], self.first[alive]),
            problem.tensor_bytes[alive],
        )
        np.add.at(
            difference,
            (group_of_tensor[alive], self.last[alive] + 1),
            -problem.tensor_bytes[alive],
        )
        curve = np.cumsum(difference[:, :-1], axis=1)
        at = np.searchsorted(where, position)
        kept = (at < self.slots) & (where[np.minimum(at, self.slots - 1)] == position)
        np.add.at(curve, (problem.group[kept], at[kept]), problem.temporary_bytes[kept])
        self.curve: NDArray[np.int64] = curve
        #: Most bytes of each group by itself.
        self.group_peak: list[int] = curve.max(axis=1).tolist() if problem.groups else []
        self._boundary()

    def _boundary(self) -> None:
        """What each group reads from and gives to other groups."""
        problem, lists = self.problem, self.problem.lists
        group, slot = lists.group, self.slot_of_node
        #: ``(tensor, its group, last slot read)`` for each group.
        self.incoming: list[list[tuple[int, int, int]]] = [[] for _ in range(problem.groups)]
        #: ``(tensor, reading group, last slot read)`` for each group.
        self.outgoing: list[list[tuple[int, int, int]]] = [[] for _ in range(problem.groups)]
        #: Groups of arguments that each group reads, without itself.
        self.argument_groups: list[list[int]] = [[] for _ in range(problem.groups)]
        for tensor, node in enumerate(lists.producer):
            own = group[node]
            last: dict[int, int] = {}
            for reader in lists.readers[tensor]:
                other = group[reader]
                if other != own:
                    last[other] = max(last.get(other, -1), slot[reader])
            for other, until in last.items():
                self.outgoing[own].append((tensor, other, until))
                self.incoming[other].append((tensor, own, until))
                if lists.is_argument[node] and own not in self.argument_groups[other]:
                    self.argument_groups[other].append(own)


class Ledger:
    """Bytes in use on each device over program order, for the groups placed so far."""

    def __init__(self, profiles: Profiles, limit_bytes: list[int] | None = None) -> None:
        self.profiles = profiles
        problem = profiles.problem
        self.limit = problem.lists.limit_bytes if limit_bytes is None else limit_bytes
        self.used = np.zeros((problem.devices, profiles.slots), dtype=np.int64)
        self.peak = [0] * problem.devices
        self.device = [-1] * problem.groups
        #: Last slot up to which a copy of a tensor is counted on a device.
        self.copies: dict[tuple[int, int], int] = {}

    def excess(self, groups: list[int], device: int) -> int:
        """Bytes by which the limits would be passed with ``groups`` on ``device`` too.

        Not positive: they fit. Copies that other devices need of them are counted.
        """
        profiles = self.profiles
        bound = self.peak[device]
        arriving: list[tuple[int, int, int]] = []
        leaving: dict[int, list[tuple[int, int, int]]] = {}
        joining = set(groups)
        for group in groups:
            bound += profiles.group_peak[group]
            for tensor, other, until in profiles.incoming[group]:
                at = self.device[other]
                if at < 0 or at == device or other in joining:
                    continue
                since = self.copies.get((tensor, device), -1)
                if until > since:
                    arriving.append((tensor, since, until))
            for tensor, other, until in profiles.outgoing[group]:
                at = self.device[other]
                if at >= 0 and at != device and other not in joining:
                    leaving.setdefault(at, []).append(
                        (tensor, self.copies.get((tensor, at), -1), until)
                    )
        size = profiles.problem.lists.tensor_bytes
        worst = -1 << 62
        for at, copies in leaving.items():
            room = self.limit[at] - self.peak[at]
            if sum(size[tensor] for tensor, _, _ in copies) > room:
                worst = max(worst, self._peak_with(self.used[at].copy(), copies) - self.limit[at])
        bound += sum(size[tensor] for tensor, _, _ in arriving)
        if bound > self.limit[device]:
            curve = self.used[device] + profiles.curve[groups].sum(axis=0)
            bound = self._peak_with(curve, arriving)
        return max(worst, bound - self.limit[device])

    def place(self, group: int, device: int) -> None:
        """Put ``group`` on ``device``."""
        profiles = self.profiles
        self.device[group] = device
        self.used[device] += profiles.curve[group]
        touched = {device}
        for tensor, other, until in profiles.incoming[group]:
            at = self.device[other]
            if at >= 0 and at != device:
                self._copy(tensor, device, until)
        for tensor, other, until in profiles.outgoing[group]:
            at = self.device[other]
            if at >= 0 and at != device:
                self._copy(tensor, at, until)
                touched.add(at)
        for at in touched:
            self.peak[at] = int(self.used[at].max()) if profiles.slots else 0

    def _copy(self, tensor: int, device: int, until: int) -> None:
        since = self.copies.get((tensor, device), -1)
        if until <= since:
            return
        self.copies[tensor, device] = until
        start = max(self.profiles.first_list[tensor], since + 1)
        self.used[device, start : until + 1] += self.profiles.problem.lists.tensor_bytes[tensor]

    def _peak_with(self, curve: NDArray[np.int64], copies: list[tuple[int, int, int]]) -> int:
        size = self.profiles.problem.lists.tensor_bytes
        for tensor, since, until in copies:
            start = max(self.profiles.first_list[tensor], since + 1)
            curve[start : until + 1] += size[tensor]
        return int(curve.max()) if len(curve) else 0


def _lifetimes(problem: PlacementProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last position in program order at which each tensor takes its bytes."""
    lists, position = problem.lists, problem.position
    end = problem.nodes - 1
    first: list[int] = []
    last: list[int] = []
    for tensor, node in enumerate(lists.producer):
        argument = lists.is_argument[node]
        first.append(0 if argument else position[node])
        readers = lists.readers[tensor]
        if lists.persistent[tensor] or (argument and not readers):
            last.append(end)
        else:
            last.append(max((position[reader] for reader in readers), default=position[node]))
    for tensor, old in enumerate(lists.alias):
        node = lists.producer[tensor]
        if (
            old >= 0
            and last[old] == position[node]
            and not lists.persistent[old]
            and lists.group[lists.producer[old]] == lists.group[node]
        ):
            first[tensor] = position[node] + 1
    return np.array(first, dtype=np.int64), np.array(last, dtype=np.int64)


def _one_device_curve(
    problem: PlacementProblem,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    position: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Bytes in use at each position when everything runs on one device."""
    difference = np.zeros(problem.nodes + 1, dtype=np.int64)
    alive = first <= last
    np.add.at(difference, first[alive], problem.tensor_bytes[alive])
    np.add.at(difference, last[alive] + 1, -problem.tensor_bytes[alive])
    total = np.cumsum(difference[:-1])
    total[position] += problem.temporary_bytes
    return total


def _worst_positions(total: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """The position of most bytes in each of ``slots`` equal stretches, ascending."""
    count = len(total)
    if count <= slots:
        return np.arange(count)
    edges = np.linspace(0, count, slots + 1).astype(np.int64)
    return np.array(
        [low + int(total[low:high].argmax()) for low, high in pairwise(edges)],
        dtype=np.int64,
    )
