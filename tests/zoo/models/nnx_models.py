"""Models of flax.nnx: modules with their own random streams, split into graph and state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

Built = tuple[Any, tuple[Any, ...]]


class Mixer(nnx.Module):
    """An MLP-mixer layer with batch norm and dropout."""

    def __init__(self, patches: int, width: int, rngs: nnx.Rngs) -> None:
        self.norm1 = nnx.BatchNorm(width, rngs=rngs)
        self.over_patches = nnx.Linear(patches, patches, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        h = self.norm1(x).swapaxes(1, 2)
        x = x + self.dropout(nnx.gelu(self.over_patches(h))).swapaxes(1, 2)
        return x + self.dropout(self.down(nnx.gelu(self.up(self.norm2(x)))))


class Net(nnx.Module):
    """Patches, mixer layers, a linear head."""

    def __init__(self, layers: int, patches: int, width: int, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(48, width, rngs=rngs)
        self.layers = nnx.List([Mixer(patches, width, rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def mixer(layers: int = 6, patches: int = 64, width: int = 128, batch: int = 16) -> Built:
    """Parameters, batch statistics and random streams in one split state; ``nnx.Optimizer``."""
    model = Net(layers, patches, width, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3, eps=1e-4), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def loss(model: Net, batch: Any) -> Any:
        x, labels = batch
        return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()

    def step(state: Any, batch: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        model.train()
        value, grads = nnx.value_and_grad(loss)(model, batch)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    key = jax.random.key(1)
    return step, (state, (jax.random.normal(key, (batch, patches, 48)), jnp.arange(batch) % 10))
