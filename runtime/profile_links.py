"""How long copies between devices take: pings of several sizes, fitted to latency + bytes / speed.

Pairs that are alike are measured once: between devices that share their hardware every copy goes
through the same memory. The fit has the least squared relative error, so that small copies, of
which a step has many, count as much as large ones.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence

import jax
import numpy as np

from baechi_jax.ir.topology import Topology
from baechi_jax.runtime.profile import Budget
from baechi_jax.runtime.progress import Progress
from baechi_jax.runtime.transport import mover

_log = logging.getLogger(__name__)

#: Bytes of the pings, and samples of each.
PING_BYTES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)
PINGS = 7

#: A link is taken to be no faster than this; a fit on noise could say infinitely fast.
FASTEST_BYTES_PER_SECOND = 1e13

LinkFit = tuple[float, float]


def link_classes(topology: Topology) -> dict[str, list[tuple[int, int]]]:
    """The ordered pairs of devices, by a name that equal links share."""
    names: list[str] = []
    for index, device in enumerate(topology.devices):
        shared = device.hardware >= 0
        names.append(f"{device.kind}/shared" if shared else f"{device.kind}/{index}")
    classes: dict[str, list[tuple[int, int]]] = {}
    for link in topology.links:
        ends = (link.source, link.target)
        classes.setdefault(f"{names[ends[0]]} to {names[ends[1]]}", []).append(ends)
    return classes


def measure_links(
    pairs: Sequence[tuple[int, int]],
    devices: Sequence[jax.Device],
    largest_bytes: int,
    budget: Budget,
    progress: bool | None = None,
) -> list[LinkFit | None]:
    """``(latency seconds, bytes per second)`` of each of ``pairs``; None where time is up.

    ``largest_bytes``: no ping but the two smallest is larger, for devices with little memory.
    """
    # A line needs two points, however little memory is declared.
    sizes = [*PING_BYTES[:2], *(size for size in PING_BYTES[2:] if size <= largest_bytes)]
    fits: list[LinkFit | None] = []
    with Progress("links", len(pairs), progress) as bar:
        for source, target in pairs:
            fits.append(_measure(devices[source], devices[target], sizes, budget))
            bar.advance()
    return fits


def _measure(
    source: jax.Device, target: jax.Device, sizes: Sequence[int], budget: Budget
) -> LinkFit | None:
    copy = mover([source], [target], [True])
    points: list[tuple[int, float]] = []
    longest = 0.0
    for size in sizes:
        seconds: list[float] = []
        if not budget.allows(longest):
            break
        with budget.running():
            array = jax.device_put(np.zeros(size, np.uint8), source)
            jax.block_until_ready(array)
        # The first is not counted.
        for count in range(PINGS + 1):
            if not budget.allows(longest):
                break
            with budget.running():
                started = budget.clock()
                jax.block_until_ready(copy(array))
                taken = budget.clock() - started
            longest = max(longest, taken)
            if count:
                seconds.append(taken)
        if seconds:
            points.append((size, statistics.median(seconds)))
    if len(points) < 2:
        return None
    return fit_link(points)


def fit_link(points: Sequence[tuple[int, float]]) -> LinkFit:
    """``(latency, bytes per second)`` that fits ``(bytes, seconds)`` best, both within reason."""
    rows = np.array([[1.0 / seconds, size / seconds] for size, seconds in points])
    ones = np.ones(len(points))
    (latency, per_byte), *_ = np.linalg.lstsq(rows, ones, rcond=None)
    if latency < 0:
        latency = 0.0
        per_byte = float(rows[:, 1] @ ones / (rows[:, 1] @ rows[:, 1]))
    elif per_byte < 1 / FASTEST_BYTES_PER_SECOND:
        per_byte = 1 / FASTEST_BYTES_PER_SECOND
        left = ones - rows[:, 1] * per_byte
        latency = max(float(rows[:, 0] @ left / (rows[:, 0] @ rows[:, 0])), 0.0)
    return float(latency), float(1 / max(per_byte, 1 / FASTEST_BYTES_PER_SECOND))
