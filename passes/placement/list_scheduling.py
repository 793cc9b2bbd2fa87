"""Earliest task first under memory limits: the scheduler inside m-ETF and m-SCT.

Repeatedly, of all ready nodes and the devices they may go to, take the pair that can start first
and place it (Baechi, section 3.1.2). A group's first node places the whole group. Where devices
differ in speed, a pair counts by its start plus what it loses against the fastest device for that
node, so that a slow device that happens to be idle does not win; with equal devices that is the
paper's rule.

The paper's authors re-estimate every pair at every step. Here each device keeps two heaps: nodes
whose data is there by the time it is free (they could all start at once, so only the tie-break
orders them), and nodes whose data arrives later, by arrival. A node passes from the second to the
first once, and only the top of a heap is ever re-estimated: O((n + e) d log n).

Memory: a pair whose group does not fit (``ledger.py``) is dropped. A group that fits nowhere is a
dead end; it goes to the device where it does the least harm, and ``repair.py`` moves groups until
all fit.

With favourite children (m-SCT): a device that has just run a node whose favourite child is not
placed is *awake* for that child as long as the child could start nowhere earlier. Awake, it runs
only that child, or nodes that are *urgent*: ready on every device, so that nothing is gained by
running them elsewhere.

Large problems are scheduled by a compiled kernel (``_list_kernel.py``) that decides alike; small
ones here, in less time than numba takes to load. Where all tensors together fit on every device,
nothing can pass a limit and no ledger is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from baechi_jax.passes.placement.compiled_code import pays
from baechi_jax.passes.placement.fusion import Fused
from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.units import Units

_INFINITY = float("inf")


#: From so many nodes on, the compiled scheduler; numba takes half a second to load. Where it is
#: loaded already, from fewer.
KERNEL_NODES, KERNEL_NODES_LOADED = 2000, 200


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A device for each group, the scheduler's own makespan, groups placed above a limit."""

    device_of_group: list[int]
    makespan_seconds: float
    overflows: int


def schedule(
    fused: Fused,
    profiles: Profiles | None = None,
    favourite_child: Sequence[int] | None = None,
    *,
    compiled: bool | None = None,
) -> Scheduled:
    """Earliest task first over the nodes of ``fused.problem``.

    ``profiles`` are those of ``fused.original``. ``compiled``: whether by the kernel; by default
    for large problems.
    """
    problem = fused.problem
    if compiled is None:
        compiled = pays(problem.nodes, loaded=KERNEL_NODES_LOADED, unloaded=KERNEL_NODES)
    if compiled:
        from baechi_jax.passes.placement.list_arrays import schedule_compiled

        device_of_group, makespan, overflows = schedule_compiled(fused, profiles, favourite_child)
    else:
        profiles = Profiles(fused.original) if profiles is None else profiles
        scheduler = ListScheduler(problem, profiles, favourite_child)
        device_of_group = scheduler.run()
        makespan, overflows = scheduler.makespan, scheduler.overflows
    return Scheduled(device_of_group, makespan * problem.machine.unit_seconds, overflows)


class _Queue:
    """Ready nodes of one device, by when they could start.

    Entries are ``(data time, loss, rank, node)``. ``best(free)`` is the least
    ``max(data time, free) + loss`` and its node, ``free`` being when the device is free.
    """

    __slots__ = ("arrived", "future")

    def __init__(self) -> None:
        self.future: list[tuple[float, int, int, float]] = []
        self.arrived: list[tuple[float, int, int]] = []

    def add(self, data: float, loss: float, rank: int, node: int) -> None:
        heappush(self.future, (data + loss, rank, node, loss))


