"""The topology of the devices at hand.

Assumptions. Speeds are the makers' published figures for each kind of GPU (dense TF32 matrix
products where the chip has them, float32 otherwise, and memory bandwidth) and rough figures for
CPUs: good for ranking placements, not for predicting seconds. To state better ones, write the
topology with ``Topology.to_json``, edit it, and load it. Links are those of one host: peer links
between GPUs that have them, PCIe otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.runtime.errors import DeviceError
from baechi_jax.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import jax

_log = logging.getLogger(__name__)

#: Kept free on a GPU unless the caller says otherwise: this share of its memory, at most this much.
#: The CUDA context, cuBLAS and cuDNN workspaces, collectives and the allocator's fragments take it.
GPU_HEADROOM_SHARE = 1 / 16
GPU_HEADROOM_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Speed:
    """What one kind of accelerator reaches: flop/s, memory bytes/s, and bytes/s of its links."""

    flops_per_second: float
    bytes_per_second: float
    host_link_bytes_per_second: float
    peer_link_bytes_per_second: float


_PCIE3, _PCIE4, _PCIE5 = 12e9, 24e9, 48e9

#: ``(pattern of device_kind, speed)``, first match wins. Data sheets of the makers; PCIe at the
#: three quarters of its raw rate that copies reach, NVLink per direction.
GPU_SPEEDS: tuple[tuple[str, Speed], ...] = (
    ("B200", Speed(1.1e15, 7.7e12, _PCIE5, 900e9)),
    ("H200", Speed(494e12, 4.8e12, _PCIE5, 450e9)),
    ("H100 NVL", Speed(417e12, 3.9e12, _PCIE5, 300e9)),
    ("H100 PCIe", Speed(378e12, 2.0e12, _PCIE5, _PCIE5)),
    ("H100|GH200", Speed(494e12, 3.35e12, _PCIE5, 450e9)),
    ("A100.*80.*PC", Speed(156e12, 1.9e12, _PCIE4, _PCIE4)),
    ("A100.*PC", Speed(156e12, 1.5e12, _PCIE4, _PCIE4)),
    ("A100.*80", Speed(156e12, 2.0e12, _PCIE4, 300e9)),
    ("A100", Speed(156e12, 1.55e12, _PCIE4, 300e9)),
    ("A10", Speed(62e12, 0.6e12, _PCIE4, _PCIE4)),
    ("L40", Speed(183e12, 0.86e12, _PCIE4, _PCIE4)),
    ("L4", Speed(60e12, 0.3e12, _PCIE4, _PCIE4)),
    ("V100.*SXM", Speed(15.7e12, 0.9e12, _PCIE3, 150e9)),
    ("V100", Speed(14e12, 0.9e12, _PCIE3, _PCIE3)),
    ("P100", Speed(9.3e12, 0.73e12, _PCIE3, _PCIE3)),
    ("T4", Speed(8.1e12, 0.32e12, _PCIE3, _PCIE3)),
    ("RTX A6000", Speed(77e12, 0.77e12, _PCIE4, _PCIE4)),
    ("RTX 4090", Speed(82e12, 1.0e12, _PCIE4, _PCIE4)),
    ("RTX 3090", Speed(35e12, 0.94e12, _PCIE4, _PCIE4)),
    ("MI300X", Speed(650e12, 5.3e12, _PCIE5, 64e9)),
    ("MI250", Speed(45e12, 1.6e12, _PCIE4, 50e9)),
    ("TPU v4", Speed(275e12, 1.2e12, _PCIE3, 50e9)),
    ("TPU v5 ?lite|TPU v5e", Speed(197e12, 0.82e12, _PCIE4, 45e9)),
    ("TPU v5", Speed(459e12, 2.76e12, _PCIE4, 90e9)),
    ("TPU v6", Speed(918e12, 1.64e12, _PCIE5, 90e9)),
)

_UNKNOWN_GPU = Speed(15e12, 0.5e12, _PCIE3, _PCIE3)

#: One core of a server CPU in float32, and the memory bandwidth that one process gets.
CPU_FLOPS_PER_CORE = 3e10
CPU_BYTES_PER_SECOND = 1e10
#: A copy between two CPU devices of one process (64 MB took 27 ms).
CPU_LINK_BYTES_PER_SECOND = 2.5e9

#: Dispatch of one compiled program.
_LAUNCH_SECONDS = 5e-6
_LINK_LATENCY_SECONDS = 2e-5


def local_topology(
    memory: str | int | Sequence[str | int] | None = None,
    devices: Sequence[jax.Device] | None = None,
    *,
    reserved_bytes: str | int | None = None,
    share_hardware: bool = True,
) -> Topology:
    """The topology of ``devices``, by default of every device of this process.

    ``memory``: what each device has, one size (``"6GiB"``, ``2_000_000_000``) or one per device. By
    default what a GPU reports as its pool, and for CPU devices half of the host's memory in equal
    shares. ``reserved_bytes`` of it stay free; by default a sixteenth (at most 1 GiB) on a GPU,
    nothing on a CPU. A plan's limit is the difference, ``Device.usable_bytes``.

    The CPU devices of a process share its cores and run one after another, so they are declared as
    one hardware (``Device.hardware``): placing over several of them saves memory, never time.
    ``share_hardware=False`` leaves that out, so that virtual devices stand in for separate ones and
    a plan spreads over them as it would over real ones; its step time is then not that of this
    machine.

    Raises TopologyError for a size that cannot be read, a list of the wrong length, or more memory
    than a GPU has.
    """
    import jax

    chosen = list(jax.local_devices() if devices is None else devices)
    if not chosen:
        raise TopologyError("local_topology needs at least one device")
    sizes = _sizes(memory, chosen)
    described = [
        _describe(device, size, reserved_bytes, share_hardware)
        for device, size in zip(chosen, sizes, strict=True)
    ]
    links = tuple(
        _link(source, target, chosen)
        for source in range(len(chosen))
        for target in range(len(chosen))
        if source != target
    )
    return Topology(tuple(described), links)


def devices_of(topology: Topology) -> tuple[jax.Device, ...]:
    """The JAX device of each device of ``topology``: by its name, else in order.

    A name is a platform and an id: ``cpu:3``, ``gpu:0``, also ``cuda:0`` or ``rocm:0`` where JAX
    runs on that. Other names are for people. Where no name says a device, none of those named is
    here or two are the same, the topology's devices are those of their platform in order (of JAX's
    default platform where no name says one).

    Fewer than the topology has when this process has fewer; compiling then says so. Raises
    DeviceError when some of the named devices are here and others are not, and when the process has
    no device of a platform that is named.
    """
    import jax

    names = [device.name for device in topology.devices]
    platforms = [_platform(name) for name in names]
    pools = {platform: _devices_on(platform) for platform in dict.fromkeys(platforms) if platform}
    here = {
        f"{platform}:{device.id}": device for platform, pool in pools.items() for device in pool
    }
    found = [here.get(name) for name in names]
    known = [device for device in found if device is not None]
    if known and len({id(device) for device in known}) == len(known):
        all_here = all(len(known) == len(pool) for pool in pools.values())
        if len(known) == topology.size or (all_here and known == found[: len(known)]):
            return tuple(known)
        raise _not_here(topology, [index for index, device in enumerate(found) if device is None])
    empty = [index for index, platform in enumerate(platforms) if pools.get(platform) == []]
    if empty:
        raise _not_here(topology, empty)
    pools[""] = jax.local_devices()
    in_order = {platform: iter(pool) for platform, pool in pools.items()}
    taken: list[jax.Device] = []
    for platform in platforms:
        device = next(in_order[platform], None)
        if device is None or device in taken:
            break
        taken.append(device)
    return tuple(taken)


def _platform(name: str) -> str:
    """The platform in the name of a JAX device, empty for another name."""
    match = re.fullmatch(r"(cpu|gpu|cuda|rocm|oneapi|tpu):\d+", name)
    return match[1] if match else ""


def _devices_on(platform: str) -> list[jax.Device]:
    """Devices of this process on ``platform``, which may be one of JAX's aliases."""
    import jax

    with contextlib.suppress(RuntimeError):
        return list(jax.local_devices(backend=platform))
    return []


