"""Lower bounds on the throughput objectives: no valid split is better.

- ``work_bound``: all work spread evenly, by fractions of classes, over devices as fast as each is;
- ``memory_bound``: the same with the bytes within the memory of each class of devices, a fractional
  knapsack: what does not fit the fast ones goes to the slow ones;
- ``class_bound``: the longest class (nodes of one colour) where it runs fastest;
- ``cluster_bound``: a limit T under which some transfers are too dear to be cut makes clusters; it
  is too low if a cluster does not fit a device, or if, p n + 1 clusters being there for n devices,
  the least p + 1 of the longest of them take longer than T (some device gets p + 1 of those).
- ``cut_bound``, in ``cut_bound.py``: the cheapest set of classes that a device could hold with the
  dearest class in it;
- ``relaxation_bound``: the linear relaxation of the mixed-integer program, transfers included.

The bounds on the largest load also hold for the sum of the maxima of forward and backward loads,
for no device's two parts are together less than its load. There ``work_bound``, ``memory_bound``
and ``relaxation_bound`` bound both parts. Replicas share the load of a stage but not its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.solver import add_row, new_model
from baechi_jax.passes.placement.throughput.cut_bound import cut_bound
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.throughput.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.partitioning import Throughput
    from baechi_jax.passes.placement.workload import Workload

#: Solvers work to a tolerance; what they report is lowered by this share.
_SAFE = 1.0 - 1e-7


def work_bound(workload: Workload, objective: Throughput) -> float:
    """All work, spread evenly; infinite if something can run nowhere."""
    return _fractional(workload, objective, with_memory=False)


def memory_bound(workload: Workload, objective: Throughput) -> float:
    """All work, spread as evenly as memory allows; infinite if not even fractions fit."""
    return _fractional(workload, objective, with_memory=True)


def class_bound(workload: Workload, objective: Throughput) -> float:
    """The longest class where it runs fastest and fits; infinite if one fits nowhere."""
    nets = Nets.of(workload)
    seconds = np.full(nets.size, np.inf)
    for kind, device_class in enumerate(workload.classes):
        fits = nets.bytes <= device_class.memory_bytes * (1 + 1e-12)
        copies = max(1, min(objective.replicas, device_class.count))
        if device_class.count:
            alone = np.where(fits, nets.total_seconds[kind], np.inf) / copies
            seconds = np.minimum(seconds, alone)
    return float(seconds.max(initial=0.0))


def cluster_bound(workload: Workload, objective: Throughput) -> float:
    """The largest limit (to one part in a million) that clusters show to be too low.

    Zero where stages may be replicated, or two devices exist that transfer for free.
    """
    free = sum(kind.count for kind in workload.classes if not kind.transfers)
    if objective.replicas > 1 or free > 1:
        return 0.0
    nets = Nets.of(workload)
    low = shortest = class_bound(workload, objective)
    finite = np.where(np.isfinite(nets.total_seconds), nets.total_seconds, 0.0)
    high = low + float(finite.max(axis=0).sum()) + sum(net.seconds for net in nets.nets)
    if not np.isfinite(low):
        return low
    found = low
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        if _too_low(workload, objective, nets, middle):
            low = found = middle
        else:
            high = middle
    return max(shortest, found * _SAFE)


def relaxation_bound(workload: Workload, objective: Throughput) -> float:
    """The value of the linear relaxation; zero where stages may be replicated."""
    if objective.replicas > 1:
        return 0.0
    fastest = np.min([kind.seconds for kind in workload.classes], axis=0)
    unit = float(fastest[np.isfinite(fastest)].sum()) / max(1, workload.devices) or 1.0
    program = Program(workload, objective, unit, 0)
    status = optimize(program.model, float("inf"), relax=True)
    if status == "INFEASIBLE":
        return float("inf")
    return max(0.0, float(program.model.objective_value) * unit * _SAFE)


@lru_cache(maxsize=8)
def lower_bound(workload: Workload, objective: Throughput) -> tuple[float, str]:
    """The best of the quick bounds (all but the relaxation), and its name.

    Remembered for the last few workloads: every member of a portfolio asks for it.
    """
    found = [
        (class_bound(workload, objective), "longest class"),
        (memory_bound(workload, objective), "work and memory"),
        (cluster_bound(workload, objective), "clusters"),
        (cut_bound(workload, objective), "minimum cuts"),
    ]
    return max(found, key=lambda each: each[0])


def _fractional(workload: Workload, objective: Throughput, *, with_memory: bool) -> float:
    """The least largest average load of the kinds of devices, classes being divisible."""
    import mip

    nets = Nets.of(workload)
    total = nets.total_seconds
    phases = ((0,), (1,)) if objective.sum_of_maxima else ((0, 1),)
    unit = float(np.where(np.isfinite(total), total, 0.0).sum()) or 1.0
    model = new_model("work")
    largest = [model.add_var(name=f"largest{phase}", obj=1.0) for phase in range(len(phases))]
    shares: list[list[tuple[mip.Var, int]]] = [[] for _ in range(nets.size)]
    for kind, device_class in enumerate(workload.classes):
        users = np.flatnonzero(np.isfinite(total[kind])).tolist() if device_class.count else []
        share = {group: model.add_var(name=f"x_{group}_{kind}", ub=1.0) for group in users}
        for group, variable in share.items():
            shares[group].append((variable, kind))
        for phase, parts in enumerate(phases):
            seconds = nets.seconds[list(parts), kind].sum(axis=0)
            timed = [group for group in users if seconds[group] > 0]
            add_row(
                model,
                [*(share[group] for group in timed), largest[phase]],
                [*(float(seconds[group]) / unit for group in timed), -float(device_class.count)],
                "<",
                0.0,
                f"work_{kind}_{phase}",
            )
        memory = device_class.memory_bytes * device_class.count
        if with_memory and nets.bytes.sum() > memory:
            heavy = [group for group in users if nets.bytes[group] > 0]
            scale = max(float(memory), 1.0)
            add_row(
                model,
                [share[group] for group in heavy],
                [float(nets.bytes[group]) / scale for group in heavy],
                "<",
                float(memory) / scale,
                f"memory_{kind}",
            )
    for group, found in enumerate(shares):
        if not found:
            return float("inf")
        add_row(
            model, [variable for variable, _ in found], [1.0] * len(found), "=", 1.0, f"all_{group}"
        )
    status = optimize(model, float("inf"), relax=True)
    if status == "INFEASIBLE":
        return float("inf")
    return max(0.0, float(model.objective_value) * unit * _SAFE)


def _too_low(workload: Workload, objective: Throughput, nets: Nets, limit: float) -> bool:
    """Whether clusters show that no split has a value of at most ``limit``."""
    while True:
        clusters = _joined(workload, objective, nets, limit)
        if clusters is None:
            break
        nets = nets.merged(clusters, int(clusters.max()) + 1)
    shortest = np.full(nets.size, np.inf)
    for kind, device_class in enumerate(workload.classes):
        if device_class.count:
            fits = nets.bytes <= device_class.memory_bytes * (1 + 1e-9)
            shortest = np.minimum(shortest, np.where(fits, nets.total_seconds[kind], np.inf))
    if shortest.max(initial=0.0) > limit * (1 + 1e-9):
        return True
    longest = np.sort(shortest)[::-1]
    for each in range(1, (nets.size - 1) // max(1, workload.devices) + 1):
        count = each * workload.devices + 1
        if float(longest[count - each - 1 : count].sum()) > limit * (1 + 1e-9):
            return True
    return False


def _joined(
    workload: Workload, objective: Throughput, nets: Nets, limit: float
) -> NDArray[np.int64] | None:
    """``[class]`` clusters of classes no two of which can be parted within ``limit``, or None."""
    paying = [
        kind for kind, each in enumerate(workload.classes) if each.transfers and each.count > 0
    ]
    shortest = np.full(nets.size, np.inf)
    for kind in paying:
        shortest = np.minimum(shortest, nets.total_seconds[kind])
    between: dict[tuple[int, int], float] = {}
    for net in nets.nets:
        for target in net.targets:
            pair = (min(net.source, target), max(net.source, target))
            between[pair] = between.get(pair, 0.0) + net.seconds
    parent = list(range(nets.size))
    joined = False
    for (one, other), cost in between.items():
        # At least one end is on a device that pays, and pays beside what it computes.
        least = float(min(shortest[one], shortest[other]))
        load = max(cost, least) if objective.overlap else cost + least
        if load <= limit * (1 + 1e-9):
            continue
        roots = []
        for end in (one, other):
            root = end
            while parent[root] != root:
                parent[root] = parent[parent[root]]
                root = parent[root]
            roots.append(root)
        if roots[0] != roots[1]:
            parent[max(roots)] = min(roots)
            joined = True
    if not joined:
        return None
    for group in range(nets.size):
        parent[group] = parent[parent[group]]
    _, label = np.unique(parent, return_inverse=True)
    return label.astype(np.int64)
