"""unroll-scans: whatever a program does with its stacks, it computes what ``jax.jit`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.unroll.evaluate import QUICK, run, same, unroll

#: What may be done with a stack of three layers of 4 x 2 numbers: the result is one again.
STEPS: tuple[Callable[[jax.Array], jax.Array], ...] = (
    jnp.tanh,
    lambda w: w * 0.5 + 1.0,
    lambda w: w - jnp.mean(w, axis=0),
    lambda w: w / (1.0 + jnp.max(jnp.abs(w))),
    lambda w: w / jnp.sqrt(1.0 + jnp.sum(w**2)),
    lambda w: w - jnp.mean(w, axis=(1, 2), keepdims=True),
    lambda w: w * jnp.arange(3.0)[:, None, None],
    lambda w: jnp.where(jnp.arange(3)[:, None, None] > 0, w, 0.0),
    lambda w: jnp.moveaxis(jnp.moveaxis(w, 0, 2) * 2.0, 2, 0),
    lambda w: (w.reshape(12, 2) + 1.0).reshape(3, 4, 2),
    lambda w: jnp.einsum("lij,kj->lik", w, jnp.ones((2, 2))),
    lambda w: w + jnp.einsum("lij,lik->jk", w, w)[0],
    lambda w: w + w[1],
    lambda w: w[::-1],
    lambda w: jnp.cumsum(w, axis=0),
    lambda w: jnp.cumsum(w, axis=1),
    lambda w: jnp.sort(w, axis=0),
    lambda w: jax.nn.softmax(w, axis=0),
    lambda w: jnp.concatenate([w[1:], w[:1]]),
    lambda w: w.at[0].set(0.0),
    lambda w: jax.lax.cond(jnp.sum(w) > 0, jnp.sin, jnp.cos, w),
    lambda w: jax.lax.fori_loop(0, 2, lambda _, v: v * 0.9 + 0.1, w),
    lambda w: jax.lax.scan(lambda c, row: (c + row, c * row), jnp.ones((4, 2)), w)[1],
    lambda w: jax.lax.scan(lambda c, row: (c, jnp.sin(row) * c), 2.0, w, reverse=True)[1],
    lambda w: jax.lax.optimization_barrier(w * 2.0),
    lambda w: jax.vmap(lambda row: row / (1.0 + jnp.linalg.norm(row)))(w),
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[int], int, bool]:
    """Steps before and after the scan, iterations to a piece, and whether they are inlined."""
    steps = st.integers(0, len(STEPS) - 1)
    before = draw(st.lists(steps, max_size=1))
    after = draw(st.lists(steps, min_size=1, max_size=3))
    return before, after, draw(st.integers(1, 2)), draw(st.booleans())


def compare(program: tuple[list[int], list[int], int, bool]) -> None:
    before, after, iterations, inline = program

    def step(state: Any, x: jax.Array) -> Any:
        def loss(w: jax.Array) -> Any:
            for index in before:
                w = STEPS[index](w)
            y, rows = jax.lax.scan(
                lambda x, p: (jnp.tanh(x @ p.T @ p), x), x, w, reverse=len(after) == 2
            )
            return jnp.sum(y**2) + jnp.sum(rows), rows

        (value, rows), grads = jax.value_and_grad(loss, has_aux=True)(state["w"])
        for index in after:
            grads = STEPS[index](grads)
        m = 0.9 * state["m"] + grads
        return {"w": state["w"] - 0.1 * m, "m": m}, value, rows

    draw = np.random.default_rng(sum(before) + 7 * sum(after))
    state = {name: jnp.asarray(draw.normal(0, 0.5, (3, 4, 2)), jnp.float32) for name in ("w", "m")}
    arguments = (state, jnp.asarray(draw.normal(0, 1, (5, 2)), jnp.float32))
    unrolled = unroll(
        step, arguments, donate=(0,), when="always", iterations=iterations, inline=inline
    )
    same(
        run(unrolled, arguments, jit=False),
        jax.jit(step, compiler_options=QUICK)(*arguments),
        rtol=1e-4,
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(programs())
def test_programs(program: tuple[list[int], list[int], int, bool]) -> None:
    compare(program)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(STEPS)))
def test_every_step(index: int) -> None:
    compare(([], [index], 1, False))
    compare(([index], [0], 2, False))
