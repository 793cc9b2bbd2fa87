"""Models of dm-haiku: ResNet50, transformers, an LSTM, mixed precision with jmp."""

from __future__ import annotations

from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import optax

Built = tuple[Any, tuple[Any, ...]]


class State(NamedTuple):
    """What a step carries on: parameters, batch statistics, the optimizer, a random key."""

    params: Any
    statistics: Any
    optimizer: Any
    key: Any


def resnet50(images: int = 4, size: int = 32, classes: int = 100) -> Built:
    """``hk.nets.ResNet50`` on small images, with the moving averages of its batch norms."""
    net = hk.transform_with_state(
        lambda image: hk.nets.ResNet50(classes)(image, is_training=True, test_local_stats=False)
    )
    optimizer = optax.sgd(optax.cosine_decay_schedule(1e-3, 100), momentum=0.9, nesterov=True)
    return _classifier(net, optimizer, images, size, classes)


def mobilenet(images: int = 4, size: int = 48, classes: int = 100) -> Built:
    """``hk.nets.MobileNetV1``: convolutions of single channels, then across channels."""
    net = hk.transform_with_state(
        lambda image: hk.nets.MobileNetV1(num_classes=classes)(image, True)
    )
    return _classifier(net, optax.rmsprop(1e-3, eps=1e-3, momentum=0.9), images, size, classes)


def _classifier(net: Any, optimizer: Any, images: int, size: int, classes: int) -> Built:
    """The step of a net with batch norms: cross entropy, and a penalty on the weights."""

    def loss(params: Any, statistics: Any, batch: Any) -> Any:
        logits, statistics = net.apply(params, statistics, None, batch["image"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        penalty = sum(jnp.sum(p**2) for p in jax.tree.leaves(params) if p.ndim > 1)
        return losses.mean() + 1e-4 * penalty, statistics

    def step(state: State, batch: Any) -> Any:
        (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, state.statistics, batch
        )
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, statistics, optimizer_state, state.key), value

    key = jax.random.key(0)
    batch = {
        "image": jax.random.normal(key, (images, size, size, 3)),
        "label": jnp.arange(images) % classes,
    }
    params, statistics = jax.jit(net.init)(key, batch["image"])
    return step, (State(params, statistics, optimizer.init(params), key), batch)


def transformer(
    layers: int = 6,
    width: int = 128,
    heads: int = 4,
    vocabulary: int = 1024,
    length: int = 64,
    batch: int = 8,
) -> Built:
    """The transformer of haiku's examples: pre-norm, ``hk.MultiHeadAttention``, dropout."""

    def forward(tokens: Any) -> Any:
        init = hk.initializers.VarianceScaling(2.0 / layers)
        positions = hk.get_parameter("positions", [length, width], init=jnp.zeros)
        x = hk.Embed(vocabulary, width)(tokens) + positions
        mask = jnp.tril(jnp.ones((1, 1, length, length)))
        for index in range(layers):
            with jax.named_scope(f"layer{index}"):
                h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
                attention = hk.MultiHeadAttention(heads, width // heads, w_init=init)
                x = x + hk.dropout(hk.next_rng_key(), 0.1, attention(h, h, h, mask=mask))
                h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
                h = hk.Linear(width, w_init=init)(jax.nn.gelu(hk.Linear(4 * width)(h)))
                x = x + hk.dropout(hk.next_rng_key(), 0.1, h)
        x = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        return hk.Linear(vocabulary)(x)

    net = hk.transform(forward)
    schedule = optax.warmup_cosine_decay_schedule(1e-4, 1e-3, 10, 100)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, eps=1e-4, weight_decay=0.01)
    )

    def loss(params: Any, key: Any, tokens: Any) -> Any:
        logits = net.apply(params, key, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(state: State, tokens: Any) -> Any:
        key, dropout = jax.random.split(state.key)
        value, grads = jax.value_and_grad(loss)(state.params, dropout, tokens)
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, None, optimizer_state, key), {"loss": value}

    key = jax.random.PRNGKey(0)
    tokens = jax.random.randint(key, (batch, length + 1), 0, vocabulary)
    params = jax.jit(net.init)(key, tokens[:, :-1])
    return step, (State(params, None, optimizer.init(params), key), tokens)


