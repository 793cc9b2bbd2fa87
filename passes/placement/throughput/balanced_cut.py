"""``multilevel``: balanced parts with few transfers between them, as graph partitioners make them.

Three stages (Karypis and Kumar, SIAM J. Sci. Comput. 1998): classes that transfers tie together are
joined into ever coarser groups; the coarsest are shared out, longest first; on the way back to
single classes, each level moves groups to other devices while that cuts transfers and keeps every
device's compute within ``1 + imbalance`` times the even share, and its bytes within its memory.

A partitioner minimises the sum of all transfers, not the largest load of a device, and looks at
neither contiguity nor overlap: it is the baseline that the placers of throughput are to beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.split import evaluate
from baechi_jax.passes.placement.throughput.multilevel import balanced, coarsen
from baechi_jax.passes.placement.throughput.nets import Nets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload

#: Groups per device at the coarsest level, one attempt for each; the share of a device's compute
#: that a group may have; and how much finer each level is than the one before.
_COARSEST = (1, 2, 4, 8)
_LARGEST = (1.0, 0.7, 0.5, 0.3)
_FINER = 3
#: Passes over the groups of a level; each ends early when nothing moves.
_PASSES = 8


def balanced_cut(
    workload: Workload, *, seed: int = 0, imbalance: float = 0.05
) -> NDArray[np.int64] | None:
    """``[node]`` devices, or None where the groups, longest first, do not fit the memory."""
    nets = Nets.of(workload)
    share = _even_share(workload, nets)
    most = share * (1 + imbalance)
    best = None
    least = (np.inf, np.inf)
    for attempt, (groups, largest) in enumerate(zip(_COARSEST, _LARGEST, strict=True)):
        random = np.random.default_rng([seed, attempt])
        found = _attempt(workload, nets, random, groups, largest * share, most)
        if found is not None:
            report = evaluate(workload, found)
            compute = max(load.compute_seconds for load in report.devices)
            cut = sum(load.transfer_seconds for load in report.devices)
            if (max(compute, most), cut) < least:
                best, least = found, (max(compute, most), cut)
    return best


def _attempt(
    workload: Workload,
    nets: Nets,
    random: np.random.Generator,
    groups_per_device: int,
    largest_seconds: float,
    most_seconds: float,
) -> NDArray[np.int64] | None:
    """One way down and up."""
    groups = groups_per_device * max(1, workload.devices)
    while True:
        level = nets
        if groups < nets.size:
            group = coarsen(nets, random, groups=groups, most_seconds=largest_seconds)
            level = nets.merged(group, int(group.max()) + 1)
        where = balanced(workload, level)
        if where is not None:
            break
        if level is nets:
            return None
        groups *= _FINER
    found = _refined(workload, level, where, most_seconds)[level.label]
    while level is not nets:
        groups *= _FINER
        level = nets
        if groups < nets.size:
            group = coarsen(
                nets,
                random,
                groups=groups,
                most_seconds=largest_seconds / 2,
                device_of=nets.of_classes(found),
            )
            level = nets.merged(group, int(group.max()) + 1)
        found = _refined(workload, level, level.of_classes(found), most_seconds)[level.label]
    return found


def _even_share(workload: Workload, nets: Nets) -> float:
    """Seconds that each device computes if work is spread evenly by speed."""
    total = nets.total_seconds
    fastest = np.min(total, axis=0)
    speed = 0.0
    for kind, device_class in enumerate(workload.classes):
        here = np.isfinite(total[kind]) & (total[kind] > 0)
        if here.any():
            speed += device_class.count * float(fastest[here].sum() / total[kind][here].sum())
    return float(fastest[np.isfinite(fastest)].sum()) / max(speed, 1e-300)


def _refined(
    workload: Workload, nets: Nets, where: NDArray[np.int64], most_seconds: float
) -> NDArray[np.int64]:
    """Move groups while that lowers the sum of transfers, or with equal sum the larger compute."""
    where = where.copy()
    kind_of = workload.class_of_devices()
    seconds = nets.total_seconds[kind_of]
    memory = np.array([workload.classes[kind].memory_bytes for kind in kind_of]) * (1 + 1e-12)
    pays = [workload.classes[kind].transfers for kind in kind_of]
    compute = np.zeros(workload.devices)
    used = np.zeros(workload.devices)
    for group, device in enumerate(where.tolist()):
        compute[device] += seconds[device, group]
        used[device] += nets.bytes[group]
    touching: list[list[int]] = [[] for _ in range(nets.size)]
    for index, net in enumerate(nets.nets):
        for group in (net.source, *net.targets):
            touching[group].append(index)

    def paid(group: int, device: int) -> float:
        """Transfers of the nets at ``group`` if it were on ``device``."""
        sum_seconds = 0.0
        for index in touching[group]:
            net = nets.nets[index]
            ends = {
                device if each == group else int(where[each]) for each in (net.source, *net.targets)
            }
            if len(ends) > 1:
                sum_seconds += net.seconds * sum(pays[end] for end in ends)
        return sum_seconds

    for _ in range(_PASSES):
        moved = False
        for group in range(nets.size):
            home = int(where[group])
            near = {
                int(where[each])
                for index in touching[group]
                for each in (nets.nets[index].source, *nets.nets[index].targets)
            }
            if not near - {home} and compute[home] <= most_seconds:
                continue
            if compute[home] > most_seconds:
                near.update(range(workload.devices))
            before = paid(group, home)
            best = (0.0, 0.0, home)
            for device in sorted(near - {home}):
                after = compute[device] + seconds[device, group]
                if used[device] + nets.bytes[group] > memory[device] or not np.isfinite(after):
                    continue
                if after > most_seconds and after >= compute[home]:
                    continue
                # Too much compute here comes before transfers.
                relief = min(0.0, max(after, most_seconds) - max(compute[home], most_seconds))
                change = (relief, paid(group, device) - before, device)
                if change[:2] < best[:2]:
                    best = change
            device = best[2]
            if device == home:
                continue
            compute[home] -= seconds[home, group]
            compute[device] += seconds[device, group]
            used[home] -= nets.bytes[group]
            used[device] += nets.bytes[group]
            where[group] = device
            moved = True
        if not moved:
            break
    return where
