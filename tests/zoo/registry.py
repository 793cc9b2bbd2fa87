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


_HAIKU = ("haiku", "optax")
_FLAX = ("flax", "optax")
_EQUINOX = ("equinox", "optax")

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "haiku-resnet50",
        "haiku_models:resnet50",
        _HAIKU,
        "batch-norm state, SGD with momentum and a schedule",
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
        "a scan over time steps, Adam",
        share=0.6,
    ),
    Entry(
        "linen-scan-remat",
        "linen_models:scanned_transformer",
        _FLAX,
        "nn.scan over nn.remat, dropout keys for each layer, tied embedding",
        one_device="its layers are one scan",
    ),
    Entry(
        "equinox-vit",
        "equinox_models:vit",
        _EQUINOX,
        "modules as pytrees with static fields, vmap over the batch, AdamW",
    ),
)

ZOO: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def available(names: tuple[str, ...] = ()) -> tuple[Entry, ...]:
    """The entries (those of ``names``, by default all) whose packages are installed."""
    chosen = tuple(ZOO[name] for name in names) if names else ENTRIES
    return tuple(entry for entry in chosen if not entry.missing())
