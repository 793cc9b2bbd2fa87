"""The graph of a problem as flat arrays: what compiled code reads.

Lists of lists become one array and its starts: the tensors that node ``i`` reads are
``reads[read_starts[i] : read_starts[i + 1]]``. All are built with numpy alone, a few milliseconds
for ten thousand nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class FlatGraph:
    """Arrays of int64 unless said otherwise; ``e`` pairs of a tensor and one of its readers."""

    #: Tensors that each node reads, each once, ascending; ``[n + 1]``, ``[e]``.
    read_starts: NDArray[np.int64]
    reads: NDArray[np.int64]
    #: Readers of each tensor, each once, in the problem's order, and the tensor; ``[t + 1]``,
    #: ``[e]``, ``[e]``.
    reader_starts: NDArray[np.int64]
    readers: NDArray[np.int64]
    tensor_of: NDArray[np.int64]
    #: Tensors that each node gives, ascending; ``[n + 1]``, ``[t]``.
    give_starts: NDArray[np.int64]
    gives: NDArray[np.int64]
    #: Readers of each node's tensors and the tensor, by reader and then tensor; ``[n + 1]``,
    #: ``[e]``, ``[e]``.
    out_starts: NDArray[np.int64]
    out_readers: NDArray[np.int64]
    out_tensors: NDArray[np.int64]
    #: How many of the tensors that a node reads are results of tasks, ``[n]``.
    task_reads: NDArray[np.int64]
    #: ``problem.position``, ``[n]``.
    position: NDArray[np.int64]

    @staticmethod
    def of(problem: PlacementProblem) -> FlatGraph:
        """Convert."""
        nodes, tensors = problem.nodes, problem.tensors
        counts = np.diff(problem.reader_starts)
        tensor_of = np.repeat(np.arange(tensors), counts)
        readers = problem.readers
        keys = tensor_of * nodes + readers
        _, first = np.unique(keys, return_index=True)
        if len(first) < len(keys):
            first.sort()
            tensor_of, readers = tensor_of[first], readers[first]
        by_reader = np.argsort(readers, kind="stable")
        sources = problem.producer[tensor_of]
        by_edge = np.lexsort((tensor_of, readers, sources))
        from_task = ~problem.is_argument[sources]
        return FlatGraph(
            read_starts=starts(np.bincount(readers, minlength=nodes)),
            reads=np.ascontiguousarray(tensor_of[by_reader]),
            reader_starts=starts(np.bincount(tensor_of, minlength=tensors)),
            readers=np.ascontiguousarray(readers),
            tensor_of=tensor_of,
            give_starts=starts(np.bincount(problem.producer, minlength=nodes)),
            gives=np.argsort(problem.producer, kind="stable"),
            out_starts=starts(np.bincount(sources, minlength=nodes)),
            out_readers=np.ascontiguousarray(readers[by_edge]),
            out_tensors=np.ascontiguousarray(tensor_of[by_edge]),
            task_reads=np.bincount(readers[from_task], minlength=nodes).astype(np.int64),
            position=np.asarray(problem.position, dtype=np.int64),
        )


def breadth_first(flat: FlatGraph) -> NDArray[np.int64]:
    """Place of each node in Kahn's order with a queue: first come, first served."""
    waiting = np.diff(flat.read_starts).tolist()
    first, readers = flat.out_starts.tolist(), flat.out_readers.tolist()
    queue = [node for node, count in enumerate(waiting) if count == 0]
    for node in queue:
        for reader in readers[first[node] : first[node + 1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                queue.append(reader)
    position = np.empty(len(waiting), dtype=np.int64)
    position[queue] = np.arange(len(queue))
    return position


def starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each row of ``counts`` elements starts when all lie one after another; ``[n + 1]``."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))
