"""``use-measured-costs``: tasks take the seconds that were measured for them.

The module holds what was measured (``baechi.task_seconds``, by structural fingerprint and kind of
device); what is not there keeps the seconds of the model, which ``annotate-costs`` has corrected by
the module's factors. The planner runs it after ``fuse-tasks`` and after ``merge-tasks`` when there
is anything measured. On a scheduled module it plays the step again in the same order, so that the
times that stand on it are true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.passes.cost.measured import task_seconds
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import device_of, tasks_of, topology_of


@register_pass
@dataclass(frozen=True, slots=True)
class UseMeasuredCosts(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "use-measured-costs"
    summary: ClassVar[str] = "give tasks the seconds that were measured for them"

    def run(self, module: Module) -> None:
        """Set the seconds in ``baechi.cost`` of tasks. Raises PassError for a task without cost."""
        known = task_seconds(module)
        if not known:
            return
        kinds = topology_of(module).kinds
        changed = False
        for task in tasks_of(module.main):
            cost = task.attributes.get("baechi.cost")
            if not isinstance(cost, Cost) or len(cost.seconds) != len(kinds):
                raise PassError(
                    f"use-measured-costs: task '{task.attributes.get('sym_name')}' "
                    f"({task.location}) has no cost; run fuse-tasks first"
                )
            structure = fingerprint(task)
            seconds = tuple(
                known.get((structure, kind), before)
                for kind, before in zip(kinds, cost.seconds, strict=True)
            )
            if seconds != cost.seconds:
                task.attributes["baechi.cost"] = replace(cost, seconds=seconds)
                changed = True
        if changed and "baechi.step_seconds" in module.main.attributes:
            retime(module)


def with_measured_costs(passes: Iterable[Pass]) -> list[Pass]:
    """``passes`` with ``use-measured-costs`` after each one that makes tasks."""
    found: list[Pass] = []
    for each in passes:
        found.append(each)
        if each.name in ("fuse-tasks", "merge-tasks"):
            found.append(UseMeasuredCosts())
    return found


def retime(module: Module) -> None:
    """Play the step of a scheduled ``module`` in its order, and write down its times."""
    from baechi_jax.passes.schedule import lower_bound_seconds
    from baechi_jax.passes.simulate.timeline import run_module

    run = run_module(module, in_order=True)
    for op, (start, end) in run.times.items():
        op.attributes["baechi.start_seconds"] = start
        op.attributes["baechi.end_seconds"] = end
    attributes = module.main.attributes
    attributes["baechi.step_seconds"] = run.simulation.makespan_seconds
    attributes["baechi.lower_bound_seconds"] = lower_bound_seconds(run.source.problem)


def unmeasured(module: Module, known: Iterable[tuple[str, str]]) -> list[Operation]:
    """The tasks of a placed ``module`` for whose device's kind nothing was measured."""
    there = set(known)
    devices = topology_of(module).devices
    return [
        task
        for task in tasks_of(module.main)
        if (fingerprint(task), devices[device_of(task)].kind) not in there
    ]
