"""``PlacementProblem``: what a placer is given, in arrays.

No IR here: a problem is built from a module (``from_module.py``), or node by node with
``ProblemBuilder``, for workloads that come from files. Every placer, the simulator and the bounds
work on this one form, up to some hundred thousand nodes.

Nodes are tasks, and the step's arguments: an argument takes no time and gives one tensor, and its
device is where the argument lies when the step starts. A tensor has one producer and any number of
readers. Nodes of one group share a device; a group may be pinned to one.

Memory, as docs/ir.md counts it: a tensor takes its bytes on its producer's device from the start of
the producer to the end of its last reader there, transfers out included; ``persistent`` tensors
(undonated arguments, results of the step) live to the end; arguments live from the start. A tensor
goes to another device at most once, and its copy lives there from the start of the transfer to the
end of the last reader. A node's temporary bytes are taken while it runs. ``alias`` names the
donated argument whose buffer a tensor takes over when its producer, on the same device, is that
argument's last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Communication, Machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.flat import FlatGraph
    from baechi_jax.passes.simulate.condensed import StepGraph


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """``n`` nodes, ``t`` tensors and ``g`` groups, to be placed on a machine of ``d`` devices.

    Raises PlacementProblemError when an array has a wrong shape, an index is out of range, a group
    is empty, or the nodes depend on one another in a cycle.
    """

    machine: Machine
    #: Seconds of each node on each device, infinite where it cannot run, ``[n, d]``.
    seconds: NDArray[np.float64]
    #: Bytes in use only while the node runs, ``[n]``.
    temporary_bytes: NDArray[np.int64]
    #: Whether the node is an argument of the step, ``[n]``.
    is_argument: NDArray[np.bool_]
    #: ``[t]``.
    tensor_bytes: NDArray[np.int64]
    #: Node that gives the tensor, ``[t]``.
    producer: NDArray[np.int64]
    #: Tensor ``x`` is read by ``readers[reader_starts[x] : reader_starts[x + 1]]``, ``[t + 1]``.
    reader_starts: NDArray[np.int64]
    readers: NDArray[np.int64]
    #: Whether the tensor lives to the end of the step, ``[t]``.
    persistent: NDArray[np.bool_]
    #: Tensor whose buffer this one may take over, or -1, ``[t]``.
    alias: NDArray[np.int64]
    #: Group of each node, ``[n]``.
    group: NDArray[np.int64]
    #: Device to which the group is pinned, or -1, ``[g]``.
    pinned: NDArray[np.int64]
    group_names: tuple[str, ...]
    node_names: tuple[str, ...]
    #: Source line of each node for messages, ``train.py:12``; may be empty strings.
    node_sources: tuple[str, ...]
    #: What a tensor is and the source line that makes it, for messages.
    origin: Callable[[int], tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_names)

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return len(self.tensor_bytes)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.group_names)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.machine.size

    def readers_of(self, tensor: int) -> NDArray[np.int64]:
        """The nodes that read ``tensor``."""
        return self.readers[self.reader_starts[tensor] : self.reader_starts[tensor + 1]]

    def with_machine(self, machine: Machine, seconds: NDArray[np.float64]) -> PlacementProblem:
        """The same graph on another machine."""
        return replace(self, machine=machine, seconds=seconds)

    def with_communication(self, communication: Communication) -> PlacementProblem:
        """The same problem under another model of communication."""
        return replace(self, machine=self.machine.with_communication(communication))

    def with_limits(self, limit_bytes: Sequence[int]) -> PlacementProblem:
        """The same problem with other memory limits."""
        return replace(self, machine=self.machine.with_limits(limit_bytes))

    # Derived, computed once ---------------------------------------------------------------------

    @cached_property
    def lists(self) -> ProblemLists:
        """The graph as plain Python lists: what sequential code reads, much faster than arrays."""
        return ProblemLists.of(self)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """All nodes so that each comes after what it reads; program order wherever it allows.

        The order of indices when that is a topological one, as it is for a problem from a module.
        """
        counts = np.diff(self.reader_starts)
        if bool((np.repeat(self.producer, counts) < self.readers).all()):
            return tuple(range(self.nodes))
        order = _topological(self)
        if order is None:
            raise PlacementProblemError("the nodes depend on one another in a cycle")
        return order

    @cached_property
    def tasks_in_order(self) -> tuple[int, ...]:
        """``order`` without the arguments."""
        is_argument = self.lists.is_argument
        return tuple(node for node in self.order if not is_argument[node])

    @cached_property
    def position(self) -> tuple[int, ...]:
        """Place of each node in ``order``, ``[n]``."""
        position = [0] * self.nodes
        for index, node in enumerate(self.order):
            position[node] = index
        return tuple(position)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Nodes of each group, in the order of ``order``."""
        members: list[list[int]] = [[] for _ in range(self.groups)]
        group = self.group.tolist()
        for node in self.order:
            members[group[node]].append(node)
        return tuple(map(tuple, members))

    @cached_property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """Devices on which each group can be: its pin, and where every member can run."""
        everywhere = tuple(range(self.devices))
        full = np.asarray(self.allowed_mask.all(axis=1)).tolist()
        return tuple(
            everywhere if yes else tuple(np.flatnonzero(self.allowed_mask[group]).tolist())
            for group, yes in enumerate(full)
        )

    @cached_property
    def allowed_mask(self) -> NDArray[np.bool_]:
        """``allowed`` as an array, ``[g, d]``."""
        possible = np.ones((self.groups, self.devices), dtype=np.bool_)
        cannot = np.nonzero(~np.isfinite(self.seconds))
        possible[self.group[cannot[0]], cannot[1]] = False
        pinned = np.flatnonzero(self.pinned >= 0)
        kept = possible[pinned, self.pinned[pinned]]
        possible[pinned] = False
        possible[pinned, self.pinned[pinned]] = kept
        return possible

    @cached_property
    def heaviest_edges(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each node, the readers of what it gives, each with the bytes of the largest tensor
        that it reads, ``[n]``: all that a longest way needs to know."""
        lists = self.lists
        edges: list[tuple[tuple[int, int], ...]] = []
        for gives in lists.gives:
            largest: dict[int, int] = {}
            for tensor in gives:
                nbytes = lists.tensor_bytes[tensor]
                for reader in lists.readers[tensor]:
                    if nbytes > largest.get(reader, -1):
                        largest[reader] = nbytes
            edges.append(tuple(largest.items()))
        return tuple(edges)

    @cached_property
    def flat(self) -> FlatGraph:
        """The graph as flat arrays: what compiled code reads."""
        from baechi_jax.passes.placement.flat import FlatGraph

        return FlatGraph.of(self)

    @cached_property
    def condensed(self) -> StepGraph:
        """The graph with tensors that live alike as one: what the simulator in Python plays."""
        from baechi_jax.passes.simulate.condensed import StepGraph

        return StepGraph.condensed(self)

    @cached_property
    def uncondensed(self) -> StepGraph:
        """The graph with every tensor for itself."""
        from baechi_jax.passes.simulate.condensed import StepGraph

        return StepGraph.whole(self)

    @cached_property
    def breadth_first(self) -> NDArray[np.int64]:
        """Place of each node in Kahn's order with a queue, first come, first served, ``[n]``."""
        from baechi_jax.passes.placement.flat import breadth_first

        return breadth_first(self.flat)

    @cached_property
    def node_times(self) -> NDArray[np.float64]:
        """``seconds`` in the machine's unit of time, ``[n, d]``; see ``Machine.unit_seconds``."""
        if self.machine.communication == "links":
            return np.ascontiguousarray(self.seconds)
        times = self.seconds / self.machine.unit_seconds
        whole = np.rint(times)
        return np.where(np.isclose(times, whole, rtol=1e-9, atol=1e-6), whole, times)

    def describe_tensor(self, tensor: int) -> tuple[str, str]:
        """What ``tensor`` is (an argument's path, an operation) and its source line, if known."""
        if self.origin is not None:
            return self.origin(tensor)
        node = int(self.producer[tensor])
        return f"'{self.node_names[node]}'", self.node_sources[node]

    def describe_group(self, group: int) -> str:
        """``group 'layer3' (t7 at train.py:12 and 3 more)``, for messages."""
        members = self.members[group]
        first = next((n for n in members if self.node_sources[n]), members[0])
        where = f" at {self.node_sources[first]}" if self.node_sources[first] else ""
        if len(members) == 1:
            return f"'{self.node_names[first]}'{where}"
        more = f" and {len(members) - 1} more"
        return f"group '{self.group_names[group]}' ({self.node_names[first]}{where}{more})"


@dataclass(frozen=True, slots=True)
class ProblemLists:
    """The graph of a problem as plain lists."""

    #: ``[node][device]``.
    seconds: list[list[float]]
    temporary_bytes: list[int]
    is_argument: list[bool]
    tensor_bytes: list[int]
    producer: list[int]
    #: Readers of each tensor, each once.
    readers: list[list[int]]
    persistent: list[bool]
    alias: list[int]
    group: list[int]
    #: Tensors that each node reads, each once.
    reads: list[list[int]]
    #: How many of them are results of tasks, not arguments.
    task_reads: list[int]
    #: Tensors that each node gives.
    gives: list[list[int]]
    #: Bytes that each node takes when it starts: its temporaries and what it gives.
    start_bytes: list[int]
    #: For each node, the tensors whose buffers its own may take over, and the bytes of those.
    aliases: list[list[tuple[int, int]]]
    limit_bytes: list[int]
    processor: list[int]
    latency_seconds: list[list[float]]
    seconds_per_byte: list[list[float]]
    wire: list[list[int]]

    @staticmethod
    def of(problem: PlacementProblem) -> ProblemLists:
        """Convert."""
        producer = problem.producer.tolist()
        starts = problem.reader_starts.tolist()
        flat = problem.readers.tolist()
        readers: list[list[int]] = []
        reads: list[list[int]] = [[] for _ in range(problem.nodes)]
        gives: list[list[int]] = [[] for _ in range(problem.nodes)]
        for tensor, node in enumerate(producer):
            own = flat[starts[tensor] : starts[tensor + 1]]
            if len(own) > 1:
                own = list(dict.fromkeys(own))
            readers.append(own)
            gives[node].append(tensor)
            for reader in own:
                reads[reader].append(tensor)
        machine = problem.machine
        is_argument = problem.is_argument.tolist()
        temporary_bytes = problem.temporary_bytes.tolist()
        tensor_bytes = problem.tensor_bytes.tolist()
        alias = problem.alias.tolist()
        start_bytes = list(temporary_bytes)
        aliases: list[list[tuple[int, int]]] = [[] for _ in range(problem.nodes)]
        for node, nbytes, old in zip(producer, tensor_bytes, alias):
            start_bytes[node] += nbytes
            if old >= 0:
                aliases[node].append((old, tensor_bytes[old]))
        return ProblemLists(
            seconds=problem.seconds.tolist(),
            temporary_bytes=temporary_bytes,
            is_argument=is_argument,
            tensor_bytes=tensor_bytes,
            producer=producer,
            readers=readers,
            persistent=problem.persistent.tolist(),
            alias=alias,
            group=problem.group.tolist(),
            reads=reads,
            task_reads=[
                sum(not is_argument[producer[tensor]] for tensor in tensors) for tensors in reads
            ],
            gives=gives,
            start_bytes=start_bytes,
            aliases=aliases,
            limit_bytes=machine.limit_bytes.tolist(),
            processor=machine.processor.tolist(),
            latency_seconds=machine.latency_seconds.tolist(),
            seconds_per_byte=machine.seconds_per_byte.tolist(),
            wire=machine.wire.tolist(),
        )


class ProblemBuilder:
    """Collects nodes and tensors, then makes the problem.

    >>> builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30))
    >>> a = builder.add_node("a", 1e-3)
    >>> b = builder.add_node("b", 2e-3, group="head")
    >>> _ = builder.add_tensor(a, 4096, [b])
    >>> builder.build().nodes
    2
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._seconds: list[tuple[float, ...]] = []
        self._temporary: list[int] = []
        self._is_argument: list[bool] = []
        self._names: list[str] = []
        self._sources: list[str] = []
        self._group: list[int] = []
        self._groups: dict[str, int] = {}
        self._group_names: list[str] = []
        self._pins: dict[int, int] = {}
        self._bytes: list[int] = []
        self._producer: list[int] = []
        self._readers: list[Sequence[int]] = []
        self._persistent: list[bool] = []
        self._alias: list[int] = []

    def add_node(
        self,
        name: str,
        seconds: float | Sequence[float],
        *,
        temporary_bytes: int = 0,
        group: str | None = None,
        source: str = "",
        is_argument: bool = False,
    ) -> int:
        """Add a node and return its index. ``seconds``: one figure, or one for each device."""
        index = len(self._names)
        times = (
            (float(seconds),) * self.machine.size
            if isinstance(seconds, int | float)
            else tuple(map(float, seconds))
        )
        self._seconds.append(times)
        self._temporary.append(temporary_bytes)
        self._is_argument.append(is_argument)
        self._names.append(name)
        self._sources.append(source)
        if group is None:
            number = len(self._group_names)
            self._group_names.append(name)
        else:
            known = self._groups.get(group)
            number = len(self._group_names) if known is None else known
            if known is None:
                self._groups[group] = number
                self._group_names.append(group)
        self._group.append(number)
        return index

    def add_argument(
        self,
        name: str,
        nbytes: int,
        readers: Sequence[int] = (),
        *,
        donated: bool = False,
        group: str | None = None,
        source: str = "",
    ) -> tuple[int, int]:
        """Add an argument of the step; return its node and its tensor."""
        node = self.add_node(name, 0.0, group=group, source=source, is_argument=True)
        return node, self.add_tensor(node, nbytes, readers, persistent=not donated)

    def add_tensor(
        self,
        producer: int,
        nbytes: int,
        readers: Sequence[int] = (),
        *,
        persistent: bool = False,
        alias: int = -1,
    ) -> int:
        """Add a tensor and return its index; readers may be nodes that are yet to be added."""
        self._bytes.append(nbytes)
        self._producer.append(producer)
        self._readers.append(readers)
        self._persistent.append(persistent)
        self._alias.append(alias)
        return len(self._bytes) - 1

    def set_readers(self, tensor: int, readers: Sequence[int]) -> None:
        """Replace the readers of ``tensor``."""
        self._readers[tensor] = readers

    def bytes_of(self, tensor: int) -> int:
        """Bytes of a tensor added before."""
        return self._bytes[tensor]

    def pin(self, node: int, device: int) -> None:
        """Pin the group of ``node``; raises PlacementProblemError when it is pinned elsewhere."""
        group = self._group[node]
        known = self._pins.setdefault(group, device)
        if known != device:
            raise PlacementProblemError(
                f"'{self._names[node]}' is pinned to device {device}, but its group "
                f"'{self._group_names[group]}' is pinned to device {known}; unpin one of them"
            )

    def build(self) -> PlacementProblem:
        """The problem; raises PlacementProblemError when it is malformed."""
        counts = [len(readers) for readers in self._readers]
        pinned = np.full(len(self._group_names), -1, dtype=np.int64)
        for group, device in self._pins.items():
            pinned[group] = device
        return PlacementProblem(
            machine=self.machine,
            seconds=np.array(self._seconds, dtype=np.float64).reshape(-1, self.machine.size),
            temporary_bytes=np.array(self._temporary, dtype=np.int64),
            is_argument=np.array(self._is_argument, dtype=np.bool_),
            tensor_bytes=np.array(self._bytes, dtype=np.int64),
            producer=np.array(self._producer, dtype=np.int64),
            reader_starts=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            readers=np.array(
                [reader for readers in self._readers for reader in readers], dtype=np.int64
            ),
            persistent=np.array(self._persistent, dtype=np.bool_),
            alias=np.array(self._alias, dtype=np.int64),
            group=np.array(self._group, dtype=np.int64),
            pinned=pinned,
            group_names=tuple(self._group_names),
            node_names=tuple(self._names),
            node_sources=tuple(self._sources),
        )


def _check(problem: PlacementProblem) -> None:
    nodes, tensors, groups = problem.nodes, problem.tensors, problem.groups
    shapes: Iterable[tuple[str, tuple[int, ...], tuple[int, ...]]] = (
        ("seconds", problem.seconds.shape, (nodes, problem.devices)),
        ("temporary_bytes", problem.temporary_bytes.shape, (nodes,)),
        ("is_argument", problem.is_argument.shape, (nodes,)),
        ("node_sources", (len(problem.node_sources),), (nodes,)),
        ("group", problem.group.shape, (nodes,)),
        ("producer", problem.producer.shape, (tensors,)),
        ("reader_starts", problem.reader_starts.shape, (tensors + 1,)),
        ("persistent", problem.persistent.shape, (tensors,)),
        ("alias", problem.alias.shape, (tensors,)),
        ("pinned", problem.pinned.shape, (groups,)),
    )
    for name, found, expected in shapes:
        if found != expected:
            raise PlacementProblemError(f"'{name}' has shape {found}, expected {expected}")
    ranges = (
        ("producer", problem.producer, 0, nodes),
        ("readers", problem.readers, 0, nodes),
        ("group", problem.group, 0, groups),
        ("alias", problem.alias, -1, tensors),
        ("pinned", problem.pinned, -1, problem.devices),
    )
    for name, values, low, high in ranges:
        if len(values) and not (low <= int(values.min()) and int(values.max()) < high):
            raise PlacementProblemError(f"'{name}' must be in [{low}, {high})")
    if len(np.unique(problem.group)) != groups:
        raise PlacementProblemError("every group needs a node")
    if np.isnan(problem.seconds).any() or (problem.seconds < 0).any():
        raise PlacementProblemError("'seconds' must not be negative or NaN")
    if (problem.tensor_bytes < 0).any() or (problem.temporary_bytes < 0).any():
        raise PlacementProblemError("bytes must not be negative")
    if problem.is_argument[problem.readers].any():
        raise PlacementProblemError("an argument cannot read a tensor")
    # Raises when there is a cycle.
    _ = problem.order
    stuck = int(problem.allowed_mask.any(axis=1).argmin()) if groups else -1
    if stuck >= 0 and not problem.allowed_mask[stuck].any():
        raise PlacementProblemError(
            f"{problem.describe_group(stuck)} can run on no device"
            + (f" (pinned to {problem.pinned[stuck]})" if problem.pinned[stuck] >= 0 else "")
        )


def _topological(problem: PlacementProblem) -> tuple[int, ...] | None:
    """Kahn's order, smallest index first; None when there is a cycle."""
    import heapq

    lists = problem.lists
    waiting = [len(tensors) for tensors in lists.reads]
    heap = [node for node, count in enumerate(waiting) if count == 0]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        node = heapq.heappop(heap)
        order.append(node)
        for tensor in lists.gives[node]:
            for reader in lists.readers[tensor]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(heap, reader)
    return tuple(order) if len(order) == problem.nodes else None
