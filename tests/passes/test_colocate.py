"""Groups of whole training steps: many, one for each large parameter, never a giant one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import trace
from baechi_jax.passes.colocate import Colocate
from baechi_jax.passes.dataflow import LITERAL, is_backward
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls

WIDTH = 32


def _f(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _colocated(
    fn: Callable[..., Any], *args: Any, devices: int = 2, donate: tuple[int, ...] = (0,)
) -> Module:
    module = trace(fn, args, donate_argnums=donate).module
    module.attributes["baechi.topology"] = Topology.uniform(devices)
    InlineCalls().run(module)
    EliminateDeadCode().run(module)
    Colocate().run(module)
    return module


def _argument_groups(module: Module) -> dict[str, str]:
    """Argument name -> group."""
    return {
        str(entry["baechi.name"]): str(entry["baechi.group"])
        for entry in argument_attributes(module.main)
        if "baechi.group" in entry
    }


def _with_momentum(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        m = jax.tree.map(lambda a, g: 0.9 * a + g, state["m"], grads)
        count = state["count"] + 1
        rate = 0.1 / jnp.sqrt(count)
        params = jax.tree.map(lambda p, a: p - rate * a, state["params"], m)
        return {"params": params, "m": m, "count": count}, value

    return step


def _state(params: Any) -> Any:
    return {"params": params, "m": params, "count": _f()}


def _layer(p: Any, x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    x_ = (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    q, k, v = jnp.moveaxis((x_ @ p["qkv"]).reshape(*x.shape[:2], 3, 4, WIDTH // 4), 2, 0)
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 3.0, axis=-1)
    x = x + jnp.einsum("bhts,bshd->bthd", weights, v).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(x @ p["up"] + p["b"]) @ p["down"]


_LAYER = {
    "qkv": _f(WIDTH, 3 * WIDTH),
    "out": _f(WIDTH, WIDTH),
    "up": _f(WIDTH, 4 * WIDTH),
    "b": _f(4 * WIDTH),
    "down": _f(4 * WIDTH, WIDTH),
}
_X = _f(2, 8, WIDTH)


def _loss(params: Any, batch: Any) -> jax.Array:
    x = batch
    for p in params:
        x = _layer(p, x)
    return jnp.mean(x**2)


def test_layers_of_a_python_loop_stay_apart() -> None:
    """All layers share their source lines and no scope names them."""
    layers = 12
    module = _colocated(_with_momentum(_loss), _state([_LAYER] * layers), _X)
    groups = _argument_groups(module)
    for name in ("qkv", "out", "up", "down"):
        own = {groups[f"state['params'][{i}]['{name}']"] for i in range(layers)}
        assert len(own) == layers
    sizes = Counter(
        op.attributes.get("baechi.group")
        for op in module.main.body.ops
        if op.name != LITERAL and "baechi.group" in op.attributes
    )
    total = sum(1 for op in module.main.body.ops if op.name != LITERAL)
    assert len(sizes) >= 4 * layers
    assert max(sizes.values()) < total / layers


def test_a_parameter_its_moment_update_and_readers_are_one_group() -> None:
    module = _colocated(_with_momentum(_loss), _state([_LAYER] * 2), _X)
    groups = _argument_groups(module)
    name = groups["state['params'][1]['up']"]
    assert name == "state['params'][1]['up']"
    assert groups["state['m'][1]['up']"] == name
    assert groups["state['m'][0]['up']"] != name
    body = module.main.body
    for index, entry in enumerate(argument_attributes(module.main)):
        if entry["baechi.name"] != "state['params'][1]['up']":
            continue
        target = entry["baechi.state"]
        assert isinstance(target, int)
        made = body.terminator.operands[target].defining_op
        assert made is not None
        assert made.attributes["baechi.group"] == name
        readers = body.arguments[index].users
        assert {is_backward(op) for op in readers} == {True, False}
        assert {op.attributes["baechi.group"] for op in readers} == {name}


def test_scalars_that_everyone_reads_glue_nothing() -> None:
    module = _colocated(_with_momentum(_loss), _state([_LAYER] * 3), _X)
    groups = _argument_groups(module)
    count = groups.get("state['count']")
    assert count is None or list(groups.values()).count(count) == 1


def test_tied_weights_keep_their_readers_together() -> None:
    def loss(p: Any, tokens: jax.Array) -> jax.Array:
        x = p["embed"][tokens]
        x = jnp.tanh(x @ p["w"])
        return jnp.mean((x @ p["embed"].T) ** 2)

    params = {"embed": _f(512, WIDTH), "w": _f(WIDTH, WIDTH)}
    module = _colocated(_with_momentum(loss), _state(params), _f(4, 8, dtype="int32"))
    name = _argument_groups(module)["state['params']['embed']"]
    ops = [op for op in module.main.body.ops if op.attributes.get("baechi.group") == name]
    kinds = Counter(op.name for op in ops)
    assert kinds["jax.gather"] == 1
    # The logits, and the gradient of x through them.
    assert kinds["jax.dot_general"] >= 2


def test_a_cast_parameter_is_still_that_parameter() -> None:
    def loss(p: Any, x: jax.Array) -> jax.Array:
        for w in p:
            x = jnp.tanh(x @ w.astype(jnp.bfloat16))
        return jnp.mean(x.astype(jnp.float32))

    params = [_f(WIDTH, WIDTH)] * 3
    module = _colocated(_with_momentum(loss), _state(params), _f(8, WIDTH, dtype="bfloat16"))
    groups = _argument_groups(module)
    for index in range(3):
        name = groups[f"state['params'][{index}]"]
        products = [
            op
            for op in module.main.body.ops
            if op.name == "jax.dot_general" and op.attributes.get("baechi.group") == name
        ]
        assert any(not is_backward(op) for op in products)
        assert any(is_backward(op) for op in products)


def test_an_input_that_many_layers_read_binds_none_of_them() -> None:
    def loss(params: Any, batch: Any) -> jax.Array:
        x, mask = batch
        for w in params:
            x = jnp.tanh(x @ w) * mask
        return jnp.mean(x**2)

    params = [_f(WIDTH, WIDTH)] * 8
    batch = (_f(64, WIDTH), _f(64, WIDTH))
    module = _colocated(_with_momentum(loss), _state(params), batch)
    groups = _argument_groups(module)
    assert len({groups[f"state['params'][{i}]"] for i in range(8)}) == 8
    assert "batch[1]" not in groups


def test_recomputed_operations_of_remat_go_with_their_layer() -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        for w in params:
            x = jax.checkpoint(lambda w, x: jnp.tanh(jnp.sin(x @ w)))(w, x)
        return jnp.mean(x**2)

    module = _colocated(_with_momentum(loss), _state([_f(WIDTH, WIDTH)] * 4), _f(8, WIDTH))
    groups = _argument_groups(module)
    assert len({groups[f"state['params'][{i}]"] for i in range(4)}) == 4
    recomputed = [
        op
        for op in module.main.body.ops
        if op.name == "jax.dot_general" and "rematted_computation" in op.location.name
    ]
    assert len(recomputed) == 4
    assert len({op.attributes["baechi.group"] for op in recomputed}) == 4


def test_the_same_module_gives_the_same_groups() -> None:
    def attributes() -> list[object]:
        module = _colocated(_with_momentum(_loss), _state([_LAYER] * 3), _X)
        return [op.attributes.get("baechi.group") for op in module.main.body.ops]

    assert attributes() == attributes()


def test_a_second_run_changes_nothing() -> None:
    module = _colocated(_with_momentum(_loss), _state([_LAYER] * 2), _X)
    before = [dict(op.attributes) for op in module.main.body.ops]
    Colocate().run(module)
    assert [dict(op.attributes) for op in module.main.body.ops] == before


def _pinned(first: str, second: str) -> Callable[..., Any]:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        with jax.named_scope(first):
            x = jnp.tanh(x @ params[0])
        with jax.named_scope(second):
            x = jnp.tanh(x @ params[1])
        return jnp.mean(x**2)

    return _with_momentum(loss)


def test_scopes_pin_forward_backward_and_update() -> None:
    params = [_f(WIDTH, WIDTH)] * 2
    module = _colocated(_pinned("baechi.device:1", "baechi.device:0"), _state(params), _f(8, WIDTH))
    pins = {
        entry["baechi.name"]: entry.get("baechi.pin") for entry in argument_attributes(module.main)
    }
    assert pins["state['params'][0]"] == pins["state['m'][0]"] == (1,)
    assert pins["state['params'][1]"] == pins["state['m'][1]"] == (0,)
    assert pins["state['count']"] is None
    for op in module.main.body.ops:
        if "baechi.device:1" in op.location.name and op.name != LITERAL:
            assert op.attributes["baechi.pin"] == (1,)


@pytest.mark.parametrize("device", ["2", "one"])
def test_a_pin_to_no_device_is_refused(device: str) -> None:
    params = [_f(WIDTH, WIDTH)] * 2
    fn = _pinned("baechi.device:0", f"baechi.device:{device}")
    with pytest.raises(PassError, match=f"pinned to 'baechi.device:{device}'.* 0 to 1"):
        _colocated(fn, _state(params), _f(8, WIDTH))


def test_conflicting_pins_name_both_lines() -> None:
    def loss(p: Any, x: jax.Array) -> jax.Array:
        with jax.named_scope("baechi.device:0"):
            x = jnp.tanh(x @ p["w"])
        with jax.named_scope("baechi.device:1"):
            x = jnp.tanh(x @ p["w"])
        return jnp.mean(x**2)

    with pytest.raises(PassError, match="must share one") as caught:
        _colocated(_with_momentum(loss), _state({"w": _f(WIDTH, WIDTH)}), _f(8, WIDTH))
    assert str(caught.value).count("test_colocate.py:") == 2
    assert "state['params']['w']" in str(caught.value)


def test_on_pins_as_its_scope_does_through_grad() -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        with baechi.on(1):
            x = jnp.tanh(x @ params[0])
        return jnp.mean((x @ params[1]) ** 2)

    module = _colocated(_with_momentum(loss), _state([_f(WIDTH, WIDTH)] * 2), _f(8, WIDTH))
    products = [op for op in module.main.body.ops if op.name == "jax.dot_general"]
    pinned = [op for op in products if op.attributes.get("baechi.pin") == (1,)]
    assert [is_backward(op) for op in pinned] == [False, True]
    assert len(products) > len(pinned)
    entries = argument_attributes(module.main)
    pins = {entry["baechi.name"]: entry.get("baechi.pin") for entry in entries}
    assert pins["state['params'][0]"] == pins["state['m'][0]"] == (1,)
    assert pins["state['params'][1]"] is None


@pytest.mark.parametrize("width", [WIDTH, 512], ids=["large input", "small input"])
def test_pins_overrule_the_guess_that_an_input_is_state(width: int) -> None:
    """``y`` looks like the next ``x``, but is made elsewhere; a donated ``x`` is that."""

    def fn(w: jax.Array, x: jax.Array) -> Any:
        with baechi.on(0):
            h = jnp.sin(x)
        with baechi.on(1):
            y = jnp.tanh(h @ w)
        return w * 0.9, y

    args = (_f(width, width), _f(8, width))
    w, x = argument_attributes(_colocated(fn, *args).main)
    assert w["baechi.state"] == 0
    assert w["baechi.pin"] == (1,)
    assert "baechi.state" not in x
    assert x.get("baechi.pin") in ((0,), None)  # a small input binds nobody
    with pytest.raises(PassError, match=r"device 0 and .* to device 1, but they must share one"):
        _colocated(fn, *args, donate=(0, 1))


def test_a_guess_that_no_pin_contradicts_stays() -> None:
    """A counter that both devices read binds neither, so their pins say nothing about it."""
    step = _with_momentum(_loss)

    def counted(state: Any, batch: Any) -> Any:
        with baechi.on(0):
            first = batch * state["count"]
        with baechi.on(1):
            second = batch + state["count"]
        return step(state, first * second)

    module = _colocated(counted, _state([_LAYER]), _X, donate=())
    entries = argument_attributes(module.main)
    assert all("baechi.state" in entry for entry in entries if entry["baechi.name"] != "batch")
