"""``milp-latency``: the latency of one sample by a mixed-integer program, with its proven bound.

The program itself is in ``latency/program.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interruptible import optimize, status_name
from baechi_jax.passes.placement.latency.judge import latency_seconds
from baechi_jax.passes.placement.latency.program import LatencyProgram
from baechi_jax.passes.placement.latency.timeline import Timeline

if TYPE_CHECKING:
    import mip
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class LatencyMilpResult:
    """What the solver found."""

    #: ``piece_of[node]`` (see ``latency/pieces.py``), or None if it found no split.
    piece_of: NDArray[np.int64] | None
    #: ``optimal``, ``time limit``, ``interrupted`` or ``infeasible``.
    status: str
    #: Lower bound on the latency; infinite if the problem is infeasible.
    bound_seconds: float


def solve_latency_milp(
    workload: Workload,
    *,
    subgraphs: int = 1,
    start: NDArray[np.int64] | None = None,
    bound_seconds: float = 0.0,
    time_limit_seconds: float = 60.0,
    gap: float = 1e-6,
    seed: int = 0,
) -> LatencyMilpResult:
    """Solve the program, from the valid split ``start`` (a ``piece_of``) if there is one.

    ``bound_seconds``: a lower bound that is known. ``gap``: stop when the value is proved to be
    within this share of the optimum. On Ctrl-C, and when the time limit passes, the best split so
    far is returned.
    """
    unit = _most_seconds(workload)
    if start is not None:
        unit = latency_seconds(workload, start, subgraphs=subgraphs)
    unit = unit if unit > 0 else 1.0
    program = LatencyProgram(workload, subgraphs, unit, bound_seconds, seed)
    if start is not None:
        _start_from(program, start)
    program.model.max_mip_gap = gap
    try:
        status = status_name(optimize(program.model, time_limit_seconds, keep_best=True))
    except KeyboardInterrupt:
        return LatencyMilpResult(start, "interrupted", bound_seconds)
    if status == "infeasible":
        return LatencyMilpResult(None, status, float("inf"))
    bound = float(program.model.objective_bound) * unit
    # The solver's tolerance is about one part in a million.
    bound = bound * (1 - 2e-6) if np.isfinite(bound) and bound > 0 else 0.0
    found = _decode(program) if program.model.num_solutions else start
    return LatencyMilpResult(found, status, max(bound, bound_seconds))


def _most_seconds(workload: Workload) -> float:
    """No valid split takes longer: everything one after another, where it is slowest."""
    times = np.array([kind.seconds for kind in workload.classes])
    slowest = np.where(np.isfinite(times), times, 0.0).max(axis=0)
    readers = np.bincount(workload.edges[:, 0], minlength=workload.size)
    return float(slowest.sum() + (workload.transfer_seconds * (readers + 1)).sum())


def _start_from(program: LatencyProgram, piece_of: NDArray[np.int64]) -> None:
    """Give the solver a first solution."""
    workload = program.workload
    line = Timeline.of(workload, piece_of, program.subgraphs)
    level_of = np.full(workload.size, -1)
    for level, piece in enumerate(line.order):
        level_of[piece_of == piece] = level
    home_of = {
        program.pieces.devices[at]: home for home, found in enumerate(program.homes) for at in found
    }
    values: list[tuple[mip.Var, float]] = [(program.latency, line.seconds / program.unit)]
    values += [(var, float(line.ready[v] / program.unit)) for v, var in enumerate(program.ready)]
    for node in range(workload.size):
        for level in range(program.levels):
            values.append((program.before[node][level], float(line.done_before[node] <= level)))
    for node, block in enumerate(program.block.tolist()):
        values += [
            (variable, float(level_of[node] == level))
            for level, variable in enumerate(program.x[block])
            if node == 0 or block not in program.block[:node]
        ]
    homes: list[int] = []
    for level in range(program.levels):
        first, last, home = 0.0, 0.0, -1
        if level < len(line.order):
            first, last = line.start[level], line.finish[level]
            home = home_of[int(line.order[level]) // program.subgraphs]
        homes.append(home)
        values += [
            (program.start[level], first / program.unit),
            (program.finish[level], last / program.unit),
        ]
        values += [(variable, float(at == home)) for at, variable in enumerate(program.w[level])]
    for (source, level), variable in program.into.items():
        pays = level_of[source] != level and level in level_of[program.readers[source]]
        values.append((variable, float(pays)))
    for (source, level), variable in program.out.items():
        pays = level_of[source] == level and (level_of[program.readers[source]] != level).any()
        values.append((variable, float(pays)))
    for (source, target, level), variable in program.cross.items():
        values.append((variable, float((level_of[source] == level) != (level_of[target] == level))))
    total = float(workload.bytes.sum())
    for (level, home), variable in program.held.items():
        held = float(workload.bytes[level_of == level].sum()) / total
        values.append((variable, held if homes[level] == home else 0.0))
    for (colour, home), variable in program.shared.items():
        levels = level_of[program.colour_of == colour]
        values.append((variable, float(levels[0] >= 0 and homes[levels[0]] == home)))
    program.model.start = values


def _decode(program: LatencyProgram) -> NDArray[np.int64]:
    """``piece_of`` of the solver's best solution."""
    piece_of = np.full(program.workload.size, -1, np.int64)
    used = [0] * len(program.homes)
    for level in range(program.levels):
        chosen = [home for home, variable in enumerate(program.w[level]) if variable.x > 0.5]
        if not chosen:
            continue
        (home,) = chosen
        accelerator, number = divmod(used[home], program.subgraphs)
        used[home] += 1
        piece = (
            program.pieces.devices[program.homes[home][accelerator]] * program.subgraphs + number
        )
        members = [block for block, row in enumerate(program.x) if row[level].x > 0.5]
        piece_of[np.isin(program.block, members)] = piece
    return piece_of
