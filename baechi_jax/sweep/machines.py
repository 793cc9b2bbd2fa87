"""The machine of each point of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.local import repeated
from baechi_jax.sweep.axes import Point, SweepError


def machine_of(topology: Topology, point: Point) -> Topology:
    """``topology`` as ``point`` varies it: devices and their memory, links and their speed.

    Fewer devices are the first ones; more are like the first, where all devices and links are
    alike. Raises SweepError when the point asks for what the topology does not describe.
    """
    values = point.values
    try:
        if "devices" in values:
            topology = _with_devices(topology, int(values["devices"]))
        if "memory" in values:
            topology = topology.with_memory(int(values["memory"]))
    except TopologyError as error:
        raise SweepError(f"{point}: {error}") from error
    links = topology.links
    if "bandwidth" in values:
        links = tuple(replace(each, bytes_per_second=float(values["bandwidth"])) for each in links)
    if "latency" in values:
        links = tuple(replace(each, latency_seconds=float(values["latency"])) for each in links)
    return replace(topology, links=links)


def machines_of(topology: Topology, points: Sequence[Point]) -> list[Topology]:
    """The machine of each point."""
    return [machine_of(topology, point) for point in points]


def _with_devices(topology: Topology, count: int) -> Topology:
    if count <= topology.size:
        return replace(
            topology,
            devices=topology.devices[:count],
            links=tuple(each for each in topology.links if max(each.source, each.target) < count),
        )
    if not _is_uniform(topology):
        raise SweepError(
            f"devices: {count} are asked for, and the topology has {topology.size} that are not "
            f"all alike; vary devices up to {topology.size}, or write a topology with {count} (the "
            "first ones are taken)"
        )
    return repeated(topology, count)


def _is_uniform(topology: Topology) -> bool:
    devices = {_without_name(device) for device in topology.devices}
    links = {(each.latency_seconds, each.bytes_per_second, each.wire) for each in topology.links}
    return len(devices) == 1 and len(links) <= 1


def _without_name(device: Device) -> Device:
    return replace(device, name="")
