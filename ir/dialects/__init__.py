"""The dialects that are defined here; importing this registers all their definitions."""

from baechi_jax.ir.dialects import baechi, baechi_attributes, builtin, func, jax, measured_costs

__all__ = ["baechi", "baechi_attributes", "builtin", "func", "jax", "measured_costs"]
