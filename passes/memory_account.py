"""Which buffers a scheduled ``@main`` allocates, on which device, and when each dies.

Shared by ``plan-memory`` and what asks for its figures; ``verify-plan`` keeps its own accounts.
The rules are those of ``docs/plan.md``. Indices are positions in ``@main``, which is the order in
which one process issues operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from baechi_jax.ir.core import Operation, OpResult, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.types import OnType, nbytes
from baechi_jax.passes.insert_transfers import RECV, SEND
from baechi_jax.passes.tasks import TASK

#: ``Buffer.dies`` of what lives to the end of the step.
NEVER = 1 << 60


@dataclass(slots=True, eq=False)
class Buffer:
    """One buffer on one device.

    ``born``: the operation that allocates it when issued (-1: an argument); a received copy is
    allocated by its send. ``dies``: its last reader, or ``NEVER``. ``readers``: the tasks and sends
    that read it. ``name``: the argument's path, empty for others. ``donated``: an argument that the
    caller gives away; ``successor``: its next value, if it is state.
    """

    value: Value
    nbytes: int
    device: int
    born: int
    dies: int = NEVER
    readers: list[int] = field(default_factory=list)
    name: str = ""
    donated: bool = False
    successor: Value | None = None


@dataclass(slots=True)
class Account:
    """The buffers of a function, and what each operation allocates and frees."""

    #: The last one is ``func.return``.
    ops: list[Operation]
    buffers: list[Buffer]
    of: dict[Value, Buffer]
    #: Per operation: buffers that it allocates when issued, and buffers that die with it.
    allocates: list[list[Buffer]]
    frees: list[list[Buffer]]
    #: Per operation: the peak of what lives only while it runs.
    temporary_bytes: list[int]
    #: Per operation: the devices whose memory it takes (a send: its target's).
    devices: list[tuple[int, ...]]
    #: Per device: bytes of the arguments.
    resident_bytes: list[int]


def account_of(func: Operation, devices: int) -> Account:
    """The account of ``func`` on a topology of ``devices`` devices.

    ``func`` is in the form that ``insert-transfers`` leaves, in issue order.
    """
    ops = list(func.body.ops)
    account = Account(
        ops,
        [],
        {},
        [[] for _ in ops],
        [[] for _ in ops],
        [0] * len(ops),
        [()] * len(ops),
        [0] * devices,
    )
    returned = func.body.terminator.operands
    kept: set[Value] = set(returned)
    for argument, entry in zip(func.body.arguments, argument_attributes(func)):
        buffer = _add(account, argument, -1)
        buffer.name = str(entry.get("baechi.name", f"argument {argument.index}"))
        account.resident_bytes[buffer.device] += buffer.nbytes
        buffer.donated = "baechi.donated" in entry
        state = entry.get("baechi.state")
        if isinstance(state, int):
            buffer.successor = returned[state]
        if not buffer.donated:
            kept.add(argument)
    sent_at: dict[Operation, int] = {}
    for index, op in enumerate(ops[:-1]):
        if op.name == TASK:
            cost = op.attributes.get("baechi.cost")
            account.temporary_bytes[index] = cost.temporary_bytes if isinstance(cost, Cost) else 0
        elif op.name == SEND:
            sent_at[op] = index
        for result in op.results:
            if not isinstance(result.type, OnType):
                continue
            born = index
            if op.name == RECV:
                sent = op.operands[0]
                assert isinstance(sent, OpResult)
                born = sent_at[sent.owner]
            buffer = _add(account, result, born)
            account.allocates[born].append(buffer)
            account.devices[born] = (buffer.device,)
        if op.name in (TASK, SEND):
            for value in op.operands:
                account.of[value].readers.append(index)
            if op.name == TASK:
                devices_of = op.attributes["baechi.devices"]
                assert isinstance(devices_of, tuple)
                assert isinstance(devices_of[0], int)
                account.devices[index] = (devices_of[0],)
    for buffer in account.buffers:
        if buffer.value in kept:
            continue
        # What nobody reads lives on: it may be all that proves the end of its task.
        if buffer.readers:
            buffer.dies = buffer.readers[-1]
            account.frees[buffer.dies].append(buffer)
    _copy_results(account, returned)
    return account


def _copy_results(account: Account, returned: Sequence[Value]) -> None:
    """Every result of the step has a buffer of its own: a value that is returned again, and an
    undonated argument that is returned, are copied at the end."""
    end = len(account.ops) - 1
    seen: set[Value] = set()
    for value in returned:
        buffer = account.of[value]
        if value in seen or (buffer.born < 0 and not buffer.donated):
            copy = Buffer(value, buffer.nbytes, buffer.device, end, name=buffer.name)
            account.buffers.append(copy)
            account.allocates[end].append(copy)
        seen.add(value)
    account.devices[end] = tuple(sorted({copy.device for copy in account.allocates[end]}))


def _add(account: Account, value: Value, born: int) -> Buffer:
    assert isinstance(value.type, OnType)
    buffer = Buffer(value, nbytes(value.type), value.type.devices[0], born)
    account.buffers.append(buffer)
    account.of[value] = buffer
    return buffer
