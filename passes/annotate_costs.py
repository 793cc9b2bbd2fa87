"""``annotate-costs``: ``baechi.cost`` on every operation of ``@main``.

Costs come from the analytic model (``passes/cost/``), or from a table of measured ones with the
analytic model for what the table lacks. A scan, while or cond is one operation: trip count times
its body.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.cost.operation import devices_of, op_cost
from baechi_jax.passes.registry import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class AnnotateCosts(Pass):
    """See the module docstring.

    ``source`` is ``analytic`` or ``table``; ``table`` the path of the table; ``topology`` the path
    of a topology file for a module that has none; ``while_trips`` how often a ``while`` loop is
    taken to turn.
    """

    name: ClassVar[str] = "annotate-costs"
    summary: ClassVar[str] = "set flops, bytes, seconds and temporary bytes on every operation"

    source: str = "analytic"
    table: str | None = None
    topology: str | None = None
    while_trips: int = 10

    def run(self, module: Module) -> None:
        """Set ``baechi.cost`` in ``@main``, and ``baechi.topology`` where it came from a file."""
        devices = devices_of(self._topology(module))
        # A model repeats its layers: most operations have been costed before.
        known: dict[Hashable, Cost] = {}
        for op in module.main.body.ops:
            if op.name == "func.return":
                continue
            key = None if op.regions else _key(op)
            cost = known.get(key)
            if cost is None:
                cost = op_cost(op, devices, self.while_trips)
                if key is not None:
                    known[key] = cost
            op.attributes["baechi.cost"] = cost

    def _topology(self, module: Module) -> Topology:
        if self.topology is not None:
            topology = Topology.load(self.topology)
            module.attributes["baechi.topology"] = topology
            return topology
        found = module.attributes.get("baechi.topology")
        if not isinstance(found, Topology):
            raise PassError(
                "annotate-costs: the module has no 'baechi.topology'; give it one, or name a "
                "topology file with the option topology=machine.json"
            )
        return found


def _key(op: Operation) -> Hashable:
    """Equal for operations of equal cost."""
    return (
        op.name,
        *[value.type for value in op.operands],
        *[result.type for result in op.results],
        *[entry for entry in op.attributes.items() if not entry[0].startswith("baechi.")],
    )
