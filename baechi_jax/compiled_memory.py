"""A plan held against what its compiled tasks really take.

Before anything is compiled the memory of a task is predicted. When its tasks are compiled, a plan's
peaks are derived again with the compilers' own figures. Where they pass a limit, the placement is
made again knowing them: first with the sizes of the tasks that were compiled, then, since other
placements make other tasks, with a margin on each device that was passed as well. Where only a host
that runs ahead passes a limit, the placement stays, and waits are put anew. Tasks that are in both
plans are not compiled again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Operation
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.passes.memory_measured import (
    MeasuredMemory,
    add_note,
    margin_of,
    note_of,
    rederive,
    task_memory,
)
from baechi_jax.passes.peak_table import PeakTable
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, Shortfall
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.plan_memory import PlanMemory
from baechi_jax.passes.tasks import device_of
from baechi_jax.plan import Plan
from baechi_jax.planner import Known
from baechi_jax.runtime.compile import CompiledTask
from baechi_jax.runtime.instructions import Program, program_of
from baechi_jax.runtime.memory import compiled_temporaries
from baechi_jax.units import format_bytes

_log = logging.getLogger(__name__)

#: How often a placement is made again with what compiled tasks take.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Fitted:
    """A plan that fits as compiled, its program and its tasks."""

    plan: Plan
    program: Program
    tasks: list[CompiledTask]


def compile_to_fit(
    plan: Plan,
    compile_tasks: Callable[[Program], list[CompiledTask]],
    plan_again: Callable[[Known, Plan | None], Plan],
) -> Fitted:
    """Compile ``plan``, and place again until it fits as compiled.

    ``plan_again`` makes another plan with what is known, with the placement of the plan that it is
    given, if any. The returned plan has its true peaks. Raises InfeasiblePlacementError when no
    plan that fits is found in ``ROUNDS`` more.
    """
    known = MeasuredMemory.of(plan.module)
    # Keeps executables alive that the next plan may need.
    compiled: list[list[CompiledTask]] = []
    for attempt in range(ROUNDS + 1):
        program = program_of(plan.module)
        tasks = compile_tasks(program)
        compiled.append(tasks)
        predicted = plan.memory
        temporaries = compiled_temporaries(tasks)
        worst = _add(known, plan, temporaries)
        memory = rederive(plan.module, temporaries, known)
        over = _over(plan, memory)
        if not over:
            return Fitted(plan, program_of(plan.module), tasks)
        problem = _describe(over, predicted, worst)
        if attempt == ROUNDS:
            raise _exhausted(plan, over, problem)
        margin = margin_of(plan.module) or (0,) * plan.topology.size
        if all(each.peak_bytes <= each.limit_bytes for each in memory):
            try:
                plan = plan_again(Known(known, margin), plan)
            except InfeasiblePlacementError as error:
                _log.info("%s: waits do not help: %s", plan.name, error)
            else:
                _log.info("%s: %s; the host waits more often", plan.name, problem)
                continue
        _log.warning("%s: %s; placing again with the compiled sizes", plan.name, problem)
        if attempt:
            margin = _wider(margin, over)
        plan = _placed_again(plan_again, Known(known, margin), plan, problem)
    raise AssertionError("unreachable")


def _exhausted(plan: Plan, over: tuple[Shortfall, ...], problem: str) -> InfeasiblePlacementError:
    """The error after the last attempt; ``plan`` is of no use any more."""
    peak: PeakTable | None = None
    needed: tuple[int, ...] = ()
    try:
        # Counts its peaks with the compiled sizes.
        PlanMemory().run(plan.module)
    except MemoryLimitError as error:
        peak, needed = error.peak, error.needed_bytes
    table = " The largest buffers there, and their share of the peak:" if peak is not None else ""
    return InfeasiblePlacementError(
        f"no placement that fits as compiled was found in {ROUNDS} more attempts. The last: "
        f"{problem}.{table}",
        over,
        peak=peak,
        remark="Give the devices more memory, or XLA less to keep: a smaller batch, jax.checkpoint",
        needed_bytes=needed,
    )


def _placed_again(
    plan_again: Callable[[Known, Plan | None], Plan], known: Known, before: Plan, problem: str
) -> Plan:
    try:
        try:
            plan = plan_again(known, None)
        except InfeasiblePlacementError:
            if not any(known.margin):
                raise
            # More may be known now than when the margin was taken.
            plan = plan_again(Known(known.measured), None)
    except InfeasiblePlacementError as error:
        raise error.prefixed(
            f"the placement that was found fits by prediction, but not as compiled: {problem}. "
            "With the compiled sizes there is none: "
        ) from error
    if note_of(before.module):
        add_note(plan.module, note_of(before.module))
    add_note(plan.module, f"Placed again with compiled sizes, since {problem}.")
    return plan


def _add(
    known: MeasuredMemory, plan: Plan, temporaries: Mapping[Operation, int]
) -> tuple[int, Operation] | None:
    """Know the tasks of ``plan``; which takes most more than predicted, and how much more."""
    topology = plan.topology
    worst: tuple[int, Operation] | None = None
    for task, temporary_bytes in temporaries.items():
        entry = task_memory(task, topology.devices[device_of(task)].kind, temporary_bytes)
        more = entry.temporary_bytes - entry.modelled_bytes
        if more > 0 and (worst is None or more > worst[0]):
            worst = (more, task)
        known.add(entry)
    return worst


def _over(plan: Plan, memory: Sequence[DeviceMemory]) -> tuple[Shortfall, ...]:
    """The devices whose limit is passed, also where only the host running ahead passes it."""
    return tuple(
        Shortfall(index, device.name, max(each.peak_bytes, each.run_ahead_bytes), each.limit_bytes)
        for index, (each, device) in enumerate(zip(memory, plan.topology.devices, strict=True))
        if max(each.peak_bytes, each.run_ahead_bytes) > each.limit_bytes
    )


def _wider(margin: Sequence[int], over: Sequence[Shortfall]) -> tuple[int, ...]:
    missing = {each.device: each.missing_bytes for each in over}
    return tuple(bytes_ + missing.get(device, 0) for device, bytes_ in enumerate(margin))


def _describe(
    over: Sequence[Shortfall],
    predicted: Sequence[DeviceMemory],
    worst: tuple[int, Operation] | None,
) -> str:
    """``device 1 (cpu:1) takes 9.2 MB of 8.0 MB as compiled, 7.8 MB predicted; task 't3' ...``."""
    most = max(over, key=lambda each: (each.missing_bytes, -each.device))
    text = (
        f"device {most.device} ({most.name}) takes {format_bytes(most.peak_bytes)} of its "
        f"{format_bytes(most.limit_bytes)} as compiled, predicted was "
        f"{format_bytes(predicted[most.device].peak_bytes)}"
    )
    if worst is None:
        return text
    more, task = worst
    name = task.attributes.get("sym_name", "?")
    return f"{text} (task '{name}' at {task.location} takes {format_bytes(more)} more)"
