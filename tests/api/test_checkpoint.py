"""A checkpoint of placed state, by orbax: each array comes back on its own device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import baechi_jax as baechi
from baechi_jax.ir.topology import Topology


def step(state: Any, x: Any) -> Any:
    """The first layer on device 0, the second on device 1."""
    for index, layer in enumerate(state["layers"]):
        with baechi.on(index):
            x = jnp.tanh(x @ layer)
    with baechi.on(1):
        layers = [layer - 0.1 * jnp.mean(x) for layer in state["layers"]]
        return {"layers": layers, "count": state["count"] + 1}, jnp.sum(x)


def test_restore_to_the_devices_of_a_plan(tmp_path: Path) -> None:
    fn = baechi.place(step, topology=Topology.uniform(2), placer="expert")
    keys = jax.random.split(jax.random.key(0), 2)
    state = {"layers": [jax.random.normal(key, (8, 8)) for key in keys], "count": jnp.int32(0)}
    x = jnp.ones((2, 8))
    trained, _ = fn(state, x)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", trained)
        checkpointer.wait_until_finished()
        # As a new process would: from shapes alone.
        shapes = jax.eval_shape(lambda: state)
        shardings, _ = fn.input_shardings(shapes, x)
        wanted = jax.tree.map(
            lambda shape, sharding: jax.ShapeDtypeStruct(
                shape.shape, shape.dtype, sharding=sharding
            ),
            shapes,
            shardings,
        )
        restored = checkpointer.restore(tmp_path / "state", wanted)
    assert jax.tree.map(lambda leaf: leaf.sharding, restored) == shardings
    assert len({leaf.device for leaf in jax.tree.leaves(restored)}) == 2
    for one, other in zip(
        jax.tree.leaves(fn(restored, x)), jax.tree.leaves(fn(trained, x)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
