"""Making ``baechi.task`` operations from sets of operations, and taking them apart again.

Assumes that ``@main`` is one block in def-before-use order. Literals belong to nobody: each task
that reads one gets its own copy, so that no constant is ever a transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Block, BlockArgument, Module, Operation, OpResult, Region, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import TensorType, TokenType
from baechi_jax.passes.cost.task import task_cost

if TYPE_CHECKING:
    from baechi_jax.passes.memory_measured import MeasuredMemory

TASK = "baechi.task"
LITERAL = "baechi.literal"
YIELD = "baechi.yield"


def tasks_of(func: Operation) -> list[Operation]:
    """The tasks of ``func``, in order."""
    return [op for op in func.body.ops if op.name == TASK]


def reads(op: Operation, block: Block) -> Iterator[tuple[Operation, int, Value]]:
    """Every read of a value of ``block`` by ``op`` or an operation inside it.

    Gives ``(reader, operand index, value)``. The regions of JAX's control flow capture nothing,
    but hand-written ones may.
    """
    for index, value in enumerate(op.operands):
        yield op, index, value
    if op.regions:
        for inner in op.walk():
            if inner is op:
                continue
            for index, value in enumerate(inner.operands):
                if owning_block(value) is block:
                    yield inner, index, value


def owning_block(value: Value) -> Block | None:
    """The block whose argument the value is, or that holds the op whose result it is."""
    if isinstance(value, OpResult):
        return value.owner.parent
    assert isinstance(value, BlockArgument)
    return value.owner


def build_tasks(
    func: Operation,
    clusters: Sequence[Sequence[Operation]],
    attributes: Sequence[Mapping[str, Attribute]],
) -> list[Operation]:
    """Put the operations of each cluster into a task with the given attributes; return the tasks.

    Both the clusters and the operations within each must be in def-before-use order. Every
    operation of ``func`` but literals and the terminator is in exactly one cluster, or is a task
    already that stays as it is: give it as a cluster of one task. Literals that the function
    returns get a cluster of their own from the caller.
    """
    block = func.body
    home: dict[Operation, int] = {}
    for number, cluster in enumerate(clusters):
        for op in cluster:
            home[op] = number
    terminator = block.terminator
    tasks: list[Operation] = []
    for number, (cluster, entry) in enumerate(zip(clusters, attributes)):
        if len(cluster) == 1 and cluster[0].name == TASK:
            cluster[0].attributes.update(entry)
            tasks.append(cluster[0])
            continue
        tasks.append(_build_task(block, cluster, number, home, entry))
    # Not set_ops, which would detach the operations that are in tasks now.
    for op in block.ops:
        if op.parent is block:
            op.parent = None
    block.ops = []
    block.extend([*tasks, terminator])
    for task in tasks:
        for value in task.operands:
            producer = value.defining_op
            if producer is not None and producer.parent is not block:
                raise PassError(
                    f"task '{task.attributes.get('sym_name')}' reads a value of {producer!r}, "
                    "which is in no task"
                )
    return tasks


def _build_task(
    block: Block,
    cluster: Sequence[Operation],
    number: int,
    home: Mapping[Operation, int],
    attributes: Mapping[str, Attribute],
) -> Operation:
    inner = Block()
    task = Operation(TASK, (), (), attributes, [Region([inner])], representative_location(cluster))
    task.parent = block
    #: What the body reads in place of each value from outside.
    inside: dict[Value, Value] = {}
    own: set[Value] = set()
    operands: list[Value] = []
    literals: dict[tuple[object, object], Operation] = {}
    body: list[Operation] = []

    def read(value: Value) -> Value:
        """What stands for ``value``, which another cluster gives."""
        producer = value.defining_op
        if producer is not None and producer.name == LITERAL:
            key = (producer.attributes["value"], value.type)
            copy = literals.get(key)
            if copy is None:
                copy = literals[key] = producer.clone()
                body.append(copy)
            found: Value = copy.results[value.index]
        else:
            found = inner.add_argument(value.type, value.name)
            operands.append(value)
        inside[value] = found
        return found

    for op in cluster:
        if op.regions:
            for reader, index, value in list(reads(op, block)):
                if value not in own:
                    reader.set_operand(index, inside.get(value) or read(value))
        else:
            for index, value in enumerate(op.operands):
                if value not in own:
                    op.set_operand(index, inside.get(value) or read(value))
        own.update(op.results)
        body.append(op)
    results = [
        result for op in cluster for result in op.results if _leaves(result, block, home, number)
    ]
    if all(isinstance(result.type, TokenType) for result in results):
        # A task that only has effects: the constant becomes ready when the task has run, and is the
        # only thing that can prove it.
        witness = Operation(LITERAL, (), (TensorType((), "i1"),), {"value": True})
        body.append(witness)
        results += witness.results
    inner.extend(body)
    inner.append(Operation(YIELD, results))
    task.set_operands(operands)
    for index, result in enumerate(results):
        outer = OpResult(task, index, result.type, result.name)
        task.results.append(outer)
        literal = result.owner.name == LITERAL
        for user, position in list(result.uses):
            if user.parent is inner:
                continue
            cluster_of_user = _top_level(user, block, home)
            # Other clusters take their own copy of a literal.
            if cluster_of_user != number and (cluster_of_user < 0 or not literal):
                user.set_operand(position, outer)
    return task


def _leaves(result: Value, block: Block, home: Mapping[Operation, int], number: int) -> bool:
    """Whether a result of cluster ``number`` is read outside it."""
    for user, _ in result.uses:
        cluster = home.get(user)
        if (_top_level(user, block, home) if cluster is None else cluster) != number:
            return True
    return False


def _top_level(op: Operation, block: Block, home: Mapping[Operation, int]) -> int:
    """The cluster of ``op``, or of the operation that holds it; -1 for the terminator."""
    if op in home:
        return home[op]
    while op not in home:
        parent = op.parent_op
        if parent is None or op.parent is block:
            return -1
        op = parent
    return home[op]


def dissolve_tasks(func: Operation, tasks: Iterable[Operation]) -> list[list[Operation]]:
    """Take ``tasks`` apart: their operations stand in ``func`` again, in place of each task.

    Returns each task's operations in order, literals included.
    """
    block = func.body
    contents: dict[Operation, list[Operation]] = {}
    for task in tasks:
        inner = task.body
        for argument, value in zip(inner.arguments, list(task.operands)):
            argument.replace_all_uses_with(value)
        terminator = inner.terminator
        for result, value in zip(task.results, list(terminator.operands)):
            result.replace_all_uses_with(value)
        terminator.drop_operands()
        task.set_operands(())
        ops = inner.ops[:-1]
        inner.set_ops(())
        contents[task] = ops
    flat: list[Operation] = []
    for op in block.ops:
        flat.extend(contents.get(op, (op,)))
    block.set_ops(flat)
    return list(contents.values())


def representative_location(ops: Iterable[Operation]) -> Location:
    """The source line of the most expensive of ``ops`` that has one."""
    best, most = UNKNOWN, -1.0
    for op in ops:
        if not op.location.known:
            continue
        cost = op.attributes.get("baechi.cost")
        seconds = sum(getattr(cost, "seconds", ()), 0.0)
        if seconds > most:
            best, most = op.location, seconds
    return best


def topology_of(module: Module) -> Topology:
    """The module's topology; raises PassError when it has none."""
    topology = module.attributes.get("baechi.topology")
    if not isinstance(topology, Topology):
        raise PassError(
            "the module has no 'baechi.topology'; run annotate-costs, or give the module one"
        )
    return topology


