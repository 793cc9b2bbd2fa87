"""A plan on another machine: the same placement and order, with costs for other devices.

What cannot be known without planning anew is taken out, not kept: how the placement compares with
others there, and its lower bound.
"""

from __future__ import annotations

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.cost.measured import DECLARED, FACTORS, TASKS, MeasuredCosts
from baechi_jax.passes.cost.operation import devices_of, op_cost
from baechi_jax.passes.tasks import set_task_cost, tasks_of, topology_of
from baechi_jax.units import format_bytes


def retarget(module: Module, topology: Topology) -> list[str]:
    """Give ``module`` another topology and recompute its costs by the analytic model, in place.

    What the memory pass found stays; it does not depend on speeds. Returns what the reader of the
    figures must know: costs that had been measured, and devices whose memory is too small. Raises
    TopologyError when the number of devices differs, since the placement names devices by index.
    """
    planned = topology_of(module)
    if planned.size != topology.size:
        raise TopologyError(
            f"the plan is for {planned.size} devices and this topology has {topology.size}; plan "
            "again for it"
        )
    if planned == topology:
        return []
    notes = _unmeasured(module)
    for key in (TASKS, FACTORS, DECLARED):
        module.attributes.pop(key, None)
    module.attributes["baechi.topology"] = topology
    devices = devices_of(topology)
    for task in tasks_of(module.main):
        for op in task.body.ops[:-1]:
            op.attributes["baechi.cost"] = op_cost(op, devices)
        set_task_cost(task, topology)
    # They were bounds and predictions for the other machine.
    module.main.attributes.pop("baechi.lower_bound_seconds", None)
    module.main.attributes.pop("baechi.step_seconds", None)
    decided = module.attributes.get("baechi.placement")
    if isinstance(decided, DictAttr) and "placer" in decided:
        module.attributes["baechi.placement"] = DictAttr.of(
            {"placer": decided["placer"], "status": "for another machine"}
        )
    return [*notes, *_too_small(module, topology)]


def _unmeasured(module: Module) -> list[str]:
    table = "source=table" in str(module.attributes.get("baechi.pipeline", ""))
    if not table and MeasuredCosts.of(module) is None:
        return []
    note = (
        "the plan was made with measured costs; on this topology all costs are those of the "
        "analytic model. For measured ones, plan again there with costs='profile'"
    )
    return [note]


def _too_small(module: Module, topology: Topology) -> list[str]:
    memory = module.main.attributes.get("baechi.memory")
    found: list[str] = []
    for index, entry in enumerate(memory if isinstance(memory, tuple) else ()):
        limit = topology.devices[index].usable_bytes
        if isinstance(entry, DeviceMemory) and entry.peak_bytes > limit:
            found.append(
                f"the plan does not fit there: device {index} needs "
                f"{format_bytes(entry.peak_bytes)} and has {format_bytes(limit)}; plan again for "
                "this topology"
            )
    return found
