"""A plan as the checks read it: one record per operation of ``@main``, in issue order."""

from __future__ import annotations

from dataclasses import dataclass, field

from baechi_jax.ir.core import Block, Module, Operation, OpResult, Value
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import InFlightType, OnType
from baechi_jax.passes.plan_errors import MalformedPlanError, OpenTaskError


@dataclass(slots=True, eq=False)
class Step:
    """One operation of ``@main``.

    ``kind``: ``task``, ``send``, ``recv``, ``wait`` or ``return``. ``device``: where a task runs, a
    send starts, a receive ends; -1 for the others.
    """

    index: int
    kind: str
    op: Operation
    device: int
    frees: tuple[Value, ...] = ()
    donates: tuple[Value, ...] = ()
    temporary_bytes: int = 0

    @property
    def reads(self) -> tuple[Value, ...]:
        """Its operands."""
        return tuple(self.op.operands)

    @property
    def gives(self) -> tuple[OpResult, ...]:
        """Its results."""
        return tuple(self.op.results)

    def __str__(self) -> str:
        """``task 't3' (train.py:12) on device 1``."""
        name = self.op.attributes.get("sym_name")
        channel = self.op.attributes.get("channel")
        which = f" '{name}'" if isinstance(name, str) else ""
        which += f" on channel {channel}" if channel is not None else ""
        where = f" on device {self.device}" if self.device >= 0 else ""
        return f"{self.kind}{which} ({self.op.location}){where}"


@dataclass(slots=True)
class PlanView:
    """``@main`` and what the checks need beside it."""

    module: Module
    main: Operation
    topology: Topology
    steps: list[Step]
    arguments: list[dict[str, object]]
    memory: tuple[DeviceMemory, ...]
    step_of: dict[Operation, Step] = field(default_factory=dict)

    @property
    def returned(self) -> tuple[Value, ...]:
        """The values that the step returns."""
        return self.steps[-1].reads

    def maker(self, value: Value) -> Step | None:
        """The step that gives ``value``; None for an argument."""
        return self.step_of[value.owner] if isinstance(value, OpResult) else None

    def name(self, value: Value) -> str:
        """``argument state.params['w']`` or ``result 2 of task 't3' (...)``."""
        maker = self.maker(value)
        if maker is None:
            entry = self.arguments[value.index]
            return f"argument {entry.get('baechi.name', value.index)}"
        return f"result {value.index} of {maker}"


def place_of(value: Value) -> int:
    """The device on which ``value`` lies; -1 for one in flight."""
    if isinstance(value.type, OnType) and len(value.type.devices) == 1:
        return value.type.devices[0]
    return -1


def view_of(module: Module) -> PlanView:
    """Read the plan; raises MalformedPlanError, or OpenTaskError."""
    topology = module.attributes.get("baechi.topology")
    if not isinstance(topology, Topology):
        raise MalformedPlanError("a plan needs the module attribute 'baechi.topology'")
    main = module.main
    ops = main.body.ops
    if not ops or ops[-1].name != "func.return":
        raise MalformedPlanError("@main of a plan must end in 'func.return'")
    memory = main.attributes.get("baechi.memory")
    if (
        not isinstance(memory, tuple)
        or len(memory) != topology.size
        or not all(isinstance(each, DeviceMemory) for each in memory)
    ):
        raise MalformedPlanError(
            f"@main needs 'baechi.memory' with one entry for each of {topology.size} devices, "
            f"found {memory!r}; run plan-memory"
        )
    view = PlanView(
        module,
        main,
        topology,
        [],
        [dict(entry) for entry in argument_attributes(main)],
        tuple(each for each in memory if isinstance(each, DeviceMemory)),
    )
    names: set[str] = set()
    for index, op in enumerate(ops):
        step = _step(op, index, last=index == len(ops) - 1)
        view.steps.append(step)
        view.step_of[op] = step
        if step.device >= topology.size:
            raise MalformedPlanError(f"{step}: the topology has {topology.size} devices")
        if step.kind == "task":
            name = op.attributes.get("sym_name")
            if not isinstance(name, str) or name in names:
                raise MalformedPlanError(f"{step}: a task needs a name of its own, found {name!r}")
            names.add(name)
            _check_closed(step)
    for step in view.steps:
        for value in step.reads:
            maker = value.defining_op
            if maker is not None and maker not in view.step_of:
                raise MalformedPlanError(
                    f"{step} reads a value of {maker!r}, which is not in @main"
                )
    return view


