"""``annotate-costs``: ``baechi.cost`` on every operation of ``@main``.

Costs come from the analytic model (``passes/cost/``), or from a table of measured ones, with the
analytic model for what the table lacks. A scan, while or cond is one operation: its trip count
times its body. Where the module holds factors that correct the model (``baechi.cost_factors``),
what comes from the model is multiplied by that of its family and kind of device.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.cost.families import FAMILIES, family_of
from baechi_jax.passes.cost.layout import parameters
from baechi_jax.passes.cost.measured import cost_factors
from baechi_jax.passes.cost.operation import WHILE_TRIPS, devices_of, op_cost
from baechi_jax.passes.cost.primitives import Kind
from baechi_jax.passes.cost.roofline import kind_of
from baechi_jax.passes.cost.table import CostTable
from baechi_jax.passes.registry import Pass, register_pass

_log = logging.getLogger(__name__)


@register_pass
@dataclass(frozen=True, slots=True)
class AnnotateCosts(Pass):
    """See the module docstring.

    ``source`` is ``analytic`` or ``table``; ``table`` the path of the table; ``topology`` the path
    of a topology file, for a module that has none; ``while_trips`` how often a ``while`` loop is
    taken to turn.
    """

    name: ClassVar[str] = "annotate-costs"
    summary: ClassVar[str] = "set flops, bytes, seconds and temporary bytes on every operation"

    source: str = "analytic"
    table: str | None = None
    topology: str | None = None
    while_trips: int = WHILE_TRIPS

    def run(self, module: Module) -> None:
        """Set ``baechi.cost`` in ``@main``, and ``baechi.topology`` where it came from a file.

        Raises PassError for options that do not fit, a table that is malformed, or a module
        without a topology.
        """
        table = self._table()
        topology = self._topology(module)
        devices = devices_of(topology)
        factors = _factors(module, topology.kinds)
        # A model repeats its layers: most operations have been costed before.
        known: dict[Hashable, Cost] = {}
        missing = 0
        for op in module.main.body.ops:
            if op.name == "func.return":
                continue
            key = None if op.regions else _key(op)
            cost = known.get(key)
            if cost is None:
                cost = op_cost(op, devices, self.while_trips)
                if factors:
                    corrected = zip(cost.seconds, factors[family_of(op)], strict=True)
                    cost = replace(cost, seconds=tuple(each * factor for each, factor in corrected))
                if table is not None:
                    measured = table.cost(op, cost, topology.kinds)
                    if measured is None and kind_of(op) in (Kind.KERNEL, Kind.CONTROL):
                        missing += 1
                    cost = measured or cost
                if key is not None:
                    known[key] = cost
            op.attributes["baechi.cost"] = cost
        if missing:
            _log.info("the table has no costs for %d kernels; the analytic model has them", missing)

    def _table(self) -> CostTable | None:
        if self.source not in ("analytic", "table"):
            raise PassError(f"annotate-costs: source must be analytic or table, not {self.source}")
        if self.while_trips < 1:
            raise PassError(f"annotate-costs: while-trips must be >= 1, found {self.while_trips}")
        if (self.source == "table") != (self.table is not None):
            raise PassError("annotate-costs: source=table and table=<path> go together")
        return CostTable.load(self.table) if self.table is not None else None

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


def _factors(module: Module, kinds: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """For each family, the factor on each kind of device; empty where the module has none."""
    found = cost_factors(module)
    if not found:
        return {}
    return {family: tuple(found.get((kind, family), 1.0) for kind in kinds) for family in FAMILIES}


def _key(op: Operation) -> Hashable:
    """Equal for operations of equal cost."""
    return (
        op.name,
        *[value.type for value in op.operands],
        *[result.type for result in op.results],
        *parameters(op),
    )
