"""``merge-tasks``: neighbouring tasks on one device become one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Module, Operation
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import (
    LITERAL,
    build_tasks,
    device_of,
    dissolve_tasks,
    set_task_cost,
    tasks_of,
    topology_of,
)


@register_pass
@dataclass(frozen=True, slots=True)
class MergeTasks(Pass):
    """On one device the whole step becomes one task."""

    name: ClassVar[str] = "merge-tasks"
    summary: ClassVar[str] = "merge neighbouring tasks on one device"

    def run(self, module: Module) -> None:
        """Rewrite ``@main`` of ``module``."""
        func = module.main
        tasks = tasks_of(func)
        devices = {device_of(task) for task in tasks}
        if len(devices) == 1 and len(tasks) > 1:
            merge(module, [tasks])


def merge(module: Module, groups: list[list[Operation]]) -> None:
    """Make one task of each of ``groups``; all tasks of ``@main`` are in one, in order."""
    func = module.main
    topology = topology_of(module)
    joined = [group for group in groups if len(group) > 1]
    contents = dict(
        zip(
            (task for group in joined for task in group),
            dissolve_tasks(func, [task for group in joined for task in group]),
        )
    )
    terminator = func.body.terminator
    clusters: list[list[Operation]] = []
    attributes: list[dict[str, Attribute]] = []
    for number, group in enumerate(groups):
        entry: dict[str, Attribute] = {"sym_name": f"t{number}"}
        if len(group) > 1:
            for key in ("baechi.group", "baechi.pin", "baechi.devices"):
                values = dict.fromkeys(
                    task.attributes[key] for task in group if key in task.attributes
                )
                if len(values) == 1:
                    entry[key] = next(iter(values))
        clusters.append(
            [
                op
                for task in group
                for op in contents.get(task, [task])
                if op.name != LITERAL or any(user is terminator for user, _ in op.result.uses)
            ]
        )
        attributes.append(entry)
    tasks = build_tasks(func, clusters, attributes)
    for task, group in zip(tasks, groups):
        if len(group) > 1:
            set_task_cost(task, topology)
