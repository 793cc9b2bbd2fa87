"""A PPO update: advantages, then epochs of clipped policy-gradient steps (rlax, distrax)."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp
import optax
import rlax

Built = tuple[Any, tuple[Any, ...]]


def update(
    environments: int = 32, length: int = 32, width: int = 256, actions: int = 6, epochs: int = 2
) -> Built:
    """One update from a batch of rollouts; each epoch is one step on a random half."""

    def forward(x: Any) -> Any:
        policy, critic = hk.nets.MLP([width] * 3 + [actions]), hk.nets.MLP([width] * 3 + [1])
        return policy(x), critic(x)[..., 0]

    net = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-4))

    def loss(params: Any, batch: Any) -> Any:
        logits, values = net.apply(params, batch["observation"])
        policy = distrax.Categorical(logits=logits)
        ratio = jnp.exp(policy.log_prob(batch["action"]) - batch["log_prob"])
        advantage = batch["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = rlax.clipped_surrogate_pg_loss(ratio, advantage, 0.2)
        error = jnp.mean((values - batch["target"]) ** 2)
        return surrogate + 0.5 * error - 0.01 * policy.entropy().mean(), ratio.mean()

    def step(state: Any, rollout: Any) -> Any:
        params, optimizer_state, key = state
        _, values = net.apply(params, rollout["observation"])
        advantage = jax.vmap(
            lambda r, d, v: rlax.truncated_generalized_advantage_estimation(r, d, 0.95, v)
        )(rollout["reward"], rollout["discount"], values)
        flat = {
            "observation": rollout["observation"][:, :-1],
            "action": rollout["action"],
            "log_prob": rollout["log_prob"],
            "advantage": advantage,
            "target": advantage + values[:, :-1],
        }
        count = environments * length
        flat = jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), flat)
        metrics = []
        for _ in range(epochs):
            key, used = jax.random.split(key)
            chosen = jax.random.permutation(used, count)[: count // 2]
            batch = jax.tree.map(lambda x, i=chosen: x[i], flat)
            (value, ratio), grads = jax.value_and_grad(loss, has_aux=True)(params, batch)
            updates, optimizer_state = optimizer.update(grads, optimizer_state)
            params = optax.apply_updates(params, updates)
            metrics.append({"loss": value, "ratio": ratio})
        return (params, optimizer_state, key), metrics

    key = jax.random.key(0)
    rollout = {
        "observation": jax.random.normal(key, (environments, length + 1, 64)),
        "action": jax.random.randint(key, (environments, length), 0, actions),
        "log_prob": jnp.full((environments, length), -jnp.log(float(actions))),
        "reward": jax.random.normal(key, (environments, length)),
        "discount": jnp.full((environments, length), 0.99),
    }
    params = jax.jit(net.init)(key, rollout["observation"])
    return step, ((params, optimizer.init(params), key), rollout)
