"""``insert-transfers``: values get places, and sends and receives where they are read elsewhere.

A value goes to a device at most once, however many tasks there read it. State goes back to the
device where its argument lies, so that the next step finds it there. Tokens are never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import BlockArgument, Module, Operation, OpResult, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, refresh_function_type
from baechi_jax.ir.types import InFlightType, OnType, OpaqueType, TensorType, TokenType
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import TASK, argument_devices, device_of

SEND = "baechi.send"
RECV = "baechi.recv"


@register_pass
@dataclass(frozen=True, slots=True)
class InsertTransfers(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "insert-transfers"
    summary: ClassVar[str] = "give values their places; send and receive what is read elsewhere"

    def run(self, module: Module) -> None:
        """Rewrite ``@main`` of ``module``."""
        func = module.main
        devices = {op: device_of(op) for op in func.body.ops if op.name == TASK}
        for op in devices:
            for result in op.results:
                _place(result, devices[op])
        homes = _place_arguments(func)
        wanted: dict[tuple[Value, int], list[tuple[Operation, int]]] = {}
        for op, device in devices.items():
            for index, value in enumerate(op.operands):
                if _device(value) != device:
                    wanted.setdefault((value, device), []).append((op, index))
        terminator = func.body.terminator
        for position, value in enumerate(terminator.operands):
            home = homes.get(position)
            if home is not None and _device(value) != home:
                wanted.setdefault((value, home), []).append((terminator, position))
        _send(func, wanted)
        refresh_function_type(func)


def _place_arguments(func: Operation) -> dict[int, int]:
    """Place the arguments; returns result position -> device for those that are state."""
    homes: dict[int, int] = {}
    for argument, entry, device in zip(
        func.body.arguments, argument_attributes(func), argument_devices(func)
    ):
        _place(argument, device)
        state = entry.get("baechi.state")
        if isinstance(state, int):
            homes[state] = device
    return homes


def _place(value: Value, device: int) -> None:
    if isinstance(value.type, TensorType | TokenType | OpaqueType):
        value.type = OnType((device,), value.type)


def _device(value: Value) -> int:
    assert isinstance(value.type, OnType)
    return value.type.devices[0]


def _send(func: Operation, wanted: dict[tuple[Value, int], list[tuple[Operation, int]]]) -> None:
    """Insert the transfers right after each value's producer, in channel order."""
    after: dict[Operation | None, list[Operation]] = {}
    for channel, ((value, target), readers) in enumerate(wanted.items()):
        placed = value.type
        assert isinstance(placed, OnType)
        location = value.owner.location if isinstance(value, OpResult) else func.location
        if isinstance(placed.type, TokenType):
            reader = readers[0][0]
            raise PassError(
                f"'{reader.attributes.get('sym_name')}' at {reader.location} on device {target} "
                f"reads an effect's token from device {placed.devices[0]}; ordered effects must "
                "share a device: run colocate, or pin them alike"
            )
        send = Operation(
            SEND,
            (value,),
            (InFlightType(placed.type),),
            {"channel": channel, "from": placed.devices[0], "to": target},
            (),
            location,
        )
        recv = Operation(
            RECV,
            send.results,
            (OnType((target,), placed.type),),
            {"channel": channel},
            (),
            location,
        )
        for reader, index in readers:
            reader.set_operand(index, recv.result)
        producer = None if isinstance(value, BlockArgument) else value.defining_op
        after.setdefault(producer, []).extend((send, recv))
    ops = list(after.get(None, ()))
    for op in func.body.ops:
        ops.append(op)
        ops.extend(after.get(op, ()))
    func.body.set_ops(ops)
