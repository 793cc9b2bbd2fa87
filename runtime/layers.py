"""Where the layers of a stacked leaf lie: runs of layers, and the shardings that say so.

Assumptions: dimension 0 is the one that is cut; all devices belong to this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

#: The axis of the mesh over which an evenly split stack lies.
LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive layers ``start`` to ``stop`` (not included) on one device."""

    start: int
    stop: int
    device: jax.Device

    @property
    def size(self) -> int:
        """How many layers."""
        return self.stop - self.start

    def __str__(self) -> str:
        layers = f"{self.start}" if self.size == 1 else f"{self.start}:{self.stop}"
        return f"{layers} on {_name(self.device)}"


@dataclass(frozen=True)
class StackedSharding:
    """Where the layers of a stacked array lie: runs that together are the whole, in order.

    ``baechi.device_put`` takes it where ``jax.device_put`` takes a ``jax.sharding.Sharding``. Two
    are equal when they have the same runs. Raises ValueError unless the runs follow one another
    from layer 0.
    """

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        layer = 0
        for run in self.runs:
            if run.start != layer or run.stop <= layer:
                raise ValueError(
                    f"runs must follow one another from layer 0, and this one should start at "
                    f"{layer}: {run.start}:{run.stop}"
                )
            layer = run.stop
        if not self.runs:
            raise ValueError("a stacked sharding needs at least one run of layers")

    @property
    def length(self) -> int:
        """Layers in all."""
        return self.runs[-1].stop

    @property
    def device_set(self) -> set[jax.Device]:
        """The devices that hold a part."""
        return {run.device for run in self.runs}

    @property
    def is_fully_addressable(self) -> bool:
        """Always: stacked arrays are of one process."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether one device holds all of it."""
        return len(self.device_set) == 1

    def __str__(self) -> str:
        return f"layers {', '.join(map(str, self.runs))}"

    def __repr__(self) -> str:
        return f"StackedSharding({self})"


#: What a leaf of a placed function's arguments may lie by.
LeafSharding = Sharding | StackedSharding


def sharding_of(runs: Sequence[Run]) -> LeafSharding:
    """The simplest sharding for ``runs``: of one device, over a mesh, or a ``StackedSharding``.

    A mesh needs equal runs on distinct devices of one kind.
    """
    if len(runs) == 1:
        return SingleDeviceSharding(runs[0].device)
    devices = [run.device for run in runs]
    even = len({run.size for run in runs}) == 1
    if even and len(set(devices)) == len(runs) and len({each.client for each in devices}) == 1:
        return NamedSharding(Mesh(np.array(devices), (LAYERS,)), PartitionSpec(LAYERS))
    return StackedSharding(tuple(runs))


def whole_aval(shape: Sequence[int], dtype: Any, weak_type: bool) -> Any:
    """The abstract value of an array that carries no sharding."""
    return jax.core.ShapedArray(tuple(shape), dtype, weak_type=weak_type)


def is_weak(typed: Any) -> bool:
    """Whether an array or an abstract value is weakly typed; random keys never are."""
    return bool(getattr(typed, "weak_type", False))


def _name(device: jax.Device) -> str:
    return f"{device.platform}:{device.id}"
