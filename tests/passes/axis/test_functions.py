"""Whole functions: a loss with gradients over the batch, a training step, layers of a stack."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from baechi_jax.passes.axis.states import Partial
from tests.passes.axis.arrays import array, integers
from tests.passes.axis.execution import check, compare, follow


def mlp(params: Any, x: Any) -> Any:
    for w, b in params:
        x = jax.nn.relu(x @ w + b)
    return x


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean(jnp.square(mlp(params, x) - y))


def mlp_params() -> Any:
    return [(array(3, 5), array(5)), (array(5, 2, seed=1), array(2, seed=1))]


def test_the_gradients_of_a_loss_over_the_batch_are_partial_sums() -> None:
    fn = jax.value_and_grad(mlp_loss, argnums=(0, 1))
    args = [mlp_params(), array(6, 3), array(6, 2)]
    for pieces in (2, 3):
        found = check(fn, args, {4: 0, 5: 0}, pieces=pieces)
        assert found == [*["partial sum"] * 5, "split 0"]


def test_no_gradient_is_mixed_by_dropout_or_labels() -> None:
    def loss(params: Any, x: Any, labels: Any, key: Any) -> Any:
        keep = jax.random.bernoulli(key, 0.8, x.shape)
        logits = mlp(params, jnp.where(keep, x / 0.8, 0.0))
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -picked.mean()

    args = [mlp_params(), array(4, 3), integers(4, high=2), jax.random.key(1)]
    found = check(jax.value_and_grad(loss), args, {4: 0, 5: 0}, pieces=2)
    assert found == ["partial sum"] * 5


def test_batch_statistics_need_their_sums() -> None:
    """Batch norm mixes the batch; with its two sums combined, the rest is split again."""

    def loss(x: Any, scale: Any) -> Any:
        mean = x.mean(axis=0)
        variance = jnp.square(x - mean).mean(axis=0)
        return jnp.sum(jnp.tanh((x - mean) * lax.rsqrt(variance + 1e-5) * scale))

    fn = jax.value_and_grad(loss, argnums=(0, 1))
    args = [array(4, 3), array(3)]
    assert follow(fn, args, {0: 0}).results == ["neither"] * 3
    assert check(fn, args, {0: 0}, pieces=2, combine=True, rtol=1e-4) == [
        "partial sum",
        "split 0",
        "partial sum",
    ]


# A transformer ------------------------------------------------------------------------------------

WIDTH, HEADS, WORDS = 8, 2, 11


def transformer_params() -> Any:
    def layer(seed: int) -> Any:
        return {
            "qkv": array(WIDTH, 3 * WIDTH, seed=seed) / 3,
            "out": array(WIDTH, WIDTH, seed=seed + 1) / 3,
            "up": array(WIDTH, 2 * WIDTH, seed=seed + 2) / 3,
            "down": array(2 * WIDTH, WIDTH, seed=seed + 3) / 3,
            "norms": np.ones((2, WIDTH), np.float32),
        }

    return {"embed": array(WORDS, WIDTH), "layers": [layer(1)]}


def norm(x: Any, scale: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + 1e-5) * scale


def attention(x: Any, layer: Any) -> Any:
    batch, length, _ = x.shape
    q, k, v = jnp.split((x @ layer["qkv"]).reshape(batch, length, HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2.0
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, -1) @ layer["out"]


@jax.checkpoint
def block(x: Any, layer: Any) -> Any:
    x = x + attention(norm(x, layer["norms"][0]), layer)
    return x + jax.nn.gelu(norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"]


def transformer_loss(params: Any, tokens: Any) -> Any:
    x = params["embed"][tokens[:, :-1]]
    for layer in params["layers"]:
        x = block(x, layer)
    # As many implementations have it: one long list of tokens.
    logits = jax.nn.log_softmax(x.reshape(-1, WIDTH) @ params["embed"].T)
    picked = jnp.take_along_axis(logits, tokens[:, 1:].reshape(-1)[:, None], axis=-1)
    return -picked.mean()


def train_step(params: Any, moments: Any, tokens: Any) -> Any:
    loss, grads = jax.value_and_grad(transformer_loss)(params, tokens)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree_util.tree_leaves(grads)))
    grads = jax.tree_util.tree_map(lambda g: g * jnp.minimum(1.0, 0.5 / norm), grads)
    moments = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, moments, grads)
    return loss, jax.tree_util.tree_map(lambda p, m: p - 0.1 * m, params, moments), moments


def test_a_transformers_training_step() -> None:
    params = transformer_params()
    tokens = integers(4, 6, high=WORDS)
    count = len(jax.tree_util.tree_leaves(params))
    grad = follow(jax.value_and_grad(transformer_loss), [params, tokens], {count: 0})
    assert grad.results == ["partial sum"] * (count + 1)

    moments = jax.tree_util.tree_map(np.zeros_like, params)
    args = [params, moments, tokens]
    apart = follow(train_step, args, {2 * count: 0})
    assert apart.results == ["partial sum", *["neither"] * 2 * count]
    assert "'jax.mul' meets operands that are both a partial sum" in apart.reason(1)

    step = follow(train_step, args, {2 * count: 0}, combine=True)
    assert step.results == ["partial sum", *["full"] * 2 * count]
    assert not step.report.mixed()
    assert compare(step, args, 2, rtol=1e-4) > 100
    # What is combined are gradients (and what is computed from them by linear operations).
    combined = {
        op.operands[operand]
        for op, needs in step.report.ops.items()
        for operand, _ in needs.combines
    }
    assert all(step.report.state(value) == Partial("sum") for value in combined)
    assert count <= len(combined) <= 2 * count + 1


# Layers -------------------------------------------------------------------------------------------


def adam(params: Any, grads: Any, mu: Any, nu: Any, count: Any) -> Any:
    """Clipped by the global norm, with weight decay; leaves are stacks over the layers."""
    leaves = jax.tree_util.tree_leaves(grads)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in leaves))
    scale = jnp.where(norm < 1.0, 1.0, 1.0 / norm)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(g)) for g in leaves]))
    new = {}
    for name, p in params.items():
        g = grads[name] * scale
        m = 0.9 * mu[name] + 0.1 * g
        v = 0.99 * nu[name] + 0.01 * g * g
        update = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-8)
        new[name] = (p - 0.1 * (update + 0.01 * p), m, v)
    return new, norm, largest


def test_global_norm_clipping_over_layers() -> None:
    def stack(seed: int) -> Any:
        return {"b": array(4, 3, seed=seed), "w": array(4, 3, 3, seed=seed + 1)}

    args = [stack(0), stack(2), stack(4), jax.tree_util.tree_map(np.abs, stack(6)), np.float32(3)]
    axes = dict.fromkeys(range(8), 0)
    found = check(adam, args, axes, combine=True)
    assert found == [*["split 0"] * 6, "full", "partial max"]

    step = follow(adam, args, axes, combine=True)
    combines = [op.name for op, needs in step.report.ops.items() if needs.combines]
    assert combines == ["jax.sqrt"]  # partial sums, then one sum

    apart = follow(adam, args, axes)
    assert set(apart.results[:7]) == {"neither"}
    origins = [origin.message for origin in apart.report.mixed()]
    assert len(origins) == 1
    assert "'jax.sqrt' of a partial sum is no partial sum" in origins[0]
    assert "test_functions.py" in origins[0]
