"""From a traced function to a plan: the pipeline, and what is tried again when memory does not fit.

A placer judges memory by the simulator; ``plan-memory`` has the last word. Where it finds a peak
above the limit, the placement is made again with the limits scaled down, so that the placer leaves
the room that was missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import BaechiError, PassError
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.ir.pieces import argument_pieces, leaves
from baechi_jax.ir.topology import Topology
from baechi_jax.limits_that_fit import with_limits_that_fit
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.memory_measured import (
    NOTE,
    MeasuredMemory,
    margin_of,
    set_known,
    with_margin,
)
from baechi_jax.passes.pass_manager import PassManager, PassTiming
from baechi_jax.passes.pipeline import NAMED_PIPELINES, parse_pipeline, print_pipeline
from baechi_jax.passes.place import Place
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, Shortfall
from baechi_jax.passes.placement.infeasible import limits_text
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.plan_figures import device_memory, step_seconds, used_devices
from baechi_jax.passes.registry import Pass
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.passes.use_measured_costs import with_measured_costs
from baechi_jax.placed_state import Layers, PinArguments, device_of_layers, placed_layers
from baechi_jax.stack_forms import plan_stacks

_log = logging.getLogger(__name__)

#: How often a placement is made again with smaller limits, and how far they may shrink at once.
ATTEMPTS = 5
_SMALLEST_STEP, _LARGEST_STEP = 0.97, 0.6

#: The passes that decide on devices; everything after them follows from the decision.
PLACING_PASSES = ("place", "refine-placement")


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """How to plan: ``pipeline`` is a pipeline's text; ``dump_folder`` gets the IR after each pass;
    ``verify_each`` checks the IR after each pass (the plan itself is always verified);
    ``progress``, whether what takes long shows a bar, by default when a terminal is attached."""

    pipeline: str = "default"
    dump_folder: Path | None = None
    verify_each: bool = False
    progress: bool | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before planning. Of memory: ``measured``, of tasks that were compiled;
    ``margin``, bytes to keep free on each device. Of time: ``costs``, what was measured."""

    measured: MeasuredMemory = field(default_factory=MeasuredMemory)
    margin: tuple[int, ...] = ()
    costs: MeasuredCosts | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned module, and how long each pass took."""

    module: Module
    timings: tuple[PassTiming, ...]


def pipeline_text(placer: str) -> str:
    """The default pipeline with ``placer``."""
    return f"default{{placer={placer}}}"


def plan_module(
    make_module: Callable[[], Module],
    topology: Topology,
    options: PlannerOptions,
    extra: Sequence[Pass] = (),
    known: Known | None = None,
    *,
    advise: bool = True,
) -> Planned:
    """Plan a module for ``topology``; ``make_module`` gives a fresh traced one for each attempt.

    ``extra`` passes run right before ``colocate`` (or, without it, before placing). ``known``: what
    to plan memory with. Stacks of layers are whole or in even pieces where that costs nothing
    (``stack_forms.py``). Raises InfeasiblePlacementError when nothing fits, and what a pass raises.
    ``advise``: the error names limits with which planning succeeds (``limits_that_fit.py``), found
    by planning a few times more; else limits that a placement keeps in simulation.
    """
    known = known or Known()
    latest: Planned | None = None

    def attempt(pipeline: str) -> Planned:
        nonlocal latest
        latest = None
        by = replace(options, pipeline=pipeline)
        latest = _within_limits(make_module, topology, by, extra, known)
        return latest

    pinned = [
        layers for each in extra if isinstance(each, PinArguments) for _, layers in each.leaves
    ]

    def plans(machine: Topology) -> bool:
        try:
            _within_limits(make_module, machine, replace(options, dump_folder=None), extra, known)
        except BaechiError:
            return False
        return True

    try:
        planned = plan_stacks(attempt, options.pipeline, topology.size, pinned)
    except InfeasiblePlacementError as error:
        if not advise:
            raise
        _log.info("nothing fits; planning with larger limits, to name some that do")
        raise with_limits_that_fit(error, topology, plans, options.progress) from error.__cause__
    if options.dump_folder is not None and planned is not latest:
        # The dump is of the plan that counts.
        return attempt(str(planned.module.attributes["baechi.pipeline"]))
    return planned


def _within_limits(
    make_module: Callable[[], Module],
    topology: Topology,
    options: PlannerOptions,
    extra: Sequence[Pass],
    known: Known,
) -> Planned:
    timed = _timed(topology, known)

    def prepared() -> Module:
        return _prepared(make_module(), topology, options, known)

    scale = 1.0
    for attempt in range(ATTEMPTS + 1):
        passes = _with_scale(_passes(options, extra, known), scale)
        try:
            planned = _run(prepared, passes, options)
            return _on(timed, _alone_if_shorter(planned, prepared, passes, options))
        except MemoryLimitError as error:
            if attempt == ATTEMPTS or not any(hasattr(p, "memory_scale") for p in passes):
                raise _infeasible(error) from error
            fraction = error.limit_bytes / max(error.peak_bytes, 1)
            scale *= min(max(fraction, _LARGEST_STEP), _SMALLEST_STEP)
            _log.info(
                "the plan needs %d bytes on device %d, its limit is %d: placing again with limits "
                "scaled by %.2f",
                error.peak_bytes,
                error.device,
                error.limit_bytes,
                scale,
            )
            last = error
        except InfeasiblePlacementError as error:
            if attempt == 0:
                raise
            # The true limits were met by the placer but not by the plan, the smaller ones by none.
            raise _infeasible(last) from error
    raise AssertionError("unreachable")


def _alone_if_shorter(
    planned: Planned,
    prepared: Callable[[], Module],
    passes: Sequence[Pass],
    options: PlannerOptions,
) -> Planned:
    """The plan of the best single device, where ``auto`` spread the step and that gains nothing.

    A placer judges tasks before neighbours are merged, each with a launch of its own; one device
    needs a single launch. It is planned only where the launches saved could decide.
    """
    place = next((each for each in passes if isinstance(each, Place)), None)
    if place is None or place.placer != "auto" or len(used_devices(planned.module)) < 2:
        return planned
    device, seconds = _best_single(planned.module)
    topology = planned.module.attributes["baechi.topology"]
    decisions = planned.module.attributes.get("baechi.decisions")
    if device < 0 or not isinstance(topology, Topology) or not isinstance(decisions, DictAttr):
        return planned
    launches = (len(decisions) - 1) * topology.devices[device].launch_seconds
    if seconds - launches > step_seconds(planned.module):
        return planned
    alone: list[Pass] = []
    for each in passes:
        if isinstance(each, Place):
            alone.append(replace(each, placer=f"single:{device}"))
        elif each.name not in PLACING_PASSES:
            alone.append(each)
    try:
        single = _run(prepared, alone, replace(options, dump_folder=None))
    except (MemoryLimitError, InfeasiblePlacementError):
        return planned
    if step_seconds(single.module) > step_seconds(planned.module):
        return planned
    return single if options.dump_folder is None else _run(prepared, alone, options)


def _best_single(module: Module) -> tuple[int, float]:
    """The device that can do the whole step soonest, and its seconds before tasks were merged;
    -1 where none can."""
    record = module.attributes.get("baechi.placement")
    candidates = record.get("candidates") if isinstance(record, DictAttr) else None
    best = (-1, float("inf"))
    for each in candidates if isinstance(candidates, tuple) else ():
        assert isinstance(each, DictAttr)
        placer, seconds = str(each["placer"]), each["makespan_seconds"]
        if placer.startswith("single:") and each["fits"] is True and isinstance(seconds, float):
            best = min(best, (int(placer.removeprefix("single:")), seconds), key=lambda b: b[1])
    return best


def apply_decisions(
    make_module: Callable[[], Module],
    plan: Module,
    topology: Topology,
    options: PlannerOptions,
    known: Known | None = None,
) -> Planned:
    """The plan for a fresh trace that repeats the decisions of ``plan``.

    Costs, order, memory and checks are computed anew; ``known`` is by default what ``plan`` knows.
    Raises PassError when the fresh trace has other tasks than ``plan`` decided on,
    InfeasiblePlacementError when it does not fit (any more).
    """

    known = known or Known(MeasuredMemory.of(plan), margin_of(plan), MeasuredCosts.of(plan))
    timed = _timed(topology, known)

    def prepared() -> Module:
        module = _prepared(make_module(), topology, options, known)
        for key in ("baechi.placement", NOTE):
            if key in plan.attributes:
                module.attributes[key] = plan.attributes[key]
        return module

    decisions = decisions_of(plan)
    passes: list[Pass] = []
    for each in _passes(options, (), known):
        if each.name not in PLACING_PASSES:
            passes.append(each)
        elif each.name == PLACING_PASSES[0]:
            passes.append(decisions)
    try:
        return _on(timed, _run(prepared, passes, options))
    except MemoryLimitError as error:
        raise _infeasible(error, "the placement of the plan does not fit") from error


def decisions_of(plan: Module) -> ApplyDecisions:
    """The decisions of a plan; raises PassError when it holds none."""
    decisions = plan.attributes.get("baechi.decisions")
    placed = placed_layers(plan.main)
    if not isinstance(decisions, DictAttr) or not all(
        isinstance(device, int) for device in decisions.values()
    ):
        raise PassError("the plan holds no decisions (baechi.decisions)")
    chosen = tuple(device for device in decisions.values() if isinstance(device, int))
    return ApplyDecisions(tuple(decisions), chosen, placed)


# Passes of the planner --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordDecisions(Pass):
    """Keep each fused task's device on the module, before tasks are merged.

    ``baechi.decisions = {t0 = 1 : i64, ...}``, in the order of the tasks: what a saved plan says.
    """

    name: ClassVar[str] = "record-decisions"
    summary: ClassVar[str] = "keep each task's device, before tasks are merged"

    def run(self, module: Module) -> None:
        """Write ``baechi.decisions``."""
        decisions: dict[str, Any] = {}
        for task in tasks_of(module.main):
            devices = task.attributes.get("baechi.devices")
            assert isinstance(devices, tuple)
            decisions[str(task.attributes["sym_name"])] = devices[0]
        module.attributes["baechi.decisions"] = DictAttr.of(decisions)


@dataclass(frozen=True, slots=True)
class ApplyDecisions(Pass):
    """Place as a saved plan did: task ``tasks[i]`` on ``devices[i]``, in that order.

    ``arguments[i]`` says where the layers of argument ``i`` lie, closed-over constants counted, in
    the pieces of the finished plan: those at hand may be smaller.
    """

    name: ClassVar[str] = "apply-decisions"
    summary: ClassVar[str] = "place as a saved plan did"

    tasks: tuple[str, ...]
    devices: tuple[int, ...]
    arguments: tuple[Layers, ...]

    def run(self, module: Module) -> None:
        """Set ``baechi.devices`` and the order of the tasks, and record both again."""
        func = module.main
        found = {str(task.attributes["sym_name"]): task for task in tasks_of(func)}
        odd = sorted(found.keys() ^ set(self.tasks))
        if odd:
            raise PassError(
                f"the plan decides on {len(self.tasks)} tasks, this trace has {len(found)} (first "
                f"difference: '{odd[0]}'); the plan was made by another release: plan again"
            )
        entries = argument_attributes(func)
        pieces = argument_pieces(func)
        ranges = leaves(pieces)
        if len(ranges) != len(self.arguments):
            raise PassError(
                f"the plan places {len(self.arguments)} arguments, this trace has {len(ranges)}"
            )
        for name, device in zip(self.tasks, self.devices, strict=True):
            found[name].attributes["baechi.devices"] = (device,)
        for layers, members in zip(self.arguments, ranges, strict=True):
            for index in members:
                place = device_of_layers(layers, pieces[index])
                if place is None:
                    raise PassError(
                        f"the plan has argument {entries[index].get('baechi.name', index)} on "
                        "several devices; it was made by another release: plan again"
                    )
                entries[index]["baechi.devices"] = (place,)
        set_argument_attributes(func, entries)
        func.body.set_ops([*(found[name] for name in self.tasks), func.body.terminator])
        decided = dict(zip(self.tasks, self.devices, strict=True))
        module.attributes["baechi.decisions"] = DictAttr.of(decided)


# Helpers -----------------------------------------------------------------------------------------


def _prepared(module: Module, topology: Topology, options: PlannerOptions, known: Known) -> Module:
    if known.costs is not None:
        known.costs.attach(module, topology)
    module.attributes["baechi.topology"] = with_margin(_timed(topology, known), known.margin)
    set_known(module, known.measured, known.margin)
    module.attributes["baechi.pipeline"] = print_pipeline(parse_pipeline(options.pipeline))
    return module


def _timed(topology: Topology, known: Known) -> Topology:
    """``topology`` with the launches and links that were measured."""
    return topology if known.costs is None else known.costs.topology(topology)


def _on(topology: Topology, planned: Planned) -> Planned:
    """The plan for ``topology`` itself, made with a margin perhaps."""
    memory = device_memory(planned.module)
    planned.module.attributes["baechi.topology"] = topology
    if memory:
        planned.module.main.attributes["baechi.memory"] = tuple(
            replace(each, limit_bytes=device.usable_bytes)
            for each, device in zip(memory, topology.devices, strict=True)
        )
    return planned


def _passes(options: PlannerOptions, extra: Sequence[Pass], known: Known) -> list[Pass]:
    passes: list[Pass] = []
    waiting = list(extra)
    given = parse_pipeline(options.pipeline)
    last = max((i for i, each in enumerate(given) if each.name in PLACING_PASSES), default=-1)
    for index, each in enumerate(given):
        if each.name in ("colocate", *PLACING_PASSES):
            passes += waiting
            waiting = []
        passes.append(each)
        if index == last:
            passes.append(RecordDecisions())
    return passes if known.costs is None else with_measured_costs(passes)


def _with_scale(passes: Sequence[Pass], scale: float) -> list[Pass]:
    if scale == 1.0:
        return list(passes)
    return [
        replace(each, memory_scale=each.memory_scale * scale)  # type: ignore[type-var]
        if hasattr(each, "memory_scale")
        else each
        for each in passes
    ]


def _run(
    make_module: Callable[[], Module], passes: Sequence[Pass], options: PlannerOptions
) -> Planned:
    manager = PassManager(passes, verify_each=options.verify_each, dump_folder=options.dump_folder)
    module = make_module()
    manager.run(module, make_module)
    return Planned(module, tuple(manager.timings))


def _infeasible(
    error: MemoryLimitError, what: str = "no placement within the memory limits was found"
) -> InfeasiblePlacementError:
    table = error.peak
    if table is None:
        return InfeasiblePlacementError(f"{what}: {error}")
    shortfall = Shortfall(table.device, table.name, table.peak_bytes, table.limit_bytes)
    limits = limits_text(error.needed_bytes, "this placement fits then")
    return InfeasiblePlacementError(
        f"{what}. The last one tried fits in the simulation, but not with its copies, waits and "
        f"merged tasks: {table.headline}. The largest buffers there then, with their share of the "
        "peak:",
        (shortfall,),
        peak=table,
        remedies=(
            limits,
            "a device more",
            "donate arguments (donate_argnums)",
            "a smaller batch, where activations are what fills the devices",
        ),
        needed_bytes=error.needed_bytes,
    )


def pipeline_names() -> tuple[str, ...]:
    """The names that a pipeline's text may use for whole pipelines."""
    return tuple(NAMED_PIPELINES)
