"""From a placed module to what a report shows.

Assumes the form that ``insert-transfers`` or a later pass leaves (docs/ir.md). Layers are found op
by op, so a task that merges many layers still shows each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import BlockArgument, Module, Operation, OpResult, Value
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.location import Location
from baechi_jax.ir.types import OnType, nbytes, unplaced
from baechi_jax.passes.cost.measured import task_seconds
from baechi_jax.passes.memory_measured import note_of
from baechi_jax.passes.simulate.timeline import ModuleRun, Timeline, run_module
from baechi_jax.passes.tasks import tasks_of, topology_of
from baechi_jax.passes.use_measured_costs import unmeasured
from baechi_jax.report.layers import COMPUTE, PHASES, UPDATE, layer_names, phase_of
from baechi_jax.report.memory import has_memory_plan, memory_steps
from baechi_jax.report.view import (
    CandidateView,
    DeviceView,
    LayerEdge,
    LayerNode,
    LoopView,
    MeasuredSpan,
    MeasuredStep,
    Part,
    PlanView,
    TaskView,
    TransferView,
    ValueView,
)

#: Values in the table of the largest.
LARGEST_VALUES = 60

#: Parts of a task smaller than this share join the part before them.
_SMALLEST_PART = 0.004

#: A loop with a larger share of the work than this is told: no placement can be much faster.
_MOST_OF_THE_WORK = 0.5

#: How a reader calls what stays one operation.
_LOOPS = {"while": "while loop", "scan": "scan", "cond": "conditional"}

_TASK, _SEND, _RECV = "baechi.task", "baechi.send", "baechi.recv"


def build_view(module: Module, title: str, measured: Timeline | None = None) -> PlanView:
    """What a report shows of ``module``, simulated on its own topology; ``title`` heads it.

    ``measured`` is a step of it as it ran. Raises PassError when the module has no topology or is
    not placed, ValueError when ``measured`` is of another plan.
    """
    view = _Builder(module, run_module(module)).build(title)
    return view if measured is None else replace(view, measured=_measured(view, measured))


def _measured(view: PlanView, timeline: Timeline) -> MeasuredStep:
    spans = [
        (
            event.kind,
            MeasuredSpan(
                event.name,
                event.source,
                event.target,
                event.start_seconds,
                event.end_seconds,
                event.nbytes,
            ),
        )
        for event in timeline.events
    ]
    tasks = tuple(span for kind, span in spans if kind == "task")
    planned = {(task.name, task.device) for task in view.tasks}
    odd = planned ^ {(span.name, span.source) for span in tasks}
    if odd:
        name, device = min(odd)
        raise ValueError(
            f"the measured step is not one of this plan: task '{name}' on device {device} is in "
            "only one of them; measure with the plan's own compiled step"
        )
    transfers = tuple(span for kind, span in spans if kind == "transfer")
    return MeasuredStep(timeline.makespan_seconds, tasks, transfers)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an op belongs in the graph by layer."""

    layer: str
    phase: str
    device: int


