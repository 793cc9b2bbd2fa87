"""A small training step: four layers of 64 by 64, gradients and a plain update."""

from __future__ import annotations

import jax
import jax.numpy as jnp

WIDTH = 64


def step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """New parameters and the loss."""

    def loss(params: list[jax.Array]) -> jax.Array:
        y = x
        for w in params:
            y = jnp.tanh(y @ w)
        return jnp.sum(y * y)

    value, grads = jax.value_and_grad(loss)(params)
    return [w - 0.1 * g for w, g in zip(params, grads)], value


def arguments() -> tuple[list[jax.Array], jax.Array]:
    """Parameters and a batch of eight."""
    keys = jax.random.split(jax.random.key(0), 5)
    params = [0.1 * jax.random.normal(key, (WIDTH, WIDTH)) for key in keys[:4]]
    return params, jax.random.normal(keys[4], (8, WIDTH))
