"""What it would cost to have something elsewhere: moved there, planned and simulated again.

All that must share its device moves with it; everything else stays where the plan has it. The
passes that follow placement in the plan's own pipeline then run as they did for the plan, so the
figures compare with the plan's. They are those of one changed decision: a placer that had to keep
it might arrange the rest better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from baechi_jax.explain.view import PlacedView
from baechi_jax.ir.core import Module, Operation
from baechi_jax.passes.memory_measured import margin_of, with_margin
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.place import Place, write_placement
from baechi_jax.passes.placement.from_module import from_module
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.plan_figures import peak_bytes, step_seconds
from baechi_jax.passes.plan_memory import PlanMemory
from baechi_jax.passes.refine_placement import RefinePlacement
from baechi_jax.passes.registry import Pass
from baechi_jax.passes.simulate.judge import ALL_RULES, judge
from baechi_jax.passes.simulate.timeline import run_module
from baechi_jax.passes.tasks import device_of, topology_of
from baechi_jax.passes.use_measured_costs import with_measured_costs
from baechi_jax.report.memory import memory_steps

if TYPE_CHECKING:
    from baechi_jax.passes.simulate.simulator import Simulation


@dataclass(frozen=True, slots=True)
class Overflow:
    """The device that is furthest above its limit, by how much, and when it holds most.

    ``task`` is what runs there at that moment, ``name`` and source line; empty for none.
    """

    device: int
    peak_bytes: int
    limit_bytes: int
    seconds: float
    task: str

    @property
    def missing_bytes(self) -> int:
        """Bytes by which the limit is passed."""
        return self.peak_bytes - self.limit_bytes


@dataclass(frozen=True, slots=True)
class Move:
    """The plan with the subject on ``device``.

    ``start_seconds``: when the first of its tasks starts, before tasks are merged; None for
    arguments that move without a task. ``peak_bytes``: of every device. ``chosen``: this is the
    plan. ``pinned``: a pin forbids it.
    """

    device: int
    step_seconds: float
    start_seconds: float | None
    peak_bytes: tuple[int, ...]
    overflow: Overflow | None
    chosen: bool = False
    pinned: bool = False

    @property
    def fits(self) -> bool:
        """Whether every device is within its limit."""
        return self.overflow is None


def moves(view: PlacedView, nodes: Sequence[int]) -> Iterator[Move]:
    """The plan itself, then every other device in order, one simulated plan each.

    ``nodes`` lie on one device. Raises IRError when the plan is not scheduled or its memory is not
    planned.
    """
    problem = view.problem
    groups = sorted({int(problem.group[node]) for node in nodes})
    moved = [node for group in groups for node in problem.members[group]]
    tasks = [node for node in moved if node >= view.source.arguments]
    pins = {int(problem.pinned[group]) for group in groups} - {-1}
    (here,) = {view.assignment[node] for node in nodes}
    played = judge(problem, view.assignment, ALL_RULES)
    yield Move(
        here,
        step_seconds(view.plan),
        _start(played, tasks),
        peak_bytes(view.plan),
        None,
        chosen=True,
    )
    for device in range(problem.devices):
        if device == here:
            continue
        assignment = list(view.assignment)
        for node in moved:
            assignment[node] = device
        simulation = judge(problem, assignment, ALL_RULES)
        module, overflow = _planned(view, assignment, simulation)
        yield Move(
            device,
            step_seconds(module),
            _start(simulation, tasks),
            peak_bytes(module),
            overflow,
            pinned=bool(pins - {device}),
        )


def _planned(
    view: PlacedView, assignment: Sequence[int], simulation: Simulation
) -> tuple[Module, Overflow | None]:
    """The plan with another assignment; where memory runs out, and how far."""
    module = view.module.clone()
    topology = topology_of(module)
    limits = with_margin(topology, margin_of(module))
    module.attributes["baechi.topology"] = limits
    write_placement(module, from_module(module), assignment, simulation)
    try:
        PassManager(_follow_up(view.plan), verify_each=False).run(module)
    except MemoryLimitError as error:
        needed = error.needed_bytes or (error.peak_bytes,) * limits.size
        roomy = replace(
            limits,
            devices=tuple(
                replace(device, memory_bytes=max(device.memory_bytes, more + device.reserved_bytes))
                for device, more in zip(limits.devices, needed, strict=True)
            ),
        )
        module.attributes["baechi.topology"] = roomy
        PlanMemory().run(module)
        limit = [device.usable_bytes for device in limits.devices]
        return module, _overflow(module, limit)
    return module, None


def _follow_up(plan: Module) -> list[Pass]:
    """The passes of the plan's pipeline after its placement, up to its memory."""
    passes = parse_pipeline(str(plan.attributes.get("baechi.pipeline", "")))
    placing = (Place.name, RefinePlacement.name)
    last = max((i for i, each in enumerate(passes) if each.name in placing), default=-1)
    end = next((i for i, each in enumerate(passes) if each.name == PlanMemory.name), len(passes))
    # As the planner does; nothing happens where nothing was measured.
    return with_measured_costs(passes[last + 1 : end + 1])


def _overflow(module: Module, limits: Sequence[int]) -> Overflow | None:
    peaks = peak_bytes(module)
    device = max(range(len(peaks)), key=lambda d: (peaks[d] - limits[d], -d))
    times = run_module(module).times
    steps = memory_steps(module.main, times, len(peaks))[device]
    most = max(held for _, held in steps)
    seconds = next(at for at, held in steps if held == most)
    running = [
        task
        for task, (start, end) in times.items()
        if task.name == "baechi.task" and device_of(task) == device and start <= seconds <= end
    ]
    # Of a task that ends at that moment and one that starts, the one that starts takes.
    task = max(running, key=lambda each: times[each][0], default=None)
    return Overflow(device, peaks[device], limits[device], seconds, _label(task))


def _label(task: Operation | None) -> str:
    if task is None:
        return ""
    location = task.location
    file = location.file.replace("\\", "/").rpartition("/")[2]
    return f"{task.attributes['sym_name']}" + (f" ({file}:{location.line})" if file else "")


def _start(simulation: Simulation, tasks: Sequence[int]) -> float | None:
    return min((simulation.start_seconds[node] for node in tasks), default=None)
