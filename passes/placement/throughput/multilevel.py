"""Coarser classes: groups of classes that transfers tie together, and a first split of them.

Moving one class at a time out of a chain that is cheap to keep together raises loads before it
lowers them. Searches therefore move groups first, then their parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.throughput.nets import Nets
    from baechi_jax.passes.placement.workload import Workload


def coarsen(
    nets: Nets,
    random: np.random.Generator,
    *,
    groups: int,
    most_seconds: float,
    device_of: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """``[class]``: a group for each class, about ``groups`` of them.

    Joins the ends of nets, dear ones first (with some luck), as long as a group takes at most
    ``most_seconds`` on the fastest device. With ``device_of``, ``[class]``, only classes of one
    device are joined.
    """
    parent = list(range(nets.size))
    total = nets.total_seconds
    seconds = np.min(np.where(np.isfinite(total), total, 0.0), axis=0).tolist()
    # Where a class can run, as bits; a group must be able to run somewhere.
    bits = (np.isfinite(total) * (1 << np.arange(len(total)))[:, None]).sum(axis=0).tolist()
    luck = random.exponential(size=len(nets.nets))
    order = np.argsort([-net.seconds * each for net, each in zip(nets.nets, luck)], kind="stable")
    count = nets.size
    where = None if device_of is None else device_of.tolist()
    for index in order.tolist():
        if count <= groups:
            break
        net = nets.nets[index]
        for target in net.targets:
            one, other = _root(parent, net.source), _root(parent, target)
            if one == other or seconds[one] + seconds[other] > most_seconds:
                continue
            if where is not None and where[net.source] != where[target]:
                continue
            if not bits[one] & bits[other]:
                continue
            parent[other] = one
            seconds[one] += seconds[other]
            bits[one] &= bits[other]
            count -= 1
    roots = np.array([_root(parent, group) for group in range(nets.size)])
    _, group = np.unique(roots, return_inverse=True)
    return group.astype(np.int64)


def _root(parent: list[int], group: int) -> int:
    while parent[group] != group:
        parent[group] = parent[parent[group]]
        group = parent[group]
    return group


def balanced(
    workload: Workload, nets: Nets, devices: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """``[class]``: longest first, each class to the device that it loads least and that has room.

    ``devices``: use only these. None where something finds no room.
    """
    kind_of = workload.class_of_devices()
    usable = np.arange(workload.devices) if devices is None else devices
    memory = np.array([workload.classes[kind].memory_bytes for kind in kind_of])[usable]
    memory = memory * (1 + 1e-12)
    total = nets.total_seconds[kind_of[usable]]
    loads = np.zeros(len(usable))
    used = np.zeros(len(usable))
    where = np.zeros(nets.size, np.int64)
    finite = np.where(np.isfinite(total), total, 0.0)
    order = np.lexsort((np.arange(nets.size), -nets.bytes, -finite.max(axis=0)))
    for group in order.tolist():
        after = loads + total[:, group]
        after[used + nets.bytes[group] > memory] = np.inf
        chosen = int(np.argmin(after))
        if not np.isfinite(after[chosen]):
            return None
        where[group] = usable[chosen]
        loads[chosen] = after[chosen]
        used[chosen] += nets.bytes[group]
    return where
