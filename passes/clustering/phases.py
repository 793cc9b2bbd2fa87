"""Phases, and operations that had better run late.

The *phase* of an operation counts how often the way to it switches between forward operations and
those traced under ``transpose(...)``: 0 forward, 1 backward, 2 update, and so on.

An operation is *late* when it is cheap and computing it just before its first reader keeps no
more bytes alive than computing it where it stands: masks and positions, which depend on arguments
alone; moments scaled before the gradient is there; what ``choose-residuals`` recomputes. A late
operation is in the phase of its first reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import OpResult
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.clustering.op_graph import OpGraph
from baechi_jax.passes.dataflow import is_backward

#: What depends on arguments alone may be late when it takes, with all that must be computed for it,
#: at most this fraction of the step...
_LITTLE = 1 / 200

#: ...and other operations that only later phases read, at most this one after another: they are
#: computed once all the same, and only the time in which they could have run in parallel is lost.
_MODERATE = 1 / 10


@dataclass(slots=True)
class Phases:
    """Per operation."""

    phase: list[int]
    late: list[bool]


def find_phases(graph: OpGraph) -> Phases:
    """Phase and lateness of each operation; see the module docstring."""
    phase = [0] * graph.size
    step = sum(graph.seconds)
    # Depends on arguments alone, with the seconds of everything before it (shared ones again).
    from_arguments = [False] * graph.size
    chain = list(graph.seconds)
    backward: dict[str, bool] = {}
    for index, op in enumerate(graph.ops):
        most = 0
        alone = True
        seconds = chain[index]
        for source in graph.predecessors[index]:
            if phase[source] > most:
                most = phase[source]
            seconds += chain[source]
            alone = alone and from_arguments[source]
        name = op.location.name
        if name not in backward:
            backward[name] = is_backward(op)
        phase[index] = most + (most % 2 != backward[name])
        chain[index] = seconds
        from_arguments[index] = alone and seconds <= _LITTLE * step
    late = [False] * graph.size
    # Seconds of late operations from each one on to its reader, along the longest way.
    put_off = [0.0] * graph.size
    for index in range(graph.size - 1, -1, -1):
        readers = graph.successors[index]
        # What nobody reads stays where it is, so every chain of late ones ends somewhere.
        if not readers or graph.returned[index] or graph.has_effect[index]:
            continue
        put_off[index] = graph.seconds[index] + max([put_off[reader] for reader in readers])
        first = min([phase[reader] for reader in readers])
        if from_arguments[index]:
            late[index] = True
        elif first > phase[index] and put_off[index] <= _MODERATE * step:
            late[index] = _kept_bytes(graph, phase, index, first) <= graph.result_bytes[index]
        if late[index]:
            phase[index] = max(phase[index], first)
        else:
            put_off[index] = 0.0
    return Phases(phase, late)


def _kept_bytes(graph: OpGraph, phase: list[int], index: int, first: int) -> int:
    """Bytes of operands that would live on only because operation ``index`` runs in ``first``."""
    kept = 0
    for value in graph.inputs[index]:
        if not isinstance(value, OpResult) or value.owner not in graph.position:
            continue
        source = graph.position[value.owner]
        readers = graph.successors[source]
        if readers and max([phase[reader] for reader in readers]) < first:
            kept += nbytes(value.type)
    return kept
