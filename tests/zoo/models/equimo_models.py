"""A whole model of equimo: a vision transformer as in DINOv3."""

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

    def loss(model: Any, batch: Any, key: Any) -> Any:
        images, labels = batch
        logits = jax.vmap(model)(images, jax.random.split(key, len(labels)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    batch = (jax.random.normal(key, (8, 3, size, size)), jnp.arange(8))
    return train_step(model, optax.lamb(1e-3, eps=1e-4), loss, batch, key)
