"""The zoo: training steps of models from the packages that people use.

``ZOO`` names each step with the packages that it needs. An entry's ``build()`` imports them and
returns ``(step, arguments)``: ``step(state, *rest) -> (state, ...)`` is an unmodified function, and
``arguments`` are the arrays of its first call. The state is the first argument, to be donated, and
the first part of the result takes its place in the next call.

Importing this module imports no package of the zoo, neither pytest nor jax, so benchmarks can go
over it too::

    for entry in available():
        with entry.settings():
            step, arguments = entry.build()
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Step = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One training step of the zoo.

    ``share`` is the limit of each of four devices, as a share of the peak of ``jax.jit`` on one.
    ``tolerance`` is the largest difference from ``jax.jit`` that counts as equal, relative to the
    largest value of the array.
    """

    name: str
    #: ``module:function`` in ``tests.zoo.models``.
    builder: str
    #: The packages that it imports.
    packages: tuple[str, ...]
    #: What it is there for.
    shows: str
    share: float = 0.5
    slow: bool = True
    x64: bool = False
    tolerance: float = 2e-4
    #: How many layers are scanned over, to be taken apart and spread; 0 for no such scan.
    layers: int = 0
    #: Why no placement over several devices is expected; empty where one is.
    one_device: str = ""

    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed."""
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)

    def build(self) -> tuple[Step, tuple[Any, ...]]:
        """The step and the arguments of its first call. Call it within ``settings()``."""
        module, _, function = self.builder.partition(":")
        builder = getattr(importlib.import_module(f"tests.zoo.models.{module}"), function)
        step, arguments = builder()
        return step, tuple(arguments)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """JAX's configuration for this entry: 64-bit types where it needs them."""
        import jax

        with jax.enable_x64(self.x64):
            yield


_HAIKU = ("haiku", "jmp", "optax")
_FLAX = ("flax", "optax")
_EQUINOX = ("diffrax", "equinox", "optax")
_EQUIMO = (*_EQUINOX, "equimo")

