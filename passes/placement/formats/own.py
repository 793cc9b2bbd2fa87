"""This project's JSON of a workload: everything that ``Workload`` holds, in seconds and bytes.

::

    {"format": "baechi-workload",
     "classes": [{"name": "gpu", "count": 2, "memory_bytes": 8e9, "transfers": true},
                 {"name": "host", "count": 1, "memory_bytes": null, "transfers": false}],
     "nodes": [{"id": 0, "name": "a", "seconds": {"gpu": 0.1, "host": null}, "bytes": 1e6,
                "transfer_seconds": 0.01, "parameter_bytes": 0, "backward": false, "colour": 3}],
     "edges": [{"source": 0, "target": 1}]}

``memory_bytes`` null is no limit, ``seconds`` null is a node that cannot run there. ``name``,
``transfers`` (true), ``transfer_seconds`` (0), ``parameter_bytes`` (0), ``backward`` (false) and
``colour`` (none) may be left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.ir.files import write_text_atomically
from baechi_jax.passes.placement.formats.fields import edge_array, edge_ends, index_of_ids
from baechi_jax.passes.placement.workload import DeviceClass, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from baechi_jax.passes.placement.formats.fields import Fields

FORMAT = "baechi-workload"


def read(root: Fields) -> Workload:
    """The workload in a file of this format."""
    kinds = list(root.objects("classes"))
    names = [kind.text("name") for kind in kinds]
    for kind, name in zip(kinds, names):
        if names.count(name) > 1:
            raise kind.fault("name", f"two classes are called '{name}'")
    nodes = list(root.objects("nodes"))
    ids = [node.integer("id") for node in nodes]
    index = index_of_ids(ids, nodes)
    seconds = np.zeros((len(kinds), len(nodes)))
    for position, node in enumerate(nodes):
        times = node.nested("seconds")
        for kind_index, name in enumerate(names):
            cannot = times.get(name) is None
            seconds[kind_index, position] = np.inf if cannot else times.number(name)
    ends = [edge_ends(edge, index, "source", "target") for edge in root.objects("edges")]
    return Workload(
        names=tuple(node.text("name", str(each)) for node, each in zip(nodes, ids)),
        ids=tuple(ids),
        bytes=np.array([node.number("bytes") for node in nodes], np.float64),
        transfer_seconds=np.array(
            [node.number("transfer_seconds", 0.0) for node in nodes], np.float64
        ),
        backward=np.array([node.flag("backward", False) for node in nodes], bool),
        colour=np.array([node.integer("colour", -1) for node in nodes], np.int64),
        edges=edge_array(ends),
        classes=tuple(
            DeviceClass(
                name,
                kind.integer("count", least=0),
                kind.number("memory_bytes") if kind.get("memory_bytes") is not None else np.inf,
                seconds[kind_index],
                kind.flag("transfers", True),
            )
            for kind_index, (kind, name) in enumerate(zip(kinds, names))
        ),
        parameter_bytes=np.array(
            [node.number("parameter_bytes", 0.0) for node in nodes], np.float64
        ),
    )


def write_workload(path: str | Path, workload: Workload) -> None:
    """Write ``workload`` in this format; ``read_workload`` gives the same back."""
    classes = [
        {
            "name": kind.name,
            "count": kind.count,
            "memory_bytes": _or_null(kind.memory_bytes),
            "transfers": kind.transfers,
        }
        for kind in workload.classes
    ]
    nodes = []
    for node in range(workload.size):
        entry: dict[str, object] = {
            "id": workload.ids[node],
            "name": workload.names[node],
            "seconds": {kind.name: _or_null(kind.seconds[node]) for kind in workload.classes},
            "bytes": float(workload.bytes[node]),
            "transfer_seconds": float(workload.transfer_seconds[node]),
            "parameter_bytes": float(workload.parameter_bytes[node]),
            "backward": bool(workload.backward[node]),
        }
        if workload.colour[node] >= 0:
            entry["colour"] = int(workload.colour[node])
        nodes.append(entry)
    edges = [
        {"source": workload.ids[source], "target": workload.ids[target]}
        for source, target in workload.edges.tolist()
    ]
    content = {"format": FORMAT, "classes": classes, "nodes": nodes, "edges": edges}
    write_text_atomically(path, json.dumps(content, indent=1) + "\n")


def _or_null(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
