"""The best latency split so far: every candidate goes past the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.latency.pieces import Pieces
from baechi_jax.passes.placement.partitioning import TOLERANCE, Partitioning
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.partitioning import Latency
    from baechi_jax.passes.placement.workload import Workload


class Incumbent:
    """Best split, bound and history of one run of a placer."""

    def __init__(self, placer: str, workload: Workload, objective: Latency, budget: Budget) -> None:
        """Takes the budget's start; raises WorkloadError if that is not valid."""
        self.placer = placer
        self.workload = workload
        self.objective = objective
        self.pieces = Pieces.of(workload, objective.subgraphs)
        self.deadline = budget.deadline()
        self.seconds = float("inf")
        self.bound_seconds = 0.0
        self.piece_of: NDArray[np.int64] | None = None
        self.winner = ""
        self.notes: list[str] = []
        self.history: list[tuple[str, float, float]] = []
        self._since = now()
        if budget.start is not None:
            piece_of = self.pieces.of_split(budget.start)
            fault = self.offer("start", piece_of)
            if fault:
                raise WorkloadError(f"the budget's start is not valid: {fault}")

    def left(self) -> float:
        """Seconds left."""
        return max(0.0, self.deadline - now())

    def closed(self) -> bool:
        """Whether the bound proves the best split optimal."""
        return self.piece_of is not None and self.bound_seconds >= self.seconds * (1 - TOLERANCE)

    def offer(self, name: str, piece_of: NDArray[np.int64] | None, *, record: bool = True) -> str:
        """Take ``piece_of`` if it is valid and better; its first fault, or nothing.

        ``record``: put it into the history even if it is not taken.
        """
        seconds, fault = float("inf"), "there is no split"
        if piece_of is not None:
            value, faults = self.objective.seconds(self.workload, self.pieces.split(piece_of))
            fault = faults[0] if faults else ""
            seconds = float("inf") if faults else value
        better = seconds < self.seconds
        if better:
            self.seconds, self.piece_of, self.winner = seconds, piece_of, name
        if better or record:
            moment = now()
            self.history.append((name, seconds, moment - self._since))
            self._since = moment
        return fault

    def raise_bound(self, seconds: float) -> None:
        """Note that no split is better than ``seconds``; infinite if there is none."""
        self.bound_seconds = max(self.bound_seconds, seconds)

    def result(self, status: str = "heuristic") -> Partitioning:
        """The best split; raises InfeasiblePlacementError where there is none."""
        if self.piece_of is None:
            raise self._infeasible()
        if self.closed():
            status = "optimal"
        return Partitioning(
            placer=self.placer if self.placer != "auto" else self.winner,
            split=self.pieces.split(self.piece_of),
            seconds=self.seconds,
            bound_seconds=min(self.bound_seconds, self.seconds),
            status=status,
            notes=tuple(self.notes),
            history=tuple(self.history),
        )

    def _infeasible(self) -> InfeasiblePlacementError:
        workload = self.workload
        limits = sorted({kind.memory_bytes for kind in self.pieces.kinds})
        memory = " or ".join(f"{limit:.4g}" for limit in limits) if limits else "no"
        what = f"{workload.size} nodes with {float(workload.bytes.sum()):.4g} bytes"
        where = f"{len(self.pieces.devices)} accelerators of {memory} bytes"
        host = "" if any(not kind.transfers and kind.count for kind in workload.classes) else "out"
        proven = self.bound_seconds == float("inf")
        said = (
            "no split can hold" if proven else f"placer '{self.placer}' found no split that holds"
        )
        return InfeasiblePlacementError(
            f"{said} {what} on {where}, with{host} a host, {self.objective.subgraphs} subgraph(s) "
            "each; give the accelerators more memory, add some or a host that runs every node"
            + ("" if proven or self.placer == "auto" else "; or try placer 'auto'"),
            proven=proven,
        )
