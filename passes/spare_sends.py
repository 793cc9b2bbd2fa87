"""``spare-sends``: cheap values are computed again where they are read, so that less is sent.

``choose-residuals`` decides before anything is placed, for the backward pass alone. Once devices
are known, more can be saved: a device that is sent ``z`` for the backward pass and ``relu(z)`` for
the forward pass can make the second from the first. For each device, a minimum cut as there: a
vertex for each value from elsewhere that a task on the device reads, and for what cheap operations
compute these from; its capacity is its bytes. Sources are values that no cheap operation makes, and
arguments that lie elsewhere; sinks what is read. What lies on the device costs nothing. The cut is
sent; what lies behind it is computed again in each task that reads it.

A send has to wait for nothing that it did not wait for before: what is sent instead is needed for
the value that was sent. But the copies take time and what they read takes memory, so the simulator
judges: where the step becomes longer by a thousandth or passes a limit further, devices are tried
one by one.

Reads and leaves the *Placed* form (docs/ir.md), before ``merge-tasks``. Every task stays, with its
name: the last operations of a task are never taken out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import BlockArgument, Module, Operation, OpResult, Value
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.choose_residuals import CHEAP, cheap_operations, is_cheap, recomputed
from baechi_jax.passes.cost.min_cut import min_vertex_cut
from baechi_jax.passes.dataflow import is_backward
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.merge_tasks import cluster_of
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.simulate.judge import ALL_RULES, judge
from baechi_jax.passes.tasks import (
    LITERAL,
    TASK,
    argument_devices,
    build_tasks,
    device_of,
    dissolve_tasks,
    set_task_cost,
    tasks_of,
    topology_of,
)

#: Less than this share of all bytes sent is not worth it.
_SHARE = 0.01
#: How much longer the simulated step may become: what is sent instead is one more result, which
#: takes a moment to write.
_SLOWDOWN = 1.001


@register_pass
@dataclass(frozen=True, slots=True)
class SpareSends(Pass):
    """See the module docstring. ``cheap``: what may run again, as in ``choose-residuals``."""

    name: ClassVar[str] = "spare-sends"
    summary: ClassVar[str] = "compute cheap values again where they are read, and send less"

    cheap: tuple[str, ...] = CHEAP

    def run(self, module: Module) -> None:
        """Rewrite the tasks of ``@main``; sets ``baechi.spared_bytes`` on it where it does."""
        cheap = cheap_operations(self.name, self.cheap)
        cuts = _cuts(module, cheap)
        sent = sum(cut.sent_bytes for cut in cuts.values())
        devices = [device for device, cut in cuts.items() if cut.again]
        needed = sum(cut.needed_bytes for cut in cuts.values())
        if not devices or sent - needed < _SHARE * sent:
            return
        if not _without_harm(module, cheap, cuts, devices) and len(devices) > 1:
            for device in devices:
                _without_harm(module, cheap, _cuts(module, cheap), [device])
        spared = sent - sum(nbytes(v.type) for reads in _sent(module).values() for v in reads)
        if spared:
            module.main.attributes["baechi.spared_bytes"] = spared


def _without_harm(
    module: Module, cheap: Collection[str], cuts: Mapping[int, _Cut], devices: Sequence[int]
) -> bool:
    """Compute values again on ``devices``, unless the simulated step is worse for it."""
    over, seconds = _judged(module)
    backup = module.clone()
    _rewrite(module, cheap, {device: cuts[device].again for device in devices})
    after = _judged(module)
    if after[0] <= over and after[1] <= seconds * _SLOWDOWN:
        return True
    module.body.set_ops(list(backup.body.ops))
    return False


def _judged(module: Module) -> tuple[int, float]:
    """How far the simulated step passes its limits, in bytes, and its seconds."""
    source = from_module(module)
    simulation = judge(source.problem, placed_devices(module, source), ALL_RULES)
    limits = source.problem.lists.limit_bytes
    over = sum(max(0, peak - limit) for peak, limit in zip(simulation.peak_bytes, limits))
    return over, simulation.makespan_seconds


# Choosing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cut:
    """Of one device: the values to compute again there; bytes that are sent, and that need be."""

    again: frozenset[Value]
    sent_bytes: int
    needed_bytes: int


def _cuts(module: Module, cheap: Collection[str]) -> dict[int, _Cut]:
    """The cut of each device that runs a task, by the results of operations inside tasks."""
    place = _places(module)
    return {
        device: _cut(reads, place, device, cheap) for device, reads in _sent(module, place).items()
    }


def _places(module: Module) -> dict[Value, int]:
    """The device of each argument and of each result of an operation; literals have none."""
    func = module.main
    place: dict[Value, int] = dict(zip(func.body.arguments, argument_devices(func)))
    for task in tasks_of(func):
        device = device_of(task)
        for op in task.body.ops[:-1]:
            if op.name != LITERAL:
                place.update(dict.fromkeys(op.results, device))
    return place


def _sent(module: Module, place: Mapping[Value, int] | None = None) -> dict[int, list[Value]]:
    """What the tasks of each device read from elsewhere."""
    place = _places(module) if place is None else place
    reads: dict[int, dict[Value, None]] = {}
    for task in tasks_of(module.main):
        own = reads.setdefault(device_of(task), {})
        own.update(dict.fromkeys(map(_origin, task.operands)))
    return {
        device: [value for value in own if place.get(value, device) != device]
        for device, own in sorted(reads.items())
    }


def _cut(
    reads: Sequence[Value], place: Mapping[Value, int], device: int, cheap: Collection[str]
) -> _Cut:
    """The cut of ``device``, which reads ``reads`` from elsewhere."""

    def sent(value: Value) -> bool:
        return place.get(value, device) != device

    number = {value: index for index, value in enumerate(reads)}
    sources: list[int] = []
    edges: list[tuple[int, int]] = []
    stack = list(reads)
    while stack:
        value = stack.pop()
        if not isinstance(value, OpResult) or not is_cheap(value.owner, cheap):
            sources.append(number[value])
            continue
        for operand in filter(sent, dict.fromkeys(map(_origin, value.owner.operands))):
            if operand not in number:
                number[operand] = len(number)
                stack.append(operand)
            edges.append((number[operand], number[value]))
    # Every value costs a little, so that of equal cuts the one with fewer values is taken.
    capacity = [1 + 1024 * nbytes(value.type) for value in number]
    cut, behind = min_vertex_cut(capacity, edges, sources, range(len(reads)))
    needed = sum(nbytes(value.type) for value, flag in zip(number, cut) if flag)
    before = sum(nbytes(value.type) for value in reads)
    again = frozenset(value for value, flag in zip(number, behind) if flag)
    return _Cut(again, before, needed)


def _origin(value: Value) -> Value:
    """The argument of ``@main``, or the result of an operation in a task, that ``value`` is."""
    while True:
        if isinstance(value, OpResult):
            if value.owner.name != TASK:
                return value
            value = value.owner.body.terminator.operands[value.index]
        else:
            assert isinstance(value, BlockArgument)
            task = value.owner.parent_op
            if task is None or task.name != TASK:
                return value
            value = task.operands[value.index]


# Rewriting ----------------------------------------------------------------------------------------


def _rewrite(
    module: Module, cheap: Collection[str], again: Mapping[int, Collection[Value]]
) -> None:
    """Compute the values ``again[d]`` again in each task on device ``d`` that reads them."""
    func = module.main
    tasks = tasks_of(func)
    attributes: list[dict[str, Attribute]] = [dict(task.attributes) for task in tasks]
    devices = [device_of(task) for task in tasks]
    before = [(len(task.operands), len(task.results)) for task in tasks]
    contents = dissolve_tasks(func, tasks)
    changed: set[int] = set()
    for index, device in enumerate(devices):
        copied = _with_copies(contents[index], again.get(device, ()))
        if copied is not None:
            contents[index] = copied
            changed.add(index)
    clusters = [cluster_of(func, ops) for ops in contents]
    changed |= _drop_unread(clusters, cheap)
    topology, measured = topology_of(module), MeasuredMemory.of(module)
    for index, task in enumerate(build_tasks(func, clusters, attributes)):
        if index in changed or before[index] != (len(task.operands), len(task.results)):
            set_task_cost(task, topology, measured)


def _with_copies(ops: Sequence[Operation], again: Collection[Value]) -> list[Operation] | None:
    """``ops`` of one task with each value of ``again`` computed before its first reader, once."""
    own = {result for op in ops for result in op.results}
    copies: dict[Value, Value] = {}
    found: list[Operation] = []
    for op in ops:
        for index, value in enumerate(op.operands):
            if value in again and value not in own:
                found += _copy(value, op, again, copies)
                op.set_operand(index, copies[value])
        found.append(op)
    return found if copies else None


def _copy(
    value: Value, reader: Operation, again: Collection[Value], copies: dict[Value, Value]
) -> list[Operation]:
    """What makes ``value`` before ``reader`` and is not in ``copies`` yet, in order."""
    made: list[Operation] = []
    stack = [value]
    while stack:
        each = stack[-1]
        if each in copies:
            stack.pop()
            continue
        assert isinstance(each, OpResult)
        missing = [v for v in each.owner.operands if v in again and v not in copies]
        if missing:
            stack += missing
            continue
        stack.pop()
        clone = each.owner.clone(
            {operand: copies[operand] for operand in each.owner.operands if operand in again}
        )
        if is_backward(reader):
            clone.location = recomputed(each.owner.location)
        for key in ("baechi.group", "baechi.pin"):
            clone.attributes.pop(key, None)
            if key in reader.attributes:
                clone.attributes[key] = reader.attributes[key]
        made.append(clone)
        copies[each] = clone.results[0]
    return made


def _drop_unread(clusters: list[list[Operation]], cheap: Collection[str]) -> set[int]:
    """Take out of ``clusters`` what nobody reads any more; which of them have become shorter."""
    shorter: set[int] = set()
    for index in reversed(range(len(clusters))):
        dead: set[Operation] = set()
        for op in reversed(clusters[index]):
            users = [user for result in op.results for user, _ in result.uses]
            if is_cheap(op, cheap) and all(user in dead for user in users):
                dead.add(op)
        if dead and len(dead) < len(clusters[index]):
            for op in dead:
                op.drop_operands()
            clusters[index] = [op for op in clusters[index] if op not in dead]
            shorter.add(index)
    return shorter
