"""The JSON of Tarnawski et al.'s dnn-partitioning.

``maxSizePerFPGA`` (bytes), ``maxFPGAs``, ``maxCPUs``; ``nodes[]`` with ``id``,
``supportedOnFpga``, ``cpuLatency`` and ``fpgaLatency`` (milliseconds), ``isBackwardNode``,
``size`` (bytes) and an optional ``colorClass``; ``edges[]`` with ``sourceId``, ``destId`` and
``cost`` (milliseconds at each accelerator end, equal on all edges out of a node). ``name`` on
nodes and ``size`` on edges (bytes) are extra.

Source: github.com/msr-fiddle/dnn-partitioning, README.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.formats.fields import edge_array, edge_ends, index_of_ids
from baechi_jax.passes.placement.workload import DeviceClass, Workload

if TYPE_CHECKING:
    from baechi_jax.passes.placement.formats.fields import Fields

_MILLISECOND = 1e-3
#: ``cost / size`` of the published files whose costs are milliseconds at 2 GiB/s.
_MILLISECONDS_PER_BYTE = 1000.0 / 2**31


def read(root: Fields) -> Workload:
    """The workload in a file of this format."""
    accelerators = root.integer("maxFPGAs", least=0)
    hosts = root.integer("maxCPUs", least=0)
    memory = root.number("maxSizePerFPGA")
    nodes = list(root.objects("nodes"))
    ids = [node.integer("id") for node in nodes]
    index = index_of_ids(ids, nodes)
    size = len(nodes)
    transfer = np.zeros(size)
    ends: list[tuple[int, int]] = []
    uneven: set[int] = set()
    seen = np.zeros(size, bool)
    per_byte: list[float] = []
    for edge in root.objects("edges"):
        source, target = edge_ends(edge, index, "sourceId", "destId")
        cost = edge.number("cost")
        if seen[source] and abs(cost - transfer[source]) > 1e-9 * max(cost, transfer[source]):
            uneven.add(source)
        seen[source] = True
        transfer[source] = max(transfer[source], cost)
        ends.append((source, target))
        if "size" in edge and (moved := edge.number("size")) > 0:
            per_byte.append(cost / moved)
    on_accelerator = np.array(
        [
            node.number("fpgaLatency") if node.flag("supportedOnFpga", True) else np.inf
            for node in nodes
        ],
        np.float64,
    )
    return Workload(
        names=tuple(node.text("name", str(each)) or str(each) for node, each in zip(nodes, ids)),
        ids=tuple(ids),
        bytes=np.array([node.number("size") for node in nodes], np.float64),
        transfer_seconds=transfer * _MILLISECOND,
        backward=np.array([node.flag("isBackwardNode") for node in nodes], bool),
        colour=np.array([node.integer("colorClass", -1) for node in nodes], np.int64),
        edges=edge_array(ends),
        classes=(
            DeviceClass("accelerator", accelerators, memory, on_accelerator * _MILLISECOND),
            DeviceClass(
                "host",
                hosts,
                np.inf,
                np.array([node.number("cpuLatency") for node in nodes], np.float64) * _MILLISECOND,
                transfers=False,
            ),
        ),
        parameter_bytes=np.zeros(size),
        warnings=_warnings(root, per_byte, [ids[node] for node in sorted(uneven)]),
    )


def _warnings(root: Fields, per_byte: list[float], uneven: list[int]) -> tuple[str, ...]:
    found = []
    if per_byte and statistics.median(per_byte) < _MILLISECONDS_PER_BYTE / 100:
        rate = 1.0 / statistics.median(per_byte)
        found.append(
            f"{root.file}: edges[].cost: {rate:.3g} bytes per unit of time, which is 1000 times "
            "the 2 GiB/s of the other published files if costs are milliseconds like the node "
            "latencies; the costs are probably seconds. They are read as they stand"
        )
    if uneven:
        found.append(
            f"{root.file}: edges[].cost: differs between the edges out of one node "
            f"({len(uneven)} nodes, the first is {uneven[0]}); the largest counts"
        )
    return tuple(found)
