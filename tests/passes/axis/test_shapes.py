"""Operations that move elements."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.examples import few
from tests.passes.axis.arrays import array
from tests.passes.axis.execution import check, follow

SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(SHAPES, st.integers(2, 4), st.data())
@few(3)
def test_transpose_squeeze_and_broadcast(others: list[int], size: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(others)))
    shape = [*others[:axis], size, *others[axis:]]
    order = data.draw(st.permutations(range(len(shape))))

    def fn(x: Any) -> Any:
        y = jnp.transpose(x, order)
        z = jnp.squeeze(jnp.expand_dims(y, (0, 2)), 0)
        return y, z, jnp.broadcast_to(x, (2, *shape)), jnp.squeeze(z)

    found = check(fn, [array(*shape)], {0: axis})
    at = order.index(axis)
    squeezed = sum(shape[each] > 1 for each in order[:at])
    assert found == [
        f"split {at}",
        f"split {at + (at > 0)}",
        f"split {axis + 1}",
        f"split {squeezed}",
    ]


@given(st.sampled_from([(2, 3, 4), (4, 6), (2, 2, 6), (24,), (4, 1, 3, 2)]), st.data())
@few(3)
def test_reshape(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    new = data.draw(st.sampled_from([(24,), (4, 6), (6, 4), (2, 3, 4), (2, 12), (2, 2, 2, 3)]))
    (found,) = check(lambda x: jnp.reshape(x, new), [array(*shape)], {0: axis})
    assert found == "neither" or found.startswith("split")


@pytest.mark.parametrize(
    ("shape", "axis", "new", "expected"),
    [
        ((4, 3, 2), 0, (12, 2), "split 0"),  # outermost of what it merges with
        ((4, 3, 2), 1, (12, 2), "neither"),
        ((5, 4, 3), 1, (5, 12), "split 1"),
        ((4, 6), 0, (8, 3), "split 0"),  # rows cut further, all of one position together
        ((4, 6), 0, (2, 12), "neither"),
        ((4, 6), 1, (4, 2, 3), "neither"),
        ((6, 2), 0, (1, 6, 2, 1), "split 1"),
        ((2, 3, 4), 0, (6, 4), "split 0"),
    ],
)
def test_reshape_examples(
    shape: Sequence[int], axis: int, new: tuple[int, ...], expected: str
) -> None:
    fn: Callable[..., Any] = lambda x: x.reshape(new)  # noqa: E731
    assert check(fn, [array(*shape)], {0: axis}) == [expected]


def test_a_merged_axis_comes_apart_again() -> None:
    def fn(x: Any, w: Any) -> Any:
        return (x.reshape(12, 2) @ w).reshape(4, 3, 5).sum(axis=(1, 2))

    assert check(fn, [array(4, 3, 2), array(2, 5)], {0: 0}, pieces=2) == ["split 0"]


def test_reasons_of_reshapes() -> None:
    followed = follow(lambda x: x.reshape(12, 2), [array(3, 4, 2)], {0: 1})
    assert (
        "'jax.reshape' from 3x4x2 to 12x2 puts the axis, split 1, inside another dimension"
        in followed.reason()
    )


@given(st.integers(0, 2), st.integers(2, 3), st.integers(0, 2))
@few(3)
def test_joining_padding_and_cutting(axis: int, size: int, other: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = size

    def fn(x: Any, y: Any) -> Any:
        padding = [(0, 0, 0)] * 3
        padding[other] = (1, -1, 1)
        starts = [0, 0, 0]
        starts[other] = 1
        return (
            lax.concatenate([x, y, x], other),
            lax.pad(x, 0.0, padding),
            lax.rev(x, (other,)),
            lax.slice(x, starts, shape),
            lax.slice_in_dim(x, 0, shape[other], 2, other),
            *lax.split(x, [1, shape[other] - 1], axis=other),
            jnp.tile(x, [2 if each == other else 1 for each in range(3)]),
        )

    found = check(fn, [array(*shape), array(*shape, seed=1)], {0: axis})
    assert found == (["neither"] * 8 if other == axis else [f"split {axis}"] * 8)


@given(st.integers(0, 1), st.integers(2, 3), st.integers(0, 1))
@few(3)
def test_stacking(axis: int, size: int, other: int) -> None:
    shape = [2, 2]
    shape[axis] = size

    def fn(x: Any, y: Any) -> Any:
        return jnp.stack([y, x], other), jnp.stack([x, y], 2), jnp.unstack(x, axis=other)

    stacked = f"split {axis + (other <= axis)}"
    apart = "neither" if other == axis else f"split {axis - (other < axis)}"
    found = check(fn, [array(*shape), array(*shape, seed=1)], {0: axis})
    assert found == [stacked, f"split {axis}", *[apart] * shape[other]]


@given(st.integers(0, 2), st.integers(2, 3), st.integers(0, 2))
@few(3)
def test_dynamic_slices(axis: int, size: int, other: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = size
    small = list(shape)
    small[other] = 1

    def fn(x: Any, y: Any, at: Any) -> Any:
        start = [jnp.int32(0)] * 3
        start[other] = at
        sliced = lax.dynamic_slice(x, start, small)
        update = lax.slice(y, [0, 0, 0], small)
        return sliced, lax.dynamic_update_slice(x, update, start)

    arguments = [array(*shape), array(*shape, seed=1), jnp.int32(1)]
    expected = "neither" if other == axis else f"split {axis}"
    assert check(fn, arguments, {0: axis}) == [expected] * 2
    assert check(fn, arguments, {1: axis}) == ["full", expected]


@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_partial_values_move(name: str) -> None:
    def fn(x: Any, y: Any, at: Any) -> Any:
        a = getattr(jnp, name)(x, axis=0)
        neutral = {"sum": 0.0, "max": 5.0, "prod": 1.0}[name]
        return (
            jnp.broadcast_to(a, (2, 3, 4)).reshape(6, 4).T,
            jnp.squeeze(a[:1])[::-1],
            lax.concatenate([a, a * 1.0 if name == "sum" else a], 0),
            jnp.pad(a, ((1, 0), (0, 2)), constant_values=neutral),
            lax.dynamic_slice(a, (at, 0), (1, 4)),
            lax.dynamic_update_slice(a, a[:1], (at, 0)),
            jnp.split(a, 3)[1],
            jnp.unstack(jnp.tile(jnp.stack([a, a]), (1, 2, 1)))[0],
        )

    found = check(fn, [array(4, 3, 4), array(3, 4), jnp.int32(1)], {0: 0}, pieces=2)
    assert found == [f"partial {name}"] * 8


def test_what_joins_a_partial_sum_must_be_one() -> None:
    def fn(x: Any, y: Any) -> Any:
        a = x.sum(axis=0)
        return (
            jnp.concatenate([a, y]),
            jnp.concatenate([a, jnp.zeros(3)]),
            jnp.pad(a, 1, constant_values=2.0),
        )

    followed = follow(fn, [array(4, 3), array(3)], {0: 0})
    assert followed.results == ["neither", "partial sum", "neither"]
    assert "needs an operand that is a partial sum too, found full" in followed.reason(0)
    assert "needs a padding value that is a partial sum too, found full" in followed.reason(2)


def test_an_axis_of_one_element() -> None:
    def fn(x: Any) -> Any:
        return x.reshape(1, 3), jnp.squeeze(x, 0), jnp.broadcast_to(x, (5, 3)), x.sum(0)

    found = check(fn, [array(1, 3)], {0: 0})
    assert found == ["split 0", "neither", "split 0", "partial sum"]


def test_keys_move_too() -> None:
    def fn(keys: Any) -> Any:
        return keys.reshape(4, 1), jax.random.key_data(keys)

    assert check(fn, [jax.random.split(jax.random.key(0), 4)], {0: 0}, pieces=2) == [
        "split 0",
        "split 0",
    ]
