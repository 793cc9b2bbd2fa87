"""Features of JAX itself that models bring: own gradients, kernels, loops, 64-bit types."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

Built = tuple[Any, tuple[Any, ...]]


# Attention in blocks with its own gradient -----------------------------------------------------


@jax.custom_vjp
def attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax attention over blocks of keys, without the matrix of all weights."""
    return _attention_forward(q, k, v)[0]


_BLOCK = 16


def _attention_forward(q: Any, k: Any, v: Any) -> Any:
    length, size = k.shape[-2:]
    scale = size**-0.5

    def body(carry: Any, block: Any) -> Any:
        top, total, out = carry
        keys, values = block
        scores = scale * jnp.einsum("bhqd,bhkd->bhqk", q, keys)
        new = jnp.maximum(top, scores.max(-1))
        weights = jnp.exp(scores - new[..., None])
        shrink = jnp.exp(top - new)
        out = out * shrink[..., None] + jnp.einsum("bhqk,bhkd->bhqd", weights, values)
        return (new, total * shrink + weights.sum(-1), out), None

    start = (jnp.full(q.shape[:-1], -jnp.inf), jnp.zeros(q.shape[:-1]), jnp.zeros(q.shape))
    (top, total, out), _ = jax.lax.scan(body, start, _blocks(k, v, length))
    out = out / total[..., None]
    return out, (q, k, v, out, top + jnp.log(total))


def _attention_backward(kept: Any, g: Any) -> Any:
    q, k, v, out, log_total = kept
    length, size = k.shape[-2:]
    scale = size**-0.5
    delta = jnp.sum(g * out, -1, keepdims=True)

    def body(dq: Any, block: Any) -> Any:
        keys, values = block
        weights = jnp.exp(scale * jnp.einsum("bhqd,bhkd->bhqk", q, keys) - log_total[..., None])
        dv = jnp.einsum("bhqk,bhqd->bhkd", weights, g)
        ds = weights * (jnp.einsum("bhqd,bhkd->bhqk", g, values) - delta) * scale
        return dq + jnp.einsum("bhqk,bhkd->bhqd", ds, keys), (
            jnp.einsum("bhqk,bhqd->bhkd", ds, q),
            dv,
        )

    dq, (dk, dv) = jax.lax.scan(body, jnp.zeros_like(q), _blocks(k, v, length))
    return dq, _whole(dk), _whole(dv)


