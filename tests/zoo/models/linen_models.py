"""Models of flax.linen: a scanned transformer with remat."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

Built = tuple[Any, tuple[Any, ...]]


class Block(nn.Module):
    """A pre-norm transformer layer; its call fits ``nn.scan``."""

    heads: int
    dropout: float

    @nn.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        width = x.shape[-1]
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(
            self.heads, dropout_rate=self.dropout, deterministic=False
        )(h, mask=mask)
        h = nn.Dense(4 * width)(nn.LayerNorm()(x))
        h = nn.Dense(width)(nn.gelu(h))
        return x + nn.Dropout(self.dropout, deterministic=False)(h), None


class ScannedTransformer(nn.Module):
    """Layers under ``nn.scan`` of ``nn.remat``; the embedding is the output layer too."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    dropout: float = 0.1

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embed = nn.Embed(self.vocabulary, self.width)
        positions = self.param("positions", nn.initializers.zeros, (tokens.shape[1], self.width))
        stack = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=self.layers,
        )(self.heads, self.dropout, name="layers")
        x, _ = stack(embed(tokens) + positions, nn.make_causal_mask(tokens))
        return embed.attend(nn.LayerNorm()(x))


def scanned_transformer(
    layers: int = 8,
    width: int = 128,
    heads: int = 4,
    vocabulary: int = 512,
    length: int = 64,
    batch: int = 8,
) -> Built:
    """``nn.scan`` over ``nn.remat`` with dropout, in flax's own ``TrainState``."""
    net = ScannedTransformer(layers, width, heads, vocabulary)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-4))

    def step(state: TrainState, tokens: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            key_now = jax.random.fold_in(key, state.step)
            logits = state.apply_fn({"params": params}, tokens[:, :-1], rngs={"dropout": key_now})
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return losses.mean(), (jnp.argmax(logits, -1) == tokens[:, 1:]).mean()

        (value, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads), {"loss": value, "accuracy": accuracy}

    key = jax.random.key(0)
    tokens = jax.random.randint(key, (batch, length + 1), 0, vocabulary)
    params = jax.jit(net.init)({"params": key, "dropout": key}, tokens[:, :-1])["params"]
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optimizer)
    # As after a first step: the counter is an array, so the types are the same in every call.
    return step, (state.replace(step=jnp.zeros((), jnp.int32)), tokens, key)
