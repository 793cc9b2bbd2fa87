"""``place``: give every task and every argument its device.

Reads the *Fused* form, leaves the *Placed* form (docs/ir.md). The order of the tasks in ``@main``
becomes the order of their simulated starts, so that the schedule which the placer was judged by is
what later passes find as program order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.passes.placement.auto import choose
from baechi_jax.passes.placement.from_module import from_module
from baechi_jax.passes.registry import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class Place(Pass):
    """Place by ``placer``; see docs/placers.md."""

    name: ClassVar[str] = "place"
    summary: ClassVar[str] = "give every task and argument its device"

    placer: str = "auto"
    time_limit: float = 10.0
    seed: int = 0
    memory_scale: float = 1.0

    def run(self, module: Module) -> None:
        """Set ``baechi.devices`` throughout and ``baechi.placement`` on the module."""
        source = from_module(module, self.memory_scale)
        problem = source.problem
        choice = choose(problem, self.placer, time_limit=self.time_limit, seed=self.seed)
        best = choice.best
        assignment = best.placement.assignment
        func = module.main
        entries = argument_attributes(func)
        for index, entry in enumerate(entries):
            entry["baechi.devices"] = (assignment[source.node_of_argument(index)],)
        set_argument_attributes(func, entries)
        for index, task in enumerate(source.tasks):
            task.attributes["baechi.devices"] = (assignment[source.node_of_task(index)],)
        starts = best.simulation.start_seconds
        ranked = sorted(
            range(len(source.tasks)),
            key=lambda index: (
                starts[source.node_of_task(index)],
                problem.position[source.node_of_task(index)],
            ),
        )
        func.body.set_ops([*(source.tasks[index] for index in ranked), func.body.terminator])
        module.attributes["baechi.placement"] = DictAttr.of(
            {
                "placer": best.placement.placer,
                "status": best.placement.status,
                "makespan_seconds": best.simulation.makespan_seconds,
            }
        )
