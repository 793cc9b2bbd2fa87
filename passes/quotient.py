"""The graph of placed tasks while ``merge-tasks`` joins them: small, and without the IR.

A node is one task or several that are to become one; a node lies on one device. Arguments are no
nodes: a tensor whose producer is ``-1 - d`` is an argument that lies on device d. Tensors with the
same producer, readers and lifetime are kept as one, with their bytes added up, which makes a
training step's many parameters a few entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from baechi_jax.passes.priorities import SHARES, blended
from baechi_jax.passes.reachability import Reachability
from baechi_jax.passes.simulate.simulator import Simulation, simulate

if TYPE_CHECKING:
    from baechi_jax.passes.placement.from_module import ModuleProblem
    from baechi_jax.passes.placement.machine import Machine


@dataclass(frozen=True, slots=True)
class Tensor:
    """Bytes that live together. ``persistent``: to the end of the step."""

    nbytes: int
    producer: int
    readers: tuple[int, ...]
    persistent: bool


@dataclass(slots=True)
class Quotient:
    """Nodes by index; ``members`` are task indices in an order in which they can run."""

    machine: Machine
    device: list[int]
    seconds: list[float]
    temporary_bytes: list[int]
    members: list[tuple[int, ...]]
    tensors: list[Tensor]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.device)

    @staticmethod
    def of(problem: ModuleProblem, devices: Sequence[int]) -> Quotient:
        """One node per task. ``devices``: of the problem's nodes, arguments first."""
        lists = problem.problem.lists
        first = problem.arguments
        count = len(problem.tasks)
        quotient = Quotient(
            problem.problem.machine,
            list(devices[first:]),
            [lists.seconds[first + i][devices[first + i]] for i in range(count)],
            lists.temporary_bytes[first:],
            [(i,) for i in range(count)],
            [],
        )
        tensors: list[Tensor] = []
        for tensor, nbytes in enumerate(lists.tensor_bytes):
            producer = lists.producer[tensor]
            readers = tuple(sorted(reader - first for reader in lists.readers[tensor]))
            made_by = producer - first if producer >= first else -1 - devices[producer]
            persistent = lists.persistent[tensor]
            old = lists.alias[tensor]
            # State that is updated in place takes its bytes once, all through the step.
            if old >= 0 and producer >= first and lists.producer[old] < first:
                nbytes = 0 if producer in lists.readers[old] else nbytes
            tensors.append(Tensor(nbytes, made_by, readers, persistent))
        for tensor, old in enumerate(lists.alias):
            if old >= 0 and tensors[tensor].nbytes == 0 and tensors[old].producer < 0:
                kept = tensors[old]
                tensors[old] = Tensor(kept.nbytes, kept.producer, kept.readers, True)
        quotient.tensors = _collect(tensors)
        return quotient

    def reachability(self) -> Reachability:
        """Which nodes lead to which."""
        return Reachability(self.successors(), self.order())

    def successors(self) -> list[set[int]]:
        """The nodes that read what each node gives."""
        result: list[set[int]] = [set() for _ in self.device]
        for tensor in self.tensors:
            if tensor.producer >= 0:
                result[tensor.producer].update(tensor.readers)
        return result

    def order(self) -> list[int]:
        """A topological order, smallest first task first. Nodes must not form a cycle."""
        import heapq

        successors = self.successors()
        waiting = [0] * self.size
        for readers in successors:
            for reader in readers:
                waiting[reader] += 1
        heap = [(self.members[n][0], n) for n in range(self.size) if not waiting[n]]
        heapq.heapify(heap)
        order: list[int] = []
        while heap:
            _, node = heapq.heappop(heap)
            order.append(node)
            for reader in successors[node]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (self.members[reader][0], reader))
        assert len(order) == self.size, "merged tasks form a cycle"
        return order

    def merged(self, groups: Sequence[Sequence[int]]) -> Quotient:
        """Each of ``groups`` (all nodes, each once, in an order in which they run) as one node."""
        home = {node: index for index, group in enumerate(groups) for node in group}
        inside: list[list[Tensor]] = [[] for _ in groups]
        kept: list[Tensor] = []
        for tensor in self.tensors:
            producer = tensor.producer if tensor.producer < 0 else home[tensor.producer]
            readers = {home[reader] for reader in tensor.readers}
            if producer >= 0 and producer in readers:
                if len(readers) == 1 and not tensor.persistent:
                    inside[producer].append(tensor)
                    continue
                readers.discard(producer)
            kept.append(Tensor(tensor.nbytes, producer, tuple(sorted(readers)), tensor.persistent))
        return Quotient(
            self.machine,
            [self.device[group[0]] for group in groups],
            [sum(self.seconds[node] for node in group) for group in groups],
            [_peak(group, inner, self.temporary_bytes) for group, inner in zip(groups, inside)],
            [tuple(task for node in group for task in self.members[node]) for group in groups],
            _collect(kept),
        )

    def in_order(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """``groups`` in an order in which they can run as one task each."""
        return [list(groups[index]) for index in self.merged(groups).order()]

    def play(self, shares: Sequence[float] = SHARES) -> tuple[Simulation, float]:
        """The step under the first of ``shares`` of urgency with which it fits its limits, and that
        share; under the one that passes the limits least if none fits."""
        limits = self.machine.limit_bytes.tolist()
        best: tuple[int, Simulation, float] | None = None
        for share in shares:
            simulation = self.simulate(share)
            excess = simulation.excess_bytes(limits)
            if best is None or excess < best[0]:
                best = (excess, simulation, share)
            if not excess:
                break
        assert best is not None
        return best[1], best[2]

    def simulate(self, share: float = 1.0) -> Simulation:
        """One step with this share of urgency; nodes are those of this graph."""
        import numpy as np

        from baechi_jax.passes.placement.problem import PlacementProblem

        # Arguments, then nodes in a topological order: the problem need not look for one.
        order = self.order()
        arguments = [-1 - tensor.producer for tensor in self.tensors if tensor.producer < 0]
        first = len(arguments)
        count = first + self.size
        place = [0] * self.size
        for position, node in enumerate(order):
            place[node] = first + position
        devices = arguments + [self.device[node] for node in order]
        seconds = np.zeros((count, self.machine.size))
        seconds[range(count), devices] = [0.0] * first + [self.seconds[node] for node in order]
        producers: list[int] = []
        argument = 0
        for tensor in self.tensors:
            if tensor.producer < 0:
                producers.append(argument)
                argument += 1
            else:
                producers.append(place[tensor.producer])
        readers = [[place[reader] for reader in tensor.readers] for tensor in self.tensors]
        number = np.arange(count)
        problem = PlacementProblem(
            machine=self.machine,
            seconds=seconds,
            temporary_bytes=np.array(
                [0] * first + [self.temporary_bytes[node] for node in order], dtype=np.int64
            ),
            is_argument=number < first,
            tensor_bytes=np.array([t.nbytes for t in self.tensors], dtype=np.int64),
            producer=np.array(producers, dtype=np.int64),
            reader_starts=np.cumsum([0, *map(len, readers)], dtype=np.int64),
            readers=np.array([node for each in readers for node in each], dtype=np.int64),
            persistent=np.array([t.persistent for t in self.tensors], dtype=np.bool_),
            alias=np.full(len(self.tensors), -1),
            group=number,
            pinned=np.full(count, -1),
            group_names=("",) * count,
            node_names=("",) * count,
            node_sources=("",) * count,
        )
        own = blended(self.ranks(order), [members[0] for members in self.members], share)
        priority = [0.0] * first + [own[node] for node in order]
        simulation = simulate(problem, devices, priority=priority)
        return replace(
            simulation,
            start_seconds=[simulation.start_seconds[node] for node in place],
            end_seconds=[simulation.end_seconds[node] for node in place],
        )

    def ranks(self, order: Iterable[int]) -> list[float]:
        """Seconds from the start of each node to the end of the step along its longest way."""
        rank = [0.0] * self.size
        gives: list[list[Tensor]] = [[] for _ in self.device]
        for tensor in self.tensors:
            if tensor.producer >= 0:
                gives[tensor.producer].append(tensor)
        for node in reversed(list(order)):
            longest = 0.0
            for tensor in gives[node]:
                for reader in tensor.readers:
                    way = rank[reader] + self.machine.transfer_seconds(
                        self.device[node], self.device[reader], tensor.nbytes
                    )
                    longest = max(longest, way)
            rank[node] = self.seconds[node] + longest
        return rank


def _collect(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Add up the bytes of tensors that live alike; drop those that nothing needs."""
    total: dict[tuple[int, tuple[int, ...], bool], int] = {}
    for tensor in tensors:
        key = (tensor.producer, tensor.readers, tensor.persistent)
        total[key] = total.get(key, 0) + tensor.nbytes
    return [Tensor(nbytes, *key) for key, nbytes in total.items()]


def _peak(group: Sequence[int], inner: Sequence[Tensor], temporary_bytes: Sequence[int]) -> int:
    """Most bytes of temporaries and inner tensors at once when ``group`` runs node by node."""
    if len(group) == 1:
        return temporary_bytes[group[0]]
    place = {node: index for index, node in enumerate(group)}
    change = [0] * (len(group) + 1)
    for tensor in inner:
        change[place[tensor.producer]] += tensor.nbytes
        change[max(place[reader] for reader in tensor.readers) + 1] -= tensor.nbytes
    most = live = 0
    for index, node in enumerate(group):
        live += change[index]
        most = max(most, live + temporary_bytes[node])
    return most
