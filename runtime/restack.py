"""Layers of a stacked leaf, from wherever they lie to where they are wanted.

The source may be anything that a caller has: a NumPy array (cut on the host), an array on one
device (cut there), one over a mesh, replicated or cut along any dimension, or a ``StackedArray``.
No more is made than the layers that are wanted: what lies in its place is taken as it is, runs that
are longer or shorter than those wanted are cut where they lie, moved, and put together where they
arrive. Only an array that a mesh cuts along other dimensions is moved in slices of the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, SingleDeviceSharding

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.runtime.layers import Run, StackedSharding, is_weak, sharding_of, whole_aval
from baechi_jax.runtime.stacked import StackedArray

#: Makes one leaf of its pieces.
Joined = Callable[[Sequence[jax.Array]], Any]


@dataclass(frozen=True, slots=True)
class Restacked:
    """``arrays[i]`` holds the layers of the ``i``-th run that was wanted, on its device.

    ``unused`` are the source's arrays (one for each device that holds a part) that share no buffer
    with them: what may be freed when the source is given away.
    """

    arrays: list[jax.Array]
    unused: list[jax.Array]


@dataclass(frozen=True, slots=True)
class _Source:
    """Layers ``start`` to ``stop``, in each of ``copies``."""

    start: int
    stop: int
    copies: tuple[Any, ...]

    def nearest(self, device: jax.Device) -> Any:
        """The copy on ``device``, if there is one."""
        for copy in self.copies:
            if isinstance(copy, jax.Array) and copy.devices() == {device}:
                return copy
        return self.copies[0]


def restack(leaf: Any, runs: Sequence[Run]) -> Restacked:
    """The layers of ``leaf`` (an array, or what NumPy makes one of) as ``runs`` wants them.

    ``leaf`` lies wholly in this process and holds at least as many layers as ``runs`` asks for.
    Copies may still be under way when this returns.
    """
    sources = _sources(leaf)
    parts: list[Any] = []
    counts: list[int] = []
    taken: set[int] = set()
    for run in runs:
        found = [_rows(source, run) for source in sources if _overlap(source, run)]
        parts += found
        counts.append(len(found))
        if len(found) == 1:
            # As it is, if it lies there already: device_put then gives the same buffer.
            taken.update(id(part) for part in found if _lies_on(part, run.device))
    targets = [
        SingleDeviceSharding(run.device) for run, count in zip(runs, counts) for _ in range(count)
    ]
    moved = iter(jax.device_put(parts, targets))
    arrays: list[jax.Array] = []
    for count in counts:
        pieces = [next(moved) for _ in range(count)]
        arrays.append(pieces[0] if count == 1 else jnp.concatenate(pieces))
    copies = [copy for source in sources for copy in source.copies]
    return Restacked(
        arrays, [copy for copy in copies if isinstance(copy, jax.Array) and id(copy) not in taken]
    )


def spread(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """A ``StackedArray`` (or any other array) as one ``jax.Array`` by ``sharding``.

    No device gets more than its shard's layers.
    """
    if not isinstance(leaf, StackedArray):
        whole: jax.Array = jax.device_put(leaf, sharding)
        return whole
    shards: list[jax.Array] = []
    for device, index in sharding.addressable_devices_indices_map(leaf.shape).items():
        assert index is not None, "arrays have indices on every device of their sharding"
        start, stop, _ = index[0].indices(len(leaf))
        (rows,) = restack(leaf, [Run(start, stop, device)]).arrays
        shards.append(rows[(slice(None), *index[1:])])
    return jax.make_array_from_single_device_arrays(leaf.shape, sharding, shards)


def joiner(runs: Sequence[Run], aval: Any) -> Joined:
    """A function that makes one leaf of type ``aval`` of the pieces of ``runs``, without copying.

    The same sharding object is used each time, so that where a leaf lies is known by reference.
    """
    sharding = sharding_of(runs)
    whole = whole_aval(aval.shape, aval.dtype, is_weak(aval))
    if isinstance(sharding, StackedSharding):
        stacked = sharding
        return lambda pieces: StackedArray(whole, stacked, pieces)
    if len(runs) == 1:
        return lambda pieces: pieces[0]
    return compat.assembler(whole, sharding)


def _sources(leaf: Any) -> list[_Source]:
    """The parts of ``leaf``, each with all layers' other dimensions whole, in order."""
    if isinstance(leaf, StackedArray):
        return [
            _Source(run.start, run.stop, (piece,))
            for run, piece in zip(leaf.sharding.runs, leaf.pieces)
        ]
    if not isinstance(leaf, jax.Array):
        host = np.asarray(leaf)
        return [_Source(0, len(host), (host,))]
    length = leaf.shape[0]
    if len(leaf.sharding.device_set) == 1:
        return [_Source(0, length, (leaf,))]
    found: dict[int, list[Any]] = {}
    stops: dict[int, int] = {}
    for shard in leaf.addressable_shards:
        spans = [part.indices(size) for part, size in zip(shard.index, leaf.shape)]
        if any(span != (0, size, 1) for span, size in zip(spans[1:], leaf.shape[1:])):
            return [_Source(0, length, (leaf,))]
        start, stop, _ = spans[0]
        found.setdefault(start, []).append(shard.data)
        stops[start] = stop
    return [_Source(start, stops[start], tuple(found[start])) for start in sorted(found)]


def _overlap(source: _Source, run: Run) -> bool:
    return max(source.start, run.start) < min(source.stop, run.stop)


def _rows(source: _Source, run: Run) -> Any:
    """What ``source`` has of ``run``, still where it lies."""
    array = source.nearest(run.device)
    start = max(source.start, run.start) - source.start
    stop = min(source.stop, run.stop) - source.start
    if stop - start == source.stop - source.start:
        return array
    if not isinstance(array, jax.Array):
        return array[start:stop]
    return _cut(array, np.int32(start), stop - start)


@functools.partial(jax.jit, static_argnums=2)
def _cut(array: jax.Array, start: Any, size: int) -> jax.Array:
    """One program for all cuts of one size."""
    return jax.lax.dynamic_slice_in_dim(array, start, size)


def _lies_on(part: Any, device: jax.Device) -> bool:
    return isinstance(part, jax.Array) and part.devices() == {device}
