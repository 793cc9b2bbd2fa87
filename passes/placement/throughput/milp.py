"""``milp-throughput``: splits by a mixed-integer program, contiguous or not.

The program is in ``program.py``. ``solve_milp`` solves it for all devices, ``solve_part`` for a few
of them, with everything on the others staying where it is.

Source: Tarnawski et al., NeurIPS 2020, section 3.2 and appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.interruptible import optimize, status_name
from baechi_jax.passes.placement.partitioning import Throughput
from baechi_jax.passes.placement.split import Split, evaluate
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.throughput.program import Program
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class MilpResult:
    """What the solver found."""

    #: ``[node]``, or None if it found no split.
    device_of: NDArray[np.int64] | None
    #: ``optimal``, ``time limit`` (or limit of nodes), ``interrupted`` or ``infeasible``.
    status: str
    #: Lower bound on the objective; infinite if the problem is infeasible.
    bound_seconds: float


def solve_milp(
    workload: Workload,
    objective: Throughput | None = None,
    *,
    start: NDArray[np.int64] | None = None,
    time_limit_seconds: float = 60.0,
    max_nodes: int | None = None,
    gap: float = 1e-6,
    seed: int = 0,
) -> MilpResult:
    """Solve the program, from the valid split ``start`` (``[node]``) if there is one.

    ``gap``: stop when the value is proved to be within this share of the optimum. ``max_nodes``:
    search at most so many nodes of the tree. On Ctrl-C, and when a limit is met, the best split so
    far is returned. Raises WorkloadError for replicas.
    """
    objective = objective if objective is not None else Throughput()
    if objective.replicas > 1:
        raise WorkloadError("milp-throughput does not replicate stages; ideals and pipedream do")
    deadline = now() + time_limit_seconds
    unit = _unit(workload, objective, start)
    program = Program(workload, objective, unit, seed)
    if start is not None:
        maxima = _maxima(workload, objective, start, range(workload.devices))
        program.start_from(program.nets.of_classes(start), maxima, start)
    status = _run(program, max(0.0, deadline - now()), max_nodes, gap)
    if status == "stuck":
        return MilpResult(start, "interrupted", 0.0)
    if status == "infeasible":
        return MilpResult(None, status, float("inf"))
    bound = float(program.model.objective_bound) * unit
    bound = bound * (1 - 1e-9) if np.isfinite(bound) and bound > 0 else 0.0
    if not program.model.num_solutions:
        return MilpResult(start, status, bound)
    return MilpResult(program.decode()[program.nets.label], status, bound)


@dataclass(frozen=True, slots=True, eq=False)
class PartResult:
    """What the solver found for some of the devices."""

    #: ``[class]``: devices of all classes, changed or not.
    where: NDArray[np.int64]
    #: As in ``MilpResult``.
    status: str


def solve_part(
    workload: Workload,
    nets: Nets,
    where: NDArray[np.int64],
    objective: Throughput,
    devices: Sequence[int],
    *,
    time_limit_seconds: float = float("inf"),
    max_nodes: int | None = None,
    gap: float = 1e-4,
    seed: int = 0,
) -> PartResult:
    """Share what ``devices`` hold among them anew, the largest of their loads as small as can be.

    ``where``, ``[class]``, is a valid split. The loads of other devices do not depend on which of
    ``devices`` holds a class, and stay as they are; with ``sum_of_maxima`` they count.
    """
    deadline = now() + time_limit_seconds
    inside = np.flatnonzero(np.isin(where, np.array(devices)))
    group = np.full(nets.size, len(inside), np.int64)
    group[inside] = np.arange(len(inside))
    part = nets.merged(group, len(inside) + 1)
    device_of = where[nets.label]
    maxima = _maxima(workload, objective, device_of, devices)
    unit = sum(maxima) or 1.0
    program = Program(workload, objective, unit, seed, part, devices, len(inside))
    if objective.sum_of_maxima:
        others = [each for each in range(workload.devices) if each not in devices]
        rest = _maxima(workload, objective, device_of, others)
        maxima = [max(pair) for pair in zip(maxima, rest)]
        for variable, least in zip(program.largest, rest):
            variable.lb = least / unit
    program.start_from(np.append(where[inside], -1), maxima, device_of)
    status = _run(program, max(0.0, deadline - now()), max_nodes, gap)
    if status == "stuck":
        return PartResult(where, "interrupted")
    if not program.model.num_solutions:
        return PartResult(where, status)
    found = where.copy()
    found[inside] = program.decode()[:-1]
    return PartResult(found, status)


def _run(program: Program, seconds: float, max_nodes: int | None, gap: float) -> str:
    """The status by our names; ``stuck`` if the model cannot be read."""
    program.model.max_mip_gap = gap
    try:
        return status_name(optimize(program.model, seconds, max_nodes=max_nodes, keep_best=True))
    except KeyboardInterrupt:
        return "stuck"


def _maxima(
    workload: Workload,
    objective: Throughput,
    device_of: NDArray[np.int64],
    devices: Sequence[int],
) -> list[float]:
    """The largest load of ``devices`` in each phase of the objective."""
    report = evaluate(workload, device_of, overlap=objective.overlap)
    loads = [report.devices[device] for device in devices]
    if not objective.sum_of_maxima:
        return [max((load.seconds for load in loads), default=0.0)]
    return [
        max((load.forward_seconds for load in loads), default=0.0),
        max((load.backward_seconds for load in loads), default=0.0),
    ]


def _unit(workload: Workload, objective: Throughput, start: NDArray[np.int64] | None) -> float:
    if start is not None:
        value, _ = objective.seconds(workload, Split(start))
    else:
        seconds = np.min([kind.seconds for kind in workload.classes], axis=0)
        value = float(seconds[np.isfinite(seconds)].sum()) / workload.devices
    return value if value > 0 else 1.0
