"""Topologies: the devices of a machine, and the links between them.

A topology is an attribute of the module (as Shardy's mesh is), so a plan says which machine it is
for, and one can plan for a machine that one does not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TypeVar, cast

from baechi_jax.ir.attributes import ParameterizedAttr, register_attribute
from baechi_jax.ir.errors import TopologyError

_T = TypeVar("_T")


@register_attribute("baechi.device")
@dataclass(frozen=True, slots=True)
class Device(ParameterizedAttr):
    """One device. Devices of one ``kind`` must agree on speed.

    ``memory_bytes`` is what the device has; ``reserved_bytes`` of it are kept for the context, the
    allocator and fragmentation. ``hardware`` names what the device shares: devices with an equal
    non-negative number run one at a time (virtual CPU devices of one process share its cores).
    """

    kind: str = "cpu"
    memory_bytes: int = 1 << 30
    flops_per_second: float = 5e10
    bytes_per_second: float = 1e10
    launch_seconds: float = 5e-6
    reserved_bytes: int = 0
    hardware: int = -1
    name: str = ""

    @property
    def usable_bytes(self) -> int:
        """The memory limit that a plan keeps on this device."""
        return self.memory_bytes - self.reserved_bytes


@register_attribute("baechi.link")
@dataclass(frozen=True, slots=True)
class Link(ParameterizedAttr):
    """A directed link. Links with an equal non-negative ``wire`` carry one transfer at a time."""

    source: int
    target: int
    latency_seconds: float = 2e-5
    bytes_per_second: float = 1e10
    wire: int = -1

    def transfer_seconds(self, nbytes: float) -> float:
        """Seconds that ``nbytes`` take on this link when it is free."""
        return self.latency_seconds + nbytes / self.bytes_per_second


@register_attribute("baechi.topology")
@dataclass(frozen=True, slots=True)
class Topology(ParameterizedAttr):
    """Devices, by index, and a link for each ordered pair of different devices."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The distinct device kinds, in order of first appearance; costs are given per kind."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    def device_of_kind(self, kind: str) -> Device:
        """The first device of ``kind``; its speeds are those of every device of that kind."""
        for device in self.devices:
            if device.kind == kind:
                return device
        raise TopologyError(f"no device of kind '{kind}'; the topology has {list(self.kinds)}")

    def link(self, source: int, target: int) -> Link:
        """The link from ``source`` to ``target``; raises TopologyError when there is none."""
        for link in self.links:
            if link.source == source and link.target == target:
                return link
        raise TopologyError(f"no link from device {source} to device {target}")

    def transfer_seconds(self, source: int, target: int, nbytes: float) -> float:
        """Seconds to move ``nbytes`` over a free link; zero on one device."""
        return 0.0 if source == target else self.link(source, target).transfer_seconds(nbytes)

    def with_memory(self, memory_bytes: int) -> Topology:
        """The same machine with this much memory on every device."""
        return replace(
            self, devices=tuple(replace(d, memory_bytes=memory_bytes) for d in self.devices)
        )

    @staticmethod
    def uniform(
        count: int,
        device: Device | None = None,
        *,
        latency_seconds: float = 2e-5,
        bytes_per_second: float = 1e10,
    ) -> Topology:
        """``count`` equal devices with equal links between every two."""
        return Topology(
            (device if device is not None else Device(),) * count,
            tuple(
                Link(source, target, latency_seconds, bytes_per_second)
                for source in range(count)
                for target in range(count)
                if source != target
            ),
        )

    # JSON -------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """JSON text that ``from_json`` reads."""
        return json.dumps(
            {
                "format": "baechi-topology",
                "version": 1,
                "devices": [asdict(device) for device in self.devices],
                "links": [asdict(link) for link in self.links],
            },
            indent=2,
        )

    @staticmethod
    def from_json(text: str) -> Topology:
        """Read what ``to_json`` wrote; raises TopologyError naming the field that is wrong.

        Instead of ``links``, ``"all_links": {"latency_seconds": s, "bytes_per_second": b}`` joins
        every two devices alike; a device with ``"count": n`` stands for n of them.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise TopologyError(f"the topology is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != "baechi-topology":
            raise TopologyError('not a topology: expected "format": "baechi-topology"')
        if data.get("version") != 1:
            raise TopologyError(
                f"topology version {data.get('version')!r} is not known; this release reads 1"
            )
        devices: list[Device] = []
        for index, entry in enumerate(_list(data, "devices")):
            entry = dict(_mapping(entry, f"devices[{index}]"))
            count = entry.pop("count", 1)
            if not isinstance(count, int) or count < 1:
                raise TopologyError(f"devices[{index}].count must be a positive integer")
            devices += [_build(Device, entry, f"devices[{index}]")] * count
        if "all_links" in data:
            entry = _mapping(data["all_links"], "all_links")
            links = [
                _build(Link, {**entry, "source": source, "target": target}, "all_links")
                for source in range(len(devices))
                for target in range(len(devices))
                if source != target
            ]
        else:
            links = [
                _build(Link, _mapping(entry, f"links[{index}]"), f"links[{index}]")
                for index, entry in enumerate(_list(data, "links"))
            ]
        return Topology(tuple(devices), tuple(links))

    @staticmethod
    def load(path: str | Path) -> Topology:
        """Read a topology file; an error names the file."""
        try:
            return Topology.from_json(Path(path).read_text(encoding="utf-8"))
        except TopologyError as error:
            raise TopologyError(f"{path}: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyError(f"cannot read the topology {path}: {error}") from error


def _check(topology: Topology) -> None:
    if not topology.devices:
        raise TopologyError("a topology needs at least one device")
    speeds: dict[str, tuple[float, float, float]] = {}
    for index, device in enumerate(topology.devices):
        if device.usable_bytes <= 0:
            raise TopologyError(
                f"devices[{index}]: memory_bytes {device.memory_bytes} less reserved_bytes "
                f"{device.reserved_bytes} leaves nothing to use"
            )
        if device.hardware < -1:
            raise TopologyError(
                f"devices[{index}]: hardware must be -1 (its own) or the number, 0 or more, that "
                f"devices which share it have in common, found {device.hardware}"
            )
        speed = (device.flops_per_second, device.bytes_per_second, device.launch_seconds)
        if min(speed[:2]) <= 0 or speed[2] < 0 or not all(map(math.isfinite, speed)):
            raise TopologyError(f"devices[{index}]: speeds must be positive and finite")
        if speeds.setdefault(device.kind, speed) != speed:
            raise TopologyError(
                f"devices[{index}]: devices of kind '{device.kind}' differ in speed; "
                "give them different kinds"
            )
    seen: set[tuple[int, int]] = set()
    for link in topology.links:
        ends = (link.source, link.target)
        if link.source == link.target or not all(0 <= end < topology.size for end in ends):
            raise TopologyError(f"link {ends}: ends must be two different devices of the topology")
        if ends in seen:
            raise TopologyError(f"link {ends} is given twice")
        if not 0 <= link.latency_seconds < math.inf or not link.bytes_per_second > 0:
            raise TopologyError(
                f"link {ends}: latency_seconds >= 0 and bytes_per_second > 0 needed"
            )
        seen.add(ends)
    if len(seen) != topology.size * (topology.size - 1):
        missing = next(
            (s, t)
            for s in range(topology.size)
            for t in range(topology.size)
            if s != t and (s, t) not in seen
        )
        raise TopologyError(f"no link {missing}: every ordered pair of devices needs one")


def _list(data: Mapping[str, object], key: str) -> list[object]:
    value = data.get(key)
    if not isinstance(value, list):
        raise TopologyError(f"'{key}' must be a list")
    return value


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TopologyError(f"{where} must be an object")
    return value


def _build(cls: type[_T], entry: Mapping[str, object], where: str) -> _T:
    known = {field.name: str(field.type) for field in fields(cast("type", cls))}
    for key, value in entry.items():
        if key not in known:
            raise TopologyError(f"{where}.{key} is not known; fields: {', '.join(known)}")
        wanted = {"int": (int,), "float": (int, float), "str": (str,)}[known[key]]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TopologyError(f"{where}.{key} must be {known[key]}, found {value!r}")
    values = {k: float(cast("float", v)) if known[k] == "float" else v for k, v in entry.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise TopologyError(f"{where}: {error}") from error
