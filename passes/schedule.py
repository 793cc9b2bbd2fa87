"""``schedule``: the order in which one process issues the operations of ``@main``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module, topological_order
from baechi_jax.passes.registry import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class Schedule(Pass):
    """See the module docstring."""

    name: ClassVar[str] = "schedule"
    summary: ClassVar[str] = "order the operations of @main as one process issues them"

    def run(self, module: Module) -> None:
        """Reorder ``@main`` of ``module``."""
        block = module.main.body
        terminator = block.terminator
        position = {op: index for index, op in enumerate(block.ops)}
        order = topological_order(block.ops[:-1], lambda op: position[op])
        block.set_ops([*order, terminator])
        for index, op in enumerate(order):
            op.attributes["baechi.start_seconds"] = float(index)
            op.attributes["baechi.end_seconds"] = float(index + 1)
