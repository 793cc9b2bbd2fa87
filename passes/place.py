"""``place``: give every task and every argument its device.

Reads the *Fused* form, leaves the *Placed* form (docs/ir.md). The order of the tasks in ``@main``
becomes the order of their simulated starts, so that the schedule which the placement was judged by
is what later passes find as program order. What was decided and why is in ``baechi.placement``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.passes.placement.auto import MILP_NODES, Candidate, Choice, choose
from baechi_jax.passes.placement.from_module import ModuleProblem, from_module
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.simulate.simulator import Simulation


@register_pass
@dataclass(frozen=True, slots=True)
class Place(Pass):
    """Place by ``placer``, one of those in docs/placers.md.

    ``time_limit``: seconds for each run of a solver. ``memory_scale`` multiplies the limits that
    the placers see: below one, room is left for what a later stage may add.
    ``auto_milp_nodes``: nodes of its search that ``milp`` gets in ``auto``; zero leaves it out.
    """

    name: ClassVar[str] = "place"
    summary: ClassVar[str] = "give every task and argument its device"

    placer: str = "auto"
    time_limit: float = 10.0
    seed: int = 0
    memory_scale: float = 1.0
    auto_milp_nodes: int = MILP_NODES

    def run(self, module: Module) -> None:
        """Set ``baechi.devices`` throughout, and ``baechi.placement`` on the module.

        Raises InfeasiblePlacementError when nothing fits, PlacerError when the placer cannot be
        used, PlacementProblemError when pins contradict one another.
        """
        if not self.memory_scale > 0:
            raise PassError(f"place: memory-scale must be positive, found {self.memory_scale}")
        if not self.time_limit > 0:
            raise PassError(f"place: time-limit must be positive, found {self.time_limit}")
        source = from_module(module, self.memory_scale)
        choice = choose(
            source.problem,
            self.placer,
            time_limit=self.time_limit,
            seed=self.seed,
            auto_milp_nodes=self.auto_milp_nodes,
        )
        write_placement(module, source, choice.best.placement.assignment, choice.best.simulation)
        module.attributes["baechi.placement"] = _record(choice)


def write_placement(
    module: Module, source: ModuleProblem, assignment: Sequence[int], simulation: Simulation
) -> None:
    """Set ``baechi.devices`` and order the tasks of ``@main`` by their simulated starts."""
    func = module.main
    entries = argument_attributes(func)
    for index, entry in enumerate(entries):
        entry["baechi.devices"] = (assignment[source.node_of_argument(index)],)
    if entries:
        set_argument_attributes(func, entries)
    for index, task in enumerate(source.tasks):
        task.attributes["baechi.devices"] = (assignment[source.node_of_task(index)],)
    # Tasks that take no time start when what they read starts: program order keeps them apart.
    rank = {
        task: (simulation.start_seconds[node], source.problem.position[node])
        for index, task in enumerate(source.tasks)
        for node in (source.node_of_task(index),)
    }
    func.body.set_ops([*sorted(source.tasks, key=rank.__getitem__), func.body.terminator])


def _record(choice: Choice) -> DictAttr:
    best = choice.best
    makespan = best.simulation.makespan_seconds
    return DictAttr.of(
        {
            "placer": best.placement.placer,
            "status": best.placement.status,
            "makespan_seconds": makespan,
            "bound_seconds": choice.bound_seconds,
            "gap": choice.gap,
            "peak_bytes": tuple(best.simulation.peak_bytes),
            "candidates": tuple(_summary(candidate) for candidate in choice.candidates),
            "notes": best.placement.notes,
        }
    )


def _summary(candidate: Candidate) -> DictAttr:
    return DictAttr.of(
        {
            "placer": candidate.placement.placer,
            "status": candidate.placement.status,
            "makespan_seconds": candidate.simulation.makespan_seconds,
            "peak_bytes": tuple(candidate.simulation.peak_bytes),
            "fits": candidate.fits,
        }
    )
