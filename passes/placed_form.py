"""From a plan back to the form that was placed: the tasks before merging, each with its device.

So a decision can be changed and followed up again: give some tasks other devices, run the passes
from ``merge-tasks`` on. Assumes a plan of the default pipeline's passes, whole or in part: merged
tasks say what they were made of (``baechi.parts``), the module says in which order the tasks were
placed (``baechi.decisions``). What follows from the placement (transfers, order, lifetimes, device
programs, predictions) is taken out; the costs of the tasks are computed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import refresh_function_type
from baechi_jax.ir.types import unplaced
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.merge_tasks import PARTS, cluster_of
from baechi_jax.passes.tasks import (
    build_tasks,
    dissolve_tasks,
    set_task_cost,
    tasks_of,
    topology_of,
)
from baechi_jax.passes.use_measured_costs import UseMeasuredCosts

_MOVES = frozenset({"baechi.send", "baechi.recv", "baechi.wait"})

#: What passes after the placement leave on ``@main``.
_FOLLOWS = ("baechi.memory", "baechi.step_seconds", "baechi.lower_bound_seconds")

_KEPT = ("baechi.group", "baechi.pin")


@dataclass(frozen=True, slots=True)
class PlacedForm:
    """``module`` in the *Placed* form of docs/ir.md; ``parts`` of each of the plan's tasks."""

    module: Module
    parts: dict[str, tuple[str, ...]]


def placed_form(plan: Module) -> PlacedForm:
    """The tasks that were placed, on the devices of ``plan``; ``plan`` itself stays as it is.

    Raises PassError when the plan does not say which tasks were placed: it was written by an older
    release, or its pipeline does not place.
    """
    decisions = plan.attributes.get("baechi.decisions")
    if not isinstance(decisions, DictAttr):
        raise PassError(
            "the plan does not hold what was placed (baechi.decisions); plan again, with a "
            "pipeline that has 'place'"
        )
    module = plan.clone()
    main = module.main
    module.body.retain(lambda op: op is main or op.name != "func.func")
    _take_out_what_follows(main)
    rank = {name: index for index, name in enumerate(decisions)}
    tasks = tasks_of(main)
    parts = [tuple(_parts(task)) for task in tasks]
    contents = [cluster_of(main, ops) for ops in dissolve_tasks(main, tasks)]
    pieces: list[tuple[int, list[Operation], dict[str, Attribute]]] = []
    for task, own, ops in zip(tasks, parts, contents):
        first = 0
        for part in own:
            count = len(ops) if part.ops is None else part.ops
            place = rank.get(part.name)
            if place is None or not 0 <= count <= len(ops) - first:
                raise PassError(
                    f"task '{task.attributes.get('sym_name')}' at {task.location} says that it "
                    f"was made of '{part.name}' with {part.ops} operations, and that is not in "
                    "the plan; it was edited, or made by another release: plan again"
                )
            attributes: dict[str, Attribute] = {"sym_name": part.name, **part.attributes}
            attributes["baechi.devices"] = task.attributes["baechi.devices"]
            pieces.append((place, ops[first : first + count], attributes))
            first += count
    if len(pieces) != len(rank):
        raise PassError(
            f"the plan decides on {len(rank)} tasks and its tasks were made of {len(pieces)}; it "
            "was edited, or made by another release: plan again"
        )
    pieces.sort(key=lambda piece: piece[0])
    built = build_tasks(main, [ops for _, ops, _ in pieces], [entry for *_, entry in pieces])
    topology, measured = topology_of(module), MeasuredMemory.of(module)
    for task in built:
        set_task_cost(task, topology, measured)
    # What was measured for the tasks counts for them here, too.
    UseMeasuredCosts().run(module)
    refresh_function_type(main)
    names = {
        str(task.attributes["sym_name"]): tuple(part.name for part in own)
        for task, own in zip(tasks, parts)
    }
    return PlacedForm(module, names)


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    #: None: all of the task.
    ops: int | None
    attributes: dict[str, Attribute]


def _parts(task: Operation) -> Iterator[_Part]:
    listed = task.attributes.get(PARTS)
    if not isinstance(listed, tuple):
        kept = {key: task.attributes[key] for key in _KEPT if key in task.attributes}
        yield _Part(str(task.attributes.get("sym_name")), None, kept)
        return
    for part in listed:
        assert isinstance(part, DictAttr)
        entry = dict(part.items_)
        ops = entry.get("ops")
        assert isinstance(ops, int)
        kept = {key: entry[key] for key in _KEPT if key in entry}
        yield _Part(str(entry.get("task")), ops, kept)


def _take_out_what_follows(main: Operation) -> None:
    """Transfers, waits, places in types, and what later passes say of ``@main``."""
    for op in main.body.ops:
        if op.name == "baechi.recv":
            send = op.operands[0].defining_op
            assert send is not None
            op.result.replace_all_uses_with(send.operands[0])
    for op in main.body.ops:
        if op.name in _MOVES:
            op.drop_operands()
    main.body.retain(lambda op: op.name not in _MOVES)
    for value in (*main.body.arguments, *(r for op in main.body.ops for r in op.results)):
        value.type = unplaced(value.type)
    for key in _FOLLOWS:
        main.attributes.pop(key, None)
