"""The data flow of ``@main`` as plain lists: what the structural passes sweep over.

Assumes def-before-use order in ``@main``, so the index order is a topological order. Literals and
the terminator are no nodes, except a literal that the function returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import Operation, OpResult, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.tasks import LITERAL, reads


@dataclass(slots=True)
class OpGraph:
    """Nodes are operations of ``@main``, by index.

    ``inputs[i]`` holds the distinct values of the block that node i reads, arguments included;
    ``predecessors`` and ``successors`` hold distinct node indices, ascending.
    ``seconds`` are the mean over device kinds (one for each where nothing is costed);
    ``result_bytes`` the sum over the results.
    """

    ops: list[Operation]
    position: dict[Operation, int]
    inputs: list[list[Value]]
    predecessors: list[list[int]]
    successors: list[list[int]]
    seconds: list[float]
    result_bytes: list[int]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.ops)

    @staticmethod
    def of(func: Operation) -> OpGraph:
        """The graph of ``func``."""
        block = func.body
        terminator = block.terminator
        returned = set(terminator.operands)
        ops = [
            op
            for op in block.ops
            if op is not terminator
            and (op.name != LITERAL or any(result in returned for result in op.results))
        ]
        position = {op: index for index, op in enumerate(ops)}
        inputs: list[list[Value]] = []
        predecessors: list[list[int]] = []
        successors: list[list[int]] = [[] for _ in ops]
        seconds: list[float] = []
        result_bytes: list[int] = []
        for index, op in enumerate(ops):
            values = (
                list(dict.fromkeys(value for _, _, value in reads(op, block)))
                if op.regions
                else list(dict.fromkeys(op.operands))
            )
            before = {
                position[value.owner]
                for value in values
                if isinstance(value, OpResult)
                and value.owner in position
                and value.owner.name != LITERAL
            }
            inputs.append(values)
            predecessors.append(sorted(before))
            for source in predecessors[-1]:
                successors[source].append(index)
            cost = op.attributes.get("baechi.cost")
            kinds = cost.seconds if isinstance(cost, Cost) else ()
            seconds.append(sum(kinds) / len(kinds) if kinds else 0.0)
            result_bytes.append(sum(nbytes(result.type) for result in op.results))
        if not any(seconds):
            seconds = [1.0] * len(ops)
        return OpGraph(ops, position, inputs, predecessors, successors, seconds, result_bytes)
