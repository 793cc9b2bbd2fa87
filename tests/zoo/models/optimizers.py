"""One net of flax.linen under the optimizers of optax that shape their state in their own way."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

Built = tuple[Any, tuple[Any, ...]]


class Net(nn.Module):
    """Residual layers with biases and norms, which masks can tell apart."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(self.layers):
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(self.width)(nn.LayerNorm()(x))))
        return nn.Dense(10)(x)


def _train(optimizer: Any, layers: int = 6, width: int = 256, batch: int = 64) -> Built:
    net = Net(layers, width)

    def step(state: Any, batch: Any) -> Any:
        params, optimizer_state = state

        def loss(params: Any) -> Any:
            logits = net.apply({"params": params}, batch[0])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), value

    key = jax.random.key(0)
    data = (jax.random.normal(key, (batch, width)), jnp.arange(batch) % 10)
    params = jax.jit(net.init)(key, data[0])["params"]
    return step, ((params, jax.jit(optimizer.init)(params)), data)


def _kernels(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)


def lion() -> Built:
    """The sign of a momentum."""
    return _train(optax.lion(1e-4, weight_decay=0.1))


def adafactor() -> Built:
    """Factored second moments, steps scaled by the parameters' size."""
    return _train(optax.adafactor(1e-3, min_dim_size_to_factor=64))


def momentum() -> Built:
    """SGD with Nesterov momentum under a piecewise schedule, values clipped."""
    schedule = optax.piecewise_constant_schedule(1e-2, {1: 0.1, 2: 0.5})
    return _train(optax.chain(optax.clip(0.1), optax.sgd(schedule, momentum=0.9, nesterov=True)))


def ema() -> Built:
    """Adam's updates averaged again."""
    return _train(optax.chain(optax.adam(1e-3, eps=1e-4), optax.ema(0.9)))


def masked() -> Built:
    """Weight decay on kernels alone; the state has leaves only where the mask says so."""
    decay = optax.masked(optax.add_decayed_weights(1e-2), _kernels)
    return _train(optax.chain(optax.scale_by_adam(eps=1e-4), decay, optax.scale(-1e-3)))


def multi_transform() -> Built:
    """Adam for kernels, SGD for what else there is, and layers that are frozen."""

    def label(path: Any, leaf: Any) -> str:
        if "Dense_0" in jax.tree_util.keystr(path):
            return "frozen"
        return "adam" if leaf.ndim > 1 else "sgd"

    transforms = {
        "adam": optax.adamw(1e-3, eps=1e-4),
        "sgd": optax.sgd(1e-2, momentum=0.9),
        "frozen": optax.set_to_zero(),
    }
    return _train(
        optax.multi_transform(transforms, lambda p: jax.tree_util.tree_map_with_path(label, p))
    )


def accumulated() -> Built:
    """``optax.MultiSteps``: every second step applies the mean gradient, under a ``cond``."""
    steps = optax.MultiSteps(optax.adam(1e-3, eps=1e-4), every_k_schedule=2)
    return _train(steps.gradient_transformation())


def apply_if_finite() -> Built:
    """Updates that are no numbers are skipped, under a ``cond``."""
    return _train(optax.apply_if_finite(optax.adam(1e-3, eps=1e-4), max_consecutive_errors=3))
