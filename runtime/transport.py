"""Moving arrays between the devices of one process.

``jax.device_put`` spends most of its time on arguments that it does not need here: arrays of known
type on one device, going to one device of the same client. Those go straight to the batched copy
that ``device_put`` ends in. Everything else (host arrays, another client's arrays, random keys,
arrays spread over several devices) takes ``jax.device_put``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from baechi_jax.ir import _jax_compat as compat

if TYPE_CHECKING:
    import jax

Mover = Callable[..., "Sequence[jax.Array]"]


def mover(
    sources: Sequence[jax.Device], targets: Sequence[jax.Device], plain: Sequence[bool]
) -> Mover:
    """A function of one array per entry that starts copying array ``i`` to ``targets[i]``.

    ``plain[i]`` says that array ``i`` is an ordinary ``jax.Array``: no random key, no token.
    The copies never share a buffer with their sources, also where source and target are one device.
    """
    import jax
    from jax.sharding import SingleDeviceSharding

    shardings = [SingleDeviceSharding(target) for target in targets]
    direct = all(plain) and all(
        source.client is target.client for source, target in zip(sources, targets, strict=True)
    )
    if direct:
        return compat.batched_copy(shardings)

    def put(*arrays: jax.Array) -> Sequence[jax.Array]:
        moved: Sequence[jax.Array] = jax.device_put(list(arrays), shardings, may_alias=False)
        return moved

    return put
