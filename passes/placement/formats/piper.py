"""The JSON of Tarnawski et al.'s Piper.

``maxDevices``, ``maxMemoryPerDevice`` (bytes), ``bandwidth`` (bytes per second); ``nodes[]`` with
``id`` and ``TMPCs``, the ways to run the node: by tensor-parallel degree, a list of variants with
``timePerSample`` (forward and backward), ``parameterSize``, ``memoryUsageA`` and ``memoryUsageB``
(bytes: A for each sample in flight, and B); ``edges[]`` with ``sourceId``, ``destId`` and
``communicationCost`` (bytes).

Read here: degree 1, the first variant, one sample in flight (A + B bytes). Piper decides degree,
variant and samples in flight; this project's partitioning does not. There is no host.

Source: github.com/msr-fiddle/piper, README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.formats.fields import edge_array, edge_ends, index_of_ids
from baechi_jax.passes.placement.workload import DeviceClass, Workload

if TYPE_CHECKING:
    from baechi_jax.passes.placement.formats.fields import Fields

#: One sample of no published model takes this long on one device.
_LONG_SECONDS = 60.0


def read(root: Fields, bytes_per_second: float | None = None) -> Workload:
    """The workload in a file of this format; ``bytes_per_second`` replaces its bandwidth."""
    devices = root.integer("maxDevices", least=1)
    memory = root.number("maxMemoryPerDevice")
    bandwidth = root.number("bandwidth")
    if bandwidth == 0:
        raise root.fault("bandwidth", "expected more than 0 bytes per second")
    bandwidth = bandwidth if bytes_per_second is None else bytes_per_second
    nodes = list(root.objects("nodes"))
    ids = [node.integer("id") for node in nodes]
    index = index_of_ids(ids, nodes)
    size = len(nodes)
    moved = np.zeros(size)
    uneven: set[int] = set()
    ends: list[tuple[int, int]] = []
    seen = np.zeros(size, bool)
    for edge in root.objects("edges"):
        source, target = edge_ends(edge, index, "sourceId", "destId")
        cost = edge.number("communicationCost")
        if seen[source] and cost != moved[source]:
            uneven.add(source)
        seen[source] = True
        moved[source] = max(moved[source], cost)
        ends.append((source, target))
    variants = [_variant(node) for node in nodes]
    seconds = np.array([variant.number("timePerSample") for variant in variants], np.float64)
    held = [variant.number("memoryUsageA") + variant.number("memoryUsageB") for variant in variants]
    warnings = []
    if seconds.sum() > _LONG_SECONDS:
        warnings.append(
            f"{root.file}: nodes[].TMPCs: timePerSample adds up to {seconds.sum():.0f} for one "
            "sample; as communicationCost / bandwidth is in seconds, these are probably "
            "milliseconds. They are read as seconds, as they stand"
        )
    if uneven:
        warnings.append(
            f"{root.file}: edges[].communicationCost: differs between the edges out of one "
            f"node ({len(uneven)} nodes, the first is {ids[min(uneven)]}); the largest counts"
        )
    return Workload(
        names=tuple(node.text("name", str(each)) for node, each in zip(nodes, ids)),
        ids=tuple(ids),
        bytes=np.array(held, np.float64),
        transfer_seconds=moved / bandwidth,
        backward=np.zeros(size, bool),
        colour=np.full(size, -1, np.int64),
        edges=edge_array(ends),
        classes=(DeviceClass("accelerator", devices, memory, seconds),),
        parameter_bytes=np.array(
            [variant.number("parameterSize") for variant in variants], np.float64
        ),
        warnings=tuple(warnings),
    )


def _variant(node: Fields) -> Fields:
    ways = node.nested("TMPCs")
    variants = list(ways.objects("1"))
    if not variants:
        raise ways.fault("1", "expected at least one way to run the node on one device")
    return variants[0]
