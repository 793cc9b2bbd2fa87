"""Typed random keys that live from the forward to the backward pass, across devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.topology import Topology
from tests.runtime.scatter import scattered

WIDTH = 16


@jax.custom_vjp
def dropout(x: Any, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0.0)


def dropout_forward(x: Any, key: Any) -> Any:
    # The key is the residual, not the mask, which is many times larger.
    return dropout(x, key), key


def dropout_backward(key: Any, g: Any) -> Any:
    return dropout(g, key), None


dropout.defvjp(dropout_forward, dropout_backward)


def split_loss(w: Any, x: Any, key: Any) -> Any:
    """The forward pass of each layer on its own device; keys are split on device 0."""
    with baechi.on(0):
        keys = jax.random.split(key, len(w))
    for index, layer in enumerate(w):
        with baechi.on(index % 2):
            x = dropout(jnp.tanh(x @ layer), keys[index])
    return jnp.mean(x**2)


def remat_loss(w: Any, x: Any, key: Any) -> Any:
    """Dropout that is done again in the backward pass, from the same key."""

    @jax.checkpoint
    def layer(x: Any, w: Any, key: Any) -> Any:
        mask = jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.where(mask, jnp.tanh(x @ w) * 2, 0.0)

    for index, each in enumerate(w):
        with baechi.on(index % 2):
            x = layer(x, each, jax.random.fold_in(key, index))
    return jnp.mean(x**2)


def arguments(make_key: Any) -> Any:
    rng = np.random.default_rng(0)
    w = [rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4 for _ in range(2)]
    return w, np.ones((8, WIDTH), np.float32), make_key(7)


def cheap_key(seed: int) -> Any:
    """Of an implementation that compiles fast."""
    return jax.random.key(seed, impl="unsafe_rbg")


EXPERT = {"placer": "expert"}
SCATTERED = {"pipeline": scattered(3, seed=2)}


@pytest.mark.parametrize(
    ("loss", "options", "make_key"),
    [
        (split_loss, EXPERT, cheap_key),
        (remat_loss, SCATTERED, cheap_key),
        *(
            pytest.param(loss, options, make_key, marks=pytest.mark.slow)
            for loss in (split_loss, remat_loss)
            for options in (EXPERT, SCATTERED)
            for make_key in (jax.random.key, jax.random.PRNGKey)
        ),
    ],
)
def test_gradients(loss: Any, options: Any, make_key: Any) -> None:
    fn = jax.value_and_grad(loss)
    given = arguments(make_key)
    placed = baechi.place(
        fn,
        topology=Topology.uniform(3),
        compiler_options={"xla_backend_optimization_level": 0},
        **options,
    )
    value, grads = placed(*given)
    wanted, wanted_grads = jax.jit(fn)(*given)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for one, other in zip(grads, wanted_grads, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert len(placed.plan(*given).devices_used) > 1


def test_a_key_is_sent() -> None:
    placed = baechi.place(
        jax.value_and_grad(split_loss), topology=Topology.uniform(2), placer="expert"
    )
    text = placed.plan(*arguments(cheap_key)).text
    sends = [line for line in text.splitlines() if '"baechi.send"' in line]
    assert any("key<" in line for line in sends), sends
