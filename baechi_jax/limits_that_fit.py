"""The limits to advise when nothing fits: near the smallest with which planning succeeds.

Planning itself is asked, so all that it does after placing (copies, waits, merged tasks, limits
scaled down) is counted. The limits of all devices grow by one factor: what a placement needs is no
single number per device, but along that line it has an end. Planning is a heuristic, so a limit
between two that fit may fail; what is advised has been tried to the byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from baechi_jax.ir.topology import Topology
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.infeasible import at_least, limits_text
from baechi_jax.runtime.progress import Progress
from baechi_jax.units import parse_bytes

#: The search ends when it fails with limits so much smaller than it succeeds with.
NEAR = 1.03
#: Most plans that are tried.
TRIES = 12
#: Seconds after which a limit that fits is not made smaller any more, and after which none is
#: looked for; a plan that was begun is finished.
_NARROW_SECONDS, _MOST_SECONDS = 10.0, 60.0
#: The first step up or down from the estimate; each is the square of the one before, at most two.
_STEP = 1.06


def with_limits_that_fit(
    error: InfeasiblePlacementError,
    topology: Topology,
    plans: Callable[[Topology], bool],
    progress: bool | None = None,
) -> InfeasiblePlacementError:
    """``error`` with ``memory_bytes`` that were tried, as they are printed.

    ``plans`` says whether planning for a machine succeeds. The error as it is where none of the
    machines tried does. ``progress``: whether to show a bar; by default when a terminal is
    attached.
    """
    began = time.monotonic()
    low, high, at, step = 1.0, 0.0, _estimate(error, topology), _STEP
    with Progress("nothing fits; looking for limits that do", TRIES, progress) as bar:
        for _ in range(TRIES):
            if plans(_machine(topology, at)):
                high = at
            else:
                low = at
            bar.advance()
            seconds = time.monotonic() - began
            enough = _NARROW_SECONDS if high else _MOST_SECONDS
            if (high and high <= low * NEAR) or seconds > enough:
                break
            at = max((low * high) ** 0.5, high / step) if high else low * step
            step = min(step * step, 2.0)
    if not high:
        return error
    fits = _machine(topology, high)
    why = "planning succeeds with that"
    if high <= low * NEAR:
        fails = topology if low == 1.0 else _machine(topology, low)
        why += f" and fails with {1 - _usable_bytes(fails) / _usable_bytes(fits):.1%} less"
    else:
        why += "; less may do"
    if any(device.reserved_bytes for device in topology.devices):
        why += "; what is reserved is counted"
    needed = tuple(device.memory_bytes for device in fits.devices)
    return error.with_limits(needed, limits_text(needed, why))


def _usable_bytes(topology: Topology) -> int:
    return sum(device.usable_bytes for device in topology.devices)


def _estimate(error: InfeasiblePlacementError, topology: Topology) -> float:
    """The factor by which the limits must grow for what the error says that it needs."""
    ratios = [
        needed / device.usable_bytes for needed, device in zip(error.needed_bytes, topology.devices)
    ]
    return max(ratios, default=1.0) if any(ratio > 1 for ratio in ratios) else _STEP


def _machine(topology: Topology, factor: float) -> Topology:
    """The machine with ``factor`` times the usable memory, rounded up to what is printed of it."""
    devices = tuple(
        replace(
            device,
            memory_bytes=parse_bytes(
                at_least(int(device.usable_bytes * factor) + 1 + device.reserved_bytes)
            ),
        )
        for device in topology.devices
    )
    return replace(topology, devices=devices)
