"""``greedy`` for latency: fill one accelerator after another along a topological order.

Classes come in the order of the contracted graph (depth first). Each goes to the accelerator being
filled while it fits; otherwise that accelerator is closed and the next one begins. What is left
when they are all closed goes to the host, as does what no accelerator can run. Each accelerator
holds an interval of the order, so it is contiguous and no two wait for each other.

Source: Tarnawski et al., NeurIPS 2020, appendix F.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.pieces import Pieces, host_seconds
from baechi_jax.passes.placement.throughput.contraction import contract
from baechi_jax.passes.placement.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray


def solve_greedy(workload: Workload) -> NDArray[np.int64] | None:
    """``[node]``: the device of each node, -1 for the host; None where nothing can run a class."""
    contraction = contract(workload)
    size, label = contraction.size, contraction.label
    pieces = Pieces.of(workload)
    held = np.bincount(label, workload.bytes, size)
    seconds = [np.bincount(label, kind.seconds, size) for kind in pieces.kinds]
    # The fastest accelerators are filled first.
    order = sorted(
        range(len(pieces.devices)),
        key=lambda each: float(np.where(np.isfinite(seconds[each]), seconds[each], 0.0).sum()),
    )
    on_host = np.bincount(label, host_seconds(workload), size)
    device_of = np.full(size, -1, np.int64)
    at, used = 0, 0.0
    for group in range(size):
        runs = [np.isfinite(seconds[each][group]) for each in order]
        if not any(runs[at:]) and np.isfinite(on_host[group]):
            # The host takes it; what comes later may depend on it, so the accelerator is closed.
            at += int(used > 0.0 and at < len(order))
            used = 0.0
            continue
        while at < len(order):
            limit = pieces.kinds[order[at]].memory_bytes * (1 + 1e-12)
            if runs[at] and used + held[group] <= limit:
                break
            at, used = at + 1, 0.0
        if at < len(order):
            device_of[group] = pieces.devices[order[at]]
            used += held[group]
        elif not np.isfinite(on_host[group]):
            return None
    return device_of[label]
