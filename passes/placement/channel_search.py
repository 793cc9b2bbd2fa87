"""Judging and improving assignments under the channel model, at the speed of machine code.

``ChannelSearch`` holds a problem as ``_channel_kernel.py`` takes it, and its work space. Two
searches:

- ``anneal``: simulated annealing over groups, a full simulation for each move. For up to some
  thousand nodes.
- ``sweep``: for large problems whose nodes are groups of their own. The simulator takes nodes in
  the order in which they become ready, so what is near in the graph is near in that order, too. The
  sweep goes through the step window by window, tries moves of the window's nodes, and looks no
  further than a few windows ahead. What it ends with is simulated whole.

Both are the same for the same seed and the same number of steps. Memory is not looked at: who calls
them simulates what comes out (``simulate``) and drops what does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.baselines import group_edges
from baechi_jax.passes.placement.flat import starts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.problem import PlacementProblem

#: Most entries of the table of transfer times.
MOST_COSTS = 50_000_000


class ChannelSearch:
    """One problem on a machine whose ``communication`` is ``channel``; times are seconds."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        flat, machine = problem.flat, problem.machine
        count, devices = problem.nodes, problem.devices
        nodes = np.column_stack(
            (
                flat.out_starts[:-1],
                flat.out_starts[1:],
                problem.breadth_first,
                problem.is_argument,
                np.diff(flat.read_starts),
            )
        )
        by_rank = np.empty(count, dtype=np.int64)
        by_rank[problem.breadth_first] = np.arange(count)
        costs = np.rint(
            machine.unit_latency[None]
            + problem.tensor_bytes[:, None, None] * machine.unit_per_byte[None]
        )
        # Mypy takes two starred tuples in one call for one another.
        self._graph = (
            np.ascontiguousarray(nodes, dtype=np.int64),
            by_rank,
            problem.node_times,
            np.column_stack((flat.out_readers, flat.out_tensors)),
            costs,
            machine.processor,
        )
        edges = len(flat.out_readers)
        self._space = (
            np.zeros(count),
            np.zeros(count, dtype=np.int64),
            np.zeros(machine.processors),
            np.zeros(devices),
            np.zeros((problem.tensors, devices)),
            np.zeros(count + 1),
            np.zeros(count + 1, dtype=np.int64),
            np.zeros(edges + 1),
            np.zeros((edges + 1, 2), dtype=np.int64),
            np.zeros(count + 1, dtype=np.int64),
        )
        self._groups: tuple[NDArray[np.int64], ...] | None = None

    def makespan(self, device_of_group: Sequence[int]) -> float:
        """Seconds of the simulated step."""
        from baechi_jax.passes.placement._channel_kernel import makespan_of

        device = np.asarray(device_of_group, dtype=np.int64)[self.problem.group]
        return self._seconds(makespan_of(*self._graph, device, *self._space))  # type: ignore[arg-type]

    def anneal(
        self,
        device_of_group: Sequence[int],
        *,
        steps: int,
        seed: int,
        hot_seconds: float,
        cold_seconds: float,
    ) -> tuple[list[int], float]:
        """The best placement of ``steps`` moves from a given one, and its makespan."""
        from baechi_jax.passes.placement._channel_kernel import anneal, makespan_of

        if self._groups is None:
            self._groups = self._near()
        movable, member_starts, members, near_starts, near = self._groups
        groups = np.array(device_of_group, dtype=np.int64)
        best = groups.copy()
        device = groups[self.problem.group]
        length = float(makespan_of(*self._graph, device, *self._space))  # type: ignore[arg-type]
        if not len(movable):
            return best.tolist(), self._seconds(length)
        unit = self.problem.machine.unit_seconds
        _, shortest = anneal(
            *self._graph,
            device,
            *self._space,  # type: ignore[arg-type]
            movable,
            member_starts,
            members,
            near_starts,
            near,
            groups,
            self.problem.allowed_mask,
            best,
            length,
            length,
            hot_seconds / unit,
            cold_seconds / unit,
            steps,
            seed,
        )
        return best.tolist(), self._seconds(shortest)

    def sweep(
        self,
        device_of_group: Sequence[int],
        *,
        window: int,
        ahead: int,
        trials: int,
        seed: int,
        hot_seconds: float,
    ) -> tuple[list[int], float]:
        """One sweep from a given placement, and its makespan, which may be longer."""
        from baechi_jax.passes.placement._channel_kernel import sweep

        problem = self.problem
        assert problem.groups == problem.nodes, "a sweep moves single nodes"
        # Nodes and groups are the same, perhaps in another order.
        device = np.asarray(device_of_group, dtype=np.int64)[problem.group]
        flat = problem.flat
        length = sweep(
            *self._graph,
            device,
            *self._space,  # type: ignore[arg-type]
            flat.read_starts,
            problem.producer[flat.reads],
            problem.allowed_mask[problem.group],
            window,
            max(ahead, 2 * window),
            trials,
            hot_seconds / problem.machine.unit_seconds,
            seed,
        )
        groups = np.empty(problem.groups, dtype=np.int64)
        groups[problem.group] = device
        return groups.tolist(), self._seconds(length)

    def _seconds(self, time: float) -> float:
        return float(time) * self.problem.machine.unit_seconds

    def _near(self) -> tuple[NDArray[np.int64], ...]:
        """Groups with a choice; members of each group; groups that exchange tensors with it."""
        problem = self.problem
        movable = np.flatnonzero(problem.allowed_mask.sum(axis=1) > 1)
        members = np.argsort(problem.group, kind="stable")
        edges = group_edges(problem)
        near = np.array([other for each in edges for other in each], dtype=np.int64)
        return (
            movable,
            starts(np.bincount(problem.group, minlength=problem.groups)),
            members,
            starts(np.array([len(each) for each in edges], dtype=np.int64)),
            near,
        )
