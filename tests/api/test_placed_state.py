"""State on several devices: where it belongs, made there, evaluated and sampled there."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.pieces import Piece
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.place import PlacedFunction
from baechi_jax.placed_state import (
    PlacedLayers,
    PlacedLeaf,
    Wanted,
    device_of_layers,
    leaves_like,
)

LAYERS, WIDTH, VOCABULARY = 4, 64, 32


def init(key: Any) -> Any:
    """``(params, moments)``: no device of the topology holds them all."""
    keys = jax.random.split(key, LAYERS + 1)
    layers = [
        {"w": jax.random.normal(k, (WIDTH, WIDTH)) / 8, "b": jnp.zeros(WIDTH)} for k in keys[:-1]
    ]
    params = {"embed": jax.random.normal(keys[-1], (VOCABULARY, WIDTH)), "layers": layers}
    return params, jax.tree.map(jnp.zeros_like, params)


def logits(params: Any, tokens: Any) -> Any:
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = x + jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params["embed"].T


def loss(params: Any, tokens: Any) -> Any:
    picked = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(picked, tokens[:, 1:, None], axis=-1))


def step(params: Any, moments: Any, tokens: Any) -> Any:
    """Loss first, so that the state's positions differ between arguments and results."""
    value, grads = jax.value_and_grad(loss)(params, tokens)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
    return value, jax.tree.map(lambda p, m: p - 0.05 * m, params, moments), moments


QUICK = {"xla_backend_optimization_level": 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)

TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, (4, 9)).astype(np.int32)
STATE_BYTES = 2 * 4 * (LAYERS * (WIDTH * WIDTH + WIDTH) + VOCABULARY * WIDTH)
LIMIT = int(0.8 * STATE_BYTES)


@pytest.fixture(scope="module")
def placed() -> PlacedFunction:
    """Planned from shapes alone, as someone does whose model fits no device."""
    fn = baechi.place(
        step,
        topology=Topology.uniform(4, Device(memory_bytes=LIMIT)),
        placer="m-etf",
        donate_argnums=(0, 1),
        compiler_options=QUICK,
    )
    plan = fn.plan(*jax.eval_shape(init, jax.random.key(0)), TOKENS)
    assert len(plan.devices_used) > 1
    return fn


@pytest.fixture(scope="module")
def initialise(placed: PlacedFunction) -> PlacedFunction:
    return baechi.place_init(init, like=placed, compiler_options=QUICK)


def devices(tree: Any) -> list[jax.Device]:
    return [leaf.device for leaf in jax.tree.leaves(tree)]


def test_input_shardings(placed: PlacedFunction) -> None:
    shapes = jax.eval_shape(init, jax.random.key(0))
    params, moments, tokens = placed.input_shardings(*shapes, TOKENS)
    assert jax.tree.structure((params, moments)) == jax.tree.structure(shapes)
    assert isinstance(tokens, jax.sharding.SingleDeviceSharding)
    # A checkpoint goes straight to its devices.
    host = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    state = jax.device_put(host, (params, moments))
    assert placed.lower(*state, TOKENS).compile().pending(jax.tree.leaves((*state, TOKENS))) == [
        len(jax.tree.leaves(state))
    ]
    assert len(set(devices(state))) > 1


def test_input_shardings_with_static_and_keyword_arguments() -> None:
    fn = baechi.place(lambda x, n, *, y: x * n + y, topology=Topology.uniform(1), static_argnums=1)
    positional, named = fn.input_shardings(jnp.ones(2), 3, y=jnp.ones(2))
    assert positional[1] is None
    assert positional[0] == named["y"]


def test_place_init(placed: PlacedFunction, initialise: PlacedFunction) -> None:
    key = jax.random.key(0)
    state = initialise(key)
    shardings = placed.input_shardings(*state, TOKENS)[:2]
    assert [leaf.sharding for leaf in jax.tree.leaves(state)] == jax.tree.leaves(shardings)
    want = jit(init)(key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6), state, want)
    assert all(peak <= LIMIT for peak in initialise.plan(key).peak_bytes)
    compiled = initialise.lower(key).compile()
    _, memory = compiled.measure_memory(key)
    assert max(memory.peak_bytes) < STATE_BYTES


