"""Reductions, cumulative operations, windows, sorts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.examples import few
from tests.passes.axis.arrays import array
from tests.passes.axis.execution import check, follow

AXES = st.integers(0, 2)
SIZES = st.sampled_from([2, 4])


def shape_with(axis: int, size: int) -> list[int]:
    shape = [2, 3, 2]
    shape[axis] = size
    return shape


@given(AXES, SIZES, st.lists(AXES, min_size=1, max_size=3, unique=True))
@few(3)
def test_reductions(axis: int, size: int, over: list[int]) -> None:
    def fn(x: Any) -> Any:
        axes = tuple(over)
        return (
            jnp.sum(x, axes),
            jnp.max(x, axes),
            jnp.min(x, axes),
            jnp.prod(x, axes),
            jnp.any(x > 1, axes),
            jnp.all(x > -1, axes),
            lax.reduce_xor(jnp.int32(x * 9), axes),
        )

    kinds = ["sum", "max", "min", "prod", "or", "and"]
    found = check(fn, [array(*shape_with(axis, size))], {0: axis})
    if axis in over:
        assert found == [*(f"partial {kind}" for kind in kinds), "neither"]
    else:
        assert found == [f"split {axis - sum(each < axis for each in over)}"] * 7


def test_reductions_of_partial_values() -> None:
    def fn(x: Any) -> Any:
        return (
            x.sum(0).sum(1),
            x.max(0).max(),
            x.sum(0).max(0),
            x.max(0).sum(),
            jnp.argmax(x.sum(0), 1),
            jnp.cumsum(x.sum(0), 0),
            lax.cummax(x.max(0), 1),
            lax.cumlogsumexp(x.sum(0), 0),
        )

    found = check(fn, [array(4, 3, 2)], {0: 0}, pieces=2)
    assert found == [
        *("partial sum", "partial max", "neither", "neither", "neither"),
        *("partial sum", "partial max", "neither"),
    ]


@given(AXES, SIZES, AXES, st.booleans())
@few(3)
def test_along_an_axis(axis: int, size: int, over: int, reverse: bool) -> None:
    def fn(x: Any, y: Any) -> Any:
        return (
            lax.cumsum(x, over, reverse),
            lax.cumprod(x, over, reverse),
            lax.cummax(x, over, reverse),
            lax.cumlogsumexp(x, over, reverse),
            *lax.sort([x, y], dimension=over, num_keys=1),
            *lax.top_k(jnp.moveaxis(x, over, 2), 2),
            *lax.approx_max_k(x, 1, reduction_dimension=over),
        )

    x = array(*shape_with(axis, size))
    found = check(fn, [x, array(*x.shape, seed=1)], {0: axis})
    moved = [each for each in range(3) if each != over] + [over]
    assert found == (
        ["neither"] * 10
        if axis == over
        else [f"split {axis}"] * 6 + [f"split {moved.index(axis)}"] * 2 + [f"split {axis}"] * 2
    )


@given(AXES, SIZES, AXES)
@few(3)
def test_arg_reductions(axis: int, size: int, over: int) -> None:
    def fn(x: Any) -> Any:
        return jnp.argmax(x, over), jnp.argmin(x, over), lax.argmax(x, over, jnp.int16)

    found = check(fn, [array(*shape_with(axis, size))], {0: axis})
    assert found == (["neither"] if axis == over else [f"split {axis - (over < axis)}"]) * 3


@given(AXES, SIZES, AXES)
@few(3)
def test_windows(axis: int, size: int, over: int) -> None:
    window, stride, padding = [1] * 3, [1] * 3, [(0, 0)] * 3
    window[over], stride[over], padding[over] = 2, 2, (1, 1)

    def fn(x: Any) -> Any:
        def pooled(x: Any) -> Any:
            return lax.reduce_window(x, -jnp.inf, lax.max, window, stride, padding)

        def product(a: Any, b: Any) -> Any:
            return a * b

        return (
            pooled(x),
            lax.reduce_window(x, 0.0, lax.add, window, stride, padding),
            lax.reduce_window(x, np.inf, lax.min, window, stride, padding),
            lax.reduce_window(x, np.float32(1), product, window, stride, padding),
            jax.grad(lambda x: pooled(x).sum())(x),
            jax.jvp(pooled, (x,), (jnp.cos(x),))[1],
        )

    found = check(fn, [array(*shape_with(axis, size))], {0: axis})
    assert found == ["neither" if axis == over else f"split {axis}"] * 6


def test_windows_of_partial_values() -> None:
    def pool(x: Any, start: float, by: Any) -> Any:
        return lax.reduce_window(x, start, by, (2, 1), (1, 1), "VALID")

    def fn(x: Any, y: Any) -> Any:
        grad = jax.vjp(lambda y: pool(y, -jnp.inf, lax.max), y)[1]
        return (
            pool(x.sum(0), 0.0, lax.add),
            pool(x.max(0), -jnp.inf, lax.max),
            pool(x.sum(0), -jnp.inf, lax.max),
            *grad(x.sum(0)[:2]),
        )

    found = check(fn, [array(4, 3, 2), array(3, 2)], {0: 0}, pieces=2)
    assert found == ["partial sum", "partial max", "neither", "partial sum"]


def test_a_reduction_with_a_function() -> None:
    def fn(x: Any, start: Any) -> Any:
        def step(a: Any, b: Any) -> Any:
            return a * b + 0.5 * b

        return lax.reduce(x, start, step, (1,)), lax.reduce(x, start, step, (0,))

    args = [array(4, 3), np.float32(1)]
    assert check(fn, args, {0: 0}, pieces=2) == ["split 0", "neither"]
    assert "reduces the axis with a function of its own" in follow(fn, args, {0: 0}).reason(1)


def test_softmax_and_its_gradient() -> None:
    def fn(x: Any, labels: Any) -> Any:
        def loss(x: Any) -> Any:
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(x) * labels, axis=-1))

        return jax.nn.softmax(x), jax.value_and_grad(loss)(x)

    args = [array(4, 5), jax.nn.one_hot(jnp.arange(4), 5)]
    assert check(fn, args, {0: 0, 1: 0}) == ["split 0", "partial sum", "split 0"]
    assert check(fn, args, {0: 1, 1: 1}) == ["neither", "neither", "neither"]
