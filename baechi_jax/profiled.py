"""Planning with measured costs: plan with the model, measure, plan again.

A plan's tasks are compiled as they will run and measured (``runtime/profile.py``); the model is
fitted to what was found, and the function planned again with both. The new plan has other tasks
perhaps, so there are a few rounds; of all plans made, the one whose step is shortest by what was
measured is taken, so that the result is never worse than the plan of the model alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.types import unplaced
from baechi_jax.passes.cost.calibration import Calibration, Sample, calibrate
from baechi_jax.passes.cost.families import FAMILIES, family_seconds
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.simulate.timeline import Timeline
from baechi_jax.passes.tasks import device_of, tasks_of
from baechi_jax.passes.use_measured_costs import retime, unmeasured
from baechi_jax.plan import Plan
from baechi_jax.runtime.compile import CompiledTask
from baechi_jax.runtime.errors import CompilationError
from baechi_jax.runtime.instructions import Program, program_of
from baechi_jax.runtime.profile import Budget, Subject, TaskSampler, takes_bytes
from baechi_jax.runtime.profile_cache import (
    CostCache,
    Costs,
    LinkEntry,
    TaskEntry,
    default_folder,
    environment_of,
)
from baechi_jax.runtime.profile_inputs import is_measurable, is_told_by_fingerprint
from baechi_jax.runtime.profile_links import link_classes, measure_links

if TYPE_CHECKING:
    import jax

    from baechi_jax.ir.topology import Device, Topology

_log = logging.getLogger(__name__)

#: Plans at most, the first included.
ROUNDS = 3

#: On a kind of device where the plan does not put them, the tasks with this share of the work.
_ELSEWHERE_SHARE = 0.9

Compile = Callable[[Program], Sequence[CompiledTask]]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to measure.

    ``budget_seconds``: how long runs and pings may take altogether for one plan; compiling comes on
    top. ``repeats``: runs of each task. ``folder``: of the cache on disk, by default
    ``profile_cache.default_folder()``. ``progress``: whether to show a bar.
    """

    budget_seconds: float = 30.0
    repeats: int = 5
    folder: Path | None = None
    progress: bool | None = None
    compiler_options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Sampler:
    """``samples`` of ``tasks``, by fingerprint and kind."""

    tasks: tuple[tuple[tuple[str, str], CompiledTask], ...]
    samples: TaskSampler

    def run(self, repeats: int) -> None:
        """See ``TaskSampler.run``."""
        self.samples.run(repeats)


