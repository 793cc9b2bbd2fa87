"""``plan-memory``: when each buffer dies, what is donated, the peak of each device, and waits.

Two figures per device, counted as ``docs/plan.md`` says. ``peak_bytes`` is what must live at once
when operations run one by one in issue order; above the limit there is no plan. ``run_ahead_bytes``
is what may live at once while the host issues ahead of the devices: nothing is given back before a
wait proves that the operation which frees it has ended. Waits are put only where running further
ahead would pass the limit, for operations that by the simulator's prediction ended longest ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.memory_account import account_of
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.memory_walk import WAIT, MemoryWalk
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import topology_of


@register_pass
@dataclass(frozen=True, slots=True)
class PlanMemory(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "plan-memory"
    summary: ClassVar[str] = "free, donate and wait so that each device stays within its limit"

    def run(self, module: Module) -> None:
        """Annotate ``@main`` of ``module``; raises MemoryLimitError when the peak is too high."""
        topology = topology_of(module)
        func = module.main
        # Waits of an earlier run would be counted as part of the program.
        func.body.retain(lambda op: op.name != WAIT)
        ends = [_end_seconds(op) for op in func.body.ops]
        measured = MeasuredMemory.of(module)
        walk = self._walk(func, topology, ends, measured, wait_to_donate=False)
        if walk.excess_bytes():
            # Donating what a copy may still read needs a wait; it gives memory back.
            walk = self._walk(func, topology, ends, measured, wait_to_donate=True)
        walk.check_limits(func)
        walk.write(func)

    @staticmethod
    def _walk(
        func: Operation,
        topology: Topology,
        ends: list[float],
        measured: MeasuredMemory,
        *,
        wait_to_donate: bool,
    ) -> MemoryWalk:
        account = account_of(func, topology.size)
        walk = MemoryWalk(
            account,
            topology,
            ends,
            wait_to_donate=wait_to_donate,
            recost=True,
            replan="baechi.memory" in func.attributes,
            measured=measured,
        )
        walk.run()
        return walk


def _end_seconds(op: Operation) -> float:
    value = op.attributes.get("baechi.end_seconds", None if op.name != "func.return" else 0.0)
    if not isinstance(value, float | int):
        raise PassError(
            f"'{op.name}' at {op.location} has no 'baechi.end_seconds'; run schedule first"
        )
    return float(value)
