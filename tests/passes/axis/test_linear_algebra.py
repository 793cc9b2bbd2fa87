"""Linear algebra, transforms, random numbers."""

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


def positive(*shape: int) -> Any:
    x = array(*shape)
    return x @ x.swapaxes(-1, -2) + 3 * jnp.eye(shape[-1])


def test_factorizations_over_a_batch() -> None:
    def fn(a: Any, b: Any) -> Any:
        return (
            lax.linalg.cholesky(a),
            *lax.linalg.lu(a),
            jnp.linalg.eigvalsh(a),
            jnp.linalg.svd(a, compute_uv=False),
            jnp.linalg.inv(a),
            jnp.linalg.det(a),
            jnp.abs(lax.linalg.qr(a, full_matrices=False)[1]),
            lax.linalg.tridiagonal_solve(
                a[..., 0].at[:, 0].set(0.0), a[..., 1] + 9, a[..., 2].at[:, -1].set(0.0), b
            ),
        )

    found = check(fn, [positive(4, 3, 3), array(4, 3, 2)], {0: 0, 1: 0}, pieces=2, rtol=1e-3)
    assert found == ["split 0"] * 10
    assert set(check(fn, [positive(3, 3, 3), array(3, 3, 2)], {0: 1})) == {"neither"}


@given(st.data())
@few(3)
def test_batches(data: st.DataObject) -> None:
    """One or two dimensions of a batch; the axis in them or in what the operation works on."""
    name = data.draw(st.sampled_from(["cholesky", "eigh", "hessenberg", "lu", "qr", "svd", "fft"]))
    batch = data.draw(st.lists(st.integers(2, 3), min_size=1, max_size=2))
    size = data.draw(st.integers(2, 3))
    rank = 2 if name != "fft" else data.draw(st.integers(1, 2))
    axis = data.draw(st.integers(0, len(batch) + 1))

    def fn(x: Any) -> Any:
        if name == "fft":
            return jnp.fft.fftn(x, axes=range(x.ndim - rank, x.ndim))
        return getattr(lax.linalg, name)(x)

    found = check(fn, [positive(*batch, size, size)], {0: axis}, rtol=1e-3)
    assert set(found) == {f"split {axis}" if axis < len(batch) + 2 - rank else "neither"}


@given(
    *(st.booleans() for _ in range(4)),
    st.integers(2, 3),
    st.integers(0, 3),
)
@few(3)
def test_triangular_solves_of_every_form(
    left_side: bool, lower: bool, transpose: bool, unit: bool, size: int, role: int
) -> None:
    """The axis in the batch of one operand or both, or in the columns of the right-hand sides."""
    a, b = positive(2, 3, size, size), array(2, 3, *([size, 4] if left_side else [4, size]))
    columns = 3 if left_side else 2
    axes = [{0: 1}, {1: 0}, {0: 0, 1: 0}, {1: columns}][role]

    def fn(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(
            *(a, b),
            left_side=left_side,
            lower=lower,
            transpose_a=transpose,
            unit_diagonal=unit,
        )

    assert check(fn, [a, b], axes, rtol=1e-3) == [f"split {next(reversed(axes.values()))}"]


@pytest.mark.parametrize("left_side", [True, False])
def test_triangular_solves(left_side: bool) -> None:
    def fn(a: Any, b: Any) -> Any:
        solve = lax.linalg.triangular_solve
        return (
            solve(a, b, left_side=left_side, lower=True),
            solve(a[:1], b[:1], left_side=left_side, lower=True),
            solve(a, b[:1].sum(0) + b, left_side=left_side, lower=True),
        )

    a, b = positive(4, 4, 4), array(4, 4, 4)
    assert check(fn, [a, b], {0: 0, 1: 0})[0] == "split 0"
    assert check(fn, [a, b], {1: 0})[0] == "split 0"
    alone, mixed = (2, 1) if left_side else (1, 2)
    assert check(fn, [a, b], {1: alone})[:2] == [f"split {alone}"] * 2
    assert check(fn, [a, b], {1: mixed})[:2] == ["neither"] * 2

    def linear(a: Any, x: Any) -> Any:
        return lax.linalg.triangular_solve(a, x.sum(0), left_side=left_side)

    assert check(linear, [a[0], array(2, 4, 4)], {1: 0}, rtol=1e-3) == ["partial sum"]


def test_transforms() -> None:
    def fn(x: Any) -> Any:
        return jnp.fft.fft(x), jnp.fft.rfft2(x), jnp.fft.rfft(x.sum(0)), jnp.fft.fft(x.max(0))

    x = array(4, 6, 4)
    assert check(fn, [x], {0: 0}, pieces=2) == ["split 0", "split 0", "partial sum", "neither"]
    assert check(fn, [x], {0: 1}, pieces=2)[:2] == ["split 1", "neither"]
    assert check(fn, [x], {0: 2}, pieces=2)[:2] == ["neither", "neither"]
    assert "transforms along the axis, dimension 1" in follow(fn, [x], {0: 1}).reason(1)


def test_random_numbers() -> None:
    def fn(x: Any, key: Any) -> Any:
        mask = jax.random.bernoulli(key, 0.5, x.shape)
        keys = jax.random.split(key, 4)
        noise = jax.vmap(lambda k: jax.random.normal(k, (3,)))(keys)
        return mask, jnp.where(mask, x, 0.0), x + noise

    args = [array(4, 3), jax.random.key(0)]
    assert check(fn, args, {0: 0}, pieces=2) == ["full", "split 0", "split 0"]

    def draw(keys: Any) -> Any:
        """Whatever an initialiser does with a key per layer."""

        def one(key: Any) -> Any:
            first, second = jax.random.split(jax.random.fold_in(key, 3))
            return jax.random.normal(first, (3, 2)), jax.random.bits(second, (3,)), first

        return jax.vmap(one)(keys)

    keys = jax.random.split(jax.random.key(0), 4)
    assert check(draw, [keys], {0: 0}, pieces=2) == ["split 0"] * 3
    followed = follow(draw, [jax.random.split(jax.random.key(0, impl="rbg"), 4)], {0: 0})
    assert followed.results[0] == "neither"
    assert "may draw differently for a batch of keys" in followed.reason()
