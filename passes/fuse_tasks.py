"""``fuse-tasks``: the operations of ``@main`` become tasks.

A task is what is placed, compiled and launched as one, so tasks must form a DAG, be few, be
balanced, and hide no memory. The method is a labelling in one sweep:

1. Each operation gets a *class* (operations that share a device in any case: a colocation group, or
   several groups whose forward operations are neighbours), a *phase* (forward, backward, update),
   and a *wanted label* (where in the step it belongs: forward segments ascending, backward segments
   descending); see ``passes/segments.py``.
2. Labels are raised so that they never fall along an edge, and rise where an edge leaves its class
   or phase: ``label(v) = max(wanted(v), max over predecessors u of label(u) + [u is elsewhere])``.
3. Operations of equal label, class and phase make one task. Along an edge between two tasks the
   label rises, so tasks cannot form a cycle. Parts of a task that do not touch are split when each
   is worth a task.

Worked example, two segments: forward a | b, backward b' | a', updates ub, ua. Labels: a 0, b 64,
b' 448, ub 449, a' 512, ua 513: six tasks, and no update delays a gradient that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.passes.clustering.classes import Classes, Classifier
from baechi_jax.passes.clustering.labels import (
    collect_clusters,
    label_operations,
    split_components,
)
from baechi_jax.passes.clustering.op_graph import OpGraph
from baechi_jax.passes.clustering.phases import Phases, find_phases
from baechi_jax.passes.clustering.units import find_units
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import build_tasks, set_task_cost, topology_of


@register_pass
@dataclass(frozen=True, slots=True)
class FuseTasks(Pass):
    """See the module docstring. ``max_tasks`` bounds the count, unless pins force more."""

    name: ClassVar[str] = "fuse-tasks"
    summary: ClassVar[str] = "put the operations of @main into tasks that form a DAG"

    max_tasks: int = 200

    def run(self, module: Module) -> None:
        """Rewrite ``@main`` of ``module``."""
        if self.max_tasks < 1:
            raise PassError(f"fuse-tasks: max-tasks must be at least 1, found {self.max_tasks}")
        topology = topology_of(module)
        func = module.main
        graph = OpGraph.of(func)
        classes, clusters = choose_clusters(graph, self.max_tasks)
        attributes: list[dict[str, Attribute]] = []
        for number, cluster in enumerate(clusters):
            entry: dict[str, Attribute] = {"sym_name": f"t{number}"}
            own = classes.of[cluster[0]]
            group, pin = classes.group[own], classes.pin[own]
            if group is not None:
                entry["baechi.group"] = group
            if pin is not None:
                entry["baechi.pin"] = pin
            attributes.append(entry)
        tasks = build_tasks(
            func, [[graph.ops[index] for index in cluster] for cluster in clusters], attributes
        )
        measured = MeasuredMemory.of(module)
        for task in tasks:
            set_task_cost(task, topology, measured)
        entries = argument_attributes(func)
        for argument in entries:
            name = argument.get("baechi.group")
            if isinstance(name, str) and name in classes.of_group:
                renamed = classes.group[classes.of_group[name]]
                assert renamed is not None
                argument["baechi.group"] = renamed
        set_argument_attributes(func, entries)


def choose_clusters(graph: OpGraph, max_tasks: int) -> tuple[Classes, list[list[int]]]:
    """Clusters of operation indices, in an order in which they can run as tasks.

    Starts with a segment for every four tasks (forward, backward, update and one to spare) and
    takes fewer segments until the tasks fit the bound. With one segment there are as many tasks as
    phases; when even these are too many, phases are given up. Pins are never given up.
    """
    units = find_units(graph)
    phases = find_phases(graph)
    classifier = Classifier(graph, units, phases)
    segments = max(1, max_tasks // 4)
    while True:
        classes = classifier.classify(segments)
        label = label_operations(graph, units, phases, classes)
        clusters = collect_clusters(graph, classes, label)
        if len(clusters) <= max_tasks:
            return classes, split_components(graph, clusters, max_tasks)
        if segments > 1:
            segments = max(1, min(segments - 1, segments * max_tasks // len(clusters)))
        elif any(phases.phase):
            phases = Phases([0] * graph.size, [False] * graph.size)
            classifier = Classifier(graph, units, phases)
        else:
            return classes, clusters
