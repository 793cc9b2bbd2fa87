"""The placers of throughput by name.

``expert`` is not here: it reads a split from a file (``formats/splits.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from baechi_jax.passes.placement.budget import Budget
from baechi_jax.passes.placement.interrupts import hears_interrupts
from baechi_jax.passes.placement.partitioning import Partitioning, Throughput
from baechi_jax.passes.placement.throughput import members
from baechi_jax.passes.placement.throughput.auto import auto
from baechi_jax.passes.placement.workload import Workload

Placer: TypeAlias = Callable[[Workload, Throughput, Budget], Partitioning]

PLACERS: Mapping[str, Placer] = MappingProxyType(
    {
        name: hears_interrupts(placer)
        for name, placer in {
            "auto": auto,
            "ideals": members.ideals,
            "ideals-linear": members.ideals_linear,
            "milp-throughput": members.milp_throughput,
            "pipedream": members.pipedream,
            "local-search": members.local_search_placer,
            "pairs": members.pairs,
            "multilevel": members.multilevel,
            "one-device": members.one_device,
        }.items()
    }
)
