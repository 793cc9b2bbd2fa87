"""Tasks whose memory is known from their compiler, and a plan's peaks with it.

The module holds what is known as ``baechi.task_memory``, so it is in dumps and in plan files. It is
used in two ways:

- A *task* that was compiled as it stands, with the same operands taken over, takes what was found
  (``MeasuredMemory.exact``).
- Operations that once made up a task take, wherever they make up one again, at least as much more
  than the model says as they did then (``MeasuredMemory.excess_bytes``): so ``fuse-tasks`` and
  ``merge-tasks`` know what they put together.

``baechi.memory_margin`` is for what no task tells: bytes that passes keep free on each device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.cost import Cost, DeviceMemory, TaskMemory
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import nbytes, unplaced
from baechi_jax.passes.plan_checks.memory import recount
from baechi_jax.passes.plan_checks.view import view_of
from baechi_jax.passes.tasks import LITERAL, topology_of

#: On the module: what compilers said, bytes to keep free per device, and what to tell the user.
KNOWN, MARGIN, NOTE = "baechi.task_memory", "baechi.memory_margin", "baechi.memory_note"


class MeasuredMemory:
    """What is known of tasks; of entries for the same task the first counts."""

    def __init__(self, entries: Iterable[TaskMemory] = ()) -> None:
        self._exact: dict[tuple[str, str], TaskMemory] = {}
        self._excess: dict[str, int] = {}
        #: Fingerprints of operations, asked for once for each group that they are tried in.
        self._operations: dict[Operation, str] = {}
        for entry in entries:
            self.add(entry)

    @staticmethod
    def of(module: Module) -> MeasuredMemory:
        """What ``module`` holds."""
        found = module.attributes.get(KNOWN, ())
        assert isinstance(found, tuple)
        return MeasuredMemory(each for each in found if isinstance(each, TaskMemory))

    def add(self, entry: TaskMemory) -> None:
        """Know ``entry``, unless the task is known: what the model said then is what counts."""
        if (entry.task, entry.kind) in self._exact:
            return
        self._exact[entry.task, entry.kind] = entry
        more = entry.temporary_bytes - entry.modelled_bytes
        if more > 0:
            self._excess[entry.structure] = max(more, self._excess.get(entry.structure, 0))

    @property
    def entries(self) -> tuple[TaskMemory, ...]:
        """All that is known, in the order in which it came."""
        return tuple(self._exact.values())

    def __bool__(self) -> bool:
        return bool(self._exact)

    def exact(self, task: Operation, donated: Iterable[int], kind: str) -> int | None:
        """Bytes of ``task`` as it stands; None if it was never compiled so."""
        if not self._exact:
            return None
        found = self._exact.get((task_key(task, donated), kind))
        return None if found is None else found.temporary_bytes

    def excess_bytes(self, ops: Sequence[Operation], outputs: Sequence[Value]) -> int:
        """Bytes that ``ops`` as one task take beyond what the model says."""
        if not self._excess:
            return 0
        return self._excess.get(structure_of(ops, outputs, self._operations), 0)


def task_key(task: Operation, donated: Iterable[int]) -> str:
    """What decides a task's memory on one kind of device."""
    return f"{fingerprint(task)}/{','.join(map(str, sorted(donated)))}"


def structure_of(
    ops: Sequence[Operation], outputs: Sequence[Value], known: dict[Operation, str] | None = None
) -> str:
    """Equal for equal operations with equal data flow between them and equal results.

    Neither the order of operations and results nor where literals stand counts. Operations that
    read different inputs of one type look alike: good enough for an estimate. ``known`` keeps the
    fingerprints of operations from call to call.
    """
    known = {} if known is None else known
    names: dict[Value, str] = {}
    found: list[str] = []
    for op in ops:
        text = known.get(op)
        if text is None:
            text = known[op] = fingerprint(op)
        operands = [names.get(value) or str(unplaced(value.type)) for value in op.operands]
        own = _hash([text, *operands])
        for result in op.results:
            names[result] = f"{own}.{result.index}"
        if op.name != LITERAL:
            found.append(own)
    returned = [names.get(value) or str(unplaced(value.type)) for value in outputs]
    return _hash([*sorted(found), "", *sorted(returned)])


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# A plan's peaks ---------------------------------------------------------------------------------


