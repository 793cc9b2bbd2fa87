"""A plan on another machine: the same placement and order, with costs for other devices."""

from __future__ import annotations

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.cost.operation import devices_of, op_cost
from baechi_jax.passes.tasks import set_task_cost, tasks_of, topology_of


def retarget(module: Module, topology: Topology) -> None:
    """Give ``module`` another topology and recompute its costs by the analytic model, in place.

    What the memory pass found stays; it does not depend on speeds. Raises TopologyError when the
    number of devices differs, since the placement names devices by index.
    """
    planned = topology_of(module)
    if planned.size != topology.size:
        raise TopologyError(
            f"the plan is for {planned.size} devices and this topology has {topology.size}; plan "
            "again for it"
        )
    module.attributes["baechi.topology"] = topology
    devices = devices_of(topology)
    for task in tasks_of(module.main):
        for op in task.body.ops[:-1]:
            op.attributes["baechi.cost"] = op_cost(op, devices)
        set_task_cost(task, topology)
    # They were bounds and predictions for the other machine.
    module.main.attributes.pop("baechi.lower_bound_seconds", None)
    module.main.attributes.pop("baechi.step_seconds", None)
