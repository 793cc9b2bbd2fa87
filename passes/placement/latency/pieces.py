"""Accelerators and host of a latency problem, and pieces: the subgraphs of the accelerators.

A latency split is ``piece_of[node]``: ``device * subgraphs + number`` for the numbered subgraph of
an accelerator, -1 for the host. The searches number the pieces of accelerators alone, without gaps;
``Pieces`` translates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.judge import natural_subgraphs
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import DeviceClass, Workload


def host_seconds(workload: Workload) -> NDArray[np.float64]:
    """``[node]``: seconds on the host; infinite everywhere if there is none.

    The host is the first class that reads and writes host memory for free.
    """
    for kind in workload.classes:
        if not kind.transfers and kind.count:
            return kind.seconds
    return np.full(workload.size, np.inf)


def host_bytes(workload: Workload) -> float:
    """Memory of the host, all of whose nodes are on the first core of ``host_seconds``."""
    for kind in workload.classes:
        if not kind.transfers and kind.count:
            return kind.memory_bytes
    return 0.0


def accelerators_of(workload: Workload) -> list[tuple[int, DeviceClass]]:
    """``(first device, class)`` of each class of accelerators."""
    found = []
    first = 0
    for device_class in workload.classes:
        if device_class.transfers:
            found.append((first, device_class))
        first += device_class.count
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The subgraphs of all accelerators: piece ``a * subgraphs + number`` of accelerator ``a``."""

    workload: Workload
    subgraphs: int
    #: ``[accelerator]``: its device and its class.
    devices: tuple[int, ...]
    kinds: tuple[DeviceClass, ...]

    @classmethod
    def of(cls, workload: Workload, subgraphs: int = 1) -> Pieces:
        """Of ``workload``, with up to ``subgraphs`` on each accelerator."""
        devices: list[int] = []
        kinds: list[DeviceClass] = []
        for first, kind in accelerators_of(workload):
            devices += range(first, first + kind.count)
            kinds += [kind] * kind.count
        return cls(workload, subgraphs, tuple(devices), tuple(kinds))

    @property
    def count(self) -> int:
        """Number of pieces."""
        return len(self.devices) * self.subgraphs

    def compact(self, piece_of: NDArray[np.int64]) -> NDArray[np.int64]:
        """``piece_of`` by accelerator, with ``count`` for the host."""
        accelerator = np.full(self.workload.devices, -1, np.int64)
        accelerator[list(self.devices)] = np.arange(len(self.devices))
        device, number = piece_of // self.subgraphs, piece_of % self.subgraphs
        return np.where(piece_of < 0, self.count, accelerator[device] * self.subgraphs + number)

    def expand(self, compact: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inverse of ``compact``."""
        device = np.append(np.array(self.devices, np.int64), -1)
        accelerator, number = compact // self.subgraphs, compact % self.subgraphs
        on_host = compact >= self.count
        return np.where(
            on_host, -1, device[np.where(on_host, -1, accelerator)] * self.subgraphs + number
        )

    def of_split(self, split: Split) -> NDArray[np.int64]:
        """``piece_of`` of ``split``, the inverse of ``split``.

        Where it does not say which subgraphs a device has, they are the fewest that are contiguous.
        Raises WorkloadError when a device has more than ``subgraphs``.
        """
        workload = self.workload
        on_host = ~np.isin(split.device_of, self.devices)
        number = split.subgraph_of
        if number is None:
            number = natural_subgraphs(workload, split.device_of)
        number = np.where(on_host, 0, number)
        most = int(number.max(initial=0)) + 1
        if most > self.subgraphs:
            device = int(split.device_of[int(np.argmax(number))])
            raise WorkloadError(
                f"device {device} has {most} subgraphs, and at most {self.subgraphs} are asked for"
            )
        return np.where(on_host, -1, split.device_of * self.subgraphs + number)

    def split(self, piece_of: NDArray[np.int64]) -> Split:
        """The split that ``piece_of`` is; the host's nodes are on its first core."""
        first_core, first = -1, 0
        for kind in self.workload.classes:
            if not kind.transfers and kind.count and first_core < 0:
                first_core = first
            first += kind.count
        device_of = np.where(piece_of < 0, first_core, piece_of // self.subgraphs)
        if self.subgraphs == 1:
            return Split(device_of)
        return Split(device_of, np.where(piece_of < 0, 0, piece_of % self.subgraphs))
