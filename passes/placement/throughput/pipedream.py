"""``pipedream``: the optimiser of PipeDream, a dynamic program over layers in a row.

A(j, m), the time of the slowest stage in the best pipeline of the layers 1 .. j on m devices, is

    min over i < j and r <= m of  max(A(i, m - r), 2 C(i), T(i + 1 .. j, r))

where C(i) is the time to move what crosses from layer i to the next, once: it goes out to host
memory and in again (in the paper the 2 is for the gradient that comes back; here backward outputs
are nodes of their own, and counted in C). A stage replicated over r devices takes T(i + 1 .. j, r)
= max(its compute, 2 (r - 1) bytes of its parameters / bandwidth) / r. So transfers are taken to
overlap with compute, and links to be devices of their own. What the split costs by the workload's
own model is left to the judge, as for any placer.

PipeDream is for models that are a row of layers and for equal devices. Here the layers are the
classes of ``contraction.py`` in the order of a depth-first search; what crosses a cut is every
output needed beyond it; the devices are those of the most numerous class that pays for transfers.
Its optimiser does not look at memory; here a stage that does not fit a device is not considered.

Source: Narayanan et al., SOSP 2019, section 3.1 (one level: no hierarchy of networks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.throughput.contraction import contract

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.throughput.contraction import Contraction
    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class PipedreamResult:
    """The best pipeline of the row of layers by PipeDream's own model."""

    #: ``[node]``: the device of each node; of a replicated stage, its first device.
    device_of: NDArray[np.int64]
    #: ``[device]``: over how many devices the stage on this device is replicated; one if not.
    replicas: NDArray[np.int64]
    #: The slowest stage or link by PipeDream's model, which is not the objective of the judge.
    model_seconds: float


def solve_pipedream(
    workload: Workload, *, replicas: int = 1, replica_bytes_per_second: float = 1e10
) -> PipedreamResult | None:
    """The best pipeline, or None where no row of stages fits one class of devices.

    ``replicas``: a stage is replicated over at most so many devices.
    """
    kinds = range(len(workload.classes))
    kind = max(
        kinds,
        key=lambda each: (workload.classes[each].transfers, workload.classes[each].count, -each),
    )
    device_class = workload.classes[kind]
    contraction = contract(workload)
    size, label = contraction.size, contraction.label
    first = int(sum(each.count for each in workload.classes[:kind]))
    if not device_class.count:
        return None
    seconds = np.bincount(label, device_class.seconds, size)
    held = np.bincount(label, workload.bytes, size)
    reduced = np.bincount(label, workload.parameter_bytes, size) / replica_bytes_per_second
    crossing = 2.0 * cut_seconds(workload, contraction) * device_class.transfers
    limit = device_class.memory_bytes * (1 + 1e-12)
    most = device_class.count
    best = np.full((size + 1, most + 1), np.inf)
    best[0] = 0.0
    begin = np.zeros((size + 1, most + 1), np.int64)
    copies = np.zeros((size + 1, most + 1), np.int64)
    for stop in range(1, size + 1):
        # Of the stages that end here, by their first layer.
        compute = np.cumsum(seconds[:stop][::-1])[::-1]
        sync = np.cumsum(reduced[:stop][::-1])[::-1]
        fits = np.cumsum(held[:stop][::-1])[::-1] <= limit
        for count in range(1, min(replicas, most) + 1):
            stage = np.maximum(compute, 2.0 * (count - 1) * sync) / count
            stage = np.where(fits, np.maximum(stage, crossing[:stop]), np.inf)
            for machines in range(count, most + 1):
                value = np.maximum(best[:stop, machines - count], stage)
                chosen = int(np.argmin(value))
                if value[chosen] < best[stop, machines]:
                    best[stop, machines] = value[chosen]
                    begin[stop, machines] = chosen
                    copies[stop, machines] = count
    if not np.isfinite(best[size, most]):
        return None
    device_of = np.zeros(workload.size, np.int64)
    shared = np.ones(workload.devices, np.int64)
    stop, machines = size, most
    while stop:
        start, count = int(begin[stop, machines]), int(copies[stop, machines])
        machines -= count
        stop_before, stop = stop, start
        device_of[(label >= start) & (label < stop_before)] = first + machines
        shared[first + machines] = count
    return PipedreamResult(device_of, shared, float(best[size, most]))


def cut_seconds(workload: Workload, contraction: Contraction) -> NDArray[np.float64]:
    """``[layer]``: seconds to move what crosses into this layer or later ones, or back."""
    change = np.zeros(contraction.size + 1)
    pointers, targets = workload.successors()
    for node in range(workload.size):
        readers = contraction.label[targets[pointers[node] : pointers[node + 1]]]
        ends = [int(contraction.label[node]), *readers.tolist()]
        change[min(ends) + 1] += workload.transfer_seconds[node]
        change[max(ends) + 1] -= workload.transfer_seconds[node]
    crossing: NDArray[np.float64] = np.cumsum(change)[: contraction.size]
    return np.maximum(crossing, 0.0)
