"""Models of flax.linen: a scanned transformer, a convolutional net, experts, a U-Net."""

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


class ConvNet(nn.Module):
    """A residual net with batch norms, whose averages are a mutable collection, and dropout."""

    blocks: int
    width: int
    classes: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(self.width, (3, 3), use_bias=False)(x)
        for index in range(self.blocks):
            h = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))
            h = nn.Conv(self.width, (3, 3), use_bias=False)(h)
            h = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(h))
            x = x + nn.Conv(self.width, (3, 3), use_bias=False)(h)
            if index % 2:
                x = nn.avg_pool(x, (2, 2), (2, 2))
        self.sow("intermediates", "features", x.mean((1, 2)))
        x = nn.Dropout(0.2, deterministic=False)(x.mean((1, 2)))
        return nn.Dense(self.classes)(x)


def conv_net(blocks: int = 6, width: int = 32, classes: int = 10, batch: int = 16) -> Built:
    """Mutable collections: batch statistics carried on, sown features returned."""
    net = ConvNet(blocks, width, classes)
    optimizer = optax.chain(
        optax.add_decayed_weights(1e-4),
        optax.sgd(optax.exponential_decay(1e-2, 10, 0.9), momentum=0.9),
    )

    def step(state: Any, batch: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, changed = net.apply(
                {"params": params, "batch_stats": state["batch_stats"]},
                batch["image"],
                rngs={"dropout": jax.random.fold_in(state["key"], state["count"])},
                mutable=["batch_stats", "intermediates"],
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
            return losses.mean(), changed

        (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(state["params"])
        updates, optimizer_state = optimizer.update(grads, state["optimizer"], state["params"])
        return {
            "params": optax.apply_updates(state["params"], updates),
            "batch_stats": changed["batch_stats"],
            "optimizer": optimizer_state,
            "key": state["key"],
            "count": state["count"] + 1,
        }, (value, changed["intermediates"])

    key = jax.random.key(0)
    batch_ = {
        "image": jax.random.normal(key, (batch, 32, 32, 3)),
        "label": jnp.arange(batch) % classes,
    }
    variables = jax.jit(net.init)({"params": key, "dropout": key}, batch_["image"])
    state = {
        "params": variables["params"],
        "batch_stats": variables["batch_stats"],
        "optimizer": optimizer.init(variables["params"]),
        "key": key,
        "count": jnp.zeros((), jnp.int32),
    }
    return step, (state, batch_)


class Experts(nn.Module):
    """Top-k routing with a capacity: tokens are scattered to experts and gathered back."""

    experts: int
    chosen: int
    hidden: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        tokens, width = x.shape
        capacity = 2 * self.chosen * tokens // self.experts
        gates = nn.softmax(nn.Dense(self.experts, use_bias=False, name="router")(x))
        weights, indices = jax.lax.top_k(gates, self.chosen)
        weights = weights / weights.sum(-1, keepdims=True)
        flat = indices.reshape(-1)
        one_hot = jax.nn.one_hot(flat, self.experts, dtype=jnp.int32)
        slot = ((jnp.cumsum(one_hot, 0) - 1) * one_hot).sum(-1)
        source = jnp.repeat(x, self.chosen, axis=0)
        inputs = jnp.zeros((self.experts, capacity, width)).at[flat, slot].add(source, mode="drop")
        init = nn.initializers.lecun_normal()
        outputs = []
        for index in range(self.experts):
            up = self.param(f"up{index}", init, (width, self.hidden))
            down = self.param(f"down{index}", init, (self.hidden, width))
            outputs.append(nn.gelu(inputs[index] @ up) @ down)
        back = jnp.stack(outputs).at[flat, slot].get(mode="fill", fill_value=0.0)
        mixed = (back.reshape(tokens, self.chosen, width) * weights[..., None]).sum(1)
        share = jax.nn.one_hot(indices[:, 0], self.experts).mean(0)
        self.sow("losses", "balance", self.experts * jnp.sum(share * gates.mean(0)))
        return mixed


class MixtureTransformer(nn.Module):
    """A transformer whose feed-forward layers are experts."""

    layers: int
    width: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(4)(nn.RMSNorm()(x), mask=mask)
            h = nn.RMSNorm()(x).reshape(-1, self.width)
            x = x + Experts(8, 2, 2 * self.width)(h).reshape(x.shape)
        return nn.Dense(self.vocabulary)(nn.RMSNorm()(x))


def mixture_of_experts(
    layers: int = 3, width: int = 128, vocabulary: int = 512, length: int = 64, batch: int = 8
) -> Built:
    """Experts with top-2 routing and a balancing loss; Adafactor, its factored moments."""
    net = MixtureTransformer(layers, width, vocabulary)
    optimizer = optax.adafactor(1e-3, min_dim_size_to_factor=64)

    def step(state: Any, tokens: Any) -> Any:
        params, optimizer_state = state

        def loss(params: Any) -> Any:
            logits, sown = net.apply({"params": params}, tokens[:, :-1], mutable=["losses"])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            balance = sum(jax.tree.leaves(sown["losses"]))
            return losses.mean() + 0.01 * balance, balance

        (value, balance), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), (value, balance)

    key = jax.random.key(0)
    tokens = jax.random.randint(key, (batch, length + 1), 0, vocabulary)
    params = jax.jit(net.init)(key, tokens[:, :-1])["params"]
    return step, ((params, optimizer.init(params)), tokens)


class UNet(nn.Module):
    """A diffusion U-Net: group norms, a time embedding, attention in the middle, long skips."""

    width: int
    levels: int

    @nn.compact
    def __call__(self, x: Any, time: Any) -> Any:
        frequencies = jnp.exp(jnp.linspace(0.0, 6.0, 32))
        angles = time[:, None] * frequencies
        embedding = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)
        embedding = nn.Dense(4 * self.width)(nn.swish(nn.Dense(4 * self.width)(embedding)))

        def block(x: Any, features: int) -> Any:
            h = nn.Conv(features, (3, 3))(nn.swish(nn.GroupNorm(8)(x)))
            h = h + nn.Dense(features)(nn.swish(embedding))[:, None, None]
            h = nn.Conv(features, (3, 3))(nn.swish(nn.GroupNorm(8)(h)))
            return h + (x if x.shape[-1] == features else nn.Conv(features, (1, 1))(x))

        x = nn.Conv(self.width, (3, 3))(x)
        skips = [x]
        for level in range(self.levels):
            x = block(x, self.width * 2**level)
            skips.append(x)
            x = nn.Conv(x.shape[-1], (3, 3), strides=(2, 2))(x)
        b, h, w, c = x.shape
        tokens = nn.GroupNorm(8)(x).reshape(b, h * w, c)
        x = block(x, c) + nn.SelfAttention(4)(tokens).reshape(x.shape)
        for level in reversed(range(self.levels)):
            x = jax.image.resize(x, (b, 2 * x.shape[1], 2 * x.shape[2], x.shape[-1]), "nearest")
            x = block(jnp.concatenate([x, skips.pop()], -1), self.width * 2**level)
        x = jnp.concatenate([x, skips.pop()], -1)
        return nn.Conv(3, (3, 3))(nn.swish(nn.GroupNorm(8)(x)))


def unet(width: int = 32, levels: int = 3, size: int = 32, batch: int = 8) -> Built:
    """Denoising with noise and times drawn in the step; an average of the parameters is kept."""
    net = UNet(width, levels)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3, eps=1e-4))

    def step(state: Any, images: Any) -> Any:
        key, for_time, for_noise = jax.random.split(state["key"], 3)
        time = jax.random.uniform(for_time, (len(images),))
        noise = jax.random.normal(for_noise, images.shape)
        angle = (0.5 * jnp.pi * time)[:, None, None, None]
        noisy = jnp.cos(angle) * images + jnp.sin(angle) * noise

        def loss(params: Any) -> Any:
            return jnp.mean((net.apply({"params": params}, noisy, time) - noise) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        updates, optimizer_state = optimizer.update(grads, state["optimizer"])
        params = optax.apply_updates(state["params"], updates)
        average = optax.incremental_update(params, state["average"], 0.01)
        return {
            "params": params,
            "average": average,
            "optimizer": optimizer_state,
            "key": key,
        }, value

    key = jax.random.key(0)
    images = jax.random.normal(key, (batch, size, size, 3))
    params = jax.jit(net.init)(key, images, jnp.zeros(batch))["params"]
    state = {
        "params": params,
        "average": jax.tree.map(lambda p: p.copy(), params),
        "optimizer": optimizer.init(params),
        "key": key,
    }
    return step, (state, images)