class _Builder:
    def __init__(self, module: Module, run: ModuleRun) -> None:
        self.module = module
        self.topology = topology = topology_of(module)
        self.times = run.times
        self.simulation = run.simulation
        self.main = module.main
        self.tasks = [op for op in self.main.body.ops if op.name == _TASK]
        self.kind_index = {kind: index for index, kind in enumerate(topology.kinds)}
        self.seconds: dict[Operation, float] = {}
        self.places: dict[Operation, _Place] = {}
        self._place_ops()

    def build(self, title: str) -> PlanView:
        tasks = tuple(self._task(op) for op in self.tasks)
        transfers = tuple(self._transfer(op) for op in self.main.body.ops if op.name == _SEND)
        nodes, edges = self._graph()
        bound = self.main.attributes.get("baechi.lower_bound_seconds")
        return PlanView(
            title=title,
            devices=self._devices(tasks, transfers),
            tasks=tasks,
            transfers=transfers,
            memory=self._memory(),
            values=self._values(),
            layers=self._layers(),
            phases=tuple(phase for phase in PHASES if phase in self._used_phases()),
            nodes=nodes,
            edges=edges,
            step_seconds=self.simulation.makespan_seconds,
            lower_bound_seconds=float(bound) if isinstance(bound, float | int) else 0.0,
            placement=_placement(self.module),
            candidates=_candidates(self.module),
            memory_note=note_of(self.module),
            loop=self._loop(),
        )

    def _loop(self) -> LoopView | None:
        """The loop or branch that has more than half of the work in it, if there is one."""
        total = sum(self.seconds.values())
        heaviest = max(self.seconds, key=self.seconds.__getitem__, default=None)
        if heaviest is None or not heaviest.regions or total <= 0:
            return None
        share = self.seconds[heaviest] / total
        if share <= _MOST_OF_THE_WORK:
            return None
        primitive = heaviest.name.partition(".")[2]
        what = _LOOPS.get(primitive, f"operation '{primitive}'")
        return LoopView(what, _source(heaviest.location), share, self.places[heaviest].device)

    # Ops ------------------------------------------------------------------------------------

    def _place_ops(self) -> None:
        weights: dict[Location, float] = {}
        for task in self.tasks:
            kind = self.kind_index[self.topology.devices[_device(task)].kind]
            for op in task.body.ops[:-1]:
                cost = op.attributes.get("baechi.cost")
                known = isinstance(cost, Cost) and len(cost.seconds) > kind
                seconds = cost.seconds[kind] if known and isinstance(cost, Cost) else 0.0
                self.seconds[op] = seconds
                weights[op.location] = weights.get(op.location, 0.0) + seconds
        layers = layer_names(weights)
        differentiated = any("transpose(" in location.name for location in weights)
        for task in self.tasks:
            device = _device(task)
            for op in task.body.ops[:-1]:
                if op.name == "baechi.literal":
                    continue
                phase = phase_of(op.location.name, differentiated)
                self.places[op] = _Place(layers[op.location], phase, device)

    def _used_phases(self) -> set[str]:
        return {place.phase for place in self.places.values()}

    def _layers(self) -> tuple[str, ...]:
        """Layers by the mean place of their first phase's ops in program order.

        A few ops of a late layer may come early (a step counter), so the first op says little. What
        only updates comes last.
        """
        places: dict[str, dict[str, list[int]]] = {}
        for position, place in enumerate(self.places.values()):
            places.setdefault(place.layer, {}).setdefault(place.phase, []).append(position)

        def key(layer: str) -> tuple[bool, float]:
            phases = places[layer]
            first = next(phase for phase in PHASES if phase in phases)
            late = first == UPDATE
            return late, sum(phases[first]) / len(phases[first])

        return tuple(sorted(places, key=key))

    # Tasks and transfers --------------------------------------------------------------------

    def _task(self, task: Operation) -> TaskView:
        ops = task.body.ops[:-1]
        parts = self._parts(ops)
        main = max(parts, key=lambda part: part.share)
        cost = task.attributes.get("baechi.cost")
        cost = cost if isinstance(cost, Cost) else Cost()
        heaviest = max(ops, key=lambda op: self.seconds[op], default=task)
        return TaskView(
            name=str(task.attributes.get("sym_name", "task")),
            device=_device(task),
            start_seconds=self.times[task][0],
            end_seconds=self.times[task][1],
            layer=main.layer,
            phase=main.phase,
            parts=parts,
            flops=cost.flops,
            ops=sum(op.name != "baechi.literal" for op in ops),
            output_bytes=cost.output_bytes,
            temporary_bytes=cost.temporary_bytes,
            source=_source(heaviest.location),
        )

    def _parts(self, ops: list[Operation]) -> tuple[Part, ...]:
        total = sum(self.seconds[op] for op in ops)
        runs: list[tuple[str, str, float]] = []
        for op in ops:
            if op.name == "baechi.literal":
                continue
            place = self.places[op]
            share = self.seconds[op] / total if total else 1 / len(ops)
            if runs and ((place.layer, place.phase) == runs[-1][:2] or share < _SMALLEST_PART):
                layer, phase, before = runs[-1]
                runs[-1] = (layer, phase, before + share)
            else:
                runs.append((place.layer, place.phase, share))
        return tuple(Part(*run) for run in runs) or (Part("literals", COMPUTE, 1.0),)

    def _transfer(self, send: Operation) -> TransferView:
        value = send.operands[0]
        return TransferView(
            channel=_integer(send, "channel"),
            source=_integer(send, "from"),
            target=_integer(send, "to"),
            start_seconds=self.times[send][0],
            end_seconds=self.times[send][1],
            nbytes=nbytes(value.type),
            value=self._name(value),
        )

    def _memory(self) -> tuple[tuple[tuple[float, int], ...], ...]:
        if has_memory_plan(self.main):
            return memory_steps(self.main, self.times, self.topology.size)
        return tuple(map(tuple, self.simulation.memory_steps))

    # Devices --------------------------------------------------------------------------------

    def _devices(
        self, tasks: tuple[TaskView, ...], transfers: tuple[TransferView, ...]
    ) -> tuple[DeviceView, ...]:
        memory = self.main.attributes.get("baechi.memory")
        planned = memory if isinstance(memory, tuple) else ()
        views: list[DeviceView] = []
        for index, device in enumerate(self.topology.devices):
            plan = planned[index] if index < len(planned) else None
            mine = [task for task in tasks if task.device == index]
            peak = self.simulation.peak_bytes[index]
            exact = plan if isinstance(plan, DeviceMemory) else DeviceMemory(peak, peak)
            views.append(
                DeviceView(
                    index=index,
                    name=device.name,
                    kind=device.kind,
                    tasks=len(mine),
                    busy_seconds=sum(task.seconds for task in mine),
                    flops=sum(task.flops for task in mine),
                    peak_bytes=exact.peak_bytes,
                    run_ahead_bytes=exact.run_ahead_bytes,
                    resident_bytes=self._resident_bytes(index),
                    limit_bytes=device.usable_bytes,
                    sent_bytes=sum(t.nbytes for t in transfers if t.source == index),
                    received_bytes=sum(t.nbytes for t in transfers if t.target == index),
                )
            )
        return tuple(views)

    def _resident_bytes(self, device: int) -> int:
        return sum(
            nbytes(argument.type)
            for argument in self.main.body.arguments
            if isinstance(argument.type, OnType) and device in argument.type.devices
        )

    # Values ---------------------------------------------------------------------------------

    def _values(self) -> tuple[ValueView, ...]:
        values: list[Value] = [*self.main.body.arguments]
        for op in self.main.body.ops:
            if op.name in (_TASK, _RECV):
                values.extend(op.results)
        values.sort(key=lambda value: -nbytes(value.type))
        return tuple(
            ValueView(
                name=self._name(value),
                type=str(unplaced(value.type)),
                nbytes=nbytes(value.type),
                device=value.type.devices[0] if isinstance(value.type, OnType) else 0,
                source=_source(self._origin(value)),
            )
            for value in values[:LARGEST_VALUES]
            if nbytes(value.type) > 0
        )

    def _name(self, value: Value) -> str:
        """``state.params['w']`` for an argument, ``t7: dot_general in layer1`` for a result."""
        if isinstance(value, BlockArgument):
            entry = argument_attributes(self.main)[value.index]
            return str(entry.get("baechi.name", f"argument {value.index}"))
        assert isinstance(value, OpResult)
        op = value.owner
        if op.name == _RECV:
            return f"copy of {self._name(_sent(op))}"
        made = _maker(value)
        task = str(op.attributes.get("sym_name", "task"))
        if made is None:
            return f"{task}: result {value.index}"
        place = self.places.get(made)
        where = f" in {place.layer} {place.phase}" if place is not None else ""
        return f"{task}: {made.name.removeprefix('jax.')}{where}"

    def _origin(self, value: Value) -> Location:
        if isinstance(value, OpResult) and value.owner.name == _TASK:
            made = _maker(value)
            return made.location if made is not None else value.owner.location
        if isinstance(value, OpResult) and value.owner.name == _RECV:
            return self._origin(_sent(value.owner))
        return Location(name="argument")

    # The graph by layer ---------------------------------------------------------------------

    def _graph(self) -> tuple[tuple[LayerNode, ...], tuple[LayerEdge, ...]]:
        index: dict[_Place, int] = {}
        seconds: list[float] = []
        tasks: list[dict[Operation, None]] = []
        flows: dict[tuple[int, int], dict[Value, None]] = {}
        # Program order, forward before backward: the order of columns.
        for task in self.tasks:
            for op in task.body.ops[:-1]:
                if op.name == "baechi.literal":
                    continue
                place = self.places[op]
                node = index.setdefault(place, len(index))
                if node == len(seconds):
                    seconds.append(0.0)
                    tasks.append({})
                seconds[node] += self.seconds[op]
                tasks[node][task] = None
                for value, made in _producers(op, task):
                    source = index.get(self.places[made]) if made in self.places else None
                    if source is not None and source != node:
                        flows.setdefault((source, node), {})[value] = None
        nodes = tuple(
            LayerNode(place.layer, place.phase, place.device, len(tasks[node]), seconds[node])
            for place, node in index.items()
        )
        edges = tuple(
            LayerEdge(source, target, sum(nbytes(value.type) for value in values))
            for (source, target), values in flows.items()
        )
        return nodes, edges