class Profiler:
    """Measures for one function on ``declared``, whose device ``d`` is ``devices[d]``."""

    def __init__(
        self,
        declared: Topology,
        devices: Sequence[jax.Device],
        options: ProfileOptions,
        budget: Budget | None = None,
    ) -> None:
        self.declared = declared
        self.devices = devices
        self.options = options
        self.budget = Budget(options.budget_seconds) if budget is None else budget
        folder = default_folder() if options.folder is None else options.folder
        #: The first device of each kind.
        self._first = {kind: _first_of(declared, kind) for kind in declared.kinds}
        self._caches = {
            kind: CostCache(folder, environment_of(devices[first], options.compiler_options))
            for kind, first in self._first.items()
        }
        self._known: dict[str, Costs] = {kind: c.load() for kind, c in self._caches.items()}
        #: What this function uses, by fingerprint and kind.
        self._used: dict[tuple[str, str], TaskEntry] = {}

    def measure_links(self) -> None:
        """Ping every link whose like is not in the cache."""
        classes = link_classes(self.declared)
        missing = [name for name, pairs in classes.items() if self._link(name, pairs) is None]
        if not missing:
            return
        smallest = min(device.usable_bytes for device in self.declared.devices)
        fits = measure_links(
            [classes[name][0] for name in missing],
            self.devices,
            smallest // 8,
            self.budget,
            self.options.progress,
        )
        for name, fit in zip(missing, fits, strict=True):
            if fit is not None:
                kind = self._kind(classes[name][0][0])
                self._add(kind, Costs(links={name: LinkEntry(*fit)}))

    def measure(self, program: Program, compile_: Compile) -> Sequence[CompiledTask]:
        """Measure the tasks of ``program`` that are not known; its compiled tasks.

        On machines with several kinds of device, the heaviest tasks are measured on each kind.
        """
        compiled = compile_(program)
        self._measure(compiled, range(len(compiled)))
        for kind, first in self._first.items():
            chosen = self._heaviest_elsewhere(program, kind)
            if chosen and self.budget.allows(0.0):
                with _moved([program.tasks[index] for index in chosen], first):
                    try:
                        self._measure(compile_(program), chosen)
                    except CompilationError as error:
                        # A task may be made for one kind of device only.
                        _log.info("nothing is measured on %s: %s", kind, error)
        return compiled

    def _measure(self, compiled: Sequence[CompiledTask], chosen: Sequence[int]) -> None:
        tasks = [compiled[index] for index in chosen]
        for each in tasks:
            structure, kind = self._key(each)
            entry = self._known[kind].tasks.get(structure)
            if entry is not None and is_told_by_fingerprint(each.operation):
                self._used.setdefault((structure, kind), entry)
        sampler = self.sampler([each for each in tasks if self._key(each) not in self._used])
        sampler.run(self.options.repeats)
        self.take(sampler)

    def sampler(self, tasks: Sequence[CompiledTask]) -> Sampler:
        """Takes samples of those of ``tasks`` that can be measured, each distinct one once."""
        chosen: dict[tuple[str, str], CompiledTask] = {}
        subjects: list[Subject] = []
        for each in tasks:
            task = each.operation
            device = self.declared.devices[device_of(task)]
            cost = task.attributes.get("baechi.cost")
            assert isinstance(cost, Cost)
            types = tuple(unplaced(value.type) for value in task.operands)
            results = [unplaced(result.type) for result in task.results]
            needed = takes_bytes(types, results, cost.temporary_bytes)
            key = self._key(each)
            if key in chosen or not is_measurable(task) or needed > device.usable_bytes:
                continue
            chosen[key] = each
            expected = cost.seconds[self.declared.kinds.index(device.kind)]
            subjects.append(
                Subject(
                    str(each),
                    each.executable,
                    each.device,
                    types,
                    expected,
                    cost.output_bytes,
                    device.usable_bytes,
                )
            )
        samples = TaskSampler(subjects, self.budget, self.options.progress)
        return Sampler(tuple(chosen.items()), samples)

    def take(self, sampler: Sampler) -> None:
        """Know what ``sampler`` found, and keep it in the cache."""
        entries: dict[tuple[str, str], tuple[Operation, TaskEntry]] = {}
        for (key, each), found in zip(sampler.tasks, sampler.samples.measurements, strict=True):
            if found is None:
                continue
            task = each.operation
            entry = TaskEntry(
                found.seconds,
                found.samples,
                round(found.spread, 4),
                _families(task, self.declared.device_of_kind(key[1])),
                str(task.attributes.get("sym_name", "")),
            )
            entries[key] = (task, entry)
        self._keep(entries)

    def learn(self, tasks: Sequence[CompiledTask], steps: Sequence[Timeline]) -> None:
        """Keep what tasks that cannot be measured took in real ``steps``, in the median.

        They have a loop whose length values decide, or an effect. They tell nothing of others.
        """
        took: dict[str, list[float]] = {}
        for timeline in steps:
            for event in timeline.events:
                if event.kind == "task":
                    took.setdefault(event.name, []).append(event.end_seconds - event.start_seconds)
        entries: dict[tuple[str, str], tuple[Operation, TaskEntry]] = {}
        for each in tasks:
            task, name = each.operation, str(each.operation.attributes.get("sym_name", ""))
            if name not in took or is_measurable(task):
                continue
            entry = TaskEntry(median(took[name]), len(took[name]), 0.0, {}, name)
            entries[self._key(each)] = (task, entry)
        self._keep(entries)

    def _keep(self, entries: Mapping[tuple[str, str], tuple[Operation, TaskEntry]]) -> None:
        """Know ``entries``, and those that a fingerprint tells in the cache as well."""
        new: dict[str, Costs] = {}
        for key, (task, entry) in entries.items():
            self._used[key] = entry
            if is_told_by_fingerprint(task):
                new.setdefault(key[1], Costs()).tasks[key[0]] = entry
        for kind, costs in new.items():
            self._add(kind, costs)

    def _key(self, each: CompiledTask) -> tuple[str, str]:
        return fingerprint(each.operation), self._kind(device_of(each.operation))

    def _heaviest_elsewhere(self, program: Program, kind: str) -> list[int]:
        """Tasks that the plan does not run on ``kind``, the heaviest of all first."""
        position = self.declared.kinds.index(kind)
        weights: list[tuple[float, int]] = []
        for index, task in enumerate(program.tasks):
            cost = task.attributes.get("baechi.cost")
            elsewhere = self._kind(device_of(task)) != kind
            if elsewhere and isinstance(cost, Cost) and not _is_pinned(task):
                weights.append((-cost.seconds[position], index))
        weights.sort()
        left = -_ELSEWHERE_SHARE * sum(weight for weight, _ in weights)
        chosen: list[int] = []
        for weight, index in weights:
            if left <= 0:
                break
            chosen.append(index)
            left += weight
        return chosen

    # What is known ------------------------------------------------------------------------------

    def costs(self) -> MeasuredCosts:
        """All that was measured for this function, and the model fitted to it."""
        fits = self.calibrations()
        links = {}
        for name, pairs in link_classes(self.declared).items():
            entry = self._link(name, pairs)
            if entry is not None:
                for pair in pairs:
                    links[pair] = (entry.latency_seconds, entry.bytes_per_second)
        return MeasuredCosts(
            {key: entry.seconds for key, entry in self._used.items()},
            {
                (kind, family): fit.factors[family]
                for kind, fit in fits.items()
                for family in FAMILIES
            },
            {kind: fit.launch_seconds for kind, fit in fits.items()},
            links,
        )

    def calibrations(self) -> dict[str, Calibration]:
        """The model's factors on each kind: by this function's tasks, else by all in the cache."""
        found: dict[str, Calibration] = {}
        for kind in self.declared.kinds:
            entries = [entry for (_, own), entry in self._used.items() if own == kind]
            if not entries:
                entries = list(self._known[kind].tasks.values())
            samples = [Sample(each.families, each.seconds) for each in entries if each.families]
            launch = self.declared.device_of_kind(kind).launch_seconds
            found[kind] = calibrate(samples, launch)
        return found

    def refresh(self, module: Module) -> None:
        """Give the tasks of a planned ``module`` what is known of them now, and its step new times.

        A task that was not measured takes what the fitted model says. The factors that the plan
        was made with stay on it: how operations were fused into tasks followed from them.
        """
        costs, fits = self.costs(), self.calibrations()
        before = MeasuredCosts.of(module) or MeasuredCosts()
        replace(costs, factors=before.factors, launches=before.launches).attach(
            module, self.declared
        )
        kinds = self.declared.kinds
        for task in tasks_of(module.main):
            cost = task.attributes.get("baechi.cost")
            assert isinstance(cost, Cost)
            structure = fingerprint(task)
            seconds = list(cost.seconds)
            for index, kind in enumerate(kinds):
                known = costs.tasks.get((structure, kind))
                if known is None:
                    families = _families(task, self.declared.device_of_kind(kind))
                    known = fits[kind].seconds(families)
                seconds[index] = known
            task.attributes["baechi.cost"] = replace(cost, seconds=tuple(seconds))
        retime(module)

    def _link(self, name: str, pairs: Sequence[tuple[int, int]]) -> LinkEntry | None:
        return self._known[self._kind(pairs[0][0])].links.get(name)

    def _kind(self, device: int) -> str:
        return self.declared.devices[device].kind

    def _add(self, kind: str, new: Costs) -> None:
        self._known[kind] = self._caches[kind].add(new)


