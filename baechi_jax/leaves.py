"""Whole trees of leaves, stacked ones among them: to one place, to many, out of a checkpoint.

A stacked leaf that a plan holds in pieces is an array over a mesh, or a ``StackedArray``
(``runtime/stacked.py``); ``docs/stacked-state.md`` says which and when.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from baechi_jax.ir.errors import BaechiError
from baechi_jax.runtime.layers import Run, StackedSharding
from baechi_jax.runtime.restack import restack, spread
from baechi_jax.runtime.stacked import StackedArray


class StackError(BaechiError, ValueError):
    """A tree, or a sharding, does not fit the stacked leaves that it is used for."""


def gather(tree: Any, device: jax.Device | None = None) -> Any:
    """``tree`` with each array that lies on several devices as one array in one place.

    Without ``device`` that is a NumPy array: the stack of all layers may fit no device. With it, an
    array on that device, which must have room for the whole. Random keys have no NumPy form; they
    go to the device of their first layer. Every other leaf stays the object it is. One leaf is
    brought together at a time.
    """

    def whole(leaf: Any) -> Any:
        if not _is_spread(leaf):
            return leaf
        target = device
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) and target is None:
            target = _first_device(leaf)
        if target is None:
            return np.asarray(leaf)
        if isinstance(leaf, StackedArray):
            return restack(leaf, [Run(0, len(leaf), target)]).arrays[0]
        return jax.device_put(leaf, target)

    return jax.tree.map(whole, tree)


def device_put(tree: Any, shardings: Any) -> Any:
    """``jax.device_put`` that takes stacked leaves and ``StackedSharding`` too.

    ``shardings`` is one for all leaves, or a tree whose structure begins that of ``tree``, as
    ``train_step.input_shardings`` gives it. A NumPy array is cut on the host, so that no device
    gets more than its own layers. Raises StackError for a leaf that has other layers than its
    sharding.
    """
    if _is_place(shardings):
        return jax.tree.map(lambda leaf: _put(leaf, shardings), tree)
    return jax.tree.map(
        lambda place, part: jax.tree.map(lambda leaf: _put(leaf, place), part),
        shardings,
        tree,
        is_leaf=_is_place,
    )


def _put(leaf: Any, place: Any) -> Any:
    if isinstance(place, StackedSharding):
        shape = np.shape(leaf)
        if not shape or shape[0] != place.length:
            raise StackError(
                f"a leaf of shape {shape} cannot lie by {place!r}: that is for {place.length} "
                "layers along dimension 0"
            )
        if isinstance(leaf, StackedArray) and leaf.sharding == place:
            return leaf
        return StackedArray.of(restack(leaf, place.runs).arrays)
    if not isinstance(leaf, StackedArray):
        return jax.device_put(leaf, place)
    if isinstance(place, NamedSharding):
        return spread(leaf, place)
    if isinstance(place, SingleDeviceSharding):
        (place,) = place.device_set
    if isinstance(place, jax.Device):
        return restack(leaf, [Run(0, len(leaf), place)]).arrays[0]
    raise StackError(
        f"a stacked array goes to one device, over a mesh, or to a StackedSharding; found {place!r}"
    )


def restore_target(shapes: Any, shardings: Any) -> Any:
    """What a checkpoint library is asked for: ``shapes`` with the sharding of each leaf.

    ``shapes`` is a tree of arrays or ``jax.ShapeDtypeStruct``, ``shardings`` one of the same
    structure, as ``train_step.input_shardings`` gives it. A leaf with a ``StackedSharding``, which
    no such library knows, gets none and is restored on the host: ``device_put`` the restored tree
    with the same ``shardings``, and it lies where the step wants it.
    """

    def target(shape: Any, place: Any) -> jax.ShapeDtypeStruct:
        known = place if isinstance(place, Sharding) else None
        return jax.ShapeDtypeStruct(np.shape(shape), shape.dtype, sharding=known)

    return jax.tree.map(target, shapes, shardings)


def _is_place(node: Any) -> bool:
    return node is None or isinstance(node, StackedSharding | Sharding | jax.Device)


def _is_spread(leaf: Any) -> bool:
    """Whether parts of ``leaf`` lie on different devices."""
    if isinstance(leaf, StackedArray):
        return True
    return (
        isinstance(leaf, jax.Array)
        and not isinstance(leaf, jax.core.Tracer)
        and len(leaf.sharding.device_set) > 1
    )


def _first_device(leaf: Any) -> jax.Device:
    if isinstance(leaf, StackedArray):
        return leaf.sharding.runs[0].device
    (device,) = leaf.addressable_shards[0].data.devices()
    return device
