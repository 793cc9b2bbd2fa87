"""What lives on a device when its simulated peak is reached, buffer by buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from baechi_jax.passes.peak_table import LiveBuffer, PeakTable

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate.simulator import Simulation


@dataclass(frozen=True, slots=True)
class Live:
    """``tensor`` is -1 for the temporaries of ``node``; else ``node`` is what it belongs to on this
    device: its producer, or, for a copy, its last reader."""

    nbytes: int
    node: int
    tensor: int
    copy: bool = False


def live_at_peak(
    problem: PlacementProblem, assignment: tuple[int, ...], simulation: Simulation, device: int
) -> list[Live]:
    """All buffers on ``device`` when its peak is first reached; they add up to it.

    Of a buffer that changes hands while a node runs, the node's result counts.
    """
    lists = problem.lists
    start, end = simulation.start_seconds, simulation.end_seconds
    at = simulation.peak_seconds[device]
    found: list[Live] = []
    sent: dict[int, float] = {}
    for move in simulation.transfers:
        if move.source == device:
            sent[move.tensor] = max(sent.get(move.tensor, 0.0), move.end_seconds)
        elif move.target == device and move.start_seconds <= at:
            readers = [each for each in lists.readers[move.tensor] if assignment[each] == device]
            last = max(readers, key=lambda each: (end[each], each))
            if at < end[last]:
                found.append(Live(lists.tensor_bytes[move.tensor], last, move.tensor, copy=True))
    for node, where in enumerate(assignment):
        if where != device or start[node] > at:
            continue
        if at < end[node]:
            found.append(Live(lists.temporary_bytes[node], node, -1))
        for tensor in lists.gives[node]:
            if not lists.persistent[tensor]:
                until = max(end[node], sent.get(tensor, 0.0))
                for reader in lists.readers[tensor]:
                    if assignment[reader] == device and end[reader] > until:
                        until = end[reader]
                if at >= until and not (lists.is_argument[node] and not lists.readers[tensor]):
                    continue
            found.append(Live(lists.tensor_bytes[tensor], node, tensor))
    taken = _taken_over(problem, assignment, simulation, device, sent)
    return [each for each in found if each.copy or each.tensor not in taken]


def _taken_over(
    problem: PlacementProblem,
    assignment: tuple[int, ...],
    simulation: Simulation,
    device: int,
    sent: dict[int, float],
) -> set[int]:
    """The tensors whose buffers on ``device`` belong to their next values at its peak."""
    lists = problem.lists
    start, end = simulation.start_seconds, simulation.end_seconds
    at = simulation.peak_seconds[device]
    taken: set[int] = set()
    nodes = [
        node
        for node, aliases in enumerate(lists.aliases)
        if aliases and assignment[node] == device and start[node] <= at
    ]
    for node in sorted(nodes, key=lambda each: (start[each], each)):
        for old, _ in lists.aliases[node]:
            readers = lists.readers[old]
            others = [end[each] for each in readers if each != node and assignment[each] == device]
            if (
                old not in taken
                and not lists.persistent[old]
                and assignment[lists.producer[old]] == device
                and node in readers
                and max([*others, sent.get(old, 0.0)]) <= start[node]
            ):
                taken.add(old)
    return taken


def live_bytes(
    problem: PlacementProblem, assignment: tuple[int, ...], simulation: Simulation, device: int
) -> dict[int, int]:
    """Bytes of each group on ``device`` when its peak is first reached.

    A copy counts for the group on the device that reads it last.
    """
    live: dict[int, int] = {}
    for each in live_at_peak(problem, assignment, simulation, device):
        group = problem.lists.group[each.node]
        live[group] = live.get(group, 0) + each.nbytes
    return dict(sorted(live.items()))


def peak_table(
    problem: PlacementProblem, assignment: tuple[int, ...], simulation: Simulation, device: int
) -> PeakTable:
    """The table of what lives on ``device`` at its peak."""
    buffers: list[LiveBuffer] = []
    for each in live_at_peak(problem, assignment, simulation, device):
        if each.tensor < 0:
            what = f"temporaries of '{problem.node_names[each.node]}'"
            source = problem.node_sources[each.node]
        else:
            what, source = problem.describe_tensor(each.tensor)
        buffers.append(LiveBuffer(each.nbytes, f"copy of {what}" if each.copy else what, source))
    return PeakTable.of(
        device,
        problem.machine.names[device],
        simulation.peak_bytes[device],
        problem.lists.limit_bytes[device],
        _when(problem, assignment, simulation, device),
        buffers,
    )


def _when(
    problem: PlacementProblem, assignment: tuple[int, ...], simulation: Simulation, device: int
) -> str:
    at = simulation.peak_seconds[device]
    running = [
        node
        for node, where in enumerate(assignment)
        if where == device
        and not problem.lists.is_argument[node]
        and simulation.start_seconds[node] <= at < simulation.end_seconds[node]
    ]
    return when(problem, running[0]) if running else "at the start of the step"


def when(problem: PlacementProblem, node: int) -> str:
    """``while 't3' at train.py:12 runs``, to continue a sentence."""
    if problem.lists.is_argument[node]:
        return "at the start of the step"
    source = problem.node_sources[node]
    return f"while '{problem.node_names[node]}'" + (f" at {source}" if source else "") + " runs"