def set_task_cost(
    task: Operation, topology: Topology, measured: MeasuredMemory | None = None
) -> None:
    """Set ``baechi.cost`` of ``task`` from the operations in it, and what is known of them."""
    body = task.body
    ops, outputs = body.ops[:-1], body.terminator.operands
    cost = task_cost(ops, body.arguments, outputs, topology)
    if measured is not None:
        more = measured.excess_bytes(ops, outputs)
        cost = replace(cost, temporary_bytes=cost.temporary_bytes + more)
    task.attributes["baechi.cost"] = cost


def argument_devices(func: Operation) -> list[int]:
    """The device of each argument of ``func``; raises PassError when one has none, or several."""
    devices: list[int] = []
    for index, entry in enumerate(argument_attributes(func)):
        found = entry.get("baechi.devices")
        if not isinstance(found, tuple) or len(found) != 1 or not isinstance(found[0], int):
            raise PassError(
                f"argument {index} ({entry.get('baechi.name', 'unnamed')}) of @main needs one "
                f"device in 'baechi.devices', found {found!r}; run place first"
            )
        devices.append(found[0])
    return devices


def device_of(task: Operation) -> int:
    """The one device of ``task``; raises PassError when it has none, or several."""
    devices = task.attributes.get("baechi.devices")
    if not isinstance(devices, tuple) or len(devices) != 1 or not isinstance(devices[0], int):
        raise PassError(
            f"task '{task.attributes.get('sym_name')}' at {task.location} needs one device in "
            f"'baechi.devices', found {devices!r}; run place first"
        )
    return devices[0]