def _producers(op: Operation, task: Operation) -> Iterator[tuple[Value, Operation]]:
    """``(value, the op that computed it)`` for each operand of ``op``, looked up across tasks."""
    for operand in op.operands:
        value: Value | None = operand
        if isinstance(operand, BlockArgument):
            value = _made_value(task.operands[operand.index])
        if isinstance(value, OpResult) and value.owner.name != "baechi.literal":
            yield value, value.owner


def _made_value(value: Value) -> Value | None:
    """The value inside the task that made ``value``; None for an argument of the step."""
    while isinstance(value, OpResult) and value.owner.name == _RECV:
        value = _sent(value.owner)
    if not isinstance(value, OpResult) or value.owner.name != _TASK:
        return None
    task = value.owner
    inner = task.body.terminator.operands[value.index]
    if isinstance(inner, BlockArgument):
        return _made_value(task.operands[inner.index])
    return inner


def _maker(value: OpResult) -> Operation | None:
    made = _made_value(value)
    return made.owner if isinstance(made, OpResult) else None


def _sent(recv: Operation) -> Value:
    """What the transfer that ends in ``recv`` carries."""
    send = recv.operands[0].defining_op
    assert send is not None
    assert send.name == _SEND
    return send.operands[0]


def _device(task: Operation) -> int:
    devices = task.attributes["baechi.devices"]
    assert isinstance(devices, tuple)
    first = devices[0]
    assert isinstance(first, int)
    return first


