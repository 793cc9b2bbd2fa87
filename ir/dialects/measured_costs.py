"""Checks of the attributes that hold measured costs; they stand on the module."""

from __future__ import annotations

import math

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation
from baechi_jax.ir.dialect import define_attribute, invalid
from baechi_jax.ir.measured_cost import CostFactor, TaskSeconds
from baechi_jax.ir.topology import Topology


@define_attribute("baechi.task_seconds")
def _task_seconds(op: Operation, value: Attribute) -> None:
    if not isinstance(value, tuple) or not all(isinstance(e, TaskSeconds) for e in value):
        raise invalid(
            op, f"'baechi.task_seconds' must be an array of #baechi.task_seconds, found {value!r}"
        )
    for entry in value:
        assert isinstance(entry, TaskSeconds)
        if not 0 <= entry.seconds < math.inf:
            raise invalid(
                op, f"'baechi.task_seconds' holds {entry.seconds}; seconds are finite, not negative"
            )


@define_attribute("baechi.cost_factors")
def _cost_factors(op: Operation, value: Attribute) -> None:
    if not isinstance(value, tuple) or not all(isinstance(e, CostFactor) for e in value):
        raise invalid(
            op, f"'baechi.cost_factors' must be an array of #baechi.cost_factor, found {value!r}"
        )
    for entry in value:
        assert isinstance(entry, CostFactor)
        if not 0 < entry.factor < math.inf:
            raise invalid(
                op, f"'baechi.cost_factors' holds {entry.factor}; factors are finite and positive"
            )


@define_attribute("baechi.declared_topology")
def _declared_topology(op: Operation, value: Attribute) -> None:
    if not isinstance(value, Topology):
        raise invalid(op, f"'baechi.declared_topology' must be a #baechi.topology, found {value!r}")
