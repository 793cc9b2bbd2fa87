"""A stack of layers that is scanned over."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def init(key: Any, layers: int, width: int) -> Any:
    """The parameters of ``layers`` layers, stacked."""

    def layer(key: Any) -> Any:
        return {"w": jax.random.normal(key, (width, width)) / 8, "b": jnp.zeros(width)}

    return jax.vmap(layer)(jax.random.split(key, layers))


def loss(params: Any, x: Any) -> Any:
    """Of what the layers give, one behind the other."""

    def layer(x: Any, p: Any) -> Any:
        return x + jnp.tanh(x @ p["w"] + p["b"]), None

    return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)


def clipped(grads: Any) -> Any:
    """By the global norm."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), grads)
