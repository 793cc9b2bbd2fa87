"""From a module of tasks (docs/ir.md, *Fused* and later forms) to a placement problem.

Groups are those of ``baechi.group``, joined further where the module leaves no choice: an argument
and its next value (``baechi.state``) lie on one device, and a token is never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baechi_jax.ir.attributes import Attribute, as_tuple
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import TokenType, nbytes, unplaced
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.values import argument_text, describe_value


@dataclass(frozen=True, slots=True)
class Send:
    """A ``baechi.send`` in the module: which tensor of the problem goes to which device."""

    op: Operation
    tensor: int
    target: int


@dataclass(frozen=True, slots=True)
class ModuleProblem:
    """A problem and what its nodes stand for: first the arguments of ``@main``, then the tasks."""

    problem: PlacementProblem
    arguments: int
    tasks: tuple[Operation, ...]
    #: In the order of ``@main``; none before ``insert-transfers``.
    sends: tuple[Send, ...]

    def node_of_argument(self, index: int) -> int:
        """Node of argument ``index`` of ``@main``."""
        return index

    def node_of_task(self, index: int) -> int:
        """Node of ``tasks[index]``."""
        return self.arguments + index


def from_module(module: Module, memory_scale: float = 1.0) -> ModuleProblem:
    """The problem of placing ``@main`` of ``module``.

    ``memory_scale`` multiplies every device's usable memory. ``baechi.send`` and ``baechi.recv``
    are looked through. Raises PassError when the module is not of tasks, or has no topology or
    cost; PlacementProblemError when pins contradict one another.
    """
    topology = module.attributes.get("baechi.topology")
    if not isinstance(topology, Topology):
        raise PassError(
            "the module has no 'baechi.topology'; run annotate-costs, or give the module one"
        )
    return _Reader(module, topology, memory_scale).read()


class _Reader:
    def __init__(self, module: Module, topology: Topology, memory_scale: float) -> None:
        self.topology = topology
        self.machine = Machine.from_topology(topology, memory_scale)
        self.func = module.main
        self.arguments = self.func.body.arguments
        self.entries = argument_attributes(self.func)
        self.tasks: list[Operation] = []
        self.tensor_of: dict[Value, int] = {}
        self.producer: list[int] = []
        self.bytes: list[int] = []
        self.readers: list[list[int]] = []
        self.persistent: list[bool] = []
        self.sends: list[Send] = []

    def read(self) -> ModuleProblem:
        arguments = len(self.arguments)
        for node, (value, entry) in enumerate(zip(self.arguments, self.entries)):
            self._add_tensor(value, node, persistent="baechi.donated" not in entry)
        for op in self.func.body.ops[:-1]:
            if op.name == "baechi.task":
                self._add_task(op, arguments + len(self.tasks))
            elif op.name in ("baechi.send", "baechi.recv"):
                tensor = self._tensor(op.operands[0], op)
                self.tensor_of[op.result] = tensor
                if op.name == "baechi.send":
                    self.sends.append(Send(op, tensor, self._target(op)))
            elif op.name != "baechi.wait":
                raise PassError(
                    f"'{op.name}' at {op.location} is in no task; run fuse-tasks before placement"
                )
        terminator = self.func.body.terminator
        results = [self._tensor(value, terminator) for value in terminator.operands]
        for tensor in results:
            self.persistent[tensor] = True
        group, group_names, pinned = self._groups(results)
        return ModuleProblem(
            PlacementProblem(
                machine=self.machine,
                seconds=self._seconds(),
                temporary_bytes=np.array(
                    [0] * arguments + [_cost(task).temporary_bytes for task in self.tasks],
                    dtype=np.int64,
                ),
                is_argument=np.arange(arguments + len(self.tasks)) < arguments,
                tensor_bytes=np.array(self.bytes, dtype=np.int64),
                producer=np.array(self.producer, dtype=np.int64),
                reader_starts=np.cumsum([0, *map(len, self.readers)], dtype=np.int64),
                readers=np.array(
                    [node for readers in self.readers for node in readers], dtype=np.int64
                ),
                persistent=np.array(self.persistent, dtype=np.bool_),
                alias=np.array(self._aliases(results), dtype=np.int64),
                group=np.array(group, dtype=np.int64),
                pinned=np.array(pinned, dtype=np.int64),
                group_names=tuple(group_names),
                node_names=tuple(
                    [self._argument_name(index) for index in range(arguments)]
                    + [_task_name(task, index) for index, task in enumerate(self.tasks)]
                ),
                node_sources=tuple(
                    [""] * arguments
                    + [str(task.location) if task.location.known else "" for task in self.tasks]
                ),
                origin=self._origin,
            ),
            arguments,
            tuple(self.tasks),
            tuple(self.sends),
        )

    def _origin(self, tensor: int) -> tuple[str, str]:
        """What a tensor is, and the source line that makes it."""
        value = next(each for each, number in self.tensor_of.items() if number == tensor)
        node = self.producer[tensor]
        if node < len(self.arguments):
            return argument_text(self._argument_name(node)), ""
        return describe_value(value)

    def _target(self, send: Operation) -> int:
        target = send.attributes.get("to")
        if not isinstance(target, int) or not 0 <= target < self.topology.size:
            raise PassError(
                f"'baechi.send' at {send.location} goes to {target!r}; the topology has "
                f"{self.topology.size} devices"
            )
        return target

    def _add_task(self, task: Operation, node: int) -> None:
        self.tasks.append(task)
        for value in dict.fromkeys(task.operands):
            readers = self.readers[self._tensor(value, task)]
            if not readers or readers[-1] != node:
                readers.append(node)
        for result in task.results:
            self._add_tensor(result, node, persistent=False)

    def _add_tensor(self, value: Value, node: int, *, persistent: bool) -> None:
        self.tensor_of[value] = len(self.bytes)
        self.producer.append(node)
        self.bytes.append(nbytes(value.type))
        self.readers.append([])
        self.persistent.append(persistent)

    def _tensor(self, value: Value, reader: Operation) -> int:
        tensor = self.tensor_of.get(value)
        if tensor is None:
            raise PassError(
                f"'{reader.name}' at {reader.location} reads a value that no task and no argument "
                "gives; run fuse-tasks before placement"
            )
        return tensor

    def _argument_name(self, index: int) -> str:
        name = self.entries[index].get("baechi.name")
        return name if isinstance(name, str) else f"argument {index}"

    def _seconds(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        kinds = self.topology.kinds
        column = [kinds.index(device.kind) for device in self.topology.devices]
        rows = np.zeros((len(self.arguments) + len(self.tasks), len(column)))
        for index, task in enumerate(self.tasks):
            seconds = _cost(task).seconds
            if len(seconds) != len(kinds):
                raise PassError(
                    f"task '{_task_name(task, index)}' at {task.location} has seconds for "
                    f"{len(seconds)} device kinds, the topology has {len(kinds)} "
                    f"({', '.join(kinds)}); run annotate-costs for this topology"
                )
            rows[len(self.arguments) + index] = [seconds[kind] for kind in column]
        return rows

    def _aliases(self, results: Sequence[int]) -> list[int]:
        alias = [-1] * len(self.bytes)
        for argument, entry in enumerate(self.entries):
            state = entry.get("baechi.state")
            if isinstance(state, int) and "baechi.donated" in entry and state < len(results):
                new = results[state]
                if new >= len(self.arguments) and alias[new] < 0:
                    alias[new] = argument
        return alias

    # Groups -------------------------------------------------------------------------------------

    def _groups(self, results: Sequence[int]) -> tuple[list[int], list[str], list[int]]:
        nodes = len(self.arguments) + len(self.tasks)
        parent = list(range(nodes))

        def find(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        def join(first: int, second: int) -> None:
            a, b = find(first), find(second)
            parent[max(a, b)] = min(a, b)

        names: dict[str, int] = {}
        attributes = [*self.entries, *(task.attributes for task in self.tasks)]
        label: list[str] = [""] * nodes
        for node, entry in enumerate(attributes):
            name = entry.get("baechi.group")
            if isinstance(name, str):
                label[node] = name
                join(names.setdefault(name, node), node)
        for argument, entry in enumerate(self.entries):
            state = entry.get("baechi.state")
            if isinstance(state, int) and state < len(results):
                join(argument, self.producer[results[state]])
        for value, tensor in self.tensor_of.items():
            if isinstance(unplaced(value.type), TokenType):
                for reader in self.readers[tensor]:
                    join(self.producer[tensor], reader)

        number: dict[int, int] = {}
        group = [number.setdefault(find(node), len(number)) for node in range(nodes)]
        group_names = [""] * len(number)
        node_names = [self._argument_name(index) for index in range(len(self.arguments))]
        node_names += [_task_name(task, index) for index, task in enumerate(self.tasks)]
        for node in range(nodes):
            if label[node] and not group_names[group[node]]:
                group_names[group[node]] = label[node]
        for node in range(nodes):
            if not group_names[group[node]]:
                group_names[group[node]] = node_names[node]
        pinned = [-1] * len(number)
        pinned_by = [""] * len(number)
        for node, entry in enumerate(attributes):
            device = _pin(entry, node_names[node], self.topology.size)
            if device is None:
                continue
            own = group[node]
            if pinned[own] not in (-1, device):
                raise PlacementProblemError(
                    f"'{node_names[node]}' is pinned to device {device} and {pinned_by[own]} to "
                    f"device {pinned[own]}, but they must share one (group '{group_names[own]}'); "
                    "unpin one of them"
                )
            pinned[own], pinned_by[own] = device, f"'{node_names[node]}'"
        return group, group_names, pinned


def placed_devices(module: Module, source: ModuleProblem) -> list[int]:
    """The device of each node of ``source``, as ``baechi.devices`` of ``module`` says.

    Raises PassError for an argument or task without one.
    """
    problem = source.problem
    result = [0] * problem.nodes
    for index, entry in enumerate(argument_attributes(module.main)):
        what = f"'baechi.devices' of argument '{problem.node_names[index]}'"
        node = source.node_of_argument(index)
        result[node] = device_of(entry.get("baechi.devices"), what, problem.devices)
    for index, task in enumerate(source.tasks):
        node = source.node_of_task(index)
        what = f"'baechi.devices' of task '{problem.node_names[node]}' at {task.location}"
        result[node] = device_of(task.attributes.get("baechi.devices"), what, problem.devices)
    return result


def device_of(entry: object, what: str, devices: int) -> int:
    """The device in a ``baechi.devices`` or ``baechi.pin`` attribute of ``what``."""
    values = as_tuple(entry) if isinstance(entry, tuple) else ()
    device = values[0] if len(values) == 1 else None
    if not isinstance(device, int) or not 0 <= device < devices:
        raise PassError(f"{what} must name one of {devices} devices as [device], found {entry!r}")
    return device


def _pin(entry: object, name: str, devices: int) -> int | None:
    assert isinstance(entry, dict)
    pin: Attribute | None = entry.get("baechi.pin")
    return None if pin is None else device_of(pin, f"'baechi.pin' of '{name}'", devices)


def _cost(task: Operation) -> Cost:
    cost = task.attributes.get("baechi.cost")
    if not isinstance(cost, Cost):
        raise PassError(
            f"task '{task.attributes.get('sym_name')}' at {task.location} has no 'baechi.cost'; "
            "run annotate-costs before fuse-tasks"
        )
    return cost


def _task_name(task: Operation, index: int) -> str:
    name = task.attributes.get("sym_name")
    return name if isinstance(name, str) else f"task {index}"
