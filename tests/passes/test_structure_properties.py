"""Random graphs through the structural passes: whatever the graph, the plan is right.

Values are computed by an interpreter for which every operation is a different hash, so a swapped
operand, a lost operation or a wrong copy changes the results.
"""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.ir.attributes import FloatAttr, Unit
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.function import (
    argument_attributes,
    function,
    refresh_function_type,
    set_argument_attributes,
)
from baechi_jax.ir.location import Location
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.types import ScalarType, TensorType, TokenType
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.fuse_tasks import FuseTasks
from baechi_jax.passes.insert_transfers import InsertTransfers
from baechi_jax.passes.merge_tasks import MergeTasks
from baechi_jax.passes.partition import Partition
from baechi_jax.passes.placement.from_module import from_module
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.plan_figures import sent_bytes
from baechi_jax.passes.plan_memory import PlanMemory
from baechi_jax.passes.schedule import Schedule
from baechi_jax.passes.spare_sends import SpareSends
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.passes.verify_plan import VerifyPlan

SHAPES = ((4,), (4, 4), (16, 16))


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A random step: forward, backward and other operations, groups, pins, state, effects."""
    arguments = draw(st.integers(1, 4))
    count = draw(st.integers(1, 30))
    shapes = st.sampled_from(SHAPES)
    func = function("main", [TensorType(draw(shapes), "f32") for _ in range(arguments)])
    block = func.body
    values: list[Value] = list(block.arguments)
    groups = [None, None, "a", "b", "c"]
    # A group has one pin or none, so that pins never contradict one another.
    pins = {group: draw(st.sampled_from([None, None, (0,), (1,)])) for group in ("a", "b", "c")}
    token: Value | None = None
    for index in range(count):
        literal = draw(st.integers(0, 9)) == 0
        if literal:
            value = draw(st.integers(0, 2))
            op = Operation(
                "baechi.literal",
                (),
                (TensorType((), "f32"),),
                {"value": FloatAttr(float(value), ScalarType("f32"))},
            )
            block.append(op)
            values.append(op.result)
            continue
        reads = draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
        operands = [values[i] for i in reads]
        types = [TensorType(draw(shapes), "f32") for _ in range(draw(st.integers(1, 2)))]
        attributes = {
            "key": index,
            "baechi.cost": Cost(
                seconds=(draw(st.sampled_from([0.0, 1e-6, 1e-3])),),
                output_bytes=sum(type_.nbytes for type_ in types),
            ),
        }
        group = draw(st.sampled_from(groups))
        effect = draw(st.integers(0, 14)) == 0
        pin = draw(st.sampled_from([None] * 6 + [(0,), (1,)])) if group is None else pins[group]
        if group is not None and not effect:
            attributes["baechi.group"] = group
        if pin is not None and not effect:
            attributes["baechi.pin"] = pin
        name = draw(st.sampled_from(["jvp()", "transpose(jvp())", ""]))
        result_types = list(types)
        if effect:
            if token is None:
                start = block.append(
                    Operation("baechi.token", (), (TokenType(),), {"effect": "io"})
                )
                token = start.result
            operands.append(token)
            result_types.append(TokenType())
        op = Operation(
            "jax.mul", operands, result_types, attributes, (), Location("f.py", index + 1, 0, name)
        )
        block.append(op)
        if effect:
            token = op.results[-1]
        values.extend(op.results[: len(types)])
    returned = draw(st.lists(st.integers(0, len(values) - 1), max_size=4))
    block.append(Operation("func.return", [values[i] for i in returned]))
    entries: list[dict[str, object]] = []
    taken: set[int] = set()
    for index, argument in enumerate(block.arguments):
        entry: dict[str, object] = {"baechi.name": f"x{index}"}
        if draw(st.booleans()):
            entry["baechi.donated"] = Unit()
        position = draw(st.integers(-1, len(returned) - 1))
        if (
            position >= 0
            and position not in taken
            and values[returned[position]].type == argument.type
            and values[returned[position]] not in block.arguments
            and returned.count(returned[position]) == 1
        ):
            entry["baechi.state"] = position
            taken.add(position)
        entries.append(entry)
    set_argument_attributes(func, entries)  # type: ignore[arg-type]
    refresh_function_type(func)
    module = Module({"baechi.topology": Topology.uniform(3, Device(memory_bytes=1 << 30))})
    module.body.append(func)
    return module


def results(module: Module) -> list[object]:
    """What ``@main`` returns, every operation being its own hash."""
    func = module.main
    known: dict[Value, object] = {a: ("argument", a.index) for a in func.body.arguments}
    return _run(func.body.ops, known)


def _run(ops: list[Operation], known: dict[Value, object]) -> list[object]:
    for op in ops:
        operands = [known[value] for value in op.operands]
        if op.name in ("func.return", "baechi.yield"):
            return operands
        if op.name == "baechi.task":
            inner = dict(zip(op.body.arguments, operands))
            given_back = _run(op.body.ops, inner)
        elif op.name in ("baechi.send", "baechi.recv"):
            given_back = operands
        else:
            key = op.attributes.get("key", op.attributes.get("value"))
            given_back = [hash((op.name, key, tuple(operands), r.index)) for r in op.results]
        known.update(zip(op.results, given_back))
    raise AssertionError("no terminator")


def inner_operations(module: Module) -> Iterator[Operation]:
    for task in tasks_of(module.main):
        for op in task.body.ops[:-1]:
            if op.name != "baechi.literal":
                yield op


@settings(max_examples=150, deadline=None)
@given(modules(), st.integers(1, 12))
def test_tasks_form_a_dag_and_compute_the_same(module: Module, max_tasks: int) -> None:
    verify(module)
    before = results(module)
    keys = sorted(op.attributes["key"] for op in module.main.body.ops if "key" in op.attributes)
    pins = {op.attributes.get("baechi.pin") for op in module.main.body.ops} - {None}
    FuseTasks(max_tasks=max_tasks).run(module)
    # The verifier holds that every operation comes after what it reads: so no cycle.
    verify(module)
    assert results(module) == before
    inside = sorted(
        op.attributes["key"] for op in inner_operations(module) if "key" in op.attributes
    )
    assert inside == keys
    if not pins:
        assert len(tasks_of(module.main)) <= max_tasks
    for task in tasks_of(module.main):
        for op in task.body.ops:
            if "baechi.pin" in op.attributes:
                assert task.attributes["baechi.pin"] == op.attributes["baechi.pin"]
    homes: dict[object, object] = {}
    for task in tasks_of(module.main):
        for op in task.body.ops:
            if "baechi.group" in op.attributes:
                name = op.attributes["baechi.group"]
                assert (
                    homes.setdefault(name, task.attributes["baechi.group"])
                    == (task.attributes["baechi.group"])
                )


def place_at_random(module: Module, draw: st.DataObject) -> None:
    source = from_module(module)
    problem = source.problem
    device_of_group = [
        int(pin) if pin >= 0 else draw.draw(st.integers(0, problem.devices - 1))
        for pin in problem.pinned.tolist()
    ]
    group = problem.group.tolist()
    entries = argument_attributes(module.main)
    for index, entry in enumerate(entries):
        entry["baechi.devices"] = (device_of_group[group[source.node_of_argument(index)]],)
    set_argument_attributes(module.main, entries)
    for index, task in enumerate(source.tasks):
        task.attributes["baechi.devices"] = (device_of_group[group[source.node_of_task(index)]],)


def placed_at_random(module: Module, data: st.DataObject) -> bool:
    """Whether ``place_at_random`` found a placement: pins may contradict one another."""
    try:
        place_at_random(module, data)
    except Exception as error:
        if "pinned" in str(error):
            return False
        raise
    return True


def finish(module: Module) -> None:
    for each in (InsertTransfers(), Schedule(), PlanMemory(), Partition()):
        each.run(module)
        verify(module)
    VerifyPlan().run(module)


@settings(max_examples=150, deadline=None)
@given(modules(), st.data(), st.booleans(), st.booleans())
def test_any_placement_becomes_a_plan_that_verifies(
    module: Module, data: st.DataObject, spare: bool, merge: bool
) -> None:
    before = results(module)
    FuseTasks(max_tasks=20).run(module)
    if not placed_at_random(module, data):
        return
    if spare:
        SpareSends().run(module)
        verify(module)
    if merge:
        MergeTasks().run(module)
        verify(module)
    finish(module)
    assert results(module) == before


@settings(max_examples=150, deadline=None)
@given(modules(), st.data())
def test_a_limit_is_kept_or_refused(module: Module, data: st.DataObject) -> None:
    """With the peak as limit a plan exists, waits and all; with a byte less it is refused."""
    FuseTasks(max_tasks=20).run(module)
    if not placed_at_random(module, data):
        return
    InsertTransfers().run(module)
    Schedule().run(module)
    PlanMemory().run(module)
    peaks = [max(1, memory.peak_bytes) for memory in module.main.attributes["baechi.memory"]]
    tight = module.clone()
    _plan_with(tight, peaks)
    device = max(range(len(peaks)), key=lambda d: peaks[d])
    peaks[device] = max(1, peaks[device] - 1)
    refused: MemoryLimitError | None = None
    try:
        # A wait that lets a sent value be donated may still find a byte.
        _plan_with(module, peaks)
    except MemoryLimitError as error:
        refused = error
    if refused is not None:
        assert (refused.device, refused.limit_bytes) == (device, peaks[device])
        assert refused.needed_bytes[device] > peaks[device]


def _plan_with(module: Module, peaks: list[int]) -> None:
    module.attributes["baechi.topology"] = _limited(peaks)
    PlanMemory().run(module)
    Partition().run(module)
    VerifyPlan().run(module)


def _limited(peaks: list[int]) -> Topology:
    links = Topology.uniform(len(peaks)).links
    return Topology(tuple(Device(memory_bytes=peak) for peak in peaks), links)


@settings(max_examples=60, deadline=None)
@given(modules(), st.data())
def test_what_is_spared_is_not_sent(module: Module, data: st.DataObject) -> None:
    before = results(module)
    FuseTasks(max_tasks=20).run(module)
    if not placed_at_random(module, data):
        return
    whole = module.clone()
    SpareSends().run(module)
    spared = module.main.attributes.get("baechi.spared_bytes", 0)
    finish(module)
    finish(whole)
    assert results(module) == before
    assert sent_bytes(whole) - sent_bytes(module) == spared
