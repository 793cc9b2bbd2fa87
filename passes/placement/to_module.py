"""A placement problem as a module of tasks: the reverse of ``from_module``.

For trying passes on made-up graphs: each task holds one op ``baechi_test.work`` that stands for
whatever it would do, and tensors are arrays of bytes.
"""

from __future__ import annotations

from baechi_jax.ir.attributes import Attribute, Unit
from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.function import (
    function,
    refresh_function_type,
    set_argument_attributes,
)
from baechi_jax.ir.location import Location
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import TensorType, Type
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.problem import PlacementProblem


def to_module(problem: PlacementProblem, topology: Topology) -> Module:
    """``problem`` as a module in the form *Fused* (docs/ir.md) for ``topology``.

    The topology gives devices and links; ``problem`` the rest. Persistent tensors of tasks become
    results of ``@main``. Raises PlacementProblemError when devices of one kind differ in seconds,
    or when arguments do not come first.
    """
    lists = problem.lists
    count = sum(lists.is_argument)
    if topology.size != problem.devices or any(lists.is_argument[count:]):
        raise PlacementProblemError(
            "to_module needs a topology with as many devices as the problem has, and arguments "
            "before tasks"
        )
    kinds = [device.kind for device in topology.devices]
    columns = [kinds.index(kind) for kind in topology.kinds]
    for node, row in enumerate(lists.seconds):
        if any(seconds != row[kinds.index(kind)] for seconds, kind in zip(row, kinds)):
            raise PlacementProblemError(
                f"'{problem.node_names[node]}' takes different seconds on devices of one kind"
            )
    given = [tensor for node in range(count) for tensor in lists.gives[node]]
    if len(given) != count:
        raise PlacementProblemError("to_module needs exactly one tensor for each argument")
    func = function("main", [_type(lists.tensor_bytes[tensor]) for tensor in given])
    values: dict[int, Value] = dict(zip(given, func.body.arguments))
    named = [problem.members[group][1:] != () for group in range(problem.groups)]
    for node in problem.order:
        if lists.is_argument[node]:
            continue
        task = _task(problem, node, [values[tensor] for tensor in lists.reads[node]])
        task.attributes["baechi.cost"] = Cost(
            seconds=tuple(lists.seconds[node][column] for column in columns),
            temporary_bytes=lists.temporary_bytes[node],
            output_bytes=sum(lists.tensor_bytes[tensor] for tensor in lists.gives[node]),
        )
        task.attributes.update(_group_attributes(problem, node, named))
        func.body.append(task)
        values.update(zip(lists.gives[node], task.results))
    results = [
        tensor
        for tensor, node in enumerate(lists.producer)
        if lists.persistent[tensor] and not lists.is_argument[node]
    ]
    func.body.append(Operation("func.return", [values[tensor] for tensor in results]))
    entries: list[dict[str, Attribute]] = []
    for node, tensor in enumerate(given):
        entry: dict[str, Attribute] = {"baechi.name": problem.node_names[node]}
        if not lists.persistent[tensor]:
            entry["baechi.donated"] = Unit()
        for position, result in enumerate(results):
            if lists.alias[result] == tensor:
                entry["baechi.state"] = position
        entry.update(_group_attributes(problem, node, named))
        entries.append(entry)
    set_argument_attributes(func, entries)
    refresh_function_type(func)
    module = Module({"baechi.topology": topology})
    module.body.append(func)
    return module


def _task(problem: PlacementProblem, node: int, operands: list[Value]) -> Operation:
    lists = problem.lists
    types: list[Type] = [_type(lists.tensor_bytes[tensor]) for tensor in lists.gives[node]]
    body = Block([value.type for value in operands])
    work = body.append(Operation("baechi_test.work", body.arguments, types))
    body.append(Operation("baechi.yield", work.results))
    file, _, line = problem.node_sources[node].rpartition(":")
    location = Location(file, int(line)) if file and line.isdecimal() else Location()
    attributes: dict[str, Attribute] = {"sym_name": problem.node_names[node]}
    return Operation("baechi.task", operands, types, attributes, [Region([body])], location)


def _group_attributes(
    problem: PlacementProblem, node: int, named: list[bool]
) -> dict[str, Attribute]:
    group = problem.lists.group[node]
    attributes: dict[str, Attribute] = {}
    if named[group]:
        attributes["baechi.group"] = problem.group_names[group]
    if problem.pinned[group] >= 0:
        attributes["baechi.pin"] = (int(problem.pinned[group]),)
    return attributes


def _type(nbytes: int) -> TensorType:
    return TensorType((nbytes,), "i8")
