"""Explanations: what they name, why they say it is there, and the simulator's figures."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import baechi_jax as baechi
from baechi_jax.explain import ExplainError, Explanation, Move, explain
from baechi_jax.explain.subject import find_subject
from baechi_jax.explain.view import PlacedView
from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.place import write_placement
from baechi_jax.passes.placed_form import placed_form
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.simulate.judge import ALL_RULES, judge
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.plan import Plan
from baechi_jax.planner import Known, PlannerOptions, pipeline_text, plan_module
from baechi_jax.units import format_seconds

Params = dict[str, jax.Array]


def _loss(p: Params, x: jax.Array) -> jax.Array:
    h = p["embed"][x]
    with jax.named_scope("baechi.device:1"):
        h = jnp.tanh(h @ p["mid"])
    h = jnp.sin(h @ p["big"])
    with jax.named_scope("last"):
        h = jnp.sin(h @ p["out"])
    return jnp.mean((h @ p["embed"].T) ** 2)


def _step(p: Params, m: Params, x: jax.Array) -> tuple[Params, Params, jax.Array]:
    loss, grads = jax.value_and_grad(_loss)(p, x)
    m = jax.tree.map(lambda a, b: 0.9 * a + b, m, grads)
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, m), m, loss


def _unread(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.cos(jnp.sin(x))


PARAMS = {
    "embed": jax.ShapeDtypeStruct((512, 128), jnp.float32),
    "mid": jax.ShapeDtypeStruct((128, 128), jnp.float32),
    "big": jax.ShapeDtypeStruct((128, 512), jnp.float32),
    "out": jax.ShapeDtypeStruct((512, 128), jnp.float32),
}
ARGUMENTS = (PARAMS, PARAMS, jax.ShapeDtypeStruct((64,), jnp.int32))
MACHINE = Topology.uniform(3, Device(memory_bytes=2 << 20, name="dev"))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Module]:
    """A plan, and the module as it was when everything was placed."""
    folder = tmp_path_factory.mktemp("ir")
    placed = baechi.place(
        _step, topology=MACHINE, placer="m-etf", donate_argnums=(0, 1), dump_folder=folder
    )
    plan = placed.plan(*ARGUMENTS)
    (before,) = folder.glob("*_record-decisions.mlir")
    return plan, parse_module(before.read_text(encoding="utf-8"), str(before))


def _text(found: Explanation) -> str:
    return " ".join(found.reasons)


# Figures ----------------------------------------------------------------------------------------


def _by_hand(before: Module, argument: str, device: int) -> Module | MemoryLimitError:
    """The plan with the group of ``argument`` on ``device``, from the dump of the placed form."""
    module = before.clone()
    source = from_module(module)
    problem = source.problem
    group = problem.group[problem.node_names.index(argument)]
    assignment = [
        device if problem.group[node] == group else where
        for node, where in enumerate(placed_devices(module, source))
    ]
    write_placement(module, source, assignment, judge(problem, assignment, ALL_RULES))
    try:
        PassManager(parse_pipeline("lower")).run(module)
    except MemoryLimitError as error:
        return error
    return module


@pytest.mark.parametrize("argument", ["p['embed']", "m['big']", "x"])
def test_the_figures_are_the_simulators(planned: tuple[Plan, Module], argument: str) -> None:
    plan, before = planned
    found = explain(plan.module, argument)
    here, *others = found.moves
    assert here.chosen
    assert here.step_seconds == plan.step_seconds
    assert here.peak_bytes == plan.peak_bytes
    assert sorted(move.device for move in found.moves) == [0, 1, 2]
    for move in others:
        wanted = _by_hand(before, argument, move.device)
        if isinstance(wanted, MemoryLimitError):
            assert not move.fits
            _check_overflow(move, wanted)
        else:
            assert move.fits
            assert move.step_seconds == wanted.main.attributes["baechi.step_seconds"]
            memory = wanted.main.attributes["baechi.memory"]
            assert isinstance(memory, tuple)
            peaks = [each.peak_bytes for each in memory if isinstance(each, DeviceMemory)]
            assert move.peak_bytes == tuple(peaks)


def _check_overflow(move: Move, error: MemoryLimitError) -> None:
    assert move.overflow is not None
    found = (move.overflow.device, move.overflow.peak_bytes, move.overflow.limit_bytes)
    assert found == (error.device, error.peak_bytes, error.limit_bytes)
    assert move.overflow.missing_bytes == error.peak_bytes - error.limit_bytes > 0
    assert 0 <= move.overflow.seconds <= move.step_seconds


def test_something_fits_nowhere_else_and_something_does(planned: tuple[Plan, Module]) -> None:
    fits = {
        move.fits
        for name in ("p['embed']", "x")
        for move in explain(planned[0].module, name).moves[1:]
    }
    assert fits == {True, False}


def test_a_saved_plan_says_the_same(planned: tuple[Plan, Module], tmp_path: Path) -> None:
    plan, _ = planned
    plan.save(tmp_path / "plan.mlir")
    loaded = Plan.load(tmp_path / "plan.mlir")
    assert loaded.explain("m['big']") == plan.explain("m['big']")


def test_a_repeated_plan_says_the_same(planned: tuple[Plan, Module], tmp_path: Path) -> None:
    plan, _ = planned
    plan.save(tmp_path / "plan.mlir")
    again = baechi.place(
        _step, topology=MACHINE, plan=tmp_path / "plan.mlir", donate_argnums=(0, 1)
    )
    assert again.plan(*ARGUMENTS).explain("x") == plan.explain("x")


def test_measured_costs_count() -> None:
    placed = baechi.place(_step, topology=MACHINE, placer="m-etf", donate_argnums=(0, 1))
    traced = placed.trace(*ARGUMENTS)
    plan = placed.plan(*ARGUMENTS)
    tasks = tasks_of(placed_form(plan.module).module.main)
    costs = MeasuredCosts({(fingerprint(task), "cpu"): 1e-3 for task in tasks})
    options = PlannerOptions(pipeline_text("m-etf"))
    measured = plan_module(lambda: traced.module, MACHINE, options, known=Known(costs=costs)).module
    view = PlacedView(measured)
    assert {float(view.problem.seconds[node].max()) for node in view.node_of_task.values()} == {
        1e-3
    }
    found = explain(measured, "p['out']")
    assert found.moves[0].step_seconds == Plan(measured).step_seconds
    # Tasks run before it, each for so long.
    for move, before in zip(found.moves, explain(plan.module, "p['out']").moves, strict=True):
        assert move.start_seconds is not None
        assert before.start_seconds is not None
        assert move.start_seconds >= 1e-3 > before.start_seconds


# Reasons ----------------------------------------------------------------------------------------


def test_memory(planned: tuple[Plan, Module]) -> None:
    found = explain(planned[0].module, "p['embed']")
    move = next(each for each in found.moves if each.overflow is not None)
    sentence = next(reason for reason in found.reasons if "no room" in reason)
    assert f"Device {found.device_names[move.device]} has no room for it" in sentence
    assert "KiB too much" in sentence
    assert "too much" in str(found)


def test_state_with_its_moments_and_tied_weights(planned: tuple[Plan, Module]) -> None:
    text = _text(explain(planned[0].module, "p['embed']"))
    assert "State lies where its next value is made (result[0]['embed'], made by sub#" in text
    assert "beside the state updated with it: m['embed']" in text
    assert "Read in several places, which then share a device: gather#0" in text
    # A weight that one layer reads is not tied.
    assert "several places" not in _text(explain(planned[0].module, "p['big']"))


def test_a_pin(planned: tuple[Plan, Module]) -> None:
    scope = 'is in jax.named_scope("baechi.device:1").'
    found = explain(planned[0].module, "p['mid']")
    assert found.device == 1
    assert found.reasons[0].startswith("Pinned to device 1 dev: dot_general#")
    assert found.reasons[0].endswith(scope)
    assert all(move.pinned for move in found.moves[1:])
    assert explain(planned[0].module, "tanh").reasons[0] == (f"Pinned to device 1 dev: it {scope}")
    assert not any(move.pinned for move in explain(planned[0].module, "p['big']").moves)


def test_forward_with_backward(planned: tuple[Plan, Module]) -> None:
    view = PlacedView(planned[0].module)
    products = [
        each
        for each in view.ops
        if each.name == "dot_general" and view.group_name(each) == "p['mid']"
    ]
    forward = next(each for each in products if "transpose(" not in each.op.location.name)
    backward = next(each for each in products if "transpose(" in each.op.location.name)
    text = _text(explain(planned[0].module, forward.handle))
    assert f"{forward.handle} reads p['mid'] (64.0 KiB), which lies here." in text
    assert f"Its backward pass goes with {forward.handle}: " in text
    assert f"goes with what it differentiates: {forward}." in _text(
        explain(planned[0].module, backward.handle)
    )


def test_one_device() -> None:
    machine = Topology.uniform(1, Device(memory_bytes=64 << 20))
    plan = baechi.place(jnp.sin, topology=machine).plan(jnp.ones(4))
    found = plan.explain("sin")
    assert found.reasons[-1] == "The machine has one device."
    assert len(found.moves) == 1


def test_what_is_in_no_group() -> None:
    machine = Topology.uniform(2, Device(memory_bytes=64 << 20))
    plan = baechi.place(_unread, topology=machine).plan(jnp.ones(4), jnp.ones(4))
    assert "No operation reads y." in _text(plan.explain("y"))
    assert plan.explain("cos").reasons[0].startswith("Moving it moves ")


def _two(v: jax.Array, w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.tanh(x @ v), jnp.sin(y @ w)


def _unrefined(placer: str, *devices: Device) -> Plan:
    """Two products that have nothing to do with each other, just as ``placer`` puts them."""
    square, wide = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 256), (64, 256)))
    machine = Topology(devices, Topology.uniform(len(devices)).links)
    pipeline = f"default{{placer={placer} evaluations=0}}"
    return baechi.place(_two, topology=machine, pipeline=pipeline).plan(square, square, wide, wide)


_ROOMY = Device(memory_bytes=64 << 20, name="slow")
_FAST = Device("fast", 64 << 20, flops_per_second=1e12, bytes_per_second=1e12, name="fast")


def test_no_room_where_it_would_start_earlier() -> None:
    plan = _unrefined("single:0", _ROOMY, Device(memory_bytes=100_000, name="small"))
    here, there = plan.explain("w").moves
    # After the other product here, at once there.
    assert there.start_seconds == 0
    assert here.start_seconds is not None
    sooner = f", though it would start {format_seconds(here.start_seconds)} earlier there: it would"
    text = _text(plan.explain("w"))
    assert f"Device 1 small has no room for it{sooner} hold 384 KiB of 97.7 KiB" in text
    assert text.endswith("Nowhere else does it fit.")
    # The first product starts at once on either device.
    assert "Device 1 small has no room for it: it would hold" in _text(plan.explain("v"))


def test_another_device_would_do_as_well() -> None:
    machine = Topology.uniform(2, Device(memory_bytes=64 << 20, name="dev"))
    plan = baechi.place(jnp.sin, topology=machine, placer="single:0").plan(jnp.ones((256, 256)))
    found = plan.explain("sin")
    assert found.reasons[-1] == "Device 1 dev would do as well: the step is the same within 0.5%."
    assert "as good" in str(found)


def test_another_device_would_be_better() -> None:
    plan = _unrefined("single:0", _ROOMY, _FAST)
    found = plan.explain("w")
    here, there = found.moves
    shorter = 100 * (1 - there.step_seconds / here.step_seconds)
    assert shorter > 40
    assert found.reasons[-1] == (
        f"By this simulation device 1 fast would be better: a step {shorter:.1f}% shorter. The "
        "placer did not find that; pin it there to have it."
    )
    assert "faster" in str(found)


def test_the_best_other_device_is_slower() -> None:
    found = _unrefined("single:0", _FAST, _ROOMY).explain("w")
    here, there = found.moves
    longer = 100 * (there.step_seconds / here.step_seconds - 1)
    assert found.reasons[-1] == (
        f"Of the devices where it fits, the best other is 1 slow: a step {longer:.1f}% longer."
    )
    assert "slower" in str(found)
    # On two devices alike each has one product; beside the other it waits.
    split = _unrefined("m-etf", _ROOMY, _ROOMY)
    late = {name: split.explain(name) for name in "vw"}
    waits = [
        f", where it would start {format_seconds(there.start_seconds)} later."
        for here, there in (each.moves for each in late.values())
        if here.start_seconds == 0 and there.start_seconds
    ]
    assert len(waits) == 1
    assert any(each.reasons[-1].endswith(waits[0]) for each in late.values())


# Names ------------------------------------------------------------------------------------------


def test_what_can_be_named(planned: tuple[Plan, Module]) -> None:
    view = PlacedView(planned[0].module)
    tanh = next(each for each in view.ops if each.name == "tanh")
    line = tanh.op.location.line
    file = Path(__file__).name
    assert [each.op for each in find_subject(view, "jax.tanh").ops] == [tanh.op]
    assert find_subject(view, "tanh#0") == find_subject(view, "tanh")
    at_line = find_subject(view, f"{file}:{line}")
    assert tanh in at_line.ops
    assert all(each.op.location.line == line for each in at_line.ops)
    assert find_subject(view, f"explain/{file}:{line}").ops == at_line.ops
    assert find_subject(view, f"{__file__}:{line}").ops == at_line.ops
    assert view.argument_name(find_subject(view, "x").arguments[0]) == "x"
    name = next(iter(view.parts))
    assert find_subject(view, name).parts == view.parts[name]
    group = next(name for each in view.ops if (name := view.group_name(each)) is not None)
    found = find_subject(view, group)
    assert found.title.startswith(("group ", "argument "))
    assert {view.group_name(each) for each in found.ops} <= {group}
    only_ops = next(
        name
        for each in view.ops
        if (name := view.group_name(each)) is not None
        and name not in view.group_of_argument.values()
    )
    assert find_subject(view, only_ops).title == f"group {only_ops}"
    pinned = find_subject(view, "baechi.device:1")
    assert {each.place for each in pinned.ops} == {f"{file}:{line}"}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("p['embd']", r"the plan has no 'p\['embd'\]'; the nearest are p\['embed'\]"),
        ("q", r"ask for an argument \(p\['big'\], p\['embed'\], p\['mid'\], ...\)"),
        ("", "ask for an argument"),
        ("tanh#7", "tanh has the numbers 0 to 0"),
        ("p", r"(?s)'p' is 4 arguments p... \(832 KiB\), on \d devices; .* p\['mid'\]  on 1 dev"),
        ("dot_general", r"(?s)on \d devices; ask for one of\n  dot_general#0  on \d dev"),
        (f"{Path(__file__).name}:1", rf"the nearest lines .* {Path(__file__).name}:\d+"),
        ("other.py:1", "the plan has no 'other.py:1'"),
    ],
)
def test_what_cannot(planned: tuple[Plan, Module], what: str, message: str) -> None:
    with pytest.raises(ExplainError, match=message):
        explain(planned[0].module, what)
