"""Stacks of layers between steps: ordinary arrays over a mesh wherever an even split will do."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

import baechi_jax as baechi
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.plan_figures import step_seconds
from baechi_jax.place import PlacedFunction
from baechi_jax.placed_state import Layers, PlacedLayers
from baechi_jax.runtime.layers import StackedSharding
from baechi_jax.stack_forms import plan_stacks
from tests import scanned_layers
from tests.scanned_layers import clipped, loss

LAYERS, WIDTH = 8, 48
QUICK = {"xla_backend_optimization_level": 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)
X = np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32)
STATE_BYTES = 2 * 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
#: Room for two of the eight layers in a loop, not for four. In ``TIGHT`` only for two layers that
#: are no loop, and in half of that for no equal parts at all.
LIMIT, TIGHT = STATE_BYTES * 4 // 5, STATE_BYTES * 5 // 8


def init(key: Any) -> Any:
    params = scanned_layers.init(key, LAYERS, WIDTH)
    return {"params": params, "m": jax.tree.map(jnp.zeros_like, params)}


def step(state: Any, x: Any) -> Any:
    """Momentum, clipped by the global norm."""
    value, grads = jax.value_and_grad(loss)(state["params"], x)
    grads = clipped(grads)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], m)
    return {"params": params, "m": m}, value


def shapes() -> Any:
    return jax.eval_shape(init, jax.random.key(0))


def devices(*limits: int) -> Topology:
    """Slow devices that share hardware, as those of one process do: where work is done is equal."""
    made = tuple(Device(memory_bytes=limit, flops_per_second=1e8, hardware=0) for limit in limits)
    return Topology(made, Topology.uniform(len(made)).links)


EVEN = devices(*[LIMIT] * 4)


@pytest.fixture(scope="module")
def train() -> PlacedFunction:
    fn = baechi.place(step, topology=EVEN, donate_argnums=0, compiler_options=QUICK)
    fn.plan(shapes(), X)
    return fn


def test_an_even_split_is_an_array_over_a_mesh(train: PlacedFunction) -> None:
    state = baechi.place_init(init, like=train, compiler_options=QUICK)(jax.random.key(0))
    plain = jit(init)(jax.random.key(0))
    shardings, _ = train.input_shardings(state, X)
    for leaf, sharding in zip(jax.tree.leaves(state), jax.tree.leaves(shardings), strict=True):
        assert isinstance(leaf, jax.Array)
        assert isinstance(leaf.sharding, NamedSharding)
        assert leaf.sharding == sharding
        assert len(leaf.devices()) == 4
    compiled = train.lower(state, X).compile()
    # What a step gave is taken apart without a copy; only the batch has to come.
    assert compiled.pending(jax.tree.leaves((state, X))) == [len(jax.tree.leaves(state))]
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    for _ in range(3):
        state, value = train(state, X)
        plain, want = jit(step)(plain, X)
        np.testing.assert_allclose(value, want, rtol=1e-5)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == where
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(plain), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
    assert all(peak <= LIMIT for peak in train.plan(shapes(), X).peak_bytes)
    # JAX itself takes such a leaf.
    np.testing.assert_allclose(
        jax.jit(lambda w: w * 2)(state["params"]["w"]), 2 * np.asarray(state["params"]["w"])
    )


def test_other_functions_read_the_same_pieces(train: PlacedFunction) -> None:
    evaluate = baechi.place(loss, like=train, compiler_options=QUICK)
    wanted, _ = train.input_shardings(shapes(), X)
    assert evaluate.input_shardings(shapes()["params"], X)[0] == wanted["params"]
    # Another batch size, too: its state stays where the first plan put it.
    assert train.input_shardings(shapes(), X[:3])[0] == wanted


def test_a_saved_plan_keeps_its_pieces(train: PlacedFunction, tmp_path: Path) -> None:
    train.plan(shapes(), X).save(tmp_path / "plan.mlir")
    again = baechi.place(step, plan=tmp_path / "plan.mlir", donate_argnums=0)
    assert again.input_shardings(shapes(), X) == train.input_shardings(shapes(), X)


def test_unequal_devices_get_unequal_runs() -> None:
    # The small ones have no room for a quarter each.
    machine = devices(2 * LIMIT, *[LIMIT // 3] * 3)
    uneven = baechi.place(step, topology=machine, donate_argnums=0)
    shardings, _ = uneven.input_shardings(shapes(), X)
    assert isinstance(shardings["params"]["w"], StackedSharding)


def test_layers_are_no_loop_where_a_loop_does_not_fit() -> None:
    fn = baechi.place(step, topology=devices(*[TIGHT] * 4), donate_argnums=0)
    shardings, _ = fn.input_shardings(shapes(), X)
    assert isinstance(shardings["params"]["w"], NamedSharding)
    assert "pieces=4 inline=true" in str(fn.plan(shapes(), X).module.attributes["baechi.pipeline"])


def test_pieces_that_were_asked_for_stay() -> None:
    fn = baechi.place(
        step, topology=EVEN, donate_argnums=0, pipeline="default{iterations=1 pieces=8}"
    )
    pieces = fn.plan(shapes(), X).module.attributes["baechi.pipeline"]
    assert "pieces=8" in str(pieces)


def test_the_dump_is_of_the_plan_that_counts(tmp_path: Path) -> None:
    fn = baechi.place(step, topology=EVEN, donate_argnums=0, dump_folder=tmp_path)
    plan = fn.plan(shapes(), X)
    last = max(tmp_path.glob("*_verify-plan.mlir")).read_text()
    assert str(plan.module.attributes["baechi.pipeline"]) in last
    assert "pieces=4" in last
    assert f"baechi.step_seconds = {step_seconds(plan.module)!r}" in last


# Which pieces are tried --------------------------------------------------------------------------


def runs(*bounds: int, devices: tuple[int, ...] | None = None) -> Layers:
    """Layers between ``bounds``, on devices 0, 1, ... or on those given."""
    pairs = list(zip((0, *bounds), bounds, strict=False))
    places = devices or tuple(range(len(pairs)))
    return tuple(
        PlacedLayers(start, stop, place) for (start, stop), place in zip(pairs, places, strict=True)
    )


@pytest.mark.parametrize(
    ("pinned", "pieces"),
    [
        ([runs(2, 4, 6, 8)], 4),
        ([runs(2, 4, 6, 8), runs(3, 6, 9, 12)], 4),
        # Another stack that four pieces do not divide stays layer by layer.
        ([runs(2, 4, 6, 8), runs(1, 2, 3, devices=(0, 0, 1))], 4),
        # This one would be torn.
        ([runs(2, 4, 6, 8), runs(1, 2, 3, 4, devices=(0, 0, 1, 1))], 0),
        ([runs(2, 4), runs(1, 2, 3, 4)], 0),
        ([runs(1, 2, 4)], 0),
        ([runs(2, 4, devices=(1, 1))], 0),
    ],
)
def test_pinned_stacks_stay_in_their_pieces(pinned: list[Layers], pieces: int) -> None:
    tried: list[str] = []

    class Found:
        module = None  # nothing is asked of it

    def attempt(pipeline: str) -> Any:
        tried.append(pipeline)
        return Found()

    plan_stacks(attempt, "unroll-scans,place", 4, pinned)
    wanted = f"unroll-scans{{pieces={pieces}}},place" if pieces else "unroll-scans,place"
    assert tried == [wanted]
