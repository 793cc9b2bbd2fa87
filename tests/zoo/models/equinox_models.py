"""Models of equinox: vision transformers, a GRU, a neural ODE of diffrax."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

Built = tuple[Any, tuple[Any, ...]]


class VitBlock(eqx.Module):
    """A pre-norm layer of a vision transformer."""

    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, width: int, heads: int, key: Any) -> None:
        keys = jax.random.split(key, 3)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(heads, width, dropout_p=0.1, key=keys[0])
        self.norm2 = eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, 4 * width, key=keys[1])
        self.down = eqx.nn.Linear(4 * width, width, key=keys[2])
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        h = jax.vmap(self.norm1)(x)
        x = x + self.attention(h, h, h, key=first)
        h = jax.vmap(lambda t: self.down(jax.nn.gelu(self.up(self.norm2(t)))))(x)
        return x + self.dropout(h, key=second)


class Vit(eqx.Module):
    """Patches by a convolution, a class token, learned positions, layers, a linear head."""

    patches: eqx.nn.Conv2d
    positions: Any
    token: Any
    blocks: list[VitBlock]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(
        self, size: int, patch: int, width: int, heads: int, layers: int, classes: int, key: Any
    ) -> None:
        keys = jax.random.split(key, layers + 4)
        self.patches = eqx.nn.Conv2d(3, width, patch, stride=patch, key=keys[0])
        count = (size // patch) ** 2 + 1
        self.positions = 0.02 * jax.random.normal(keys[1], (count, width))
        self.token = 0.02 * jax.random.normal(keys[2], (1, width))
        self.blocks = [VitBlock(width, heads, k) for k in keys[4:]]
        self.norm = eqx.nn.LayerNorm(width)
        self.head = eqx.nn.Linear(width, classes, key=keys[3])

    def __call__(self, image: Any, key: Any) -> Any:
        x = self.patches(image)
        x = jnp.concatenate([self.token, x.reshape(x.shape[0], -1).T]) + self.positions
        for block, k in zip(self.blocks, jax.random.split(key, len(self.blocks))):
            x = block(x, k)
        return self.head(self.norm(x[0]))


def train_step(model: Any, optimizer: Any, loss: Any, batch: Any, key: Any) -> Built:
    """The step of an equinox model: its arrays are the state, the rest of it is fixed."""
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def step(state: Any, batch: Any) -> Any:
        arrays, optimizer_state, key = state
        key, used = jax.random.split(key)
        value, grads = eqx.filter_value_and_grad(loss)(eqx.combine(arrays, static), batch, used)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, arrays)
        return (eqx.apply_updates(arrays, updates), optimizer_state, key), value

    return step, ((arrays, optimizer.init(arrays), key), batch)


def vit(size: int = 32, patch: int = 4, width: int = 128, heads: int = 4, layers: int = 6) -> Built:
    """A vision transformer on small images; the model is written for one image and vmapped."""
    key = jax.random.key(0)
    model = Vit(size, patch, width, heads, layers, 10, key)

    def loss(model: Vit, batch: Any, key: Any) -> Any:
        images, labels = batch
        logits = jax.vmap(model)(images, jax.random.split(key, len(labels)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = (jax.random.normal(key, (8, 3, size, size)), jnp.arange(8))
    return train_step(model, optax.adamw(1e-3, eps=1e-4), loss, batch, key)


class Gru(eqx.Module):
    """Two GRUs over time under ``lax.scan``, a linear head."""

    cells: list[eqx.nn.GRUCell]
    head: eqx.nn.Linear

    def __init__(self, inputs: int, width: int, layers: int, key: Any) -> None:
        keys = jax.random.split(key, layers + 1)
        sizes = [inputs] + [width] * (layers - 1)
        self.cells = [eqx.nn.GRUCell(s, width, key=k) for s, k in zip(sizes, keys)]
        self.head = eqx.nn.Linear(width, 1, key=keys[-1])

    def __call__(self, xs: Any) -> Any:
        for cell in self.cells:
            _, xs = jax.lax.scan(
                lambda h, x, cell=cell: (cell(x, h),) * 2, jnp.zeros(cell.hidden_size), xs
            )
        return self.head(xs[-1])[0]


def gru(inputs: int = 16, width: int = 256, layers: int = 4, length: int = 24) -> Built:
    """A GRU for one sequence, vmapped over the batch: scans of batched cells."""
    key = jax.random.key(0)

    def loss(model: Gru, batch: Any, key: Any) -> Any:
        xs, ys = batch
        return jnp.mean((jax.vmap(model)(xs) - ys) ** 2)

    xs = jax.random.normal(key, (8, length, inputs))
    optimizer = optax.adam(1e-3, eps=1e-4)
    return train_step(Gru(inputs, width, layers, key), optimizer, loss, (xs, xs[:, 0, 0]), key)


class OdeNet(eqx.Module):
    """An encoder, a neural ODE (diffrax), a decoder."""

    encoder: eqx.nn.MLP
    field: eqx.nn.MLP
    decoder: eqx.nn.MLP

    def __init__(self, width: int, hidden: int, key: Any) -> None:
        first, second, third = jax.random.split(key, 3)
        self.encoder = eqx.nn.MLP(32, width, hidden, 4, key=first)
        self.field = eqx.nn.MLP(width, width, 64, 1, jnp.tanh, key=second)
        self.decoder = eqx.nn.MLP(width, 32, hidden, 4, key=third)

    def __call__(self, x: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: self.field(y)),
            diffrax.Tsit5(),
            t0=0.0,
            t1=1.0,
            dt0=0.1,
            y0=self.encoder(x),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=64,
        )
        return self.decoder(solution.ys[-1])


def neural_ode(width: int = 32, hidden: int = 384, batch: int = 32) -> Built:
    """Diffrax's adaptive solver with its checkpointed while loop and custom gradient."""
    key = jax.random.key(0)

    def loss(model: OdeNet, batch: Any, key: Any) -> Any:
        return jnp.mean((jax.vmap(model)(batch) - jnp.roll(batch, 1, axis=1)) ** 2)

    optimizer = optax.adam(1e-3, eps=1e-4)
    x = jax.random.normal(key, (batch, 32))
    return train_step(OdeNet(width, hidden, key), optimizer, loss, x, key)


def scanned_vit(layers: int = 8, width: int = 128, heads: int = 4, length: int = 64) -> Built:
    """Layers made by ``filter_vmap`` over keys and run by ``lax.scan`` with ``jax.checkpoint``."""
    key = jax.random.key(0)
    stack = eqx.filter_vmap(lambda k: VitBlock(width, heads, k))(jax.random.split(key, layers))
    model = {"layers": stack, "head": eqx.nn.Linear(width, 10, key=key)}

    def forward(model: Any, x: Any, key: Any) -> Any:
        arrays, static = eqx.partition(model["layers"], eqx.is_array)

        @jax.checkpoint
        def body(x: Any, layer: Any) -> Any:
            weights, k = layer
            return eqx.combine(weights, static)(x, k), None

        x, _ = jax.lax.scan(body, x, (arrays, jax.random.split(key, layers)))
        return model["head"](x.mean(0))

    def loss(model: Any, batch: Any, key: Any) -> Any:
        xs, labels = batch
        logits = jax.vmap(forward, in_axes=(None, 0, 0))(
            model, xs, jax.random.split(key, len(labels))
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = (jax.random.normal(key, (8, length, width)), jnp.arange(8))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-4))
    return train_step(model, optimizer, loss, batch, key)
