"""Operations that work element by element: what stays split, what stays partial."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from baechi_jax.passes.axis.elementwise import MONOTONE
from tests.examples import few
from tests.passes.axis.arrays import array
from tests.passes.axis.execution import check, follow

UNARY: list[Callable[..., Any]] = [
    jnp.exp, jnp.tanh, jnp.sin, lax.neg, lax.abs, lax.floor, lax.sign, lax.square,
    lax.logistic, lax.erf, jnp.isfinite, lax.cbrt,
    lambda x: lax.integer_pow(x, 3), lambda x: x.astype(jnp.bfloat16),
    lambda x: lax.reduce_precision(x, 8, 7), lambda x: lax.bitcast_convert_type(x, jnp.uint8),
]  # fmt: skip
BINARY: list[Callable[..., Any]] = [
    lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min, lax.atan2, lax.lt, lax.eq, lax.nextafter,
    lax.pow, lax.rem, lambda x, y: jnp.where(x > y, x, y),
    lambda x, y: lax.clamp(-0.5, x, jnp.abs(y)),
    lambda x, y: x + 2.0 * y,
]  # fmt: skip


@given(st.sampled_from(UNARY), st.integers(0, 2), st.integers(1, 4))
@few(8)
def test_one_operand_stays_split(fn: Callable[..., Any], axis: int, size: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = size
    assert check(fn, [array(*shape)], {0: axis}) == [f"split {axis}"]


@given(
    st.sampled_from(BINARY),
    st.integers(0, 2),
    st.integers(2, 4),
    st.sampled_from([(0,), (1,), (0, 1)]),
)
@few(8)
def test_full_operands_are_read_in_parts(
    fn: Callable[..., Any], axis: int, size: int, split: tuple[int, ...]
) -> None:
    shape = [2, 3, 2]
    shape[axis] = size
    result = check(fn, [array(*shape), array(*shape, seed=1)], dict.fromkeys(split, axis))
    assert result == [f"split {axis}"]


def test_a_dimension_of_one_meets_every_piece_whole() -> None:
    followed = follow(lambda x, y: x * y[:1], [array(4, 3), array(4, 3)], {0: 0})
    assert followed.results == ["split 0"]
    assert not followed.report.ops
    assert check(lambda x, y: x * y[:1], [array(4, 3), array(4, 3)], {0: 0}) == ["split 0"]


def test_different_dimensions_do_not_meet() -> None:
    followed = follow(lax.add, [array(3, 3), array(3, 3)], {0: 0, 1: 1})
    assert followed.results == ["neither"]
    assert "'jax.add' meets operands that are split along dimensions 0 and 1" in followed.reason()


def partial(reduce: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces axis 0 of the first argument; the second argument is full."""
    return lambda x, y: then(reduce(x, axis=0), y)


PARTIAL: list[tuple[Callable[..., Any], Callable[..., Any], str]] = [
    (jnp.sum, lambda a, y: -a, "partial sum"),
    (jnp.sum, lambda a, y: a * y, "partial sum"),
    (jnp.sum, lambda a, y: a / y, "partial sum"),
    (jnp.sum, lambda a, y: a - 2.0 * a, "partial sum"),
    (jnp.sum, lambda a, y: a + jnp.zeros_like(a), "partial sum"),
    (jnp.sum, lambda a, y: a.astype(jnp.bfloat16), "partial sum"),
    (jnp.sum, lambda a, y: jnp.where(y > 0, a, 0.0), "partial sum"),
    (jnp.sum, lambda a, y: jnp.where(y > 0, a, 1.0), "neither"),
    (jnp.sum, lambda a, y: lax.complex(a, a * y).imag, "partial sum"),
    (jnp.sum, lambda a, y: a + y, "neither"),
    (jnp.sum, lambda a, y: a * a, "neither"),
    (jnp.sum, lambda a, y: y / a, "neither"),
    (jnp.sum, lambda a, y: jnp.exp(a), "neither"),
    (jnp.sum, lambda a, y: jnp.abs(a), "neither"),
    (jnp.sum, lambda a, y: jnp.maximum(a, y), "neither"),
    (jnp.sum, lambda a, y: a.astype(jnp.int32), "neither"),
    (jnp.max, lambda a, y: jnp.exp(a), "partial max"),
    (jnp.max, lambda a, y: jnp.tanh(a + y), "partial max"),
    (jnp.max, lambda a, y: -a, "partial min"),
    (jnp.max, lambda a, y: y - a, "partial min"),
    (jnp.max, lambda a, y: a - y, "partial max"),
    (jnp.max, lambda a, y: jnp.minimum(jnp.maximum(a, y), 0.5), "partial max"),
    (jnp.max, lambda a, y: jnp.clip(a, -0.1, 0.1), "partial max"),
    (jnp.max, lambda a, y: a * y, "neither"),
    (jnp.max, lambda a, y: a + a, "neither"),
    (jnp.max, lambda a, y: jnp.sqrt(a), "neither"),
    (jnp.min, lambda a, y: jnp.where(y > 0, a, 1.0), "partial min"),
    (jnp.min, lambda a, y: jnp.maximum(a, y), "partial min"),
    (jnp.prod, lambda a, y: a * a, "partial prod"),
    (jnp.prod, lambda a, y: a * jnp.ones_like(a), "partial prod"),
    (jnp.prod, lambda a, y: a * y, "neither"),
    (jnp.prod, lambda a, y: -a, "neither"),
    (lambda x, axis: jnp.any(x > 1, axis), lambda a, y: ~a, "partial and"),
    (lambda x, axis: jnp.any(x > 1, axis), lambda a, y: a & (y > 0), "partial or"),
    (lambda x, axis: jnp.any(x > 1, axis), lambda a, y: a | (y > 0), "partial or"),
    (lambda x, axis: jnp.any(x > 1, axis), lambda a, y: a.astype(jnp.float32), "partial max"),
    (lambda x, axis: jnp.all(x > -1, axis), lambda a, y: a | (y > 0), "partial and"),
    (lambda x, axis: jnp.all(x > -1, axis), lambda a, y: a ^ (y > 0), "neither"),
    (lambda x, axis: jnp.all(x > -1, axis), lambda a, y: a.astype(jnp.int32), "partial min"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(PARTIAL)))
