"""The data flow of ``@main`` as plain lists: what the structural passes sweep over.

Assumes def-before-use order in ``@main``, so the index order is a topological order. Literals and
the terminator are no nodes, except a literal that the function returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import Operation, OpResult, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.types import TensorType, TokenType
from baechi_jax.passes.tasks import LITERAL, reads


@dataclass(slots=True)
class OpGraph:
    """Nodes are operations of ``@main``, by index.

    ``inputs[i]`` holds the distinct values of the block that node i reads, arguments included;
    ``predecessors`` and ``successors`` hold distinct node indices, successors ascending.
    ``seconds`` are the mean over device kinds (one for each where nothing is costed);
    ``result_bytes`` the sum over the results; ``returned`` whether the function returns one;
    ``has_effect`` whether one is a token.
    """

    ops: list[Operation]
    position: dict[Operation, int]
    inputs: list[list[Value]]
    predecessors: list[list[int]]
    successors: list[list[int]]
    seconds: list[float]
    result_bytes: list[int]
    returned: list[bool]
    has_effect: list[bool]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.ops)

    @staticmethod
    def of(func: Operation) -> OpGraph:
        """The graph of ``func``."""
        block = func.body
        terminator = block.terminator
        kept = {value.owner for value in terminator.operands if isinstance(value, OpResult)}
        ops = [
            op for op in block.ops if op is not terminator and (op.name != LITERAL or op in kept)
        ]
        size = len(ops)
        position = dict(zip(ops, range(size)))
        inputs: list[list[Value]] = []
        predecessors: list[list[int]] = []
        successors: list[list[int]] = [[] for _ in ops]
        seconds = [0.0] * size
        result_bytes = [0] * size
        has_effect = [False] * size
        for index, op in enumerate(ops):
            operands = [value for _, _, value in reads(op, block)] if op.regions else op.operands
            values = list(dict.fromkeys(operands)) if len(operands) > 1 else list(operands)
            inputs.append(values)
            before: list[int] = []
            for value in values:
                if isinstance(value, OpResult):
                    source = position.get(value.owner, -1)
                    if source >= 0 and source not in before and value.owner.name != LITERAL:
                        before.append(source)
                        successors[source].append(index)
            predecessors.append(before)
            attributes = op.attributes
            cost = attributes.get("baechi.cost")
            if isinstance(cost, Cost):
                kinds = cost.seconds
                if kinds:
                    seconds[index] = kinds[0] if len(kinds) == 1 else sum(kinds) / len(kinds)
                result_bytes[index] = cost.output_bytes
            for result in op.results:
                type_ = result.type
                if isinstance(type_, TokenType):
                    has_effect[index] = True
                elif cost is None and isinstance(type_, TensorType):
                    result_bytes[index] += type_.nbytes
        if not any(seconds):
            seconds = [1.0] * size
        return OpGraph(
            ops,
            position,
            inputs,
            predecessors,
            successors,
            seconds,
            result_bytes,
            [op in kept for op in ops],
            has_effect,
        )