def _integer(op: Operation, key: str) -> int:
    value = op.attributes[key]
    assert isinstance(value, int)
    return value


def _source(location: Location) -> str:
    if not location.file:
        return location.name
    return f"{location.file.rsplit('/', 1)[-1]}:{location.line}"


def _placement(module: Module) -> tuple[tuple[str, str], ...]:
    """Who placed it, how that ended, and what else there is to say."""
    decided = module.attributes.get("baechi.placement")
    if not isinstance(decided, DictAttr):
        return ()
    said = tuple(
        (key, value)
        for key in ("placer", "status", "notes")
        if isinstance(value := decided.get(key), str) and value
    )
    known = task_seconds(module)
    if not known:
        return said
    tasks = tasks_of(module.main)
    measured = len(tasks) - len(unmeasured(module, known))
    return (*said, ("costs", f"measured, {measured} of {len(tasks)} tasks"))


def _candidates(module: Module) -> tuple[CandidateView, ...]:
    """Every placement that was tried, as the placer recorded them."""
    decided = module.attributes.get("baechi.placement")
    tried = decided.get("candidates") if isinstance(decided, DictAttr) else None
    views: list[CandidateView] = []
    for entry in tried if isinstance(tried, tuple) else ():
        seconds = entry.get("makespan_seconds") if isinstance(entry, DictAttr) else None
        if isinstance(entry, DictAttr) and isinstance(seconds, float | int):
            views.append(
                CandidateView(
                    str(entry["placer"]), str(entry["status"]), seconds, entry["fits"] is True
                )
            )
    return tuple(views)