def _not_here(topology: Topology, missing: Sequence[int]) -> DeviceError:
    import jax

    here = ", ".join(f"{device.platform}:{device.id}" for device in jax.local_devices())
    wanted = ", ".join(
        f"{index} ({topology.devices[index].name or 'no name'})" for index in missing
    )
    return DeviceError(
        f"this process has no device for {wanted} of the topology; it has {here}. Give the "
        "topology the names of devices that are here, or say which to run on: "
        "baechi.place(..., devices=[...])"
    )


def repeated(topology: Topology, count: int) -> Topology:
    """``count`` devices like the first of ``topology``, joined as its first two are.

    For planning for more of what is at hand. A single device tells nothing about links between two:
    then they are PCIe of its generation (for CPUs, copies in memory).
    """
    first = topology.devices[0]
    if topology.size > 1:
        link = topology.link(0, 1)
        latency, bandwidth = link.latency_seconds, link.bytes_per_second
    else:
        speed = speed_of(first.kind.replace("-", " "))
        latency = _LINK_LATENCY_SECONDS
        bandwidth = speed.host_link_bytes_per_second if speed else CPU_LINK_BYTES_PER_SECOND
    uniform = Topology.uniform(count, first, latency_seconds=latency, bytes_per_second=bandwidth)
    named = tuple(
        replace(device, name=f"{first.name.rpartition(':')[0]}:{index}" if first.name else "")
        for index, device in enumerate(uniform.devices)
    )
    return replace(uniform, devices=named)


