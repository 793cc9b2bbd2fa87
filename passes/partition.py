"""``partition``: one program per device, beside ``@main``.

``@main_d3`` is what a process that owns device 3 alone would run: the operations of ``@main`` on
that device, in the same order, with the two ends of each transfer apart. Since each program is a
part of one order in which every send comes before its receive, programs that run side by side with
blocking receives cannot wait for one another in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute, SymbolRef
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import (
    argument_attributes,
    function,
    refresh_function_type,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.types import OnType
from baechi_jax.passes.insert_transfers import RECV, SEND
from baechi_jax.passes.memory_walk import WAIT
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import TASK, topology_of

RUN = "baechi.run"


@register_pass
@dataclass(frozen=True, slots=True)
class Partition(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "partition"
    summary: ClassVar[str] = "one program per device beside @main"

    def run(self, module: Module) -> None:
        """Add ``@main_d0``, ``@main_d1``, ... to ``module``, replacing earlier ones."""
        topology = topology_of(module)
        main = module.main
        names = {program_name(device) for device in range(topology.size)}
        module.body.retain(lambda op: op.attributes.get("sym_name") not in names)
        for device in range(topology.size):
            module.body.append(_program(main, device))


def program_name(device: int) -> str:
    """The symbol of the program of ``device``."""
    return f"main_d{device}"


def _program(main: Operation, device: int) -> Operation:
    arguments = [value for value in main.body.arguments if _lies_on(value, device)]
    program = function(program_name(device), [value.type for value in arguments], main.location)
    block = program.body
    here: dict[Value, Value] = {}
    for value, argument in zip(arguments, block.arguments):
        argument.name = value.name
        here[value] = argument
    for op in main.body.ops[:-1]:
        copy = _part(op, device, here)
        if copy is not None:
            block.append(copy)
    returned = [
        (position, value)
        for position, value in enumerate(main.body.terminator.operands)
        if _lies_on(value, device)
    ]
    block.append(
        Operation("func.return", [here[value] for _, value in returned], (), {}, (), main.location)
    )
    entries = argument_attributes(main)
    set_argument_attributes(
        program,
        [_numbered(entries[value.index], "baechi.argument", value.index) for value in arguments],
    )
    results = result_attributes(main)
    set_result_attributes(
        program, [_numbered(results[index], "baechi.result", index) for index, _ in returned]
    )
    refresh_function_type(program)
    return program


def _part(op: Operation, device: int, here: dict[Value, Value]) -> Operation | None:
    """What ``device`` does of ``op``; None when it is not concerned."""
    if op.name == TASK:
        if op.attributes.get("baechi.devices") != (device,):
            return None
        symbol = str(op.attributes["sym_name"])
        return _copy(
            op, RUN, op.operands, here, {"task": SymbolRef(("main", symbol))}, keep_results=True
        )
    if op.name == SEND:
        if op.attributes.get("from") != device:
            return None
        ends = {key: op.attributes[key] for key in ("channel", "to")}
        return _copy(op, SEND, op.operands, here, ends)
    if op.name == RECV:
        if not _lies_on(op.result, device):
            return None
        send = op.operands[0].defining_op
        assert send is not None
        ends = {"channel": op.attributes["channel"], "from": send.attributes["from"]}
        return _copy(op, RECV, (), here, ends, keep_results=True)
    if op.name == WAIT:
        values = [value for value in op.operands if _lies_on(value, device)]
        return _copy(op, WAIT, values, here, {}) if values else None
    raise PassError(f"'{op.name}' at {op.location} does not belong in a planned @main")


def _copy(
    op: Operation,
    name: str,
    operands: Iterable[Value],
    here: dict[Value, Value],
    attributes: Mapping[str, Attribute],
    *,
    keep_results: bool = False,
) -> Operation:
    decided: dict[str, Attribute] = {
        key: op.attributes[key]
        for key in ("baechi.frees", "baechi.donates")
        if key in op.attributes
    }
    results = op.results if keep_results else []
    copy = Operation(
        name,
        [here[value] for value in operands],
        [result.type for result in results],
        {**attributes, **decided},
        (),
        op.location,
    )
    for old, new in zip(results, copy.results):
        new.name = old.name
        here[old] = new
    return copy


def _lies_on(value: Value, device: int) -> bool:
    return isinstance(value.type, OnType) and device in value.type.devices


def _numbered(entry: Mapping[str, Attribute], key: str, index: int) -> dict[str, Attribute]:
    """The function-level attributes that mean something beside ``@main``, and the number there."""
    kept = {name: entry[name] for name in ("baechi.name", "baechi.donated") if name in entry}
    return {**kept, key: index}
