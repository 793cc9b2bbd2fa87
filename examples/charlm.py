"""A character-level transformer, trained on the source of the Python standard library.

Plain JAX: nothing in the model, its optimizer or ``train_step`` knows about placement. ``main``
places the step over the devices at hand::

    python examples/charlm.py --memory 64MiB --steps 100

``example_args`` gives the shapes that ``baechi plan examples/charlm.py:train_step`` plans for.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

VOCABULARY = 128  # ASCII
CONTEXT = 128
WIDTH = 128
HEADS = 4
LAYERS = 4
BATCH = 8

LEARNING_RATE = 3e-3
WARMUP_STEPS = 20

Params: TypeAlias = dict[str, "jax.Array | Params"]


class State(NamedTuple):
    """What training carries from step to step: weights, Adam's two moments, the step's number."""

    params: Params
    mean: Params
    variance: Params
    step: jax.Array


# The model ------------------------------------------------------------------------------------


def init(key: jax.Array) -> State:
    """The state before the first step."""

    def weight(key: jax.Array, *shape: int) -> jax.Array:
        return jax.random.normal(key, shape) * shape[0] ** -0.5

    keys = iter(jax.random.split(key, 3 + 4 * LAYERS))
    params: Params = {
        "embed": weight(next(keys), VOCABULARY, WIDTH),
        "position": weight(next(keys), CONTEXT, WIDTH),
        "head": {"scale": jnp.ones(WIDTH), "out": weight(next(keys), WIDTH, VOCABULARY)},
    }
    for layer in range(LAYERS):
        params[f"layer{layer}"] = {
            "scale1": jnp.ones(WIDTH),
            "qkv": weight(next(keys), WIDTH, 3 * WIDTH),
            "project": weight(next(keys), WIDTH, WIDTH),
            "scale2": jnp.ones(WIDTH),
            "up": weight(next(keys), WIDTH, 4 * WIDTH),
            "down": weight(next(keys), 4 * WIDTH, WIDTH),
        }
    mean = jax.tree.map(jnp.zeros_like, params)
    variance = jax.tree.map(jnp.zeros_like, params)
    return State(params, mean, variance, jnp.zeros((), jnp.int32))


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square normalisation over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def attention(x: jax.Array, qkv: jax.Array, project: jax.Array) -> jax.Array:
    """Causal multi-head self-attention: (batch, length, width) to the same."""
    batch, length, width = x.shape
    q, k, v = jnp.split((x @ qkv).reshape(batch, length, HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // HEADS) ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ project


def logits(params: Params, tokens: jax.Array) -> jax.Array:
    """(batch, length) characters to (batch, length, VOCABULARY) scores of the next one."""
    with jax.named_scope("embed"):
        x = params["embed"][tokens] + params["position"][: tokens.shape[1]]
    for layer in range(LAYERS):
        with jax.named_scope(f"layer{layer}"):
            p = params[f"layer{layer}"]
            x = x + attention(normalize(x, p["scale1"]), p["qkv"], p["project"])
            x = x + jax.nn.gelu(normalize(x, p["scale2"]) @ p["up"]) @ p["down"]
    with jax.named_scope("head"):
        return normalize(x, params["head"]["scale"]) @ params["head"]["out"]


def loss_fn(params: Params, batch: jax.Array) -> jax.Array:
    """Mean cross-entropy, in nats per character, of batch[:, 1:] given what comes before."""
    scores = logits(params, batch[:, :-1])
    with jax.named_scope("loss"):
        picked = jnp.take_along_axis(jax.nn.log_softmax(scores), batch[:, 1:, None], axis=-1)
        return -jnp.mean(picked)


def train_step(state: State, batch: jax.Array) -> tuple[State, jax.Array]:
    """One step of Adam; batch is (BATCH, CONTEXT + 1) characters."""
    loss, gradient = jax.value_and_grad(loss_fn)(state.params, batch)
    with jax.named_scope("adam"):
        step = state.step + 1
        rate = LEARNING_RATE * jnp.minimum(1.0, step / WARMUP_STEPS)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
        variance = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state.variance, gradient)

        def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            m, v = m / (1 - 0.9**step), v / (1 - 0.99**step)
            return p - rate * m / (jnp.sqrt(v) + 1e-8)

        params = jax.tree.map(update, state.params, mean, variance)
    return State(params, mean, variance, step), loss


def example_args() -> tuple[State, jax.ShapeDtypeStruct]:
    """The shapes of train_step's arguments; nothing is allocated."""
    state = jax.eval_shape(init, jax.random.key(0))
    return state, jax.ShapeDtypeStruct((BATCH, CONTEXT + 1), jnp.int32)


# The text -------------------------------------------------------------------------------------


def standard_library_text(limit: int = 4_000_000) -> np.ndarray:
    """The source of the standard library's modules, in order of their names, as ASCII codes."""
    parts: list[bytes] = []
    size = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace").encode("ascii", errors="replace")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return np.frombuffer(b"\n".join(parts)[:limit], np.uint8).astype(np.int32)


def batches(text: np.ndarray, seed: int = 0) -> Iterator[np.ndarray]:
    """Endless random excerpts of ``text``, (BATCH, CONTEXT + 1) each."""
    generator = np.random.default_rng(seed)
    while True:
        starts = generator.integers(0, len(text) - CONTEXT - 1, BATCH)
        yield np.stack([text[start : start + CONTEXT + 1] for start in starts])


# Training -------------------------------------------------------------------------------------


def main() -> None:
    """Train on the devices at hand."""
    import baechi_jax as baechi

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--memory", help="limit of each device, such as 64MiB")
    parser.add_argument("--placer", default="auto")
    options = parser.parse_args()

    topology = baechi.local_topology(memory=options.memory)
    step = baechi.place(train_step, topology=topology, placer=options.placer, donate_argnums=0)
    state = init(jax.random.key(0))
    data = batches(standard_library_text())
    print(step.plan(state, next(data)).summary())
    for number in range(1, options.steps + 1):
        state, loss = step(state, next(data))
        if number % 10 == 0:
            print(f"step {number:4d}  loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