ENTRIES: tuple[Entry, ...] = (
    # haiku
    Entry(
        "haiku-resnet50",
        "haiku_models:resnet50",
        _HAIKU,
        "hk.nets.ResNet50: batch-norm state, SGD with momentum and a schedule",
    ),
    Entry(
        "haiku-mobilenet",
        "haiku_models:mobilenet",
        _HAIKU,
        "hk.nets.MobileNetV1: depthwise convolutions, RMSProp with momentum",
        # The gradient of one depthwise kernel takes 0.6 of the step's peak on CPU.
        share=0.7,
    ),
    Entry(
        "haiku-transformer",
        "haiku_models:transformer",
        _HAIKU,
        "dropout keys, AdamW, clipping, a warm-up schedule",
    ),
    Entry(
        "haiku-lstm",
        "haiku_models:lstm",
        _HAIKU,
        "scans over time steps, Adam",
    ),
    Entry(
        "haiku-layer-stack",
        "haiku_models:layer_stack",
        _HAIKU,
        "hk.experimental.layer_stack, Lion",
        layers=8,
        share=0.4,  # in layers it takes half of what the scan takes, on one device too
    ),
    Entry(
        "haiku-mixed-precision",
        "haiku_models:mixed_precision",
        _HAIKU,
        "float16 under a policy, jmp's dynamic loss scale, a skipped step",
        tolerance=5e-3,
    ),
    # flax
    Entry(
        "linen-scan-remat",
        "linen_models:scanned_transformer",
        _FLAX,
        "nn.scan over nn.remat, dropout keys for each layer, tied embedding",
        layers=8,
    ),
    Entry(
        "linen-conv-net",
        "linen_models:conv_net",
        _FLAX,
        "mutable collections (batch statistics, sown features), dropout, SGD with decay",
        share=0.7,  # one convolution's temporaries are half of the peak
    ),
    Entry(
        "linen-mixture-of-experts",
        "linen_models:mixture_of_experts",
        _FLAX,
        "top-2 routing with a capacity, scatters and gathers, Adafactor",
    ),
    Entry(
        "linen-unet",
        "linen_models:unet",
        _FLAX,
        "diffusion: long skips, noise drawn in the step, an average of the parameters",
    ),
    Entry(
        "nnx-mixer",
        "nnx_models:mixer",
        _FLAX,
        "nnx.split and merge, batch statistics and random streams, nnx.Optimizer",
    ),
    # equinox
    Entry(
        "equinox-vit",
        "equinox_models:vit",
        _EQUINOX,
        "modules as pytrees with static fields, vmap over the batch, AdamW",
    ),
    Entry(
        "equinox-gru",
        "equinox_models:gru",
        _EQUINOX,
        "scans of vmapped cells",
    ),
    Entry(
        "equinox-neural-ode",
        "equinox_models:neural_ode",
        _EQUINOX,
        "diffrax: an adaptive solver with its own gradient between encoder and decoder",
    ),
    Entry(
        "equinox-scan",
        "equinox_models:scanned_vit",
        _EQUINOX,
        "layers stacked by filter_vmap under lax.scan and jax.checkpoint",
        layers=8,
    ),
    Entry(
        "equimo-vit",
        "equimo_models:vit",
        _EQUIMO,
        "equimo's transformer: rotary positions, registers, SwiGLU, dropped paths, LAMB",
    ),
    Entry(
        "equimo-vssd",
        "equimo_models:vssd",
        _EQUIMO,
        "equimo's state-space model for images: scans, depthwise convolutions, attention",
        share=0.6,
    ),
    # graphs, reinforcement learning
    Entry(
        "jraph-graph-network",
        "graph_models:graph_network",
        ("haiku", "jraph", "optax"),
        "messages gathered and scattered, segment sums",
    ),
    Entry(
        "rlax-ppo",
        "ppo:update",
        ("distrax", "haiku", "optax", "rlax"),
        "advantages by a reversed scan, permutations, two epochs in one step",
    ),
    # optax
    Entry("optax-lion", "optimizers:lion", _FLAX, "signs of a momentum"),
    Entry("optax-adafactor", "optimizers:adafactor", _FLAX, "factored moments"),
    Entry("optax-momentum", "optimizers:momentum", _FLAX, "Nesterov, clipping, a schedule"),
    Entry("optax-ema", "optimizers:ema", _FLAX, "averaged updates"),
    Entry("optax-masked", "optimizers:masked", _FLAX, "state for some leaves only"),
    Entry("optax-multi-transform", "optimizers:multi_transform", _FLAX, "frozen layers"),
    Entry("optax-multi-steps", "optimizers:accumulated", _FLAX, "accumulation under a cond"),
    Entry("optax-apply-if-finite", "optimizers:apply_if_finite", _FLAX, "skipped updates"),
    # JAX itself
    Entry(
        "jax-custom-attention",
        "plain:custom_attention",
        (),
        "custom_vjp attention in blocks",
    ),
    Entry("jax-pallas", "plain:pallas_norm", (), "a Pallas kernel in interpret mode"),
    Entry("jax-accumulation", "plain:accumulation", (), "microbatches in a Python loop"),
    Entry("jax-x64", "plain:double_precision", (), "float64, Cholesky", x64=True, tolerance=1e-9),
    Entry(
        "jax-while-loop",
        "plain:one_while_loop",
        (),
        "a step that is one while loop",
        slow=False,
        one_device="the step is one while loop",
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def available(names: tuple[str, ...] = ()) -> tuple[Entry, ...]:
    """The entries (those of ``names``, by default all) whose packages are installed.

    Raises ValueError for a name that is none.
    """
    if unknown := [name for name in names if name not in ZOO]:
        raise ValueError(f"no such entry: {', '.join(unknown)}; there are {', '.join(ZOO)}")
    chosen = tuple(ZOO[name] for name in names) if names else ENTRIES
    return tuple(entry for entry in chosen if not entry.missing())
