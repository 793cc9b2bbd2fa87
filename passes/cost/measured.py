"""What was measured for a module: tasks, factors for the model, launches and links.

It reaches the passes through the module: ``attach`` writes attributes that ``annotate-costs`` and
``use-measured-costs`` read, and a topology with the measured launches and links in place of the
declared ones. So a dump or a plan file holds all that its predictions rest on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from baechi_jax.ir.core import Module
from baechi_jax.ir.measured_cost import CostFactor, TaskSeconds
from baechi_jax.ir.topology import Topology

TASKS, FACTORS, DECLARED = (
    "baechi.task_seconds",
    "baechi.cost_factors",
    "baechi.declared_topology",
)


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """``tasks``: seconds by ``(fingerprint, kind)``. ``factors``: by ``(kind, family)``.
    ``launches``: seconds by kind. ``links``: ``(latency seconds, bytes per second)`` by
    ``(source, target)``. What is not there is as the model or the topology says.
    """

    tasks: Mapping[tuple[str, str], float] = field(default_factory=dict)
    factors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    launches: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def attach(self, module: Module, declared: Topology) -> None:
        """Plan ``module`` with these costs for the machine ``declared``."""
        attributes = module.attributes
        attributes[TASKS] = tuple(
            TaskSeconds(task, kind, seconds) for (task, kind), seconds in self.tasks.items()
        )
        attributes[FACTORS] = tuple(
            CostFactor(kind, family, factor) for (kind, family), factor in self.factors.items()
        )
        attributes[DECLARED] = declared
        attributes["baechi.topology"] = self.topology(declared)

    def topology(self, declared: Topology) -> Topology:
        """``declared`` with the measured launches and links."""
        devices = tuple(
            replace(device, launch_seconds=self.launches.get(device.kind, device.launch_seconds))
            for device in declared.devices
        )
        links = tuple(
            replace(link, latency_seconds=found[0], bytes_per_second=found[1])
            if (found := self.links.get((link.source, link.target))) is not None
            else link
            for link in declared.links
        )
        return replace(declared, devices=devices, links=links)

    @staticmethod
    def of(module: Module) -> MeasuredCosts | None:
        """What ``module`` was planned with; None where nothing was measured for it."""
        declared = module.attributes.get(DECLARED)
        used = module.attributes.get("baechi.topology")
        if not isinstance(declared, Topology) or not isinstance(used, Topology):
            return None
        launches = {
            device.kind: device.launch_seconds
            for device, before in zip(used.devices, declared.devices, strict=True)
            if device.launch_seconds != before.launch_seconds
        }
        links = {
            (link.source, link.target): (link.latency_seconds, link.bytes_per_second)
            for link, before in zip(used.links, declared.links, strict=True)
            if link != before
        }
        return MeasuredCosts(task_seconds(module), cost_factors(module), launches, links)


def task_seconds(module: Module) -> dict[tuple[str, str], float]:
    """The measured tasks that ``module`` holds, by fingerprint and kind."""
    found = module.attributes.get(TASKS, ())
    assert isinstance(found, tuple)
    return {(e.task, e.kind): e.seconds for e in found if isinstance(e, TaskSeconds)}


def cost_factors(module: Module) -> dict[tuple[str, str], float]:
    """The factors that ``module`` holds, by kind and family."""
    found = module.attributes.get(FACTORS, ())
    assert isinstance(found, tuple)
    return {(e.kind, e.family): e.factor for e in found if isinstance(e, CostFactor)}


def declared_topology(module: Module) -> Topology | None:
    """The machine as it was stated, before launches and links were measured."""
    declared = module.attributes.get(DECLARED, module.attributes.get("baechi.topology"))
    return declared if isinstance(declared, Topology) else None