def set_known(module: Module, measured: MeasuredMemory, margin: Sequence[int]) -> None:
    """Tell the passes that will run over ``module`` what is known."""
    for key, value in ((KNOWN, measured.entries), (MARGIN, tuple(margin))):
        if any(value):
            module.attributes[key] = value
        else:
            module.attributes.pop(key, None)


def margin_of(module: Module) -> tuple[int, ...]:
    """The bytes that passes keep free on each device of ``module``; empty for none."""
    found = module.attributes.get(MARGIN, ())
    assert isinstance(found, tuple)
    return tuple(each for each in found if isinstance(each, int))


def with_margin(topology: Topology, margin: Sequence[int]) -> Topology:
    """``topology`` with ``margin`` more bytes reserved on each device."""
    if not any(margin):
        return topology
    devices = tuple(
        replace(device, reserved_bytes=device.reserved_bytes + min(more, device.usable_bytes - 1))
        for device, more in zip(topology.devices, margin, strict=True)
    )
    return replace(topology, devices=devices)


def rederive(
    module: Module, temporaries: Mapping[Operation, int], measured: MeasuredMemory
) -> tuple[DeviceMemory, ...]:
    """Write the true temporaries of tasks into a plan, and the peaks that follow.

    The plan's order, donations and waits stay. ``module`` has memory planned; its peaks may pass
    the limits afterwards, which is what the caller wants to know. They are counted by the rules of
    docs/plan.md as ``verify-plan`` counts them. ``measured`` is kept with the plan.
    """
    topology = topology_of(module)
    for task, found in temporaries.items():
        cost = task.attributes.get("baechi.cost")
        if isinstance(cost, Cost):
            task.attributes["baechi.cost"] = replace(cost, temporary_bytes=found)
    module.attributes[KNOWN] = measured.entries
    count = recount(view_of(module))
    memory = tuple(
        DeviceMemory(peak, ahead, resident, device.usable_bytes)
        for peak, ahead, resident, device in zip(
            count.peak, count.ahead, count.resident, topology.devices, strict=True
        )
    )
    module.main.attributes["baechi.memory"] = memory
    return memory


def donated_operands(task: Operation) -> tuple[int, ...]:
    """The operands whose buffers ``task`` takes over."""
    found = task.attributes.get("baechi.donates", ())
    assert isinstance(found, tuple)
    return tuple(each for each in found if isinstance(each, int))


def task_memory(task: Operation, kind: str, temporary_bytes: int) -> TaskMemory:
    """The entry for a planned ``task`` that was found to take ``temporary_bytes`` on top."""
    cost = task.attributes.get("baechi.cost")
    modelled = cost.temporary_bytes if isinstance(cost, Cost) else 0
    body = task.body
    structure = ""
    if temporary_bytes > modelled:
        structure = structure_of(body.ops[:-1], body.terminator.operands)
    key = task_key(task, donated_operands(task))
    return TaskMemory(key, structure, kind, temporary_bytes, modelled)


def temporaries_beyond(task: Operation, result_bytes: int, taken_bytes: int) -> int:
    """Bytes of results that the plan does not count: padding, and buffers not taken over.

    ``result_bytes``: all results as compiled; ``taken_bytes``: of these, what lies in operands.
    """
    planned = sum(nbytes(result.type) for result in task.results)
    given = sum(nbytes(task.operands[index].type) for index in donated_operands(task))
    return (result_bytes - taken_bytes) - (planned - given)


def add_note(module: Module, note: str) -> None:
    """Keep a sentence for the plan's summary."""
    before = module.attributes.get(NOTE)
    module.attributes[NOTE] = f"{before} {note}" if isinstance(before, str) else note


def note_of(module: Module) -> str:
    """The sentences for the plan's summary; empty for none."""
    found = module.attributes.get(NOTE)
    return found if isinstance(found, str) else ""
