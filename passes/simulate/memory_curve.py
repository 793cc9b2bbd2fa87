"""Bytes in use over a step whose times are known: the memory walk of a finished simulation.

The rules are those of ``simulator.py``, applied to starts and ends alone, so it serves as a check
of what counts memory while it runs, too. What ends at an instant is freed before what starts then
is taken; what both starts and ends at one instant is taken before it is freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Peaks, when each is first reached, and the steps of every device, ``[d]``."""

    peak_bytes: list[int]
    peak_times: list[float]
    #: ``(time, bytes from then on)``.
    steps: list[list[tuple[float, int]]]


def memory_curve(
    problem: PlacementProblem,
    assignment: Sequence[int],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    moves: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
    *,
    steps: bool = False,
) -> MemoryCurve:
    """Walk over a step.

    ``start``, ``end``: of each node, ``[n]``, arguments at zero. ``moves``: tensor, target, start
    and end of each transfer. ``steps``: give the steps too.
    """
    flat, producer = problem.flat, problem.producer
    device = np.asarray(assignment, dtype=np.int64)
    nbytes = problem.tensor_bytes
    tensor_of = np.repeat(np.arange(problem.tensors), np.diff(flat.reader_starts))
    readers = flat.readers
    home = device[producer]
    local = device[readers] == home[tensor_of]
    # On the producer's device.
    born = start[producer]
    last = end[producer].copy()
    np.maximum.at(last, tensor_of[local], end[readers[local]])
    moved, target, move_start, move_end = moves
    np.maximum.at(last, moved, move_end)
    unread = problem.is_argument[producer] & (np.diff(flat.reader_starts) == 0)
    last[problem.persistent | unread] = np.inf
    _take_over(problem, device, home, start, end, last, moves)
    # Copies: to the end of the last reader there.
    column = np.full((problem.tensors, problem.devices), -1, dtype=np.int64)
    column[moved, target] = np.arange(len(moved))
    copy_last = move_end.copy()
    away = ~local
    np.maximum.at(copy_last, column[tensor_of[away], device[readers[away]]], end[readers[away]])
    task = np.flatnonzero(problem.temporary_bytes > 0)
    where = np.concatenate((home, target, device[task]))
    size = np.concatenate((nbytes, nbytes[moved], problem.temporary_bytes[task]))
    since = np.concatenate((born, move_start, start[task]))
    until = np.concatenate((last, copy_last, end[task]))
    return _walk(problem.devices, where, size, since, until, steps)


def _take_over(
    problem: PlacementProblem,
    device: NDArray[np.int64],
    home: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    last: NDArray[np.float64],
    moves: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
) -> None:
    """End the buffers that a donated argument's next value takes over when that one starts."""
    flat = problem.flat
    taken: set[int] = set()
    aliased = np.flatnonzero(problem.alias >= 0)
    for tensor in sorted(aliased.tolist(), key=lambda each: float(start[problem.producer[each]])):
        old = int(problem.alias[tensor])
        node = int(problem.producer[tensor])
        if old in taken or problem.persistent[old] or home[old] != home[tensor]:
            continue
        readers = flat.readers[flat.reader_starts[old] : flat.reader_starts[old + 1]].tolist()
        if node not in readers:
            continue
        others = [
            float(end[each]) for each in readers if each != node and device[each] == home[old]
        ]
        others += moves[3][moves[0] == old].tolist()
        if all(time <= start[node] for time in others):
            taken.add(old)
            last[old] = start[node]


def _walk(
    devices: int,
    where: NDArray[np.int64],
    size: NDArray[np.int64],
    since: NDArray[np.float64],
    until: NDArray[np.float64],
    steps: bool,
) -> MemoryCurve:
    ends = np.isfinite(until)
    where = np.concatenate((where, where[ends]))
    change = np.concatenate((size, -size[ends]))
    time = np.concatenate((since, until[ends]))
    # 0 frees what began earlier, 1 takes, 2 frees what began at this very instant.
    phase = np.concatenate(
        (np.ones(len(size), dtype=np.int64), np.where(since[ends] == until[ends], 2, 0))
    )
    peaks: list[int] = []
    times: list[float] = []
    curves: list[list[tuple[float, int]]] = []
    for device in range(devices):
        own = np.flatnonzero(where == device)
        own = own[np.lexsort((phase[own], time[own]))]
        total = np.cumsum(change[own])
        at = int(total.argmax()) if len(total) else -1
        peaks.append(max(0, int(total[at])) if at >= 0 else 0)
        times.append(float(time[own[at]]) if at >= 0 else 0.0)
        curves.append(list(zip(time[own].tolist(), total.tolist())) if steps else [])
    return MemoryCurve(peaks, times, curves)