@dataclass(slots=True)
class Profiled:
    """A plan made with ``costs``; ``compiled`` keeps the executables of its tasks alive."""

    plan: Plan
    costs: MeasuredCosts
    compiled: Sequence[CompiledTask] = ()


def plan_with_profile(
    plan: Plan,
    plan_again: Callable[[MeasuredCosts], Plan],
    profiler: Profiler,
    compile_: Compile,
) -> Profiled:
    """Measure ``plan``, which the model made, and plan again; see the module docstring."""
    profiler.measure_links()
    candidates: list[tuple[Plan, Sequence[CompiledTask]]] = []
    for round_ in range(ROUNDS):
        compiled = profiler.measure(program_of(plan.module), compile_)
        candidates.append((plan, compiled))
        costs = profiler.costs()
        if round_ and not unmeasured(plan.module, costs.tasks) and _is_settled(candidates):
            break
        if round_ < ROUNDS - 1:
            plan = plan_again(costs)
    for candidate, _ in candidates:
        profiler.refresh(candidate.module)
    costs = profiler.costs()
    chosen, compiled = min(
        candidates,
        key=lambda each: (
            bool(unmeasured(each[0].module, costs.tasks)),
            each[0].step_seconds,
        ),
    )
    _log.info(
        "measured %d tasks in %.1f s; the step is predicted to take %.6f s",
        len(costs.tasks),
        profiler.budget.spent,
        chosen.step_seconds,
    )
    return Profiled(chosen, costs, compiled)


def _is_settled(candidates: Sequence[tuple[Plan, Sequence[CompiledTask]]]) -> bool:
    """Whether the last plan has the tasks of the one before, on the same devices."""
    last, before = (
        [(fingerprint(task), device_of(task)) for task in tasks_of(plan.module.main)]
        for plan, _ in (candidates[-1], candidates[-2])
    )
    return last == before


@contextmanager
def _moved(tasks: Sequence[Operation], device: int) -> Iterator[None]:
    """``tasks`` on ``device`` for a while."""
    before = [task.attributes["baechi.devices"] for task in tasks]
    for task in tasks:
        task.attributes["baechi.devices"] = (device,)
    try:
        yield
    finally:
        for task, devices in zip(tasks, before, strict=True):
            task.attributes["baechi.devices"] = devices


def _families(task: Operation, device: Device) -> dict[str, float]:
    """What the model says of ``task``, by family of operations."""
    body = task.body
    return family_seconds(body.ops[:-1], body.arguments, body.terminator.operands, device)


def _is_pinned(task: Operation) -> bool:
    return "baechi.pin" in task.attributes


def _first_of(topology: Topology, kind: str) -> int:
    return next(index for index, each in enumerate(topology.devices) if each.kind == kind)
