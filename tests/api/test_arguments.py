"""Arguments that lie elsewhere are moved; arguments that cannot be used are named by their path."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import baechi_jax as baechi
from baechi_jax.ir.topology import Topology
from baechi_jax.runtime.errors import ArgumentError, ExecutionError
from baechi_jax.runtime.pacing import Pacer
from baechi_jax.stages import Compiled


def step(state: Any, batch: Any) -> Any:
    """State on device 1, the rest on device 0."""
    with baechi.on(1):
        new = {"w": state["w"] + 1, "n": state["n"] * 2}
    with baechi.on(0):
        loss = jnp.sum(batch) * 2
    return new, loss


def placed(**options: Any) -> Any:
    return baechi.place(
        step, topology=Topology.uniform(2), placer="expert", donate_argnums=0, **options
    )


def state(device: int | None = None) -> Any:
    tree = {"w": jnp.ones((4, 4)), "n": jnp.ones(3)}
    return tree if device is None else jax.device_put(tree, jax.devices()[device])


@pytest.mark.parametrize("device", [None, 0, 1, 3])
def test_state_is_moved_once_and_its_source_freed(device: int | None) -> None:
    fn = placed()
    before = state(device)
    after, loss = fn(before, jnp.ones(2))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    assert {leaf.device for leaf in jax.tree.leaves(after)} == {jax.devices()[1]}
    assert loss.device == jax.devices()[0]
    np.testing.assert_array_equal(after["w"], np.full((4, 4), 2.0))
    compiled = fn.lower(before, jnp.ones(2)).compile()
    assert compiled.pending(jax.tree.leaves((after, jnp.ones(2)))) == []


def test_undonated_source_stays() -> None:
    fn = baechi.place(step, topology=Topology.uniform(2), placer="expert")
    before = state(3)
    fn(before, np.ones(2, np.float32))
    np.testing.assert_array_equal(before["w"], np.ones((4, 4)))


def test_replicated_and_split_arrays_are_taken() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[4:8]), ("d",))
    replicated = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("d"))
    before = {
        "w": jax.device_put(jnp.ones((4, 4)), split),
        "n": jax.device_put(jnp.ones(3), replicated),
    }
    after, _ = placed()(before, jnp.ones(2))
    np.testing.assert_array_equal(after["w"], np.full((4, 4), 2.0))
    np.testing.assert_array_equal(after["n"], np.full(3, 2.0))


def test_deleted_argument_is_named() -> None:
    fn = placed()
    first = state()
    second, _ = fn(first, jnp.ones(2))
    with pytest.raises(
        ArgumentError, match=r"argument state\['n'\] was donated in an earlier call"
    ):
        fn(first, jnp.ones(2))
    # And the function stays usable.
    fn(second, jnp.ones(2))


def test_same_array_donated_twice_is_named() -> None:
    fn = baechi.place(lambda x, y: (x + 1, y + 1), topology=Topology.uniform(1), donate_argnums=0)
    x = jnp.ones(3)
    with pytest.raises(ArgumentError, match="arguments x and y are the same array"):
        fn(x, x)
    assert not x.is_deleted()


def test_an_error_on_the_way_leaves_all_arguments() -> None:
    fn = placed()
    before = state(3)
    gone = jnp.ones(2)
    gone.delete()
    with pytest.raises(ArgumentError, match="argument batch was donated"):
        fn(before, gone)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(before))


def test_ctrl_c_while_an_earlier_step_runs_leaves_all_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fn = placed()
    fn(state(), jnp.ones(2))

    def interrupted(self: Pacer) -> None:
        raise KeyboardInterrupt

    before = state(3)
    with monkeypatch.context() as patched:
        patched.setattr(Pacer, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fn(before, jnp.ones(2))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    after, _ = fn(before, jnp.ones(2))
    np.testing.assert_array_equal(after["w"], np.full((4, 4), 2.0))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))


@pytest.mark.parametrize("late", [False, True])
def test_a_leaf_that_cannot_be_moved_is_named(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """At once, or only when it was to arrive."""
    fn = placed()
    fn(state(), jnp.ones(2))
    plain = jax.device_put

    class Lost:
        def block_until_ready(self) -> None:
            raise RuntimeError("RESOURCE_EXHAUSTED: no room")

    def failing(x: Any, *args: Any) -> Any:
        leaves = x if isinstance(x, list) else [x]
        if late and isinstance(x, list):
            moved = plain(x, *args)
            return [Lost() if leaf.ndim == 2 else leaf for leaf in moved]
        if any(np.ndim(leaf) == 2 for leaf in leaves):
            raise RuntimeError("RESOURCE_EXHAUSTED: no room")
        return plain(x, *args)

    before = state(3)
    with monkeypatch.context() as patched:
        patched.setattr(jax, "device_put", failing)
        with pytest.raises(ExecutionError, match=r"moving argument state\['w'\] failed") as caught:
            fn(before, jnp.ones(2))
    assert "No donated argument was given away yet" in str(caught.value)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    fn(before, jnp.ones(2))


def test_a_donated_copy_that_lies_in_place_goes_to_the_step() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:3]), ("d",))
    before = jax.device_put(state(), NamedSharding(mesh, PartitionSpec()))
    after, _ = placed()(before, jnp.ones(2))
    np.testing.assert_array_equal(after["w"], np.full((4, 4), 2.0))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))


def test_shapes_instead_of_arrays_are_named() -> None:
    with pytest.raises(ArgumentError, match="argument batch is a shape, not an array"):
        placed()(state(), jax.ShapeDtypeStruct((2,), jnp.float32))


# A compiled stage is stricter ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    stage = placed().lower(state(), jnp.ones(2)).compile()
    assert isinstance(stage, Compiled)
    return stage


def test_compiled_runs(compiled: Compiled) -> None:
    shardings, batch_sharding = compiled.input_shardings[0]
    after, loss = compiled(
        jax.device_put(state(), shardings), jax.device_put(jnp.ones(2), batch_sharding)
    )
    assert float(loss) == 4.0
    assert after["w"].sharding == compiled.output_shardings[0]["w"]


def test_compiled_moves_what_is_not_committed(compiled: Compiled) -> None:
    compiled(state(), np.ones(2, np.float32))


def test_wrong_device(compiled: Compiled) -> None:
    with pytest.raises(ArgumentError, match=r"argument state\['n'\] lies on .*3, and was compiled"):
        compiled(state(3), jnp.ones(2))


def test_wrong_shape(compiled: Compiled) -> None:
    wrong = r"argument batch was compiled as f32\[2\], and is f32\[5\] in this call"
    with pytest.raises(ArgumentError, match=wrong):
        compiled(state(), jnp.ones(5))


def test_wrong_structure(compiled: Compiled) -> None:
    with pytest.raises(ArgumentError, match="another structure"):
        compiled({**state(), "more": jnp.ones(1)}, jnp.ones(2))


def test_wrong_static_argument() -> None:
    fn = baechi.place(lambda x, n: x * n, topology=Topology.uniform(1), static_argnums=1)
    stage = fn.lower(jnp.ones(2), 3).compile()
    np.testing.assert_array_equal(stage(jnp.ones(2), 3), [3, 3])
    with pytest.raises(ArgumentError, match="compiled for the static arguments"):
        stage(jnp.ones(2), 4)


def test_not_an_array(compiled: Compiled) -> None:
    with pytest.raises(ArgumentError, match="argument batch is no array: str"):
        compiled(state(), "text")


class _Scale:
    """A pytree class that takes arrays alone, as jmp's loss scales do."""

    def __init__(self, value: Any) -> None:
        if type(value) is not object and not isinstance(value, jax.Array):
            raise TypeError(f"no array: {value}")
        self.value = value


jax.tree_util.register_pytree_node(
    _Scale, lambda node: ((node.value,), None), lambda _, children: _Scale(*children)
)


def test_classes_that_take_arrays_alone() -> None:
    def scaled(scale: _Scale, x: Any) -> Any:
        return _Scale(scale.value * 2), x * scale.value

    run = baechi.place(scaled, topology=Topology.uniform(2), donate_argnums=0)
    scale, _ = run(_Scale(jnp.float32(3.0)), jnp.ones(4))
    scale, x = run(scale, jnp.ones(4))
    assert isinstance(scale, _Scale)
    assert scale.value == 12
    np.testing.assert_array_equal(x, 6 * np.ones(4))
    assert "scale" in run.trace(scale, x).module.main.attributes["arg_attrs"][0]["baechi.name"]