class ListScheduler:
    """One run; ``run()`` gives the device of each group.

    ``profiles`` may be those of the problem before fusion, with the same groups.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        profiles: Profiles,
        favourite_child: Sequence[int] | None = None,
    ) -> None:
        self.problem = problem
        self.lists = lists = problem.lists
        self.ledger = Ledger(profiles)
        self.units = Units(profiles.problem, profiles, self.ledger)
        self.favourite = favourite_child
        self.overflows = 0
        #: When the last node placed ends, in the machine's unit of time, as all times here.
        self.makespan = 0.0
        devices = problem.devices
        machine = problem.machine
        self.channel = machine.communication == "channel"
        self.seconds: list[list[float]] = problem.node_times.tolist()
        self.latency: list[list[float]] = machine.unit_latency.tolist()
        self.per_byte: list[list[float]] = machine.unit_per_byte.tolist()
        self.free = [0.0] * machine.processors
        #: When each wire, or each device's channel, is free.
        self.wire_free = [0.0] * max(devices, max(map(max, lists.wire)) + 1)
        self.finish = [0.0] * problem.nodes
        self.arrival: dict[tuple[int, int], float] = {}
        self.placed = [False] * problem.nodes
        self.missing = [
            sum(not lists.is_argument[lists.producer[tensor]] for tensor in reads)
            for reads in lists.reads
        ]
        self.queues = [_Queue() for _ in range(devices)]
        self.urgent = [_Queue() for _ in range(devices)] if favourite_child is not None else []
        self.awake_for = [-1] * devices
        #: Devices that a group may still go to.
        self.open: list[list[int]] = [list(allowed) for allowed in problem.allowed]
        self.fastest = [min(row) for row in self.seconds]

    def run(self) -> list[int]:
        """Schedule everything."""
        remaining = 0
        for node, is_argument in enumerate(self.lists.is_argument):
            if is_argument:
                continue
            remaining += 1
            if self.missing[node] == 0:
                self._enqueue(node)
        while remaining:
            node, device = self._choose()
            self._place(node, device)
            remaining -= 1
        self.overflows += self.units.place_rest()
        return list(self.ledger.device)

    # Estimates ----------------------------------------------------------------------------------

    def _data_time(self, node: int, device: int) -> float:
        """When everything that ``node`` reads can be on ``device``."""
        lists = self.lists
        latest = 0.0
        # In a channel, the transfers that this node needs wait for one another.
        sent = [-1.0] * self.problem.devices if self.channel else []
        received = self.wire_free[device] if self.channel else 0.0
        for tensor in lists.reads[node]:
            source = self.ledger.device[lists.group[lists.producer[tensor]]]
            if source < 0:
                # An argument that nobody has placed comes along, or is moved before the start.
                continue
            known = self.arrival.get((tensor, device))
            if source == device:
                time = self.finish[lists.producer[tensor]]
            elif known is not None:
                time = known
            elif self.channel:
                takes = self._transfer(tensor, source, device)
                start = max(
                    self.finish[lists.producer[tensor]], self.wire_free[source], sent[source]
                )
                sent[source] = start + takes
                received = time = max(start, received) + takes
            else:
                time = self._would_arrive(tensor, source, device)
            if time > latest:
                latest = time
        return latest

    def _would_arrive(self, tensor: int, source: int, device: int) -> float:
        if self.channel:
            busy = max(self.wire_free[source], self.wire_free[device])
        else:
            busy = self.wire_free[self.lists.wire[source][device]]
        ended = self.finish[self.lists.producer[tensor]]
        return max(ended, busy) + self._transfer(tensor, source, device)

    def _transfer(self, tensor: int, source: int, device: int) -> float:
        nbytes = self.lists.tensor_bytes[tensor]
        time = self.latency[source][device] + nbytes * self.per_byte[source][device]
        return float(round(time)) if self.channel else time

    def _enqueue(self, node: int) -> None:
        """Offer a ready node to every device it may go to."""
        group = self.lists.group[node]
        at = self.ledger.device[group]
        devices = self.open[group] if at < 0 else [at]
        rank = self.problem.position[node]
        times = [self._data_time(node, device) for device in devices]
        everywhere = max(times)
        for device, data in zip(devices, times):
            loss = self.seconds[node][device] - self.fastest[node]
            self.queues[device].add(data, loss, rank, node)
            if self.urgent:
                self.urgent[device].add(everywhere, loss, rank, node)

    # Choosing -----------------------------------------------------------------------------------

    def _choose(self) -> tuple[int, int]:
        """The ready pair that can start first."""
        while True:
            best: tuple[float, int, int] | None = None
            # The one that is free first, first: nothing starts before its device is free.
            devices = list(range(self.problem.devices))
            first = min(devices, key=lambda each: (self._free(each), each))
            devices.remove(first)
            for device in (first, *devices):
                if self.favourite is None and best is not None and self._free(device) > best[0]:
                    continue
                candidate = self._best_on(device)
                if candidate is not None and (best is None or candidate < best):
                    best = candidate
            if best is None:
                raise AssertionError("no ready node while some are unplaced: the graph has a cycle")
            _, _, packed = best
            node, device = divmod(packed, self.problem.devices)
            group = self.lists.group[node]
            if self.ledger.device[group] >= 0:
                return node, device
            together = self.units.of(group)
            if self.ledger.excess(together, device) <= 0:
                return node, device
            self.open[group].remove(device)
            if not self.open[group]:
                self.overflows += 1
                allowed = self.problem.allowed[group]
                excess = {each: self.ledger.excess(together, each) for each in allowed}
                self.open[group] = [min(allowed, key=lambda each: (excess[each], each))]
                return node, self.open[group][0]

    def _best_on(self, device: int) -> tuple[float, int, int] | None:
        """``(time, rank, node * devices + device)`` of the first that can start on ``device``."""
        child = self.awake_for[device]
        if child >= 0 and self._stays_awake(device, child):
            candidate = self._top(self.urgent[device], device, urgent=True)
            if self.missing[child] == 0:
                start = max(self._data_time(child, device), self._free(device))
                own = (start, self.problem.position[child], child * self.problem.devices + device)
                if candidate is None or own < candidate:
                    return own
            return candidate
        return self._top(self.queues[device], device, urgent=False)

    def _free(self, device: int) -> float:
        return self.free[self.lists.processor[device]]

    def _top(self, queue: _Queue, device: int, *, urgent: bool) -> tuple[float, int, int] | None:
        free = self._free(device)
        devices = self.problem.devices
        future, arrived = queue.future, queue.arrived
        while future:
            time, rank, node, loss = future[0]
            if self._stale(node, device):
                heappop(future)
                continue
            # Wires may have become busy since the estimate.
            now = self._urgent_time(node) if urgent else self._data_time(node, device)
            if now + loss > time:
                heappop(future)
                heappush(future, (now + loss, rank, node, loss))
            elif now <= free:
                heappop(future)
                heappush(arrived, (loss, rank, node))
            else:
                break
        while arrived:
            loss, rank, node = arrived[0]
            if self._stale(node, device):
                heappop(arrived)
                continue
            now = self._urgent_time(node) if urgent else self._data_time(node, device)
            if now <= free:
                break
            heappop(arrived)
            heappush(future, (now + loss, rank, node, loss))
        best: tuple[float, int, int] | None = None
        if arrived:
            loss, rank, node = arrived[0]
            best = (free + loss, rank, node * devices + device)
        if future:
            time, rank, node, _ = future[0]
            other = (time, rank, node * devices + device)
            if best is None or other < best:
                best = other
        return best

    def _stale(self, node: int, device: int) -> bool:
        """Whether the pair is no longer to be had."""
        if self.placed[node]:
            return True
        group = self.lists.group[node]
        at = self.ledger.device[group]
        return at != device if at >= 0 else device not in self.open[group]

    # Awake devices ------------------------------------------------------------------------------

    def _stays_awake(self, device: int, child: int) -> bool:
        """Whether ``child`` is still to come, and could start nowhere before ``device``."""
        group = self.lists.group[child]
        at = self.ledger.device[group]
        if self.placed[child] or (at >= 0 and at != device) or device not in self.open[group]:
            self.awake_for[device] = -1
            return False
        if at < 0 and self.missing[child] == 0:
            here = max(self._data_time(child, device), self._free(device))
            for other in self.open[group]:
                if other != device and here > max(self._data_time(child, other), self._free(other)):
                    self.awake_for[device] = -1
                    return False
        return True

    def _urgent_time(self, node: int) -> float:
        """When ``node`` is ready on every device it may go to."""
        group = self.lists.group[node]
        at = self.ledger.device[group]
        devices = self.open[group] if at < 0 else [at]
        return max(self._data_time(node, device) for device in devices)

    # Placing ------------------------------------------------------------------------------------

    def _place(self, node: int, device: int) -> None:
        lists = self.lists
        group = lists.group[node]
        if self.ledger.device[group] < 0:
            together = self.units.of(group)
            for each in together:
                self.ledger.place(each, device)
            for each in together:
                for other in self.problem.members[each]:
                    # It may have been offered to other devices only.
                    if other != node and self._is_ready(other):
                        self._enqueue(other)
        start = self._free(device)
        for tensor in lists.reads[node]:
            source_group = lists.group[lists.producer[tensor]]
            source = self.ledger.device[source_group]
            if source < 0:
                self._place_elsewhere(source_group, device)
                source = self.ledger.device[source_group]
            if source == device:
                time = self.finish[lists.producer[tensor]]
            else:
                known = self.arrival.get((tensor, device))
                if known is None:
                    known = self._would_arrive(tensor, source, device)
                    self.arrival[tensor, device] = known
                    self._occupy(tensor, source, device, known)
                time = known
            if time > start:
                start = time
        end = start + self.seconds[node][device]
        self.finish[node] = end
        self.makespan = max(self.makespan, end)
        self.placed[node] = True
        self.free[lists.processor[device]] = end
        if self.favourite is not None:
            child = self.favourite[node]
            if child >= 0 and not self.placed[child]:
                self.awake_for[device] = child
        for tensor in lists.gives[node]:
            for reader in lists.readers[tensor]:
                self.missing[reader] -= 1
                if self.missing[reader] == 0:
                    self._enqueue(reader)

    def _occupy(self, tensor: int, source: int, device: int, arrival: float) -> None:
        if self.channel:
            sent = max(self.finish[self.lists.producer[tensor]], self.wire_free[source])
            self.wire_free[source] = sent + self._transfer(tensor, source, device)
            self.wire_free[device] = arrival
        else:
            self.wire_free[self.lists.wire[source][device]] = arrival

    def _is_ready(self, node: int) -> bool:
        return not (self.placed[node] or self.missing[node] or self.lists.is_argument[node])

    def _place_elsewhere(self, group: int, wanted: int) -> None:
        """Place an argument's group that could not come along to ``wanted``."""
        allowed = self.problem.allowed[group]
        excess = {device: self.ledger.excess([group], device) for device in allowed}
        best = min(allowed, key=lambda each: (max(0, excess[each]), each != wanted, each))
        self.overflows += excess[best] > 0
        self.ledger.place(group, best)
