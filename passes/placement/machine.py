"""The machine as the placers see it: devices, memory limits, links, in arrays.

Two models of communication. With ``links``, the project's own, each link (or several that share a
wire) carries one transfer at a time. With ``channel``, that of Baechi's authors (arXiv 2301.08695),
each device has one channel for both directions; it carries one transfer at a time, first come,
first served, and a transfer takes whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from baechi_jax.ir.topology import Topology
from baechi_jax.passes.placement.errors import PlacementProblemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Communication: TypeAlias = Literal["links", "channel"]

COMMUNICATIONS = ("links", "channel")
#: Seconds.
MICROSECOND = 1e-6


@dataclass(frozen=True, eq=False)
class Machine:
    """``d`` devices and the links between every ordered pair of them.

    Devices of one *processor* run one task at a time together; links of one *wire* carry one
    transfer at a time together. Both are dense indices from zero. The diagonals of the link arrays
    are unused.
    """

    #: Memory that a placement may use, bytes, ``[d]``.
    limit_bytes: NDArray[np.int64]
    #: ``[d]``.
    processor: NDArray[np.int64]
    #: Seconds of an empty transfer, ``[source, target]``.
    latency_seconds: NDArray[np.float64]
    #: ``[source, target]``.
    seconds_per_byte: NDArray[np.float64]
    #: ``[source, target]``.
    wire: NDArray[np.int64]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    communication: Communication = "links"

    def __post_init__(self) -> None:
        if self.communication not in COMMUNICATIONS:
            raise PlacementProblemError(
                f"'communication' is '{self.communication}', expected one of: "
                f"{', '.join(COMMUNICATIONS)}"
            )

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.names)

    @cached_property
    def processors(self) -> int:
        """Number of processors."""
        return int(self.processor.max()) + 1

    @property
    def uniform(self) -> bool:
        """Whether all devices have one kind and one limit."""
        return len(set(self.kinds)) == 1 and len(set(self.limit_bytes.tolist())) == 1

    def transfer_seconds(self, source: int, target: int, nbytes: float) -> float:
        """Seconds that ``nbytes`` take on a free link; zero on one device."""
        if source == target:
            return 0.0
        if self.communication == "channel":
            time = self.unit_latency[source, target] + nbytes * self.unit_per_byte[source, target]
            return round(float(time)) * MICROSECOND
        latency = self.latency_seconds[source, target]
        return float(latency + nbytes * self.seconds_per_byte[source, target])

    @property
    def unit_seconds(self) -> float:
        """The unit in which simulators and placers count time: whole microseconds are exact."""
        return MICROSECOND if self.communication == "channel" else 1.0

    @cached_property
    def unit_latency(self) -> NDArray[np.float64]:
        """``latency_seconds`` in that unit."""
        return self.latency_seconds / self.unit_seconds

    @cached_property
    def unit_per_byte(self) -> NDArray[np.float64]:
        """``seconds_per_byte`` in that unit."""
        return self.seconds_per_byte / self.unit_seconds

    @staticmethod
    def from_topology(topology: Topology, memory_scale: float = 1.0) -> Machine:
        """The machine of ``topology``, every limit multiplied by ``memory_scale``."""
        size = topology.size
        hardware: dict[int, int] = {}
        processor = [
            hardware.setdefault(
                device.hardware if device.hardware >= 0 else -1 - index, len(hardware)
            )
            for index, device in enumerate(topology.devices)
        ]
        latency = np.zeros((size, size))
        per_byte = np.zeros((size, size))
        wire = np.zeros((size, size), dtype=np.int64)
        wires: dict[tuple[int, int], int] = {}
        for link in topology.links:
            ends = (link.source, link.target)
            key = (-1, link.wire) if link.wire >= 0 else ends
            latency[ends] = link.latency_seconds
            per_byte[ends] = 1.0 / link.bytes_per_second
            wire[ends] = wires.setdefault(key, len(wires))
        return Machine(
            limit_bytes=np.array(
                [int(device.usable_bytes * memory_scale) for device in topology.devices],
                dtype=np.int64,
            ),
            processor=np.array(processor, dtype=np.int64),
            latency_seconds=latency,
            seconds_per_byte=per_byte,
            wire=wire,
            names=tuple(
                device.name or f"{device.kind}:{index}"
                for index, device in enumerate(topology.devices)
            ),
            kinds=tuple(device.kind for device in topology.devices),
        )

    @staticmethod
    def uniform_of(
        count: int,
        limit_bytes: int,
        *,
        latency_seconds: float = 0.0,
        seconds_per_byte: float = 0.0,
    ) -> Machine:
        """``count`` equal devices, each pair joined by a link of its own in each direction."""
        wire = np.arange(count * count, dtype=np.int64).reshape(count, count)
        return Machine(
            limit_bytes=np.full(count, limit_bytes, dtype=np.int64),
            processor=np.arange(count, dtype=np.int64),
            latency_seconds=np.full((count, count), float(latency_seconds)),
            seconds_per_byte=np.full((count, count), float(seconds_per_byte)),
            wire=wire,
            names=tuple(f"device:{index}" for index in range(count)),
            kinds=("device",) * count,
        )

    def with_communication(self, communication: Communication) -> Machine:
        """The same machine under another model of communication."""
        return replace(self, communication=communication)

    def with_limits(self, limit_bytes: Sequence[int]) -> Machine:
        """The same machine with other memory limits."""
        return replace(self, limit_bytes=np.array(limit_bytes, dtype=np.int64))

    def repeated(self, count: int) -> Machine:
        """``count`` devices: those there are, then copies of the last one with its links."""
        size = self.size
        source = [min(index, size - 1) for index in range(count)]
        processor = [
            int(self.processor[index]) if index < size else self.processors + index - size
            for index in range(count)
        ]

        def expand(values: NDArray[np.float64]) -> NDArray[np.float64]:
            matrix = values[np.ix_(source, source)].copy()
            # Between copies of the last device: its slowest link.
            copies = matrix[size - 1 :, size - 1 :]
            copies[...] = values[:, size - 1].max() if size > 1 else 0.0
            return matrix

        return Machine(
            limit_bytes=self.limit_bytes[source],
            processor=np.array(processor, dtype=np.int64),
            latency_seconds=expand(self.latency_seconds),
            seconds_per_byte=expand(self.seconds_per_byte),
            wire=np.arange(count * count, dtype=np.int64).reshape(count, count),
            names=tuple(
                self.names[index] if index < size else f"extra:{index}" for index in range(count)
            ),
            kinds=tuple(self.kinds[index] for index in source),
            communication=self.communication,
        )