def _blocks(k: Any, v: Any, length: int) -> Any:
    def split(x: Any) -> Any:
        return jnp.moveaxis(x.reshape(*x.shape[:2], length // _BLOCK, _BLOCK, x.shape[-1]), 2, 0)

    return split(k), split(v)


def _whole(blocks: Any) -> Any:
    moved = jnp.moveaxis(blocks, 0, 2)
    return moved.reshape(*moved.shape[:2], -1, moved.shape[-1])


attention.defvjp(_attention_forward, _attention_backward)


# A Pallas kernel -------------------------------------------------------------------------------


def _rms_kernel(x_ref: Any, scale_ref: Any, out_ref: Any) -> None:
    x = x_ref[...]
    out_ref[...] = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale_ref[...]


@jax.custom_vjp
def rms_norm(x: Any, scale: Any) -> Any:
    """Root-mean-square norm of rows, by a kernel in interpret mode."""
    rows, width = x.shape
    block = rows // 4
    return pl.pallas_call(
        _rms_kernel,
        grid=(4,),
        in_specs=[
            pl.BlockSpec((block, width), lambda i: (i, 0)),
            pl.BlockSpec((width,), lambda i: (0,)),
        ],
        out_specs=pl.BlockSpec((block, width), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=True,
    )(x, scale)


def _rms_plain(x: Any, scale: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


rms_norm.defvjp(
    lambda x, scale: (rms_norm(x, scale), (x, scale)),
    lambda kept, g: jax.vjp(_rms_plain, *kept)[1](g),
)


# Steps -------------------------------------------------------------------------------------------


def _adam(loss: Any, rate: float = 1e-3) -> Any:
    def step(state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        return _update(state, grads, rate), value

    return step


def _update(state: Any, grads: Any, rate: float) -> Any:
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, state["v"], grads)
    params = jax.tree.map(
        lambda p, a, b: p - rate * a / (jnp.sqrt(b) + 1e-4), state["params"], m, v
    )
    return {"params": params, "m": m, "v": v}


def _state(params: Any) -> Any:
    zeros = functools.partial(jax.tree.map, jnp.zeros_like)
    return {"params": params, "m": zeros(params), "v": zeros(params)}


def _matrices(key: Any, layers: int, shapes: dict[str, tuple[int, ...]]) -> Any:
    keys = iter(jax.random.split(key, layers * len(shapes)))
    return [
        {
            name: jax.random.normal(next(keys), shape) * shape[0] ** -0.5
            if len(shape) > 1
            else jnp.ones(shape)
            for name, shape in shapes.items()
        }
        for _ in range(layers)
    ]


def custom_attention(
    layers: int = 4, width: int = 128, heads: int = 4, length: int = 64, batch: int = 8
) -> Built:
    """Attention in blocks with a gradient of its own (``custom_vjp`` around scans)."""
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width)}
    shapes["down"] = (4 * width, width)

    def loss(params: Any, batch: Any) -> Any:
        x = batch
        for layer in params:
            h = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
            qkv = (h @ layer["qkv"]).reshape(*x.shape[:2], 3, heads, -1)
            q, k, v = jnp.moveaxis(qkv, (2, 3), (0, 2))
            out = jnp.swapaxes(attention(q, k, v), 1, 2).reshape(x.shape)
            x = x + out @ layer["out"]
            x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
        return jnp.mean((x - jnp.roll(batch, 1, axis=1)) ** 2)

    key = jax.random.key(0)
    x = jax.random.normal(key, (batch, length, width))
    return _adam(loss), (_state(_matrices(key, layers, shapes)), x)


def pallas_norm(layers: int = 6, width: int = 256, batch: int = 128) -> Built:
    """A Pallas kernel in interpret mode in each layer."""

    def loss(params: Any, batch: Any) -> Any:
        x = batch
        for layer in params:
            h = rms_norm(x, layer["scale"])
            x = x + jax.nn.silu(h @ layer["up"]) @ layer["down"]
        return jnp.mean((x - batch[::-1]) ** 2)

    key = jax.random.key(0)
    shapes = {"scale": (width,), "up": (width, 2 * width), "down": (2 * width, width)}
    return _adam(loss), (
        _state(_matrices(key, layers, shapes)),
        jax.random.normal(key, (batch, width)),
    )


def accumulation(layers: int = 6, width: int = 256, batch: int = 64, pieces: int = 4) -> Built:
    """Gradients of microbatches added up in a Python loop, then one update."""

    def loss(params: Any, x: Any) -> Any:
        target = x[::-1]
        for layer in params:
            x = x + jnp.tanh(x @ layer["up"] + layer["bias"]) @ layer["down"]
        return jnp.mean((x - target) ** 2)

    def step(state: Any, batch: Any) -> Any:
        total, value = jax.tree.map(jnp.zeros_like, state["params"]), 0.0
        for piece in jnp.split(batch, pieces):
            part, grads = jax.value_and_grad(loss)(state["params"], piece)
            total, value = jax.tree.map(jnp.add, total, grads), value + part / pieces
        mean = jax.tree.map(lambda g: g / pieces, total)
        return _update(state, mean, 1e-3), value

    key = jax.random.key(0)
    shapes = {"up": (width, 2 * width), "bias": (2 * width,), "down": (2 * width, width)}
    return step, (
        _state(_matrices(key, layers, shapes)),
        jax.random.normal(key, (batch, width)),
    )


def double_precision(layers: int = 4, width: int = 192, points: int = 192) -> Built:
    """A deep kernel: features, then a Gaussian process's likelihood by Cholesky, in float64."""

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        for layer in params:
            x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
        norms = jnp.sum(x * x, -1)
        squares = (norms[:, None] + norms[None] - 2.0 * x @ x.T) / x.shape[-1]
        kernel = jnp.exp(-0.5 * squares) + 1e-2 * jnp.eye(len(x), dtype=x.dtype)
        factor = jnp.linalg.cholesky(kernel)
        solved = jax.scipy.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ solved + jnp.sum(jnp.log(jnp.diagonal(factor)))

    key = jax.random.key(0)
    params = _matrices(key, layers, {"up": (width, 2 * width), "down": (2 * width, width)})
    x = jax.random.normal(key, (points, width))
    assert x.dtype == jnp.float64
    return _adam(loss), (_state(params), (x, jnp.sin(x[:, 0])))


def one_while_loop(width: int = 256, batch: int = 64) -> Built:
    """Everything inside one while loop: a fixed point, its gradient by implicit iteration."""

    def solve(function: Any, start: Any) -> Any:
        def more(carry: Any) -> Any:
            _, change, count = carry
            return (change > 1e-5) & (count < 100)

        def body(carry: Any) -> Any:
            x, _, count = carry
            new = function(x)
            return new, jnp.max(jnp.abs(new - x)), count + 1

        return jax.lax.while_loop(more, body, (start, jnp.inf, 0))[0]

    def step(state: Any, batch: Any) -> Any:
        def body(carry: Any) -> Any:
            state, _, count = carry
            w = state["params"]["w"]

            def cell(x: Any) -> Any:
                return jnp.tanh(0.3 * x @ w + batch)

            x = solve(cell, jnp.zeros_like(batch))
            error = x - batch[::-1]
            _, pull = jax.vjp(lambda x: jnp.tanh(0.3 * x @ w + batch), x)
            adjoint = solve(lambda g: pull(g)[0] + error, error)
            _, pull = jax.vjp(lambda w: jnp.tanh(0.3 * x @ w + batch), w)
            grads = {"w": pull(adjoint)[0] / error.size}
            return _update(state, grads, 1e-3), jnp.mean(error**2), count + 1

        state, value, _ = jax.lax.while_loop(
            lambda carry: carry[2] < 5, body, (state, jnp.float32(0), 0)
        )
        return state, value

    key = jax.random.key(0)
    params = {"w": jax.random.normal(key, (width, width)) * width**-0.5}
    return step, (_state(params), jax.random.normal(key, (batch, width)))
