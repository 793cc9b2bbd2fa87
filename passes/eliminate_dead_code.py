"""``eliminate-dead-code``: ops whose results nobody reads go.

One sweep from the last op to the first, regions before the op that holds them, so a chain of dead
ops goes at once. Ops with effects stay: they take or give a token. A result of a loop that nobody
reads stays with the loop (XLA drops what it computes); a whole dead loop goes.

Only ops that do nothing but compute are candidates: those of dialect ``jax``, tasks, and the
sources of literals and tokens. Sends, receives and waits are part of a plan and stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.registry import Pass, register_pass


@register_pass
@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Erases ops without readers and without effects, in every function and region."""

    name = "eliminate-dead-code"
    summary = "erase ops that nobody reads and that have no effect"

    def run(self, module: Module) -> None:
        """Keeps the order of what stays."""
        for function in module.functions:
            _sweep(function)


def _sweep(op: Operation) -> None:
    for region in op.regions:
        for block in region.blocks:
            block.retain(_is_kept)


def _is_kept(op: Operation) -> bool:
    for result in op.results:
        if result.uses:
            break
    else:
        if _only_computes(op):
            return False
    # Readers inside a region go before their sources outside are looked at.
    if op.regions:
        _sweep(op)
    return True


def _only_computes(op: Operation) -> bool:
    if op.name == "baechi.token":
        return True
    # Something without results was written for what it does.
    if not op.results:
        return False
    if not op.name.startswith("jax.") and op.name not in ("baechi.literal", "baechi.task"):
        return False
    return not any(isinstance(value.type, TokenType) for value in (*op.operands, *op.results))
