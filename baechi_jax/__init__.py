"""baechi_jax: a placement compiler for JAX.

``@baechi.place`` over a training step (or any function that ``jax.jit`` takes) traces it, places it
over unequal devices under their memory limits, and runs it.

Exports are imported when they are first used (PEP 562), so that ``import baechi_jax.ir`` and
``baechi-opt`` do not import jax.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from baechi_jax.ir.errors import (
        BaechiError,
        IRError,
        ParseError,
        PassError,
        PipelineError,
        TopologyError,
        VerificationError,
    )
    from baechi_jax.ir.topology import Device, Link, Topology
    from baechi_jax.leaves import StackError, device_put, gather, restore_target
    from baechi_jax.local import local_topology
    from baechi_jax.passes.placement.errors import InfeasiblePlacementError
    from baechi_jax.passes.plan_errors import PlanError
    from baechi_jax.place import on, place, place_init
    from baechi_jax.plan import Plan, PlanFileError, PlanMismatchError
    from baechi_jax.retraces import RetraceWarning
    from baechi_jax.runtime.errors import (
        ArgumentError,
        CompilationError,
        DeviceError,
        ExecutionError,
    )
    from baechi_jax.runtime.layers import StackedSharding
    from baechi_jax.runtime.stacked import StackedArray

#: Where each export lives.
_EXPORTS = {
    "ArgumentError": "baechi_jax.runtime.errors",
    "BaechiError": "baechi_jax.ir.errors",
    "CompilationError": "baechi_jax.runtime.errors",
    "Device": "baechi_jax.ir.topology",
    "DeviceError": "baechi_jax.runtime.errors",
    "ExecutionError": "baechi_jax.runtime.errors",
    "IRError": "baechi_jax.ir.errors",
    "InfeasiblePlacementError": "baechi_jax.passes.placement.errors",
    "Link": "baechi_jax.ir.topology",
    "ParseError": "baechi_jax.ir.errors",
    "PassError": "baechi_jax.ir.errors",
    "PipelineError": "baechi_jax.ir.errors",
    "Plan": "baechi_jax.plan",
    "PlanError": "baechi_jax.passes.plan_errors",
    "PlanFileError": "baechi_jax.plan",
    "PlanMismatchError": "baechi_jax.plan",
    "RetraceWarning": "baechi_jax.retraces",
    "StackError": "baechi_jax.leaves",
    "StackedArray": "baechi_jax.runtime.stacked",
    "StackedSharding": "baechi_jax.runtime.layers",
    "Topology": "baechi_jax.ir.topology",
    "TopologyError": "baechi_jax.ir.errors",
    "VerificationError": "baechi_jax.ir.errors",
    "device_put": "baechi_jax.leaves",
    "gather": "baechi_jax.leaves",
    "local_topology": "baechi_jax.local",
    "on": "baechi_jax.place",
    "place": "baechi_jax.place",
    "place_init": "baechi_jax.place",
    "restore_target": "baechi_jax.leaves",
}

__all__ = [
    "ArgumentError",
    "BaechiError",
    "CompilationError",
    "Device",
    "DeviceError",
    "ExecutionError",
    "IRError",
    "InfeasiblePlacementError",
    "Link",
    "ParseError",
    "PassError",
    "PipelineError",
    "Plan",
    "PlanError",
    "PlanFileError",
    "PlanMismatchError",
    "RetraceWarning",
    "StackError",
    "StackedArray",
    "StackedSharding",
    "Topology",
    "TopologyError",
    "VerificationError",
    "__version__",
    "device_put",
    "gather",
    "local_topology",
    "on",
    "place",
    "place_init",
    "restore_target",
]


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'baechi_jax' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(module), name)
    # Found once; from now on an ordinary attribute.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds the submodule baechi_jax.place here whenever anything imports it;
        # baechi_jax.place must go on being the function.
        if isinstance(value, ModuleType) and _EXPORTS.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