def _step(op: Operation, index: int, *, last: bool) -> Step:
    step = Step(index, op.name.removeprefix("baechi."), op, -1)
    if op.name == "func.return" and last:
        step.kind = "return"
        return step
    if op.name == "baechi.task":
        step.device = _one_device(step, op.attributes.get("baechi.devices"))
        cost = op.attributes.get("baechi.cost")
        if not isinstance(cost, Cost):
            raise MalformedPlanError(f"{step} has no 'baechi.cost'")
        step.temporary_bytes = cost.temporary_bytes
    elif op.name == "baechi.send":
        step.device = _number(step, "from")
        for key in ("channel", "to"):
            _number(step, key)
        if len(op.operands) != 1 or not isinstance(op.result.type, InFlightType):
            raise MalformedPlanError(f"{step} must read one value and give one in flight")
    elif op.name == "baechi.recv":
        _number(step, "channel")
        if len(op.operands) != 1 or len(op.results) != 1:
            raise MalformedPlanError(f"{step} must read one value in flight and give one")
        step.device = place_of(op.result)
    elif op.name != "baechi.wait":
        raise MalformedPlanError(
            f"'{op.name}' ({op.location}) does not belong in a plan: @main holds tasks, sends, "
            "receives and waits, and ends in func.return"
        )
    step.frees = _operands(step, "baechi.frees")
    step.donates = _operands(step, "baechi.donates")
    if step.donates and step.kind != "task":
        raise MalformedPlanError(f"{step} cannot donate: only a task has results to take buffers")
    return step


def _one_device(step: Step, devices: object) -> int:
    if isinstance(devices, tuple) and len(devices) == 1 and isinstance(devices[0], int):
        return devices[0]
    raise MalformedPlanError(f"{step} needs one device in 'baechi.devices', found {devices!r}")


def _number(step: Step, key: str) -> int:
    value = step.op.attributes.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedPlanError(f"{step} needs a number in '{key}', found {value!r}")
    return value


def _operands(step: Step, key: str) -> tuple[Value, ...]:
    indices = step.op.attributes.get(key, ())
    values: list[Value] = []
    for index in indices if isinstance(indices, tuple) else (indices,):
        if not isinstance(index, int) or not 0 <= index < len(step.op.operands):
            raise MalformedPlanError(f"{step}: '{key}' has no operand {index!r}")
        values.append(step.op.operands[index])
    if len(set(values)) != len(values):
        raise MalformedPlanError(f"{step}: '{key}' names one value twice")
    return tuple(values)


def _check_closed(step: Step) -> None:
    body = step.op.body
    if len(body.arguments) != len(step.op.operands) or not body.ops:
        raise MalformedPlanError(
            f"{step} has {len(step.op.operands)} operands for {len(body.arguments)} arguments "
            "inside"
        )
    terminator = body.ops[-1]
    if terminator.name != "baechi.yield" or len(terminator.operands) != len(step.op.results):
        raise MalformedPlanError(f"{step} must end in a 'baechi.yield' of its results")
    _check_block(step, body, set())


def _check_block(step: Step, block: Block, outer: set[Value]) -> None:
    known = outer | set(block.arguments)
    for op in block.ops:
        for value in op.operands:
            if value not in known:
                raise OpenTaskError(
                    f"'{op.name}' ({op.location}) in {step} reads a value that is neither an "
                    "argument of the task nor computed in it before"
                )
        for region in op.regions:
            for inner in region.blocks:
                _check_block(step, inner, known)
        known.update(op.results)
