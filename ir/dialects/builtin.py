"""``builtin.module``."""

from __future__ import annotations

from baechi_jax.ir.core import Operation
from baechi_jax.ir.dialect import define_op, invalid


@define_op("builtin.module", closed=True, symbol_table=True)
def _module(op: Operation) -> None:
    if op.operands or op.results:
        raise invalid(op, "a module has no operands and no results")
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        raise invalid(op, "a module has one region of one block")
    if op.body.arguments:
        raise invalid(op, "the block of a module has no arguments")
    for key in op.attributes:
        # MLIR refuses others.
        if "." not in key and key not in ("sym_name", "sym_visibility"):
            raise invalid(op, f"attribute '{key}' of a module needs a dialect: 'baechi.{key}'")