def speed_of(device_kind: str) -> Speed | None:
    """The published speed of a GPU or TPU that calls itself ``device_kind``; None when unknown."""
    for pattern, speed in GPU_SPEEDS:
        if re.search(rf"\b({pattern})", device_kind, re.IGNORECASE):
            return speed
    return None


def _sizes(
    memory: str | int | Sequence[str | int] | None, devices: Sequence[jax.Device]
) -> list[int | None]:
    if memory is None:
        return [None] * len(devices)
    if isinstance(memory, str) or not isinstance(memory, Sequence):
        return [parse_bytes(memory)] * len(devices)
    if len(memory) != len(devices):
        raise TopologyError(
            f"memory has {len(memory)} sizes for {len(devices)} devices; give one for each, or one "
            "for all"
        )
    return [parse_bytes(size) for size in memory]


def _describe(
    device: jax.Device, size: int | None, reserved: str | int | None, share_hardware: bool
) -> Device:
    name = f"{device.platform}:{device.id}"
    stats = device.memory_stats() or {}
    pool = stats.get("bytes_limit") or None
    if size is None:
        size = pool if pool is not None else _share_of_host(device)
    elif pool is not None and size > pool:
        raise TopologyError(
            f"{name} ({device.device_kind}) has {format_bytes(pool)} for this process, less than "
            f"the {format_bytes(size)} asked for; ask for less, or raise "
            "XLA_PYTHON_CLIENT_MEM_FRACTION"
        )
    is_cpu = device.platform == "cpu"
    if reserved is None:
        headroom = 0 if is_cpu else min(int(size * GPU_HEADROOM_SHARE), GPU_HEADROOM_LIMIT_BYTES)
    else:
        headroom = 0 if reserved == 0 else parse_bytes(reserved)
    if is_cpu:
        return Device(
            kind="cpu",
            memory_bytes=size,
            flops_per_second=CPU_FLOPS_PER_CORE * _cores(),
            bytes_per_second=CPU_BYTES_PER_SECOND,
            launch_seconds=_LAUNCH_SECONDS,
            reserved_bytes=headroom,
            hardware=device.process_index if share_hardware else -1,
            name=name,
        )
    speed = _accelerator_speed(device)
    return Device(
        kind="-".join(device.device_kind.lower().split()),
        memory_bytes=size,
        flops_per_second=speed.flops_per_second,
        bytes_per_second=speed.bytes_per_second,
        launch_seconds=_LAUNCH_SECONDS,
        reserved_bytes=headroom,
        name=name,
    )


def _accelerator_speed(device: jax.Device) -> Speed:
    speed = speed_of(device.device_kind)
    if speed is not None:
        return speed
    _log.warning(
        "the speed of '%s' is not in the table: assuming %.3g flop/s and %.3g bytes/s; write the "
        "topology with to_json, correct it, and load it to state better figures",
        device.device_kind,
        _UNKNOWN_GPU.flops_per_second,
        _UNKNOWN_GPU.bytes_per_second,
    )
    return _UNKNOWN_GPU


def _link(source: int, target: int, devices: Sequence[jax.Device]) -> Link:
    ends = devices[source], devices[target]
    accelerators = [device for device in ends if device.platform != "cpu"]
    if not accelerators:
        return Link(source, target, _LINK_LATENCY_SECONDS, CPU_LINK_BYTES_PER_SECOND)
    speeds = [speed_of(device.device_kind) or _UNKNOWN_GPU for device in accelerators]
    same_kind = len(speeds) == 2 and ends[0].device_kind == ends[1].device_kind
    bytes_per_second = min(
        speed.peer_link_bytes_per_second if same_kind else speed.host_link_bytes_per_second
        for speed in speeds
    )
    return Link(source, target, _LINK_LATENCY_SECONDS, bytes_per_second)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share_of_host(device: jax.Device) -> int:
    siblings: int = device.client.local_device_count()
    return host_memory_bytes() // 2 // max(siblings, 1)


def host_memory_bytes() -> int:
    """Memory of this machine, or of the container that this process runs in if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total
