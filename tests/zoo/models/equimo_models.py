"""Whole models of equimo: a vision transformer as in DINOv3, a Mamba for images."""

from __future__ import annotations

from typing import Any

import equimo.models
import jax
import jax.numpy as jnp
import optax

from tests.zoo.models.equinox_models import Built, train_step


def vit(size: int = 32, patch: int = 4, width: int = 128, layers: int = 6) -> Built:
    """``equimo.models.VisionTransformer``: rotary positions, registers, SwiGLU, layer scales."""
    key = jax.random.key(0)
    model = equimo.models.VisionTransformer(
        img_size=size,
        in_channels=3,
        dim=width,
        patch_size=patch,
        num_heads=4,
        depths=[layers],
        reg_tokens=4,
        num_classes=10,
        use_global_pos_embed=False,
        use_local_pos_embed=True,
        init_values=1e-2,
        drop_path_rate=0.1,
        ffn_layer="swiglu",
        key=key,
    )
    return _classifier(model, optax.lamb(1e-3, eps=1e-4), size, key)


def vssd(size: int = 32, width: int = 48) -> Built:
    """``equimo.models.Vssd``: state spaces in two stages, attention in the last."""
    key = jax.random.key(0)
    model = equimo.models.Vssd(
        img_size=size,
        in_channels=3,
        dim=width,
        d_state=16,
        depths=[2, 2, 2],
        num_heads=[2, 4, 8],
        attentions_layers=("mamba2mixer", "mamba2mixer", "attention"),
        num_classes=10,
        key=key,
    )
    return _classifier(model, optax.adamw(1e-3, eps=1e-4), size, key)


def _classifier(model: Any, optimizer: Any, size: int, key: Any) -> Built:
    def loss(model: Any, batch: Any, key: Any) -> Any:
        images, labels = batch
        logits = jax.vmap(model)(images, jax.random.split(key, len(labels)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = (jax.random.normal(key, (8, 3, size, size)), jnp.arange(8))
    return train_step(model, optimizer, loss, batch, key)
