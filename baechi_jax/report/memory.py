"""Memory over time of a plan: its lifetimes and donations at the times that the simulator gives.

The rules are those of docs/ir.md: a task takes its results (less what donated operands give) and
its temporaries when it starts; a transfer takes the copy when it starts; what an op frees is given
back when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from baechi_jax.ir.core import Operation, OpResult
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.types import OnType, nbytes

_TASK, _SEND, _RECV = "baechi.task", "baechi.send", "baechi.recv"

#: At one instant, what ends gives back before what starts takes.
_GIVES_BACK, _TAKES = 0, 1


def has_memory_plan(main: Operation) -> bool:
    """Whether ``plan-memory`` has run over this function."""
    return "baechi.memory" in main.attributes


def memory_steps(
    main: Operation, times: Mapping[Operation, tuple[float, float]], devices: int
) -> tuple[tuple[tuple[float, int], ...], ...]:
    """For each device ``((seconds, bytes from then on), ...)``, in order."""
    held = [0] * devices
    for argument in main.body.arguments:
        if isinstance(argument.type, OnType):
            held[argument.type.devices[0]] += nbytes(argument.type)
    changes: list[list[tuple[float, int, int, int]]] = [[] for _ in range(devices)]
    for index, op in enumerate(main.body.ops):
        if op.name not in (_TASK, _SEND):
            continue
        start, end = times[op]
        # What takes no time must still take before it gives back.
        gives_back = _GIVES_BACK if end > start else _TAKES
        donated = _indices(op, "baechi.donates")
        taken: dict[int, int] = {}
        for value in op.results if op.name == _TASK else _received(op):
            if isinstance(value.type, OnType):
                device = value.type.devices[0]
                taken[device] = taken.get(device, 0) + nbytes(value.type)
        for operand in donated:
            device, size = _place(op, operand)
            taken[device] = taken.get(device, 0) - size
        for device, size in taken.items():
            changes[device].append((start, _TAKES, index, size))
        cost = op.attributes.get("baechi.cost")
        if op.name == _TASK and isinstance(cost, Cost) and cost.temporary_bytes:
            device = _task_device(op)
            changes[device].append((start, _TAKES, index, cost.temporary_bytes))
            changes[device].append((end, gives_back, index, -cost.temporary_bytes))
        for operand in _indices(op, "baechi.frees"):
            if operand not in donated:
                device, size = _place(op, operand)
                changes[device].append((end, gives_back, index, -size))
    return tuple(_accumulate(held[device], changes[device]) for device in range(devices))


def _accumulate(
    held: int, changes: list[tuple[float, int, int, int]]
) -> tuple[tuple[float, int], ...]:
    steps = [(0.0, held)]
    # Stable: changes of one op at one instant stay in the order in which they were listed.
    for seconds, _, _, size in sorted(changes, key=lambda change: change[:3]):
        held += size
        steps.append((seconds, held))
    return tuple(steps)


def _received(send: Operation) -> list[OpResult]:
    return [result for user in send.result.users if user.name == _RECV for result in user.results]


def _place(op: Operation, operand: int) -> tuple[int, int]:
    type_ = op.operands[operand].type
    assert isinstance(type_, OnType)
    return type_.devices[0], nbytes(type_)


def _task_device(task: Operation) -> int:
    devices = task.attributes["baechi.devices"]
    assert isinstance(devices, tuple)
    assert isinstance(devices[0], int)
    return devices[0]


def _indices(op: Operation, key: str) -> tuple[int, ...]:
    listed = op.attributes.get(key, ())
    assert isinstance(listed, tuple)
    return tuple(index for index in listed if isinstance(index, int))
