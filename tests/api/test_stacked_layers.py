"""A scanned model on several devices: made, trained, evaluated and checkpointed in pieces."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import baechi_jax as baechi
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.place import PlacedFunction
from baechi_jax.runtime.layers import StackedSharding
from baechi_jax.runtime.stacked import StackedArray
from tests import scanned_layers
from tests.scanned_layers import clipped, loss

LAYERS, WIDTH = 7, 48
QUICK = {"xla_backend_optimization_level": 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)
X = np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32)
STATE_BYTES = 3 * 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
LIMIT = STATE_BYTES


def init(key: Any) -> Any:
    params = scanned_layers.init(key, LAYERS, WIDTH)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "count": jnp.int32(0)}


def step(state: Any, x: Any) -> Any:
    """Adam, clipped by the global norm."""
    value, grads = jax.value_and_grad(loss)(state["params"], x)
    grads = clipped(grads)
    count = state["count"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)

    def update(p: Any, m: Any, v: Any) -> Any:
        return p - 0.01 * m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-6)

    params = jax.tree.map(update, state["params"], m, v)
    return {"params": params, "m": m, "v": v, "count": count}, value


@pytest.fixture(scope="module")
def train() -> PlacedFunction:
    fn = baechi.place(
        step,
        topology=Topology.uniform(3, Device(memory_bytes=LIMIT)),
        placer="m-etf",
        donate_argnums=0,
        compiler_options=QUICK,
    )
    plan = fn.plan(jax.eval_shape(init, jax.random.key(0)), X)
    assert all(peak <= LIMIT for peak in plan.peak_bytes)
    return fn


@pytest.fixture(scope="module")
def initialise(train: PlacedFunction) -> PlacedFunction:
    return baechi.place_init(init, like=train, compiler_options=QUICK)


def check(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


def devices(leaf: Any) -> set[jax.Device]:
    found: set[jax.Device] = leaf.devices()
    return found


def test_made_in_pieces(train: PlacedFunction, initialise: PlacedFunction) -> None:
    state = initialise(jax.random.key(0))
    check(state, jit(init)(jax.random.key(0)))
    shardings, _ = train.input_shardings(state, X)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == shardings
    assert len(devices(state["params"]["w"])) > 1
    compiled = train.lower(state, X).compile()
    assert compiled.pending(jax.tree.leaves((state, X))) == [len(jax.tree.leaves(state))]
    # No device ever held a stack.
    _, memory = initialise.lower(jax.random.key(0)).compile().measure_memory(jax.random.key(0))
    assert max(memory.peak_bytes) <= LIMIT


def test_trained_and_evaluated(train: PlacedFunction, initialise: PlacedFunction) -> None:
    state, plain = initialise(jax.random.key(0)), jit(init)(jax.random.key(0))
    for _ in range(3):
        state, value = train(state, X)
        plain, want = jit(step)(plain, X)
        np.testing.assert_allclose(value, want, rtol=1e-5)
    check(state, plain)
    evaluate = baechi.place(loss, like=train, compiler_options=QUICK)
    np.testing.assert_allclose(
        evaluate(state["params"], X), jit(loss)(plain["params"], X), rtol=1e-5
    )
    found = evaluate.input_shardings(state["params"], X)[0]
    assert found["w"] == state["params"]["w"].sharding
    # Another batch size: the state stays.
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    state, _ = train(state, X[:3])
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == where
    # And a step that reads it whole.
    total = baechi.place(
        lambda p: jnp.sum(jnp.cumsum(p["w"], 0)), like=train, topology=Topology.uniform(3)
    )
    want = jnp.sum(jnp.cumsum(np.asarray(state["params"]["w"]), 0))
    np.testing.assert_allclose(total(state["params"]), want, rtol=1e-4)


def test_layers_that_lie_together_are_an_ordinary_array() -> None:
    fn = baechi.place(step, topology=Topology.uniform(3), placer="m-topo", compiler_options=QUICK)
    shapes = jax.eval_shape(init, jax.random.key(0))
    plan = fn.plan(shapes, X)
    assert len(plan.devices_used) == 1
    shardings, _ = fn.input_shardings(shapes, X)
    assert all(len(each.device_set) == 1 for each in jax.tree.leaves(shardings))
    assert not any(isinstance(each, StackedSharding) for each in jax.tree.leaves(shardings))
    # Whoever asks for pieces gets them.
    forced = baechi.place(
        step, topology=Topology.uniform(3), pipeline="default{placer=m-topo when=always}"
    )
    found, _ = forced.input_shardings(shapes, X)
    assert isinstance(found["params"]["w"], StackedSharding)


def test_a_saved_plan_is_repeated(
    train: PlacedFunction, initialise: PlacedFunction, tmp_path: Path
) -> None:
    shapes = jax.eval_shape(init, jax.random.key(0))
    train.plan(shapes, X).save(tmp_path / "plan.mlir")
    again = baechi.place(step, plan=tmp_path / "plan.mlir", donate_argnums=0)
    assert again.input_shardings(shapes, X) == train.input_shardings(shapes, X)


def test_plain_checkpoint(
    train: PlacedFunction, initialise: PlacedFunction, tmp_path: Path
) -> None:
    state = initialise(jax.random.key(0))
    shardings, _ = train.input_shardings(state, X)
    np.savez(tmp_path / "state.npz", *jax.tree.leaves(baechi.gather(state)))
    with np.load(tmp_path / "state.npz") as file:
        host = jax.tree.unflatten(jax.tree.structure(state), list(file.values()))
    restored = baechi.device_put(host, shardings)
    assert jax.tree.map(lambda leaf: leaf.sharding, restored) == shardings
    check(restored, state)


def test_orbax_checkpoint(
    train: PlacedFunction, initialise: PlacedFunction, tmp_path: Path
) -> None:
    state = initialise(jax.random.key(0))
    # An uneven leaf for certain, and one over a mesh.
    runs = [baechi.StackedArray.of([state["params"]["b"][i][None] for i in range(LAYERS)])]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:LAYERS]), ("layers",))
    even = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("layers"))
    state = {**state, "uneven": runs[0], "even": baechi.device_put(runs[0], even)}
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
        target = baechi.restore_target(shapes, shardings)
        restored = checkpointer.restore(tmp_path / "state", target)
    assert type(restored["uneven"]) is np.ndarray
    assert restored["even"].sharding == even
    restored = baechi.device_put(restored, shardings)
    assert jax.tree.map(lambda leaf: leaf.sharding, restored) == shardings
    assert isinstance(restored["uneven"], StackedArray)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("uneven", "even"):
        del restored[name]
    train(restored, X)
