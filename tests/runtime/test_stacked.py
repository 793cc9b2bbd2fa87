"""``StackedArray`` as an array and as a leaf, and layers brought from anywhere to anywhere."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import baechi_jax as baechi
from baechi_jax.runtime.layers import Run, StackedSharding, sharding_of
from baechi_jax.runtime.restack import restack
from baechi_jax.runtime.stacked import StackedArray

DEVICES = jax.devices()
LENGTH = 7
X = np.arange(LENGTH * 6, dtype=np.float32).reshape(LENGTH, 6)
RUNS = (Run(0, 2, DEVICES[1]), Run(2, 3, DEVICES[0]), Run(3, 7, DEVICES[3]))


def stacked(x: Any = X, runs: tuple[Run, ...] = RUNS) -> StackedArray:
    return StackedArray.of(restack(x, runs).arrays)


def mesh(count: int, *names: str, shape: tuple[int, ...] | None = None) -> Mesh:
    return Mesh(np.array(DEVICES[:count]).reshape(shape or (count,)), names or ("d",))


def pointer(array: jax.Array) -> int:
    return int(array.unsafe_buffer_pointer())


# Shardings ----------------------------------------------------------------------------------------


def test_even_runs_on_distinct_devices_are_a_mesh() -> None:
    even = sharding_of([Run(0, 2, DEVICES[2]), Run(2, 4, DEVICES[0])])
    assert isinstance(even, NamedSharding)
    assert list(even.mesh.devices) == [DEVICES[2], DEVICES[0]]
    assert isinstance(sharding_of([Run(0, 4, DEVICES[2])]), SingleDeviceSharding)
    for runs in (
        [Run(0, 2, DEVICES[2]), Run(2, 5, DEVICES[0])],
        [Run(0, 2, DEVICES[2]), Run(2, 4, DEVICES[2])],
    ):
        assert sharding_of(runs) == StackedSharding(tuple(runs))


@pytest.mark.parametrize("runs", [(), ((1, 2),), ((0, 2), (3, 4)), ((0, 2), (1, 4)), ((0, 0),)])
def test_runs_must_make_the_whole(runs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"runs must follow|at least one run"):
        StackedSharding(tuple(Run(*each, DEVICES[0]) for each in runs))


# As an array --------------------------------------------------------------------------------------


def test_looks_like_the_whole() -> None:
    x = stacked()
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == (X.shape, X.dtype, 2, 42, 168)
    assert (len(x), x.weak_type, x.itemsize) == (7, False, 4)
    assert x.devices() == {DEVICES[0], DEVICES[1], DEVICES[3]}
    assert repr(x) == ("StackedArray(float32[7, 6], layers 0:2 on cpu:1, 2 on cpu:0, 3:7 on cpu:3)")
    np.testing.assert_array_equal(x, X)
    assert np.asarray(x, np.float64).dtype == np.float64


def test_layers() -> None:
    x = stacked()
    for number, layer in enumerate(x):
        np.testing.assert_array_equal(layer, X[number])
    assert x[-1].devices() == {DEVICES[3]}
    assert x[2, 3] == X[2, 3]
    np.testing.assert_array_equal(x[np.int64(5), 1:], X[5, 1:])
    # A layer has a buffer of its own: it outlives the stack.
    layer = x[2]
    x.delete()
    np.testing.assert_array_equal(layer, X[2])


@pytest.mark.parametrize("index", [slice(0, 2), None, (), True, (slice(None), 0), np.array([1])])
def test_only_single_layers_are_given(index: Any) -> None:
    with pytest.raises(TypeError, match=r"one layer at a time.*baechi\.gather"):
        stacked()[index]


@pytest.mark.parametrize("index", [7, -8])
def test_layers_end(index: int) -> None:
    with pytest.raises(IndexError, match="of a stack of 7 layers"):
        stacked()[index]


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (operator.add, 2),
        (operator.mul, np.float32(3)),
        (operator.sub, X[:1]),
        (operator.truediv, X + 1),
        (operator.pow, jnp.arange(6.0)),
        (operator.lt, stacked(X[::-1])),
        (operator.eq, stacked(X, (Run(0, 5, DEVICES[2]), Run(5, 7, DEVICES[4])))),
        (np.maximum, jnp.asarray(X) + 1),
        (lambda a, b: operator.mul(b, a), jnp.float32(2)),
        (lambda a, b: operator.add(b, a), X),
    ],
)
def test_elementwise_functions_work_piece_by_piece(
    function: Callable[..., Any], other: Any
) -> None:
    got = function(stacked(), other)
    assert isinstance(got, StackedArray)
    assert got.sharding == StackedSharding(RUNS)
    assert [piece.devices() for piece in got.pieces] == [{run.device} for run in RUNS]
    want = function(jnp.asarray(X), jnp.asarray(np.asarray(other)))
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


def test_unary_and_types() -> None:
    x = stacked()
    np.testing.assert_array_equal(np.exp(-x), jnp.exp(-jnp.asarray(X)))
    assert (x * 2).dtype == np.float32
    half = x.astype(jnp.bfloat16)
    assert (half.dtype, half.sharding) == (jnp.bfloat16, x.sharding)
    np.testing.assert_array_equal(abs(x - 3), abs(X - 3))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + stacked(X[:, 0]),
        lambda x: x + np.ones((3, 7, 6)),
        lambda x: x + np.ones((5, 6)),
        lambda x: x @ np.ones(6),
        lambda x: np.add(x, 1, out=X),
        lambda x: bool(x == 1),
        lambda x: hash(x),
        lambda x: np.asarray(x, copy=False),
    ],
)
def test_what_has_no_meaning_is_refused(wrong: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        wrong(stacked())


def test_pieces_must_fit_together() -> None:
    for pieces in ([], [jnp.ones(())], [jnp.ones((1, 2)), jnp.ones((1, 3))]):
        with pytest.raises(ValueError, match="piece"):
            StackedArray.of(pieces)


def test_deleted() -> None:
    x = stacked()
    x.pieces[1].delete()
    assert x.is_deleted()
    for use in (np.asarray, operator.neg, StackedArray.copy):
        with pytest.raises(RuntimeError, match="deleted, or donated"):
            use(x)
    assert "deleted" in repr(x)


# As a leaf ----------------------------------------------------------------------------------------


def test_trees_see_a_leaf() -> None:
    tree = {"w": stacked(), "b": jnp.ones(3)}
    plain = {"w": X, "b": np.ones(3)}
    assert jax.tree.structure(tree) == jax.tree.structure(plain)
    doubled = jax.tree.map(lambda a, b: a + b, tree, plain)
    np.testing.assert_array_equal(doubled["w"], 2 * X)
    assert jax.block_until_ready(tree)["w"] is tree["w"]
    host = jax.device_get(tree)
    assert type(host["w"]) is np.ndarray
    assert jax.eval_shape(lambda t: t["w"] * 2, tree).shape == X.shape


def test_pickles_hold_the_whole_and_copies_have_their_own_buffers() -> None:
    x = stacked()
    read = pickle.loads(pickle.dumps({"w": x}))
    assert type(read["w"]) is np.ndarray
    np.testing.assert_array_equal(read["w"], X)
    for other in (copy.deepcopy(x), copy.copy(x), x.copy()):
        assert other.sharding == x.sharding
        other.delete()
        np.testing.assert_array_equal(x, X)


def test_gather() -> None:
    even = jax.device_put(X, NamedSharding(mesh(7), PartitionSpec("d")))
    tree = {"uneven": stacked(), "even": even, "plain": jnp.ones(3), "host": X, "number": 3}
    got = baechi.gather(tree)
    for name in ("uneven", "even"):
        assert type(got[name]) is np.ndarray
        np.testing.assert_array_equal(got[name], X)
    assert all(got[name] is tree[name] for name in ("plain", "host", "number"))
    there = baechi.gather(tree, DEVICES[5])
    assert there["uneven"].devices() == there["even"].devices() == {DEVICES[5]}
    np.testing.assert_array_equal(there["uneven"], X)


def test_gather_random_keys() -> None:
    keys = jax.random.split(jax.random.key(3), LENGTH)
    got = baechi.gather({"k": stacked(keys)})["k"]
    assert got.devices() == {DEVICES[1]}
    np.testing.assert_array_equal(jax.random.key_data(got), jax.random.key_data(keys))
    with pytest.raises(TypeError, match="random keys"):
        np.asarray(stacked(keys))


def test_device_put() -> None:
    uneven = StackedSharding(RUNS)
    even = NamedSharding(mesh(7), PartitionSpec("d"))
    two = NamedSharding(mesh(6, "a", "b", shape=(2, 3)), PartitionSpec(None, "b"))
    single = SingleDeviceSharding(DEVICES[4])
    places = {"uneven": uneven, "even": even, "two": two, "single": single, "device": DEVICES[2]}
    for source in (X, jnp.asarray(X), stacked(), stacked(X, (*RUNS[:2], Run(3, 7, DEVICES[2])))):
        got = baechi.device_put(dict.fromkeys(places, source), places)
        for name, leaf in got.items():
            np.testing.assert_array_equal(leaf, X)
            if name != "device":
                assert leaf.sharding == places[name]
        assert got["device"].devices() == {DEVICES[2]}
    # One place for a whole subtree.
    got = baechi.device_put({"a": [X, stacked()], "b": X}, {"a": uneven, "b": single})
    assert [leaf.sharding for leaf in got["a"]] == [uneven, uneven]
    assert baechi.device_put(got["a"][0], uneven) is got["a"][0]


def test_device_put_refuses_other_layers() -> None:
    for leaf in (X[:5], np.float32(1)):
        with pytest.raises(baechi.StackError, match="that is for 7 layers along dimension 0"):
            baechi.device_put(leaf, StackedSharding(RUNS))
    with pytest.raises(baechi.StackError, match="goes to one device, over a mesh"):
        baechi.device_put(stacked(), None)


# Layers from anywhere -----------------------------------------------------------------------------

SOURCES: dict[str, Callable[[Any], Any]] = {
    "host": lambda x: x,
    "one device": lambda x: jax.device_put(x, DEVICES[6]),
    "over a mesh": lambda x: jax.device_put(x, NamedSharding(mesh(7), PartitionSpec("d"))),
    "on each of a mesh": lambda x: jax.device_put(x, NamedSharding(mesh(7), PartitionSpec())),
    "over and on each": lambda x: jax.device_put(
        x, NamedSharding(mesh(7, "a", "b", shape=(7, 1)), PartitionSpec("a"))
    ),
    "along another dimension": lambda x: jax.device_put(
        x, NamedSharding(mesh(3), PartitionSpec(None, "d"))
    ),
    "longer pieces": lambda x: stacked(x, (Run(0, 6, DEVICES[1]), Run(6, 7, DEVICES[3]))),
    "shorter pieces": lambda x: stacked(x, tuple(Run(i, i + 1, DEVICES[i]) for i in range(7))),
    "in place": stacked,
}


@pytest.mark.parametrize("source", SOURCES)
def test_restack(source: str) -> None:
    leaf = SOURCES[source](X)
    found = restack(leaf, RUNS)
    for run, array in zip(RUNS, found.arrays, strict=True):
        assert array.sharding == SingleDeviceSharding(run.device)
        np.testing.assert_array_equal(array, X[run.start : run.stop])
    # What is not shared can be freed; what is shared must not be among it.
    for array in found.unused:
        array.delete()
    np.testing.assert_array_equal(StackedArray.of(found.arrays), X)
    if source == "in place":
        assert found.unused == []
        assert list(map(pointer, found.arrays)) == list(map(pointer, leaf.pieces))
    elif source != "host":
        assert leaf.is_deleted()


def test_replicas_are_taken_where_they_lie() -> None:
    leaf = SOURCES["on each of a mesh"](X)
    found = restack(leaf, [Run(0, 7, DEVICES[3])])
    (own,) = [s.data for s in leaf.addressable_shards if s.device == DEVICES[3]]
    assert pointer(found.arrays[0]) == pointer(own)
    assert len(found.unused) == 6