def test_partial_values(case: int) -> None:
    reduce, then, expected = PARTIAL[case]
    fn = partial(reduce, then)
    assert check(fn, [array(4, 3), array(3, seed=1)], {0: 0}, pieces=2) == [expected]


#: Steps on a partial value ``a``; ``y`` is full and positive.
STEPS: list[Callable[..., Any]] = [
    lambda a, y: -a, lambda a, y: a + y, lambda a, y: y - a, lambda a, y: a * y, lambda a, y: a / y,
    lambda a, y: a + a, lambda a, y: a - 0.5 * a, lambda a, y: jnp.maximum(a, y),
    lambda a, y: jnp.minimum(y, a), lambda a, y: jnp.maximum(a, -a), lambda a, y: jnp.tanh(a),
    lambda a, y: jnp.clip(a, -1.0, y), lambda a, y: jnp.where(y > 1, a, 0.0),
    lambda a, y: jnp.where(y > 1, y, a), lambda a, y: lax.complex(a, a * y).imag,
    lambda a, y: a * jnp.ones_like(a), lambda a, y: a + jnp.zeros_like(a),
    lambda a, y: (a > y).astype(jnp.float32), lambda a, y: jnp.floor(a), lambda a, y: a * a,
]  # fmt: skip


@given(
    st.sampled_from(["sum", "max", "min", "prod"]),
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.sampled_from([2, 4]),
)
@few(25)
def test_steps_on_partial_values(name: str, steps: list[Callable[..., Any]], pieces: int) -> None:
    """Whatever state each step's result has, the pieces must make the whole value of it."""

    def fn(x: Any, y: Any) -> Any:
        values = [getattr(jnp, name)(x, axis=0)]
        for step in steps:
            values.append(step(values[-1], y))
        return values

    found = check(fn, [array(4, 3), 0.5 + np.abs(array(3, seed=1))], {0: 0}, pieces=pieces)
    assert found[0] == f"partial {name}"


@pytest.mark.parametrize("name", MONOTONE)
def test_what_keeps_order_keeps_maxima_and_minima(name: str) -> None:
    """Where numbers are infinite too, and where rounding makes many of them one."""

    def fn(x: Any) -> Any:
        function = getattr(lax, name)
        return function(x.max(0)), function(x.min(0)), function(x.sum(0))

    x = np.concatenate([array(4, 8) * s for s in (1e-30, 0.3, 1, 40)], axis=1)
    x[1:3, 5], x[:, 6], x[2, 7] = np.inf, -np.inf, np.nan
    states = check(fn, [x], {0: 0}, pieces=2)
    assert states == ["partial max", "partial min", "neither"]


@pytest.mark.parametrize("name", ["neg", "add", "sub"])
def test_unsigned_maxima_may_wrap(name: str) -> None:
    def fn(x: Any) -> Any:
        operands = [x.max(0)] if name == "neg" else [x.max(0), jnp.full(3, 3, jnp.uint32)]
        return getattr(lax, name)(*operands)

    followed = follow(fn, [np.ones((4, 3), np.uint32)], {0: 0})
    assert followed.results == ["neither"]
    assert f"'jax.{name}' of a partial max is no partial max" in followed.reason()


def test_unsigned_sums_may_wrap_and_are_not_converted() -> None:
    def fn(x: Any) -> Any:
        return (jnp.sum(x, axis=0, dtype=jnp.uint32) - jnp.sum(2 * x, axis=0)).astype(jnp.float32)

    followed = follow(fn, [np.ones((4, 3), np.uint32)], {0: 0})
    assert followed.results == ["neither"]
    assert "from ui32 to f32 does not keep a partial sum" in followed.reason()


def test_barrier_keeps_each_operand_apart() -> None:
    def fn(x: Any, y: Any) -> Any:
        a, b, c, d = lax.optimization_barrier((x, x.sum(), x[::-1], y))
        return a * 2, b, c, d

    states = check(fn, [array(4, 3), array(2)], {0: 0})
    assert states == ["split 0", "partial sum", "neither", "full"]


def test_unknown_operations_mix() -> None:
    from tests.runtime.functions import unheard_p

    def fn(x: Any, y: Any) -> Any:
        return unheard_p.bind(x, factor=3.0, note=object), unheard_p.bind(y, factor=1.0, note=None)

    followed = follow(fn, [array(4), array(4)], {0: 0})
    assert followed.results == ["neither", "full"]
    assert "'jax.unheard' is not known to the axis analysis" in followed.reason()
    assert "test_elementwise.py" in followed.reason()
