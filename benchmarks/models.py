"""The training steps that the benchmarks share, in plain JAX: MLP, transformer, residual convnet.

Each builder returns ``(step, arguments)``: an unmodified function and shape-only arguments
(``jax.ShapeDtypeStruct``). ``materialise`` turns the arguments into arrays. A step is
``step(state, batch) -> (state, loss)``, where ``state`` holds parameters and Adam's moments.

They are written as such models are in the field, without needless operations: one product for
queries, keys and values, one causal mask for all layers, deviations from the mean computed once,
Adam in the order that its authors recommend for speed. Twelve layers of the transformer still trace
to more than 4,000 equations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any
Step = Callable[[Tree, Tree], tuple[Tree, jax.Array]]


def with_adam(loss: Callable[[Tree, Tree], jax.Array], *, learning_rate: float = 1e-3) -> Step:
    """The training step of ``loss(params, batch)`` with Adam, written out.

    The bias corrections go into one scalar (Kingma and Ba 2015, end of section 2).
    """

    def step(state: Tree, batch: Tree) -> tuple[Tree, jax.Array]:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        count = state["count"] + 1
        rate = learning_rate * jnp.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["m"], grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, state["v"], grads)
        params = jax.tree.map(
            lambda p, a, b: p - rate * a / (jnp.sqrt(b) + 1e-8), state["params"], m, v
        )
        return {"params": params, "m": m, "v": v, "count": count}, value

    return step


def adam_state(params: Tree) -> Tree:
    """Shapes of the state of ``with_adam`` for ``params``."""
    return {
        "params": params,
        "m": params,
        "v": params,
        "count": jax.ShapeDtypeStruct((), jnp.float32),
    }


def mlp(*, layers: int = 8, width: int = 1024, batch: int = 256) -> tuple[Step, tuple[Tree, Tree]]:
    """A ReLU network with biases; mean squared error."""
    params = [{"w": _f32(width, width), "b": _f32(width)} for _ in range(layers)]

    def loss(params: Tree, batch: Tree) -> jax.Array:
        x, y = batch
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        x = x @ params[-1]["w"] + params[-1]["b"]
        return jnp.mean((x - y) ** 2)

    return with_adam(loss), (adam_state(params), (_f32(batch, width), _f32(batch, width)))


def transformer(
    *,
    layers: int = 12,
    width: int = 256,
    heads: int = 4,
    vocabulary: int = 512,
    length: int = 128,
    batch: int = 8,
    scanned: bool = False,
) -> tuple[Step, tuple[Tree, Tree]]:
    """A decoder-only transformer (pre-norm, GELU, learned positions, tied head) on tokens.

    ``scanned``: its layers are stacked in one array for each parameter, and scanned over.
    """
    layer = {
        "norm1": {"scale": _f32(width), "bias": _f32(width)},
        "qkv": {"w": _f32(width, 3 * width), "b": _f32(3 * width)},
        "out": {"w": _f32(width, width), "b": _f32(width)},
        "norm2": {"scale": _f32(width), "bias": _f32(width)},
        "up": {"w": _f32(width, 4 * width), "b": _f32(4 * width)},
        "down": {"w": _f32(4 * width, width), "b": _f32(width)},
    }
    params = {
        "embed": _f32(vocabulary, width),
        "positions": _f32(length, width),
        "layers": (
            jax.tree.map(lambda leaf: _f32(layers, *leaf.shape), layer)
            if scanned
            else [layer] * layers
        ),
        "norm": {"scale": _f32(width), "bias": _f32(width)},
    }

    def norm(p: Tree, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]

    def attention(p: Tree, x: jax.Array, mask: jax.Array) -> jax.Array:
        b, t, _ = x.shape
        qkv = x @ p["qkv"]["w"] + p["qkv"]["b"]
        q, k, v = jnp.moveaxis(qkv.reshape(b, t, 3, heads, width // heads), 2, 0)
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(width // heads)
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        mixed = jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, width)
        return mixed @ p["out"]["w"] + p["out"]["b"]

    def loss(params: Tree, batch: Tree) -> jax.Array:
        tokens, targets = batch
        x = params["embed"][tokens] + params["positions"]
        mask = jnp.tril(jnp.ones((length, length), bool))

        def block(x: jax.Array, p: Tree) -> tuple[jax.Array, None]:
            x = x + attention(p, norm(p["norm1"], x), mask)
            h = jax.nn.gelu(norm(p["norm2"], x) @ p["up"]["w"] + p["up"]["b"])
            return x + h @ p["down"]["w"] + p["down"]["b"], None

        if scanned:
            x, _ = jax.lax.scan(block, x, params["layers"])
        else:
            for p in params["layers"]:
                x, _ = block(x, p)
        logits = norm(params["norm"], x) @ params["embed"].T
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
        return -jnp.mean(picked)

    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return with_adam(loss), (adam_state(params), (tokens, tokens))


def resnet(
    *, blocks: int = 8, channels: int = 64, size: int = 32, batch: int = 32
) -> tuple[Step, tuple[Tree, Tree]]:
    """A residual convolutional classifier (two 3x3 convolutions a block, group-free norm)."""
    block = {
        "conv1": _f32(3, 3, channels, channels),
        "scale1": _f32(channels),
        "conv2": _f32(3, 3, channels, channels),
        "scale2": _f32(channels),
    }
    params = {
        "stem": _f32(3, 3, 3, channels),
        "blocks": [block] * blocks,
        "head": _f32(channels, 10),
    }

    def conv(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def norm(scale: jax.Array, x: jax.Array) -> jax.Array:
        mean = jnp.mean(x, axis=(1, 2), keepdims=True)
        variance = jnp.var(x, axis=(1, 2), keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale

    def loss(params: Tree, batch: Tree) -> jax.Array:
        images, labels = batch
        x = conv(params["stem"], images)
        for p in params["blocks"]:
            h = jax.nn.relu(norm(p["scale1"], conv(p["conv1"], x)))
            x = jax.nn.relu(x + norm(p["scale2"], conv(p["conv2"], h)))
        logits = jnp.mean(x, axis=(1, 2)) @ params["head"]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
        return -jnp.mean(picked)

    images = _f32(batch, size, size, 3)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return with_adam(loss), (adam_state(params), (images, labels))


def materialise(arguments: Tree, *, seed: int = 0, scale: float = 0.05) -> Tree:
    """Arrays for shape-only arguments: small normal floats, small non-negative integers."""
    generator = np.random.default_rng(seed)

    def leaf(spec: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(spec.dtype, jnp.integer):
            return jnp.asarray(generator.integers(0, 10, spec.shape), spec.dtype)
        return jnp.asarray(generator.normal(0.0, scale, spec.shape), spec.dtype)

    state, batch = jax.tree.map(leaf, arguments)
    # Second moments are never negative, and the step count starts at zero.
    state = {**state, "v": jax.tree.map(jnp.abs, state["v"]), "count": jnp.zeros(())}
    return state, batch


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
