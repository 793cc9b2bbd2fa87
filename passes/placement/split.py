"""Splits of a workload over devices: what each device holds, and what that costs.

This is the judge of every partitioning algorithm: it shares no code with them. The latency of one
sample is judged by ``latency/judge.py``.
Source: Tarnawski et al., NeurIPS 2020, section 3; replicas: PipeDream (SOSP 2019), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.workload import Workload, WorkloadError, topological_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Where the nodes of a workload are. A plain ``device_of`` is the common case."""

    #: ``[node]``: the device of each node.
    device_of: NDArray[np.int64]
    #: ``[node]``: for latency, which subgraph of its device the node is in, in order of execution.
    subgraph_of: NDArray[np.int64] | None = None
    #: ``[device]``: over how many devices, from this one on, the stage here is replicated.
    replicas: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """One device of a split. Times are seconds per sample."""

    device: int
    class_name: str
    nodes: int
    compute_seconds: float
    transfer_seconds: float
    #: The load: compute and transfers together (or the larger), shared by the replicas.
    seconds: float
    #: Load of the forward nodes and of the backward nodes; a transfer belongs to its source.
    forward_seconds: float
    backward_seconds: float
    bytes: float
    memory_bytes: float
    contiguous: bool
    replicas: int


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What ``evaluate`` finds; ``faults`` is empty for a valid split."""

    devices: tuple[DeviceLoad, ...]
    max_load_seconds: float
    #: Largest forward load plus largest backward load: the time of a sample in a pipeline that
    #: runs all forward passes of a batch, then all backward passes (GPipe).
    sum_of_maxima_seconds: float
    contiguous: bool
    #: Colour classes whose nodes are on several devices.
    split_colours: tuple[int, ...]
    faults: tuple[str, ...]


def evaluate(
    workload: Workload,
    device_of: NDArray[np.int64],
    *,
    overlap: bool = False,
    replicas: NDArray[np.int64] | None = None,
    replica_bytes_per_second: float = 1e10,
) -> SplitReport:
    """Loads, memory and validity of a split.

    Args:
      workload: the problem.
      device_of: ``[node]``, the device of each node.
      overlap: count a device's load as the larger of compute and transfers, not their sum.
      replicas: ``[device]``, over how many devices a stage is replicated (with device d, on d,
        d + 1, ...): its load is shared by them, and each pays for the all-reduce of its parameters.
      replica_bytes_per_second: of the all-reduce.
    """
    check_shape(workload, device_of)
    classes = workload.class_of_devices()
    faults: list[str] = []
    loads: list[DeviceLoad] = []
    source, target = workload.edges[:, 0], workload.edges[:, 1]
    crossing = device_of[source] != device_of[target]
    if replicas is not None:
        faults += _replica_faults(workload, device_of, replicas)
    for device in range(workload.devices):
        kind = workload.classes[classes[device]]
        mine = device_of == device
        incoming = np.unique(source[crossing & (device_of[target] == device)])
        outgoing = np.unique(source[crossing & (device_of[source] == device)])
        moved = np.concatenate([incoming, outgoing])
        copies = 1 if replicas is None else max(1, int(replicas[device]))
        reduced = float(workload.parameter_bytes[mine].sum()) / replica_bytes_per_second
        shares = []
        for part in (np.ones(workload.size, bool), ~workload.backward, workload.backward):
            compute = float(kind.seconds[mine & part].sum())
            transfer = 0.0
            if kind.transfers:
                transfer = float(workload.transfer_seconds[moved[part[moved]]].sum())
            load = max(compute, transfer) if overlap else compute + transfer
            shares.append((compute, transfer, load / copies))
        held = float(workload.bytes[mine].sum())
        reduce_seconds = 2.0 * (copies - 1) / copies * reduced
        loads.append(
            DeviceLoad(
                device=device,
                class_name=kind.name,
                nodes=int(mine.sum()),
                compute_seconds=shares[0][0],
                transfer_seconds=shares[0][1],
                seconds=shares[0][2] + reduce_seconds,
                forward_seconds=shares[1][2],
                backward_seconds=shares[2][2] + reduce_seconds,
                bytes=held,
                memory_bytes=kind.memory_bytes,
                contiguous=is_contiguous(
                    workload, mine & ~workload.backward, among=~workload.backward
                ),
                replicas=copies,
            )
        )
        if held > kind.memory_bytes * (1 + 1e-12):
            faults.append(f"device {device} holds {held:.0f} bytes of {kind.memory_bytes:.0f}")
        if not np.isfinite(shares[0][0]):
            node = int(np.flatnonzero(mine & ~np.isfinite(kind.seconds))[0])
            faults.append(
                f"node '{workload.names[node]}' cannot run on device {device} ({kind.name})"
            )
    split_colours = _split_colours(workload, device_of)
    faults += [f"colour {colour} is split over devices" for colour in split_colours]
    return SplitReport(
        devices=tuple(loads),
        max_load_seconds=max(load.seconds for load in loads),
        sum_of_maxima_seconds=max(load.forward_seconds for load in loads)
        + max(load.backward_seconds for load in loads),
        contiguous=all(load.contiguous for load in loads),
        split_colours=split_colours,
        faults=tuple(faults),
    )


def _split_colours(workload: Workload, device_of: NDArray[np.int64]) -> tuple[int, ...]:
    coloured = workload.colour >= 0
    pairs = np.unique(np.stack([workload.colour[coloured], device_of[coloured]]), axis=1)
    colours, counts = np.unique(pairs[0], return_counts=True)
    return tuple(colours[counts > 1].tolist())


def _replica_faults(
    workload: Workload, device_of: NDArray[np.int64], replicas: NDArray[np.int64]
) -> list[str]:
    classes = workload.class_of_devices()
    busy = np.isin(np.arange(workload.devices), device_of)
    faults = []
    taken = np.full(workload.devices, -1)
    for device in np.flatnonzero(replicas > 1).tolist():
        last = device + int(replicas[device])
        if last > workload.devices or (classes[device:last] != classes[device]).any():
            faults.append(
                f"device {device} has no {replicas[device] - 1} devices of its class beside it"
            )
        elif busy[device + 1 : last].any() or (taken[device:last] >= 0).any():
            faults.append(f"a replica of device {device} is on a device that is in use")
        taken[device:last] = device
    return faults


def check_shape(workload: Workload, device_of: NDArray[np.int64]) -> None:
    """Raise WorkloadError unless every node has a device that exists."""
    if device_of.shape != (workload.size,):
        raise WorkloadError(
            f"the split assigns {device_of.size} nodes, the workload has {workload.size}"
        )
    wrong = np.flatnonzero((device_of < 0) | (device_of >= workload.devices))
    if len(wrong):
        raise WorkloadError(
            f"node '{workload.names[wrong[0]]}' is on device {device_of[wrong[0]]}; "
            f"the workload has devices 0 to {workload.devices - 1}"
        )


def is_contiguous(
    workload: Workload, members: NDArray[np.bool_], *, among: NDArray[np.bool_] | None = None
) -> bool:
    """Whether no path leaves ``members`` and comes back (within ``among``, if given)."""
    inside = np.ones(workload.size, bool) if among is None else among
    left = np.zeros(workload.size, bool)
    pointers, sources = workload.predecessors()
    for node in topological_order(workload):
        if not inside[node]:
            continue
        reached = False
        for source in sources[pointers[node] : pointers[node + 1]]:
            if inside[source] and (left[source] or (members[source] and not members[node])):
                reached = True
                break
        if reached and members[node]:
            return False
        left[node] = reached
    return True
