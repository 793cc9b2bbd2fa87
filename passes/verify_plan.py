"""``verify-plan``: whether a plan keeps every rule, found without the code that made it.

The checks read the module alone (``passes/plan_checks/``); they share no accounts and no helpers
with the planning passes, so a mistake there shows here. The rules are those of docs/ir.md and
docs/plan.md. Each fault has its exception class in ``passes/plan_errors.py``. The cheap checks that
later ones rely on come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module
from baechi_jax.passes.plan_checks.channels import check_channels, check_transfers
from baechi_jax.passes.plan_checks.flow import (
    check_boundary,
    check_convexity,
    check_devices,
    check_order,
    check_wishes,
)
from baechi_jax.passes.plan_checks.memory import check_donations, check_lifetimes, check_memory
from baechi_jax.passes.plan_checks.programs import check_deadlock, check_programs, programs_of
from baechi_jax.passes.plan_checks.view import view_of
from baechi_jax.passes.registry import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class VerifyPlan(Pass):
    """See the module docstring. Changes nothing."""

    name: ClassVar[str] = "verify-plan"
    summary: ClassVar[str] = "check a finished plan, independently of the passes that made it"

    def run(self, module: Module) -> None:
        """Raise the PlanError of the first rule that the plan breaks."""
        view = view_of(module)
        check_convexity(view)
        check_order(view)
        check_channels(view)
        check_devices(view)
        check_boundary(view)
        check_wishes(view)
        check_transfers(view)
        check_lifetimes(view)
        check_donations(view)
        check_memory(view)
        programs = programs_of(view)
        check_deadlock(programs)
        if programs:
            check_programs(view, programs)
