"""A lower bound by minimum cuts: the cheapest device that could hold a class.

The device that holds class c holds some set S with c in it, and pays for the classes of S and for
every net that S cuts: f(S) = seconds of S + cut(S). Whatever else the split does, its value is at
least the least f(S) over all S that contain c, and f is a cut function, so that a minimum cut finds
it: each class is joined to the sink by its seconds, each net is two nodes joined by its cost, that
every end of the net leads to and from (Lawler, Networks 1973, for cuts of hypergraphs). A class may
also be on a device without transfers; then its seconds there count. Where transfers are dear, this
is far above what spreading the work evenly gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.throughput.nets import Nets

if TYPE_CHECKING:
    from baechi_jax.passes.placement.partitioning import Throughput
    from baechi_jax.passes.placement.workload import Workload

#: Classes whose cut is computed, those first that are dearest alone; any number gives a bound.
_CLASSES = 64
#: Edges of the flow network times classes: work that is not exceeded, about a second.
_WORK = 500_000
#: Capacities are whole numbers up to twice this, so that sums of two stay within 32 bits.
_CAPACITY = 2.0**29


def cut_bound(workload: Workload, objective: Throughput) -> float:
    """The largest over classes of the least load that holds one; in seconds.

    Zero with overlap, where a load is no sum, and where stages may be replicated.
    """
    if objective.overlap or objective.replicas > 1:
        return 0.0
    nets = Nets.of(workload)
    here, free = np.full(nets.size, np.inf), np.full(nets.size, np.inf)
    for kind, device_class in enumerate(workload.classes):
        if device_class.count:
            held = here if device_class.transfers else free
            np.minimum(held, nets.total_seconds[kind], out=held)
    # A set of one class is a cut too: no minimum is above it.
    alone = here.copy()
    edges = nets.size
    for net in nets.nets:
        for end in (net.source, *net.targets):
            alone[end] += net.seconds
            edges += 2
    most = np.minimum(alone, free)
    finite = most[np.isfinite(most)]
    if not len(finite) or finite.max() <= 0.0:
        return 0.0
    scale = _CAPACITY / float(finite.max())
    flow = _Flow(nets, here, scale)
    found = 0.0
    for group in np.argsort(-most, kind="stable")[: min(_CLASSES, _WORK // edges)].tolist():
        if most[group] <= found:
            break
        found = max(found, min(float(free[group]), flow.least(group) / scale))
    return found


class _Flow:
    """The network whose minimum cuts are the cheapest sets."""

    def __init__(self, nets: Nets, seconds: np.typing.NDArray[np.float64], scale: float) -> None:
        from scipy.sparse import csr_matrix

        ends: list[tuple[int, int]] = []
        costs: list[float] = []
        self.sink = nets.size + 2 * len(nets.nets)
        for group in range(nets.size):
            ends.append((group, self.sink))
            costs.append(float(seconds[group]))
        for index, net in enumerate(nets.nets):
            into = nets.size + 2 * index
            ends.append((into, into + 1))
            costs.append(net.seconds)
            for end in (net.source, *net.targets):
                ends += [(end, into), (into + 1, end)]
                costs += [np.inf, np.inf]
        # Rounded down: the cut is never above the true one.
        capacities = np.minimum(np.array(costs) * scale, 2.0 * _CAPACITY).astype(np.int32)
        rows, columns = np.array(ends, np.int32).T
        shape = (self.sink + 1, self.sink + 1)
        self.graph = csr_matrix((capacities, (rows, columns)), shape=shape)

    def least(self, group: int) -> int:
        """The capacity of the minimum cut between ``group`` and the sink."""
        from scipy.sparse.csgraph import maximum_flow

        return int(maximum_flow(self.graph, group, self.sink).flow_value)
