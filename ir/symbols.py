"""Symbols: finding the operation that ``@main`` or ``@main::@t7`` names."""

from __future__ import annotations

from baechi_jax.ir.attributes import SymbolRef
from baechi_jax.ir.core import Operation


def lookup(table: Operation, name: str) -> Operation | None:
    """The operation named ``name`` right in a region of ``table``."""
    for region in table.regions:
        for block in region.blocks:
            for op in block.ops:
                if op.attributes.get("sym_name") == name:
                    return op
    return None


def resolve(op: Operation, reference: SymbolRef) -> Operation | None:
    """What ``reference`` names, seen from ``op``: the nearest enclosing operation that knows it."""
    table = op.parent_op
    while table is not None:
        found = lookup(table, reference.root)
        for name in reference.path[1:]:
            found = lookup(found, name) if found is not None else None
        if found is not None:
            return found
        table = table.parent_op
    return None
