"""Splits as files, in dnn-partitioning's output form.

``{"cpus": [{"nodes": [ids]}, ...], "fpgas": [{"nodes": [ids]}, ...]}``: the devices in order, those
that pay for transfers under ``fpgas`` (accelerators), the others under ``cpus``. Two additions that
other readers ignore: ``"subgraphs": [[ids], ...]`` where a device runs several one after another
(latency), and ``"replicas": r`` where a stage is on this device and the r - 1 empty ones after it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.ir.files import write_text_atomically
from baechi_jax.passes.placement.formats.fields import load_text, parse_object
from baechi_jax.passes.placement.partitioning import Latency, Partitioning, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from baechi_jax.passes.placement.formats.fields import Fields
    from baechi_jax.passes.placement.workload import Workload


def read_split(path: str | Path, workload: Workload, *, complete: bool = False) -> Split:
    """Read a split of ``workload``.

    ``complete``: a backward node that the file leaves out goes to where its colour is, so that a
    split of the inference graph serves for training. Raises WorkloadError naming the file, the
    field and the reason: unknown, missing or doubled nodes, more devices than there are.
    """
    root = parse_object(load_text(path), str(path))
    index = {each: node for node, each in enumerate(workload.ids)}
    device_of = np.full(workload.size, -1, np.int64)
    subgraph_of = np.zeros(workload.size, np.int64)
    replicas = np.ones(workload.devices, np.int64)
    several = False
    for name, devices in _sections(workload):
        entries = list(root.objects(name)) if name in root.values else []
        for position, entry in enumerate(entries):
            if position >= len(devices):
                if entry.integers("nodes"):
                    raise entry.fault(
                        "nodes", f"the workload has {len(devices)} devices of this kind"
                    )
                continue
            device = devices[position]
            for node in _nodes(entry, "nodes", index):
                if device_of[node] >= 0:
                    raise entry.fault("nodes", f"node {workload.ids[node]} is placed twice")
                device_of[node] = device
            replicas[device] = entry.integer("replicas", 1, least=1)
            if "subgraphs" in entry:
                several = True
                _read_subgraphs(entry, index, device_of == device, subgraph_of)
    if complete:
        _complete(workload, device_of)
    missing = np.flatnonzero(device_of < 0)
    if len(missing):
        ids = ", ".join(str(workload.ids[node]) for node in missing[:5].tolist())
        raise root.fault(
            "",
            f"{len(missing)} nodes are on no device ({ids}{', ...' if len(missing) > 5 else ''})",
        )
    return Split(
        device_of, subgraph_of if several else None, replicas if (replicas > 1).any() else None
    )


def expert(path: str | Path, workload: Workload, objective: Throughput | Latency) -> Partitioning:
    """``expert``: a split made by hand, judged. A split of forward nodes serves for training.

    Raises WorkloadError where the split is not valid for ``objective``.
    """
    split = read_split(path, workload, complete=True)
    seconds, faults = objective.seconds(workload, split)
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise WorkloadError(
            f"{path}: the split is not valid: {faults[0]}{more}; 'baechi evaluate' shows what each "
            "device holds"
        )
    return Partitioning("expert", split, seconds, status="by hand")


def write_split(path: str | Path, workload: Workload, split: Split) -> None:
    """Write ``split``; ``read_split`` gives the same back."""
    write_text_atomically(path, json.dumps(split_content(workload, split), indent=1) + "\n")


def split_content(workload: Workload, split: Split) -> dict[str, list[dict[str, object]]]:
    """``split`` as JSON's values."""
    ids = np.array(workload.ids, np.int64)
    content: dict[str, list[dict[str, object]]] = {}
    for name, devices in _sections(workload):
        entries = content.setdefault(name, [])
        for device in devices:
            mine = split.device_of == device
            entry: dict[str, object] = {"nodes": ids[mine].tolist()}
            if split.subgraph_of is not None and (count := split.subgraph_of[mine].max(initial=0)):
                entry["subgraphs"] = [
                    ids[mine & (split.subgraph_of == number)].tolist()
                    for number in range(int(count) + 1)
                ]
            if split.replicas is not None and split.replicas[device] > 1:
                entry["replicas"] = int(split.replicas[device])
            entries.append(entry)
    return content


def _sections(workload: Workload) -> tuple[tuple[str, list[int]], ...]:
    classes = workload.class_of_devices().tolist()
    pays = [workload.classes[kind].transfers for kind in classes]
    return (
        ("cpus", [device for device in range(workload.devices) if not pays[device]]),
        ("fpgas", [device for device in range(workload.devices) if pays[device]]),
    )


def _nodes(entry: Fields, name: str, index: dict[int, int]) -> list[int]:
    found = []
    for each in entry.integers(name):
        if each not in index:
            raise entry.fault(name, f"the workload has no node with id {each}")
        found.append(index[each])
    return found


def _read_subgraphs(
    entry: Fields,
    index: dict[int, int],
    mine: NDArray[np.bool_],
    subgraph_of: NDArray[np.int64],
) -> None:
    lists = entry.get("subgraphs")
    if not isinstance(lists, list):
        raise entry.fault("subgraphs", "expected a list of lists of node ids")
    seen = np.zeros(len(mine), bool)
    for number, members in enumerate(lists):
        part = entry.inside(f"subgraphs[{number}]", {"nodes": members})
        for node in _nodes(part, "nodes", index):
            if not mine[node] or seen[node]:
                raise part.fault("", "a node is not on this device, or in two subgraphs")
            seen[node] = True
            subgraph_of[node] = number
    if (seen != mine).any():
        raise entry.fault("subgraphs", "a node of the device is in no subgraph")


def _complete(workload: Workload, device_of: NDArray[np.int64]) -> None:
    place = {
        int(colour): int(device)
        for colour, device in zip(workload.colour, device_of)
        if colour >= 0 and device >= 0
    }
    for node in np.flatnonzero((device_of < 0) & workload.backward).tolist():
        device_of[node] = place.get(int(workload.colour[node]), -1)
