"""Moving arrays between the devices of one process.

``jax.device_put`` spends most of its time on arguments that it does not need here: arrays of known
type on one device, going to one device of the same client. Those go straight to the batched copy
that ``device_put`` ends in. Everything else (host arrays, another client's arrays, random keys,
arrays spread over several devices) takes ``jax.device_put``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax.sharding import SingleDeviceSharding

from baechi_jax.ir import _jax_compat as compat

Mover = Callable[..., "Sequence[jax.Array]"]


def mover(
    sources: Sequence[jax.Device], targets: Sequence[jax.Device], plain: Sequence[bool]
) -> Mover:
    """A function of one array per entry that starts copying array ``i`` to ``targets[i]``.

    ``plain[i]`` says that array ``i`` is an ordinary ``jax.Array``, not a random key.
    """
    direct = all(plain) and all(
        source.client is target.client for source, target in zip(sources, targets, strict=True)
    )
    if direct:
        return compat.batched_copy([SingleDeviceSharding(target) for target in targets])
    return copier(targets)


def copier(targets: Sequence[jax.Device]) -> Mover:
    """As ``mover``, for any arrays, and the copies are committed whatever their sources are.

    They never share a buffer with their sources, also where those lie on the target already.
    """
    shardings = [SingleDeviceSharding(target) for target in targets]

    def put(*arrays: jax.Array) -> Sequence[jax.Array]:
        moved: Sequence[jax.Array] = jax.device_put(list(arrays), shardings, may_alias=False)
        return moved

    return put
