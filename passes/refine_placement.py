"""``refine-placement``: local search on the simulator, from the placement that is there.

Reads and leaves the *Placed* form (docs/ir.md). Where the search comes to a stop early, it starts
once more from the placements of m-topo and m-etf. Only changes that shorten the simulated step
within the memory limits are kept; what was done is added to ``baechi.placement``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.passes.place import write_placement
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.local_search import local_search
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.registry import Pass, register_pass

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem


@register_pass
@dataclass(frozen=True, slots=True)
class RefinePlacement(Pass):
    """See the module docstring.

    ``evaluations``: most simulations beyond the first; each takes a few milliseconds per hundred
    tasks. ``patience``: most in a row that do not help. ``memory_scale``: as in ``place``.
    """

    name: ClassVar[str] = "refine-placement"
    summary: ClassVar[str] = "local search on the simulator, within the memory limits"

    evaluations: int = 40
    patience: int = 16
    memory_scale: float = 1.0

    def run(self, module: Module) -> None:
        """Rewrite ``baechi.devices`` of ``module`` where that shortens the step."""
        if self.evaluations < 0:
            raise PassError(
                f"refine-placement: evaluations must not be negative, found {self.evaluations}"
            )
        if self.patience < 1:
            raise PassError(f"refine-placement: patience must be at least 1, found {self.patience}")
        if not self.memory_scale > 0:
            raise PassError(
                f"refine-placement: memory-scale must be positive, found {self.memory_scale}"
            )
        source = from_module(module, self.memory_scale)
        problem = source.problem
        if problem.devices < 2 or not source.tasks:
            return
        assignment = placed_devices(module, source)
        device_of_group = [assignment[members[0]] for members in problem.members]
        if expand(problem, device_of_group) != tuple(assignment):
            raise PassError(
                "refine-placement: the placement splits a group that must share a device; run "
                "place first"
            )
        found = local_search(
            problem,
            device_of_group,
            evaluations=self.evaluations,
            others=_other_starts(problem),
            patience=self.patience,
        )
        record = module.attributes.get("baechi.placement")
        entries = dict(record.items_) if isinstance(record, DictAttr) else {}
        if found.improvements:
            assignment = list(expand(problem, found.device_of_group))
            write_placement(module, source, assignment, found.simulation)
            makespan = found.simulation.makespan_seconds
            bound = entries.get("bound_seconds", 0.0)
            entries["status"] = "refined"
            entries["makespan_seconds"] = makespan
            if isinstance(bound, float) and makespan > 0:
                entries["gap"] = (makespan - bound) / makespan
            entries["peak_bytes"] = tuple(found.simulation.peak_bytes)
        entries["refinement"] = DictAttr.of(
            {"evaluations": found.evaluations, "improvements": found.improvements}
        )
        module.attributes["baechi.placement"] = DictAttr.of(entries)


def _other_starts(problem: PlacementProblem) -> Iterator[list[int]]:
    profiles = Profiles(problem)
    for placer in (m_topo, m_etf):
        assignment = placer(problem, profiles).assignment
        yield [assignment[members[0]] for members in problem.members]
