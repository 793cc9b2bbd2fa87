"""``spare-sends``: fewer bytes are sent, the same values, and nothing gets worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.plan_figures import sent_bytes
from baechi_jax.passes.spare_sends import SpareSends
from baechi_jax.passes.tasks import device_of, tasks_of

#: 16 KiB.
SQUARE = jax.ShapeDtypeStruct((64, 64), jnp.float32)
TWO = Topology.uniform(2)
#: Links so slow that sending less always pays.
SLOW_LINKS = Topology.uniform(3, bytes_per_second=1e7)
FRONT = "prepare,place{placer=expert}"
BACK = "merge-tasks,insert-transfers,schedule,plan-memory,partition,verify-plan"


def placed(fn: Callable[..., Any], *args: Any, topology: Topology = TWO) -> Module:
    """Placed by the pins in ``fn``."""
    module = trace(fn, args).module
    module.attributes["baechi.topology"] = topology
    PassManager(parse_pipeline(FRONT)).run(module)
    return module


def spared(module: Module) -> int:
    """Run the pass; the bytes it says, held against the sends of the finished plan."""
    before = module.clone()
    SpareSends().run(module)
    verify(module)
    found = module.main.attributes.get("baechi.spared_bytes", 0)
    assert isinstance(found, int)
    assert _sent(before) - _sent(module) == found
    return found


def _sent(module: Module) -> int:
    module = module.clone()
    PassManager(parse_pipeline(BACK)).run(module)
    return sent_bytes(module)


def inside(module: Module, device: int) -> list[str]:
    """Names of what runs on ``device``."""
    tasks = [task for task in tasks_of(module.main) if device_of(task) == device]
    return [op.name for task in tasks for op in task.body.ops]


def loss(params: Any, x: jax.Array) -> jax.Array:
    for index, w in enumerate(params):
        with baechi.on(index // 2):
            x = jax.nn.relu(x @ w)
    return jnp.sum(x * x)


def step(params: Any, x: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


# What is computed again ---------------------------------------------------------------------------


def test_an_activation_is_not_sent_beside_what_it_is_made_of() -> None:
    module = placed(step, [SQUARE] * 4, SQUARE)
    # The second device needs the product for its mask in the backward pass, and its relu.
    before = inside(module, 1).count("jax.max")
    assert spared(module) == 64 * 64 * 4
    assert inside(module, 1).count("jax.max") > before


CASES: dict[str, tuple[Callable[[jax.Array], Any], int]] = {
    "cast up": (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), 64 * 64 * 2),
    "broadcast": (lambda x: jnp.broadcast_to(x.sum(1, keepdims=True), (64, 64)), 64 * 63 * 4),
    "scaled broadcast": (lambda x: 2.0 * x.sum(1)[:, None] + jnp.zeros((64, 64)), 64 * 63 * 4),
    "iota": (lambda x: jax.lax.iota(jnp.int32, 4096).reshape(64, 64), 64 * 64 * 4),
    "a product": (lambda x: x @ x, 0),
    "a sum of two products": (lambda x: x @ x + x.T @ x, 0),
    "a running sum": (lambda x: jnp.cumsum(x, 0), 0),
    "random bits": (lambda x: jax.random.bits(jax.random.key(0), (64, 64)), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_cheap_is_computed_where_it_is_read(name: str) -> None:
    make, saves = CASES[name]

    def fn(x: jax.Array, w: jax.Array) -> Any:
        with baechi.on(0):
            value = make(jnp.sin(x @ x))
            again = value * 2
        with baechi.on(1):
            return again, value @ w

    assert spared(placed(fn, SQUARE, SQUARE, topology=SLOW_LINKS)) == saves


def test_a_value_serves_all_tasks_of_its_device_and_leaves_the_others() -> None:
    def fn(x: jax.Array) -> Any:
        with baechi.on(0):
            small = jnp.sin(x @ x).sum(1, keepdims=True)
            wide = jnp.broadcast_to(small, (64, 64))
            first = wide @ x
        with baechi.on(1):
            second = wide @ wide
        with baechi.on(2):
            return first, second, wide @ second

    module = placed(fn, SQUARE, topology=SLOW_LINKS)
    assert spared(module) == 2 * (64 * 63 * 4)
    for device in range(3):
        assert "jax.broadcast_in_dim" in inside(module, device)


# What is left alone -------------------------------------------------------------------------------


def test_one_device_is_left_alone() -> None:
    module = placed(step, [SQUARE] * 2, SQUARE)
    before = print_module(module)
    assert spared(module) == 0
    assert print_module(module) == before


def test_a_longer_step_is_refused() -> None:
    """The same value for a slow device, over slow links and over links that cost nothing."""

    def fn(x: jax.Array) -> Any:
        with baechi.on(0):
            wide = jnp.exp(jnp.broadcast_to(jnp.sin(x @ x).sum(1, keepdims=True), (64, 64)))
            first = wide * 2
        with baechi.on(1):
            return first, jnp.cumsum(wide, 0)

    devices = (Device(kind="fast"), Device(kind="slow", flops_per_second=1e6))
    for link, saves in ((1e4, 64 * 63 * 4), (1e15, 0)):
        links = (Link(0, 1, 0.0, link), Link(1, 0, 0.0, link))
        module = placed(fn, SQUARE, topology=Topology(devices, links))
        before = print_module(module)
        assert spared(module) == saves
        assert (print_module(module) == before) == (saves == 0)


def test_devices_are_tried_one_by_one() -> None:
    """Of two readers the one on a slow device would make the step longer."""

    def fn(x: jax.Array) -> Any:
        with baechi.on(0):
            wide = jnp.exp(jnp.broadcast_to(jnp.sin(x @ x).sum(1, keepdims=True), (64, 64)))
            first = wide @ x
        with baechi.on(1):
            second = jnp.cumsum(wide, 0)
        with baechi.on(2):
            return first, second, jnp.cumsum(wide, 1)

    fast = Device(kind="fast", flops_per_second=1e9)
    slow = Device(kind="slow", flops_per_second=1e5)
    links = tuple(
        Link(a, b, 0.0, 1e5 if b == 1 else 1e15) for a in range(3) for b in range(3) if a != b
    )
    module = placed(fn, SQUARE, topology=Topology((fast, fast, slow), links))
    assert spared(module) == 64 * 63 * 4
    assert "jax.exp" in inside(module, 1)
    assert "jax.exp" not in inside(module, 2)


def test_little_is_not_worth_it() -> None:
    def fn(x: jax.Array, row: jax.Array) -> Any:
        with baechi.on(0):
            large = jnp.sin(x @ x)
            small = jnp.broadcast_to(row.sum(), (8,))
            used = small * 2
        with baechi.on(1):
            return used, large @ x, jnp.cumsum(small)

    row = jax.ShapeDtypeStruct((8,), jnp.float32)
    assert spared(placed(fn, SQUARE, row, topology=SLOW_LINKS)) == 0


def test_effects_do_not_run_again() -> None:
    def fn(x: jax.Array) -> Any:
        with baechi.on(0):
            value = jnp.sin(x @ x)
            jax.debug.print("{}", value.sum(), ordered=True)
            wide = value.astype(jnp.bfloat16).astype(jnp.float32)
        with baechi.on(1):
            return wide @ wide

    module = placed(fn, SQUARE)
    assert spared(module) > 0
    assert sum("debug" in name for device in (0, 1) for name in inside(module, device)) == 1


# What stays ---------------------------------------------------------------------------------------


def test_tasks_keep_their_names_and_devices() -> None:
    module = placed(step, [SQUARE] * 4, SQUARE)

    def kept(task: Operation) -> list[object]:
        keys = ("sym_name", "baechi.devices", "baechi.group", "baechi.pin")
        return [task.attributes.get(key) for key in keys]

    before = [kept(task) for task in tasks_of(module.main)]
    assert spared(module) > 0
    assert [kept(task) for task in tasks_of(module.main)] == before


def test_a_second_run_finds_nothing_more() -> None:
    module = placed(step, [SQUARE] * 4, SQUARE)
    SpareSends().run(module)
    before = print_module(module)
    SpareSends().run(module)
    assert print_module(module) == before


def test_copies_for_the_backward_pass_say_so() -> None:
    module = placed(step, [SQUARE] * 4, SQUARE)
    SpareSends().run(module)
    for task in tasks_of(module.main):
        # A forward task has no operation of the backward pass, and the other way round.
        dots = {"transpose(" in op.location.name for op in _dots(task)}
        maxima = [op for op in task.body.ops if op.name == "jax.max"]
        if dots:
            assert {"transpose(" in op.location.name for op in maxima} <= dots


def _dots(task: Operation) -> list[Operation]:
    return [op for op in task.body.ops if op.name == "jax.dot_general"]


def test_values_are_those_of_jit() -> None:
    rng = np.random.default_rng(0)
    params = [jnp.asarray(rng.normal(0, 0.2, (64, 64)), jnp.float32) for _ in range(4)]
    x = jnp.asarray(rng.normal(size=(64, 64)), jnp.float32)
    run = baechi.place(step, topology=TWO, placer="expert")
    assert run.plan(params, x).module.main.attributes["baechi.spared_bytes"] == 64 * 64 * 4
    want, want_loss = jax.jit(step)(params, x)
    got, got_loss = run(params, x)
    np.testing.assert_allclose(got_loss, want_loss, rtol=2e-5)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)


def test_a_saved_plan_spares_the_same(tmp_path: Any) -> None:
    run = baechi.place(step, topology=TWO, placer="expert")
    plan = run.plan([SQUARE] * 4, SQUARE)
    plan.save(tmp_path / "plan.mlir")
    again = baechi.place(step, plan=tmp_path / "plan.mlir").plan([SQUARE] * 4, SQUARE)
    assert again.module.main.attributes["baechi.spared_bytes"] == 64 * 64 * 4
    assert _tasks(again.module) == _tasks(plan.module)


def _tasks(module: Module) -> list[tuple[object, list[str]]]:
    return [
        (task.attributes["baechi.devices"], [op.name for op in task.body.ops])
        for task in tasks_of(module.main)
    ]


def test_an_unknown_class_of_operations_is_named() -> None:
    module = placed(step, [SQUARE] * 4, SQUARE)
    with pytest.raises(PassError, match="spare-sends: cheap=dots is not known; there are: broad"):
        SpareSends(cheap=("dots",)).run(module)
