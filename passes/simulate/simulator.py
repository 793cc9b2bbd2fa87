"""The simulator that judges every placement and schedule: discrete events over a problem.

Rules:

- A processor (one device, or several that share hardware) runs one node at a time.
- Arguments lie on their device from the start; they take no time.
- A tensor goes to each device that reads it once, asked for as soon as its producer ends. A wire
  carries one transfer at a time.
- Without an order, a free processor starts the ready node of least priority, a free wire the
  transfer whose first reader has the least; priority is the place in ``problem.order`` unless
  given. With an order, each device runs its nodes in exactly that order (devices of one processor
  take turns by it); with a transfer order, so does each wire.
- Memory is counted as docs/ir.md says: results and temporaries from the start of a node, a copy
  from the start of its transfer; a tensor until the end of its last reader on that device, where a
  transfer out is a reader. What ends at an instant is freed before what starts then is taken. So
  the peak is at least that of running the same instructions one by one in order of their starts.

Those are the rules of the project's model of communication, ``links``. Under ``channel``, the model
of Baechi's authors, ``channel.py`` plays the step; it takes no orders.

Plain lists and one heap, over the graph of ``condensed.py``: a few milliseconds for 300 tasks.
``compiled.py`` plays larger problems, alike to the last bit, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.simulate.channel import simulate_channel
from baechi_jax.passes.simulate.compiled import simulate_compiled, worth_compiling
from baechi_jax.passes.simulate.simulation import Simulation as Simulation
from baechi_jax.passes.simulate.simulation import Transfer as Transfer

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem

#: What sums of the same seconds in different orders may differ by, relative.
_ROUNDING = 1e-9


def simulate(
    problem: PlacementProblem,
    assignment: Sequence[int],
    order: Sequence[int] | None = None,
    *,
    priority: Sequence[float] | None = None,
    transfer_order: Sequence[tuple[int, int]] | None = None,
    memory_steps: bool = False,
) -> Simulation:
    """Run one step with node ``i`` on device ``assignment[i]``.

    ``order`` lists all nodes (arguments may be left out). ``transfer_order`` lists ``(tensor,
    target)`` of every transfer. Raises PlacementProblemError when the assignment does not fit the
    problem, or when the orders contradict the data flow.
    """
    _check_assignment(problem, assignment)
    if problem.machine.communication == "channel":
        if not (order is None and priority is None and transfer_order is None):
            raise PlacementProblemError(
                "with communication 'channel' the model says what runs first: nodes by when they "
                "are ready; give no order or priority"
            )
        return simulate_channel(problem, assignment, memory_steps=memory_steps)
    if transfer_order is None and not memory_steps and worth_compiling(problem):
        found = simulate_compiled(problem, assignment, order, priority)
        if found is not None:
            return found
    run = _Run(problem, assignment, order, priority, transfer_order, memory_steps)
    simulation = run.run()
    assert simulation is not None
    return simulation


def simulate_within(
    problem: PlacementProblem,
    assignment: Sequence[int],
    priority: Sequence[float],
    limit_seconds: float,
) -> Simulation | None:
    """``simulate`` by ``priority``, or None where the step surely takes over ``limit_seconds``.

    ``priority`` of a node: minus seconds that surely pass from its start to the end of the step
    (``judge.longest_way``). So the simulation is given up at the first node or transfer that comes
    too late for what follows it, or with too much left for its processor. One that is only just too
    long may run to its end.
    """
    _check_assignment(problem, assignment)
    # Seconds are added up in another order than in the simulation.
    limit = limit_seconds * (1 + _ROUNDING)
    if -min(priority, default=0.0) > limit:
        return None
    if worth_compiling(problem):
        found = simulate_compiled(problem, assignment, None, priority)
        if found is not None:
            return found
    return _Run(problem, assignment, None, priority, None, False, limit).run()


def _check_assignment(problem: PlacementProblem, assignment: Sequence[int]) -> None:
    nodes, devices = problem.nodes, problem.devices
    if len(assignment) != nodes or (
        nodes and not (min(assignment) >= 0 and max(assignment) < devices)
    ):
        raise PlacementProblemError(
            f"an assignment must give each of {nodes} nodes one of {devices} devices"
        )


class _Run:
    """The state of one simulation."""

    def __init__(
        self,
        problem: PlacementProblem,
        assignment: Sequence[int],
        order: Sequence[int] | None,
        priority: Sequence[float] | None,
        transfer_order: Sequence[tuple[int, int]] | None,
        memory_steps: bool,
        limit_seconds: float = float("inf"),
    ) -> None:
        """``limit_seconds``: see ``simulate_within``; priorities are minus the way then."""
        self.problem = problem
        self.device = device = list(map(int, assignment))
        exact = memory_steps or transfer_order is not None
        graph = problem.uncondensed if exact else problem.condensed
        self.graph = graph = graph if graph.suits(device) else problem.uncondensed
        self.lists = lists = graph.lists
        nodes, devices = problem.nodes, problem.devices
        if priority is not None:
            self.priority: Sequence[float] = priority
        elif order is not None:
            self.priority = _ranks(order, nodes)
        else:
            self.priority = problem.position
        processors = problem.machine.processors
        self.missing = list(lists.task_reads)
        self.ready: list[list[tuple[float, int]]] = [[] for _ in range(processors)]
        self.idle = [True] * processors
        self.queues = None if order is None else self._device_queues(order)
        self.wire_idle = [True] * (max(map(max, lists.wire)) + 1)
        self.waiting: list[list[tuple[float, int]]] = [[] for _ in self.wire_idle]
        self.moves: list[tuple[int, int]] = []
        self.asked: dict[tuple[int, int], int] = {}
        self.move_start: list[float] = []
        self.move_end: list[float] = []
        #: Least priority of the readers of each transfer, without a transfer order.
        self.first_reader: list[float] = []
        self.copy_left: dict[tuple[int, int], int] = {}
        #: Device of each tensor's producer.
        self.home = [device[node] for node in lists.producer]
        #: Readers on other devices, by device, of each tensor that has some.
        self.remote: dict[int, dict[int, list[int]]] = {}
        #: Tensors that are not freed after their last use: persistent ones, buffers taken over.
        self.kept = list(lists.persistent)
        #: Uses of each tensor on its own device that are still to end: readers there, transfers.
        self.left = list(map(len, lists.readers))
        self._find_transfers()
        self.wire_queues = None if transfer_order is None else self._wire_queues(transfer_order)
        self.memory = [0] * devices
        self.peak = [0] * devices
        self.peak_at = [0.0] * devices
        self.busy = [0.0] * devices
        self.steps: list[list[tuple[float, int]]] = [[] for _ in range(devices)]
        self.record = memory_steps
        self.start = [0.0] * nodes
        self.end = [0.0] * nodes
        self.events: list[tuple[float, int]] = []
        self.touched: list[int] = []
        self.touched_wires: list[int] = []
        self.limit_seconds = limit_seconds
        #: Seconds of the nodes that each processor has not started yet; only with a limit.
        self.load = self._loads() if limit_seconds != float("inf") else None

    def _find_transfers(self) -> None:
        """Fill ``remote`` and ``copy_left``, and correct ``left`` and ``missing`` by them."""
        lists, device, home = self.lists, self.device, self.home
        for tensor in self.graph.crossing:
            here = home[tensor]
            away = [reader for reader in lists.readers[tensor] if device[reader] != here]
            if not away:
                continue
            there = self.remote[tensor] = {}
            for reader in away:
                there.setdefault(device[reader], []).append(reader)
            of_argument = lists.is_argument[lists.producer[tensor]]
            for where, readers in there.items():
                self.copy_left[tensor, where] = len(readers)
                self.left[tensor] -= len(readers) - 1
                if of_argument:
                    # An argument is there from the start, a copy of it is not.
                    for reader in readers:
                        self.missing[reader] += 1

    def _loads(self) -> list[float]:
        load = [0.0] * self.problem.machine.processors
        for node in self.graph.tasks:
            device = self.device[node]
            load[self.lists.processor[device]] += self.lists.seconds[node][device]
        return load

    def run(self) -> Simulation | None:
        """All of it; None when it is given up."""
        nodes = self.problem.nodes
        now = 0.0
        self._take_arguments()
        for tensor, remote in self.remote.items():
            if self.lists.is_argument[self.lists.producer[tensor]]:
                self._ask(tensor, remote)
        for node in self.graph.tasks:
            if self.missing[node] == 0:
                self._make_ready(node)
        if not self._start_what_can(0.0):
            return None
        done = len(self.graph.arguments)
        events = self.events
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                code = heappop(events)[1]
                if code < nodes:
                    done += 1
                    self._end_node(code, now)
                else:
                    self._end_transfer(code - nodes, now)
            if not self._start_what_can(now):
                return None
        if done != nodes:
            raise PlacementProblemError(self._stuck())
        original = self.graph.original
        return Simulation(
            start_seconds=self.start,
            end_seconds=self.end,
            transfers=[
                Transfer(original[tensor], self.home[tensor], target, start, end)
                for (tensor, target), start, end in zip(self.moves, self.move_start, self.move_end)
            ],
            makespan_seconds=now,
            peak_bytes=self.peak,
            peak_seconds=self.peak_at,
            busy_seconds=self.busy,
            memory_steps=self.steps,
        )

    def _take_arguments(self) -> None:
        start_bytes = self.lists.start_bytes
        if self.record:
            for node in self.graph.arguments:
                self._take(self.device[node], start_bytes[node], 0.0)
            return
        total = self.memory
        for node in self.graph.arguments:
            total[self.device[node]] += start_bytes[node]
        self.peak = list(total)

    # Memory -------------------------------------------------------------------------------------

    def _take(self, device: int, nbytes: int, now: float) -> None:
        total = self.memory[device] + nbytes
        self.memory[device] = total
        if total > self.peak[device]:
            self.peak[device] = total
            self.peak_at[device] = now
        if self.record:
            self.steps[device].append((now, total))

    # Nodes --------------------------------------------------------------------------------------

    def _make_ready(self, node: int) -> None:
        processor = self.lists.processor[self.device[node]]
        if self.queues is None:
            heappush(self.ready[processor], (self.priority[node], node))
        self.touched.append(processor)

    def _next_node(self, processor: int) -> int:
        """The node that an idle processor runs now, or -1."""
        if self.queues is None:
            ready = self.ready[processor]
            return heappop(ready)[1] if ready else -1
        best: list[int] | None = None
        for queue in self.queues[processor]:
            if (
                queue
                and self.missing[queue[-1]] == 0
                and (best is None or self.priority[queue[-1]] < self.priority[best[-1]])
            ):
                best = queue
        return best.pop() if best is not None else -1

    def _start_what_can(self, now: float) -> bool:
        """Start nodes and transfers; False when the step will surely take too long."""
        lists, load = self.lists, self.load
        for processor in self.touched:
            if not self.idle[processor]:
                continue
            node = self._next_node(processor)
            if node < 0:
                continue
            self.idle[processor] = False
            self.start[node] = now
            device = self.device[node]
            seconds = lists.seconds[node][device]
            if seconds == float("inf"):
                raise PlacementProblemError(
                    f"'{self.problem.node_names[node]}' cannot run on "
                    f"{self.problem.machine.names[device]}, where the assignment puts it"
                )
            if load is not None:
                least = max(load[processor], -self.priority[node])
                if now + least > self.limit_seconds:
                    return False
                load[processor] -= seconds
            self.busy[device] += seconds
            nbytes = lists.start_bytes[node]
            for old, old_bytes in lists.aliases[node]:
                if self._takes_over(node, old):
                    self.kept[old] = True
                    nbytes -= old_bytes
            self._take(device, nbytes, now)
            heappush(self.events, (now + seconds, node))
        self.touched.clear()
        for wire in self.touched_wires:
            if not self.wire_idle[wire]:
                continue
            move = self._next_transfer(wire)
            if move < 0:
                continue
            self.wire_idle[wire] = False
            tensor, target = self.moves[move]
            source = self.home[tensor]
            nbytes = lists.tensor_bytes[tensor]
            self.move_start[move] = now
            self._take(target, nbytes, now)
            end = (
                now
                + lists.latency_seconds[source][target]
                + nbytes * lists.seconds_per_byte[source][target]
            )
            if load is not None and end - self.first_reader[move] > self.limit_seconds:
                return False
            heappush(self.events, (end, self.problem.nodes + move))
        self.touched_wires.clear()
        return True

    def _takes_over(self, node: int, old: int) -> bool:
        """Whether a result of ``node`` can have the buffer of the argument's tensor ``old``."""
        return (
            self.left[old] == 1
            and not self.kept[old]
            and self.home[old] == self.device[node]
            and node in self.lists.readers[old]
        )

    def _end_node(self, node: int, now: float) -> None:
        lists, home, left, missing = self.lists, self.home, self.left, self.missing
        self.end[node] = now
        device = self.device[node]
        freed = lists.temporary_bytes[node]
        for tensor in lists.reads[node]:
            if home[tensor] == device:
                left[tensor] -= 1
                if not left[tensor] and not self.kept[tensor]:
                    freed += lists.tensor_bytes[tensor]
            else:
                key = (tensor, device)
                self.copy_left[key] -= 1
                if not self.copy_left[key]:
                    freed += lists.tensor_bytes[tensor]
        for tensor in lists.gives[node]:
            if not left[tensor]:
                if not lists.persistent[tensor]:
                    freed += lists.tensor_bytes[tensor]
                continue
            remote = self.remote.get(tensor)
            if remote is not None:
                self._ask(tensor, remote)
            for reader in lists.readers[tensor]:
                if remote is None or self.device[reader] == device:
                    missing[reader] -= 1
                    if not missing[reader]:
                        self._make_ready(reader)
        if freed:
            self._take(device, -freed, now)
        processor = lists.processor[device]
        self.idle[processor] = True
        self.touched.append(processor)

    def _ask(self, tensor: int, remote: dict[int, list[int]]) -> None:
        """``tensor`` is there: its transfers may start."""
        for target, there in remote.items():
            move = len(self.moves)
            self.moves.append((tensor, target))
            self.move_start.append(0.0)
            self.move_end.append(0.0)
            wire = self.lists.wire[self.home[tensor]][target]
            if self.wire_queues is None:
                first = min(self.priority[reader] for reader in there)
                self.first_reader.append(first)
                heappush(self.waiting[wire], (first, move))
            else:
                self.asked[tensor, target] = move
            self.touched_wires.append(wire)

    # Transfers ----------------------------------------------------------------------------------

    def _next_transfer(self, wire: int) -> int:
        """The transfer that an idle wire starts now, or -1."""
        if self.wire_queues is None:
            waiting = self.waiting[wire]
            return heappop(waiting)[1] if waiting else -1
        queue = self.wire_queues[wire]
        if not queue or queue[-1] not in self.asked:
            return -1
        return self.asked[queue.pop()]

    def _end_transfer(self, move: int, now: float) -> None:
        lists, missing = self.lists, self.missing
        self.move_end[move] = now
        tensor, target = self.moves[move]
        home = self.home[tensor]
        self.left[tensor] -= 1
        if not self.left[tensor] and not self.kept[tensor]:
            self._take(home, -lists.tensor_bytes[tensor], now)
        for reader in self.remote[tensor][target]:
            missing[reader] -= 1
            if not missing[reader]:
                self._make_ready(reader)
        wire = lists.wire[home][target]
        self.wire_idle[wire] = True
        self.touched_wires.append(wire)

    # Orders -------------------------------------------------------------------------------------

    def _device_queues(self, order: Sequence[int]) -> list[list[list[int]]]:
        """For each processor, the nodes of each of its devices, the next one last."""
        queues: list[list[int]] = [[] for _ in range(self.problem.devices)]
        given = 0
        for node in reversed(order):
            if not self.lists.is_argument[node]:
                queues[self.device[node]].append(node)
                given += 1
        if given != self.problem.nodes - sum(self.lists.is_argument) or len(set(order)) != len(
            order
        ):
            raise PlacementProblemError("an order must list every node but arguments exactly once")
        result: list[list[list[int]]] = [[] for _ in range(self.problem.machine.processors)]
        for device, queue in enumerate(queues):
            result[self.lists.processor[device]].append(queue)
        return result

    def _wire_queues(
        self, transfer_order: Sequence[tuple[int, int]]
    ) -> list[list[tuple[int, int]]]:
        """For each wire, its transfers, the next one last, without copies that nobody reads."""
        queues: list[list[tuple[int, int]]] = [[] for _ in self.wire_idle]
        for tensor, target in reversed(transfer_order):
            if (tensor, target) in self.copy_left:
                queues[self.lists.wire[self.home[tensor]][target]].append((tensor, target))
        return queues

    def _stuck(self) -> str:
        if self.queues is None:
            heads = [node for node, count in enumerate(self.missing) if count > 0]
        else:
            heads = [queue[-1] for each in self.queues for queue in each if queue]
        first = min(heads, key=lambda node: self.problem.position[node])
        return (
            f"the order contradicts the data flow: '{self.problem.node_names[first]}' never starts;"
            " a node must come after what it reads, a transfer after what gives its tensor"
        )


def _ranks(order: Sequence[int], nodes: int) -> list[int]:
    ranks = [0] * nodes
    for index, node in enumerate(order):
        ranks[node] = index
    return ranks