def test_training_evaluating_sampling(placed: PlacedFunction, initialise: PlacedFunction) -> None:
    params, moments = initialise(jax.random.key(0))
    plain = jit(init)(jax.random.key(0))
    for _ in range(3):
        value, params, moments = placed(params, moments, TOKENS)
        want, *plain = jit(step)(*plain, TOKENS)
        np.testing.assert_allclose(value, want, rtol=1e-5)
    where = devices(params)

    evaluate = baechi.place(loss, like=placed, compiler_options=QUICK)
    np.testing.assert_allclose(evaluate(params, TOKENS), jit(loss)(plain[0], TOKENS), rtol=1e-5)
    assert jax.tree.leaves(evaluate.input_shardings(params, TOKENS)[0]) == [
        leaf.sharding for leaf in jax.tree.leaves(params)
    ]

    def sample(params: Any, context: Any, key: Any) -> Any:
        key, own = jax.random.split(key)
        token = jax.random.categorical(own, logits(params, context)[:, -1])
        return jnp.concatenate([context[:, 1:], token[:, None]], axis=1), token, key

    next_token = baechi.place(sample, like=placed, compiler_options=QUICK)
    reference = jit(sample)
    context, key = jnp.asarray(TOKENS[:, :8]), jax.random.key(7)
    context2, key2 = context, key
    for _ in range(5):
        context, token, key = next_token(params, context, key)
        context2, token2, key2 = reference(plain[0], context2, key2)
        np.testing.assert_array_equal(token, token2)
    assert devices(params) == where


def test_state_stays_when_shapes_change(placed: PlacedFunction, initialise: PlacedFunction) -> None:
    state = initialise(jax.random.key(0))
    where = devices(state)
    _, *state = placed(*state, TOKENS)
    _, *state = placed(*state, TOKENS[:2])
    assert devices(state) == where
    _, *state = placed(*state, TOKENS[:1, :5])
    assert devices(state) == where


def test_like_needs_a_plan() -> None:
    fn = baechi.place(step, topology=Topology.uniform(2))
    message = "'step' has no plan yet.*plan it from shapes"
    with pytest.raises(baechi.BaechiError, match=message):
        baechi.place_init(init, like=fn)(jax.random.key(0))
    with pytest.raises(baechi.BaechiError, match=message):
        baechi.place(loss, like=fn)(*jax.eval_shape(init, jax.random.key(0))[:1], TOKENS)


# Matching -----------------------------------------------------------------------------------------


def leaf(name: str, device: int, shape: tuple[int, ...] = (3,)) -> PlacedLeaf:
    return PlacedLeaf(name, shape, np.dtype(np.float32), (PlacedLayers(0, None, device),))


def devices_like(wanted: list[Wanted], known: list[PlacedLeaf]) -> list[int | None]:
    found = leaves_like(wanted, known)
    return [None if each is None else each.layers[0].device for each in found]


def want(name: str, shape: tuple[int, ...] = (3,)) -> Wanted:
    return Wanted(name, shape, np.dtype(np.float32))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["params['w']", "params['b']"], [1, 2]),
        (["p['w']"], [1]),
        (["result[0]['params']['b']", "result[0]['m']['w']"], [2, 3]),
        (["other"], [None]),
        (["result['v']['w']"], [1]),
    ],
)
def test_devices_like(names: list[str], expected: list[int | None]) -> None:
    known = [
        leaf("state['params']['w']", 1),
        leaf("state['params']['b']", 2),
        leaf("state['m']['w']", 3),
        leaf("state['m']['b']", 3),
        leaf("batch", 0, (9,)),
    ]
    assert devices_like([want(name) for name in names], known) == expected


def test_shapes_must_agree() -> None:
    assert devices_like([want("params['w']", (4,))], [leaf("params['w']", 1)]) == [None]


def test_bare_positions_say_nothing() -> None:
    known = [leaf("args[0][0]", 1), leaf("args[1][0]", 2)]
    assert devices_like([want("batch[0]")], known) == [None]


@pytest.mark.parametrize(
    ("piece", "device"),
    [((0, 1), 2), ((1, 2), 2), ((0, 3), 2), ((3, 2), 0), ((2, 2), None), (None, None)],
)
def test_a_piece_lies_where_all_its_layers_lie(
    piece: tuple[int, int] | None, device: int | None
) -> None:
    layers = (PlacedLayers(0, 3, 2), PlacedLayers(3, 5, 0))
    found = None if piece is None else Piece(0, *piece, 5)
    assert device_of_layers(layers, found) == device
    # A leaf that is whole there is on one device with each of its layers.
    assert device_of_layers((PlacedLayers(0, None, 1),), found) == 1
