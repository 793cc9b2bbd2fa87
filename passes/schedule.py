"""``schedule``: the order in which one process issues the operations of ``@main``.

The simulator plays the step under several rules of who goes first on a free device; the order is
that of the starts in the shortest good play that fits every memory limit. Sends are issued when the
simulator starts them, never before their value's producer, and receives right before their first
reader. Since the order follows one play of the whole step, data, device order and channels together
cannot form a cycle; a second play in exactly this order proves it and gives the predicted times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.passes.insert_transfers import RECV, SEND
from baechi_jax.passes.memory_account import account_of
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.memory_walk import MemoryWalk
from baechi_jax.passes.priorities import SHARES, blended
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import TASK, argument_devices, device_of, topology_of

if TYPE_CHECKING:
    from baechi_jax.passes.placement.from_module import ModuleProblem
    from baechi_jax.passes.placement.problem import PlacementProblem


@register_pass
@dataclass(frozen=True, slots=True)
class Schedule(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "schedule"
    summary: ClassVar[str] = "order the operations of @main as one process issues them"

    def run(self, module: Module) -> None:
        """Reorder ``@main`` of ``module`` and write the predicted times into it."""
        from baechi_jax.passes.placement.from_module import from_module

        topology = topology_of(module)
        func = module.main
        measured = MeasuredMemory.of(module)
        plays = _Plays(func, from_module(module))
        best: tuple[int, float, list[Operation]] | None = None
        for makespan, order, ends in plays.candidates():
            func.body.set_ops([*order, func.body.terminator])
            account = account_of(func, topology.size)
            walk = MemoryWalk(
                account, topology, [*ends, 0.0], wait_to_donate=True, measured=measured
            )
            walk.run()
            over = walk.excess_bytes()
            if best is None or (over, makespan) < best[:2]:
                best = (over, makespan, order)
            if not over:
                break
        assert best is not None
        func.body.set_ops([*best[2], func.body.terminator])
        plays.replay(best[2])


class _Plays:
    """Simulated steps of a function that has its transfers."""

    def __init__(self, func: Operation, problem: ModuleProblem) -> None:
        self.func = func
        self.problem: PlacementProblem = problem.problem
        self.tasks = problem.tasks
        self.first_task = problem.arguments
        #: Place in the order that the module came with, which is def before use.
        self.position = {op: index for index, op in enumerate(func.body.ops)}
        self.devices = argument_devices(func) + [device_of(task) for task in self.tasks]
        tensor_of: dict[Value, int] = {v: i for i, v in enumerate(func.body.arguments)}
        for task in self.tasks:
            for result in task.results:
                tensor_of[result] = len(tensor_of)
        self.sends: dict[tuple[int, int], Operation] = {}
        for op in func.body.ops:
            if op.name == SEND:
                target = op.attributes["to"]
                assert isinstance(target, int)
                self.sends[tensor_of[op.operands[0]], target] = op

    def candidates(self) -> Iterator[tuple[float, list[Operation], list[float]]]:
        """Plays in the order in which they are to be tried: the shortest of three good ones, then
        ever more thrifty ones. Each as ``play`` gives it."""
        ranks, position = self._ranks(), self.problem.position
        # Urgent first, program order, and the latest in program order first, which finishes what
        # it began.
        first = [
            self.play(blended(ranks, position, 1.0)),
            self.play(position),
            self.play([-place for place in position]),
        ]
        yield from sorted(first, key=lambda play: play[0])
        for share in SHARES[1:-1]:
            yield self.play(blended(ranks, position, share))
        yield self.play(self._gains())

    def _ranks(self) -> list[float]:
        """Seconds from the start of each node to the end of the step along its longest way."""
        lists = self.problem.lists
        rank = [0.0] * self.problem.nodes
        for node in reversed(self.problem.order):
            here = self.devices[node]
            longest = 0.0
            for tensor in lists.gives[node]:
                nbytes = lists.tensor_bytes[tensor]
                for reader in lists.readers[tensor]:
                    there = self.devices[reader]
                    way = rank[reader]
                    if there != here:
                        way += (
                            lists.latency_seconds[here][there]
                            + nbytes * lists.seconds_per_byte[here][there]
                        )
                    longest = max(longest, way)
            rank[node] = lists.seconds[node][here] + longest
        return rank

    def _gains(self) -> list[float]:
        """Bytes that each node adds to its device, less those that only it reads there."""
        lists = self.problem.lists
        gains = [0.0] * self.problem.nodes
        for node, gives in enumerate(lists.gives):
            gains[node] += sum(lists.tensor_bytes[tensor] for tensor in gives)
        for tensor, readers in enumerate(lists.readers):
            if len(readers) == 1 and not lists.persistent[tensor]:
                gains[readers[0]] -= lists.tensor_bytes[tensor]
        return gains

    def play(self, priority: Sequence[float]) -> tuple[float, list[Operation], list[float]]:
        """The length of the step under ``priority``, the order of its starts, and the ends."""
        from baechi_jax.passes.simulate.simulator import simulate

        simulation = simulate(self.problem, self.devices, priority=priority)
        starts: list[tuple[float, int, Operation]] = []
        ends: dict[Operation, float] = {}
        for index, task in enumerate(self.tasks):
            start = simulation.start_seconds[self.first_task + index]
            starts.append((start, self.position[task], task))
            ends[task] = simulation.end_seconds[self.first_task + index]
        for transfer in simulation.transfers:
            send = self.sends[transfer.tensor, transfer.target]
            starts.append((transfer.start_seconds, self.position[send], send))
            for op in (send, *send.result.users):
                ends[op] = transfer.end_seconds
        starts.sort(key=lambda entry: entry[:2])
        order = self._with_receives([op for _, _, op in starts])
        return simulation.makespan_seconds, order, [ends[op] for op in order]

    def _with_receives(self, ops: Sequence[Operation]) -> list[Operation]:
        order: list[Operation] = []
        placed: set[Operation] = set()
        for op in [*ops, self.func.body.terminator]:
            for value in op.operands:
                producer = value.defining_op
                if producer is not None and producer.name == RECV and producer not in placed:
                    placed.add(producer)
                    order.append(producer)
            order.append(op)
        return order[:-1]

    def replay(self, order: Sequence[Operation]) -> None:
        """Play the step in exactly this order and write down its times."""
        from baechi_jax.passes.simulate.simulator import simulate

        node_of = {task: self.first_task + index for index, task in enumerate(self.tasks)}
        transfer_of = {send: key for key, send in self.sends.items()}
        simulation = simulate(
            self.problem,
            self.devices,
            [node_of[op] for op in order if op.name == TASK],
            transfer_order=[transfer_of[op] for op in order if op.name == SEND],
        )
        for task, node in node_of.items():
            _set_times(task, simulation.start_seconds[node], simulation.end_seconds[node])
        for transfer in simulation.transfers:
            send = self.sends[transfer.tensor, transfer.target]
            for op in (send, *send.result.users):
                _set_times(op, transfer.start_seconds, transfer.end_seconds)
        attributes = self.func.attributes
        attributes["baechi.step_seconds"] = simulation.makespan_seconds
        attributes["baechi.lower_bound_seconds"] = lower_bound_seconds(self.problem)


def lower_bound_seconds(problem: PlacementProblem) -> float:
    """No placement on these devices takes less: the longest way without any transfer, and the work
    spread evenly over what computes, each node at its fastest device."""
    lists = problem.lists
    way = [0.0] * problem.nodes
    fastest = [min(seconds) for seconds in lists.seconds]
    for node in reversed(problem.order):
        after = (way[reader] for tensor in lists.gives[node] for reader in lists.readers[tensor])
        way[node] = fastest[node] + max(after, default=0.0)
    spread = sum(fastest) / problem.machine.processors
    return max([spread, *way])


def _set_times(op: Operation, start: float, end: float) -> None:
    op.attributes["baechi.start_seconds"] = start
    op.attributes["baechi.end_seconds"] = end
