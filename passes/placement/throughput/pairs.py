"""Improve a split a few devices at a time, each time by an exact program.

The device with the largest load and one other, with the host's cores, share what they hold anew by
``solve_part``, which takes seconds where the program of all devices takes hours. What they hold
among them stays the same, so nothing changes for the other devices. The new split is taken if its
loads, sorted from the largest down, are smaller, first difference deciding: of several devices with
the largest load each must be relieved before the value falls. When no pair helps, three devices are
tried, then four, as long as that is not yet all of them.

This is a large-neighbourhood search (Shaw, CP 1998) whose neighbourhoods are pairs of devices.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.split import Split, evaluate
from baechi_jax.passes.placement.throughput.milp import solve_part
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from baechi_jax.passes.placement.partitioning import Throughput
    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True)
class PairOptions:
    """Options of ``improve_pairs``."""

    seed: int = 0
    #: Programs to solve at most; None for no limit.
    solves: int | None = None
    #: Limit of nodes of each program: of its search tree, so that results do not depend on time.
    nodes: int = 400
    #: Most accelerators at a time.
    width: int = 3
    #: Readings of ``clock.now`` after which nothing is begun, and limit of one program.
    deadline: float = float("inf")
    solve_seconds: float = float("inf")
    #: Stop once the value is at most this.
    target_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PairResult:
    """Where the search ended."""

    #: ``[node]``
    device_of: NDArray[np.int64]
    #: ``local optimum``, ``limit``, ``target`` or ``interrupted``.
    status: str
    solves: int


def improve_pairs(
    workload: Workload,
    start: NDArray[np.int64],
    objective: Throughput,
    options: PairOptions | None = None,
) -> PairResult:
    """A split at least as good as the valid split ``start``, ``[node]``.

    Raises WorkloadError when ``start`` is not valid or replicas are asked for.
    """
    options = options if options is not None else PairOptions()
    if objective.replicas > 1:
        raise WorkloadError("pairs of devices are not improved where stages may be replicated")
    value, faults = objective.seconds(workload, Split(start))
    if faults:
        raise WorkloadError(f"the search needs a valid start: {faults[0]}")
    nets = Nets.of(workload)
    random = np.random.default_rng(options.seed)
    where, loads = nets.of_classes(start), _loads(workload, objective, start)
    solves = 0
    # Sets of devices that had nothing to gain, with what they held.
    settled: set[tuple[tuple[int, ...], bytes]] = set()
    while True:
        if value <= options.target_seconds:
            return PairResult(where[nets.label], "target", solves)
        for devices in _neighbourhoods(workload, loads, random, options.width):
            held = np.where(np.isin(where, devices), where, -1)
            if (devices, held.tobytes()) in settled:
                continue
            left = options.deadline - now()
            if left <= 0 or (options.solves is not None and solves >= options.solves):
                return PairResult(where[nets.label], "limit", solves)
            part = solve_part(
                workload,
                nets,
                where,
                objective,
                devices,
                time_limit_seconds=min(left, options.solve_seconds),
                max_nodes=options.nodes,
                seed=options.seed,
            )
            solves += 1
            found = _loads(workload, objective, part.where[nets.label])
            better = _less(found, loads)
            if better:
                where, loads = part.where, found
                value, _ = objective.seconds(workload, Split(where[nets.label]))
            if part.status == "interrupted":
                return PairResult(where[nets.label], "interrupted", solves)
            if better:
                break
            settled.add((devices, held.tobytes()))
        else:
            return PairResult(where[nets.label], "local optimum", solves)


def _loads(
    workload: Workload, objective: Throughput, device_of: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``[phase, device]``"""
    devices = evaluate(workload, device_of, overlap=objective.overlap).devices
    if not objective.sum_of_maxima:
        return np.array([[each.seconds for each in devices]])
    return np.array(
        [
            [each.forward_seconds for each in devices],
            [each.backward_seconds for each in devices],
        ]
    )


def _less(found: NDArray[np.float64], loads: NDArray[np.float64]) -> bool:
    """Whether the sums over phases of the k-th largest loads are smaller, first difference."""
    one = np.sort(found, axis=1)[:, ::-1].sum(axis=0)
    other = np.sort(loads, axis=1)[:, ::-1].sum(axis=0)
    for new, old in zip(one.tolist(), other.tolist(), strict=True):
        if abs(new - old) > 1e-9 * max(new, old):
            return bool(new < old)
    return False


def _neighbourhoods(
    workload: Workload,
    loads: NDArray[np.float64],
    random: np.random.Generator,
    width: int,
) -> Iterator[tuple[int, ...]]:
    """Sets of devices: the largest load of each phase, others at random, and all of the host."""
    kinds = [workload.classes[kind] for kind in workload.class_of_devices()]
    pays = [device for device in range(workload.devices) if kinds[device].transfers]
    host = [device for device in range(workload.devices) if not kinds[device].transfers]
    critical = [int(device) for device in dict.fromkeys(np.argmax(loads, axis=1).tolist())]
    # All devices at once are left to the program of everything, unless there are two.
    most = min(width - 1, max(1, len(pays) - 2))
    for count in range(min(1, len(pays)), most + 1):
        sets = {
            tuple(sorted({first, *others, *host}))
            for first in critical
            for others in itertools.combinations([each for each in pays if each != first], count)
        }
        ordered = sorted(sets)
        for index in random.permutation(len(ordered)).tolist():
            yield ordered[index]
