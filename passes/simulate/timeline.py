"""Timelines as data: what runs where and when in one step of a placed module, and memory over time.

``run_module`` simulates a module and gives the times of its operations (for ``schedule`` and the
report); ``simulate_module`` gives the timeline alone. Both read any form from *Placed* on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.location import Location
from baechi_jax.passes.placement.from_module import ModuleProblem, from_module, placed_devices
from baechi_jax.passes.simulate.simulator import Simulation, simulate


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A task on a device, or a transfer between two.

    ``source`` is the device of a task, and where a transfer comes from; ``target`` is where it goes
    (equal to ``source`` for a task). ``nbytes`` is what a transfer moves; for a task, its results.
    """

    kind: Literal["task", "transfer"]
    name: str
    start_seconds: float
    end_seconds: float
    source: int
    target: int
    nbytes: int
    location: Location


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step. Events in order of their starts."""

    events: tuple[TimelineEvent, ...]
    device_names: tuple[str, ...]
    #: ``(seconds, bytes from then on)`` for each device, in order; the last entry of an instant
    #: holds, the earlier ones show what was in use in between.
    memory_steps: tuple[tuple[tuple[float, int], ...], ...]
    peak_bytes: tuple[int, ...]
    limit_bytes: tuple[int, ...]
    busy_seconds: tuple[float, ...]
    makespan_seconds: float


@dataclass(frozen=True, slots=True)
class ModuleRun:
    """A simulated module.

    ``times``: start and end, in seconds, of each task, and of each send and receive where there are
    any (both ends of a transfer share its times).
    """

    source: ModuleProblem
    assignment: tuple[int, ...]
    simulation: Simulation
    times: dict[Operation, tuple[float, float]]

    def timeline(self) -> Timeline:
        """The timeline."""
        return _timeline(self)


def simulate_module(module: Module) -> Timeline:
    """The timeline of ``module``; see ``run_module``."""
    return run_module(module).timeline()


def run_module(module: Module, *, in_order: bool | None = None) -> ModuleRun:
    """Simulate one step of ``module``, whose tasks and arguments have ``baechi.devices``.

    ``in_order``: devices run their tasks and wires their transfers exactly in the order of
    ``@main``; otherwise whatever is ready and comes first there. By default in order as soon as
    there are sends. Raises PassError when a task or argument has no device,
    PlacementProblemError when the order contradicts the data flow.
    """
    source = from_module(module)
    problem = source.problem
    assignment = placed_devices(module, source)
    sends = source.sends
    if in_order is None:
        in_order = bool(sends)
    simulation = simulate(
        problem,
        assignment,
        [source.node_of_task(index) for index in range(len(source.tasks))] if in_order else None,
        transfer_order=[(send.tensor, send.target) for send in sends] if in_order else None,
        memory_steps=True,
    )
    times: dict[Operation, tuple[float, float]] = {}
    for index, task in enumerate(source.tasks):
        node = source.node_of_task(index)
        times[task] = (simulation.start_seconds[node], simulation.end_seconds[node])
    moved = {(move.tensor, move.target): move for move in simulation.transfers}
    for send in sends:
        move = moved.get((send.tensor, send.target))
        if move is None:
            # A copy that no task reads; it holds up nobody.
            node = problem.lists.producer[send.tensor]
            start = simulation.end_seconds[node]
            nbytes = problem.lists.tensor_bytes[send.tensor]
            seconds = problem.machine.transfer_seconds(assignment[node], send.target, nbytes)
            times[send.op] = (start, start + seconds)
        else:
            times[send.op] = (move.start_seconds, move.end_seconds)
        for receive in send.op.result.users:
            times[receive] = times[send.op]
    return ModuleRun(source, tuple(assignment), simulation, times)


def _timeline(run: ModuleRun) -> Timeline:
    source, simulation = run.source, run.simulation
    problem = source.problem
    lists = problem.lists
    events: list[TimelineEvent] = []
    for index, task in enumerate(source.tasks):
        node = source.node_of_task(index)
        device = run.assignment[node]
        events.append(
            TimelineEvent(
                "task",
                problem.node_names[node],
                simulation.start_seconds[node],
                simulation.end_seconds[node],
                device,
                device,
                sum(lists.tensor_bytes[tensor] for tensor in lists.gives[node]),
                task.location,
            )
        )
    for move in simulation.transfers:
        node = lists.producer[move.tensor]
        number = node - source.arguments
        events.append(
            TimelineEvent(
                "transfer",
                problem.node_names[node],
                move.start_seconds,
                move.end_seconds,
                move.source,
                move.target,
                lists.tensor_bytes[move.tensor],
                source.tasks[number].location if number >= 0 else Location(),
            )
        )
    events.sort(key=lambda event: event.start_seconds)
    return Timeline(
        events=tuple(events),
        device_names=problem.machine.names,
        memory_steps=tuple(map(tuple, simulation.memory_steps)),
        peak_bytes=tuple(simulation.peak_bytes),
        limit_bytes=tuple(lists.limit_bytes),
        busy_seconds=tuple(simulation.busy_seconds),
        makespan_seconds=simulation.makespan_seconds,
    )