def lstm(
    layers: int = 4, width: int = 192, vocabulary: int = 256, length: int = 24, batch: int = 8
) -> Built:
    """A character model: ``hk.DeepRNN`` of LSTMs under ``hk.dynamic_unroll``."""

    def forward(tokens: Any) -> Any:
        x = hk.Embed(vocabulary, width)(tokens)
        for _ in range(layers):
            core = hk.LSTM(width)
            out, _ = hk.dynamic_unroll(core, x, core.initial_state(batch))
            x = x + out
        return hk.BatchApply(hk.Linear(vocabulary))(x)

    net = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.chain(optax.clip(1.0), optax.adam(1e-3, eps=1e-4))

    def loss(params: Any, tokens: Any) -> Any:
        logits = net.apply(params, tokens[:-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

    def step(state: State, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state.params, tokens)
        updates, optimizer_state = optimizer.update(grads, state.optimizer)
        return State(optax.apply_updates(state.params, updates), None, optimizer_state, None), value

    key = jax.random.key(0)
    tokens = jax.random.randint(key, (length + 1, batch), 0, vocabulary)
    params = jax.jit(net.init)(key, tokens[:-1])
    return step, (State(params, None, optimizer.init(params), None), tokens)


def layer_stack(
    layers: int = 8, width: int = 128, heads: int = 4, vocabulary: int = 512, length: int = 64
) -> Built:
    """Layers under ``hk.experimental.layer_stack``, a scan over stacked parameters; Lion."""

    def layer(x: Any) -> Any:
        h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        mask = jnp.tril(jnp.ones((1, 1, length, length)))
        init = hk.initializers.VarianceScaling(0.5)
        x = x + hk.MultiHeadAttention(heads, width // heads, w_init=init)(h, h, h, mask=mask)
        h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        return x + hk.Linear(width)(jax.nn.silu(hk.Linear(4 * width)(h)))

    def forward(tokens: Any) -> Any:
        x = hk.Embed(vocabulary, width)(tokens)
        x = hk.experimental.layer_stack(layers)(layer)(x)
        return hk.Linear(vocabulary)(x)

    net = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.lion(1e-4, weight_decay=0.1)

    def loss(params: Any, tokens: Any) -> Any:
        logits = net.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(state: State, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state.params, tokens)
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.params)
        return State(optax.apply_updates(state.params, updates), None, optimizer_state, None), value

    key = jax.random.key(0)
    tokens = jax.random.randint(key, (8, length + 1), 0, vocabulary)
    params = jax.jit(net.init)(key, tokens[:, :-1])
    return step, (State(params, None, optimizer.init(params), None), tokens)


class ScaledState(NamedTuple):
    """A state with jmp's loss scale."""

    params: Any
    optimizer: Any
    loss_scale: Any


def mixed_precision(layers: int = 6, width: int = 256, batch: int = 256) -> Built:
    """Float16 activations under ``hk.mixed_precision``, jmp's dynamic loss scale, skipped steps."""
    half = jmp.get_policy("params=float32,compute=float16,output=float32")

    class Layer(hk.Module):
        """A residual layer; a class of its own, since policies go by class."""

        def __call__(self, x: Any) -> Any:
            h = jax.nn.gelu(hk.Linear(4 * width)(x))
            return x + 0.5 * hk.Linear(width)(h)

    def forward(x: Any) -> Any:
        with hk.mixed_precision.push_policy(Layer, half):
            for _ in range(layers):
                x = Layer()(x)
        return hk.Linear(10)(x)

    net = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.adamw(1e-3, eps=1e-4)

    def loss(params: Any, scale: Any, batch: Any) -> Any:
        x, labels = batch
        value = optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), labels).mean()
        return scale.scale(value), value

    def step(state: ScaledState, batch: Any) -> Any:
        grads, value = jax.grad(loss, has_aux=True)(state.params, state.loss_scale, batch)
        grads = state.loss_scale.unscale(grads)
        finite = jmp.all_finite(grads)
        updates, optimizer_state = optimizer.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        params, optimizer_state = jmp.select_tree(
            finite, (params, optimizer_state), (state.params, state.optimizer)
        )
        scale = state.loss_scale.adjust(finite)
        return ScaledState(params, optimizer_state, scale), {"loss": value, "finite": finite}

    key = jax.random.key(0)
    batch_ = (jax.random.normal(key, (batch, width)), jnp.arange(batch) % 10)
    params = jax.jit(net.init)(key, batch_[0])
    # So high that the first step overflows and is skipped.
    scale = jmp.DynamicLossScale(jnp.float32(2.0**24), period=2)
    return step, (ScaledState(params, optimizer.init(params), scale), batch_)
