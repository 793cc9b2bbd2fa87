"""What the partitioning algorithms are asked for and what they return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency.judge import latency_of
from baechi_jax.passes.placement.split import Split, evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload

#: A bound this close to the value proves it optimal, as a share of the value.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Throughput:
    """Minimise the largest load of a device: the time per sample of a pipeline."""

    #: No path of the forward nodes may leave a device and come back to it.
    contiguous: bool = False
    #: A load is the larger of compute and transfers, not their sum.
    overlap: bool = False
    #: Minimise the largest forward load plus the largest backward load instead (GPipe;
    #: ``diffmaxima`` of dnn-partitioning).
    sum_of_maxima: bool = False
    #: A stage may be replicated over up to this many equal devices (contiguous splits only).
    replicas: int = 1
    replica_bytes_per_second: float = 1e10

    def seconds(self, workload: Workload, split: Split) -> tuple[float, tuple[str, ...]]:
        """The value of ``split``, and its faults."""
        report = evaluate(
            workload,
            split.device_of,
            overlap=self.overlap,
            replicas=split.replicas,
            replica_bytes_per_second=self.replica_bytes_per_second,
        )
        value = report.sum_of_maxima_seconds if self.sum_of_maxima else report.max_load_seconds
        faults = report.faults
        if self.contiguous and not report.contiguous:
            faults = (*faults, "a device is not contiguous")
        return value, faults


@dataclass(frozen=True, slots=True)
class Latency:
    """Minimise the time of one sample, run alone."""

    #: Contiguous subgraphs that each accelerator may run, one after another.
    subgraphs: int = 1

    def seconds(self, workload: Workload, split: Split) -> tuple[float, tuple[str, ...]]:
        """The value of ``split``, and its faults."""
        report = latency_of(workload, split)
        faults = report.faults
        if max(report.subgraphs, default=0) > self.subgraphs:
            faults = (*faults, f"a device has {max(report.subgraphs)} subgraphs")
        return report.seconds, faults


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """A valid split, what it costs by the judge, and what is known about the optimum."""

    placer: str
    split: Split
    seconds: float
    #: No split of the problem is better than this; zero if nothing is known.
    bound_seconds: float = 0.0
    #: ``optimal``, ``heuristic``, ``time limit`` or ``interrupted``.
    status: str = "heuristic"
    notes: tuple[str, ...] = ()
    #: What each placer of a portfolio reached, in the order they ran: name, value, seconds taken.
    history: tuple[tuple[str, float, float], ...] = field(default=())

    @property
    def gap(self) -> float:
        """How far the value may be above the optimum, as a share of the value."""
        if self.seconds <= 0:
            return 0.0
        return max(0.0, 1.0 - self.bound_seconds / self.seconds)

    @property
    def device_of(self) -> NDArray[np.int64]:
        """``[node]``: the device of each node."""
        return self.split.device_of
