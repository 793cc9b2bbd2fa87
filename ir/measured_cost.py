"""Attributes for what was measured on the machine that a module is planned for.

Both stand on the module, so that a dump or a plan file says what its predictions rest on.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.attributes import ParameterizedAttr, register_attribute


@register_attribute("baechi.task_seconds")
@dataclass(frozen=True, slots=True)
class TaskSeconds(ParameterizedAttr):
    """What one run of a compiled task takes on one kind of device, launch included.

    ``task`` is its structural fingerprint (``ir/fingerprint.py``).
    """

    task: str
    kind: str
    seconds: float


@register_attribute("baechi.cost_factor")
@dataclass(frozen=True, slots=True)
class CostFactor(ParameterizedAttr):
    """By what the model's seconds of one family of operations are multiplied on one kind of device.

    The families are those of ``passes/cost/families.py``.
    """

    kind: str
    family: str
    factor: float
