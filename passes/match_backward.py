"""Which forward operation each backward operation differentiates.

It is one of the same source position and name stack, which reads a value that the backward
operation reads too, or makes it. The maker of a mere residual lies elsewhere in the source, so
layers stay apart. A backward operation with several candidates takes the one that a neighbour with
the same cotangent has; else none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from baechi_jax.ir.core import Operation, OpResult, Value
from baechi_jax.passes.dataflow import BARRIER, Scopes

#: Operations whose derivative is written in terms of their result.
_RESULT_IS_RESIDUAL = frozenset(
    f"jax.{name}"
    for name in (
        "exp",
        "exp2",
        "expm1",
        "tanh",
        "tan",
        "logistic",
        "sqrt",
        "rsqrt",
        "cbrt",
        "pow",
        "reduce_max",
        "reduce_min",
        "reduce_prod",
        "cumprod",
        "cummax",
        "cummin",
        "cumlogsumexp",
        "sort",
        "cholesky",
        "qr",
        "lu",
        "svd",
        "eigh",
        "triangular_solve",
    )
)

#: File, line, column, and name stack without the wrappers of differentiation.
_Place: TypeAlias = tuple[str, int, int, str]


def match_backward(
    ops: Sequence[Operation], backward: Sequence[bool]
) -> list[tuple[Operation, Operation]]:
    """Pairs of a backward and a forward operation; ``backward`` says which of ``ops`` are that."""
    return _Matcher(ops, backward).match()


class _Matcher:
    def __init__(self, ops: Sequence[Operation], backward: Sequence[bool]) -> None:
        self.ops = ops
        self.backward = backward
        scopes = Scopes()
        self.known = set(ops)
        #: Where each operation of the forward pass stands in the source.
        self.forward: dict[Operation, _Place] = {}
        self.places: list[_Place] = []
        for op, behind in zip(ops, backward):
            location = op.location
            scope = scopes.scope(location.name)
            self.places.append((location.file, location.line, location.column, scope))
            if not behind:
                self.forward[op] = self.places[-1]
        #: A value that remat computes again -> the value of the forward pass.
        self.original: dict[Value, Value] = {}

    def match(self) -> list[tuple[Operation, Operation]]:
        pairs: list[tuple[Operation, Operation]] = []
        matched: dict[tuple[_Place, Value], Operation] = {}
        open_: list[tuple[Operation, _Place, list[Operation]]] = []
        passed: set[_Place] = set()
        for op, key, backward in zip(self.ops, self.places, self.backward):
            if not op.location.file:
                continue
            if not backward:
                passed.add(key)
                continue
            if op.name == BARRIER:
                for result, operand in zip(op.results, op.operands):
                    self.original[result] = self.original.get(operand, operand)
                continue
            if key not in passed:
                continue
            candidates = self._candidates(op, key)
            if not candidates:
                # Reads cotangents only (the sum that a bias's gradient is): follows them below.
                open_.append((op, key, candidates))
                continue
            if len(candidates) > 1:
                open_.append((op, key, candidates))
                continue
            forward = candidates[0]
            pairs.append((op, forward))
            self._note_recomputed(op, forward)
            for operand in op.operands:
                matched.setdefault((key, operand), forward)
            for result in op.results:
                matched.setdefault((key, result), forward)
        for op, key, candidates in open_:
            for operand in op.operands:
                forward_ = matched.get((key, operand))
                if forward_ is not None and (not candidates or forward_ in candidates):
                    pairs.append((op, forward_))
                    for result in op.results:
                        matched.setdefault((key, result), forward_)
                    break
        return pairs

    def _candidates(self, op: Operation, key: _Place) -> list[Operation]:
        forward = self.forward
        reads: dict[Operation, None] = {}
        makes: dict[Operation, None] = {}
        for operand in op.operands:
            value = self.original.get(operand, operand)
            if isinstance(value, OpResult) and forward.get(value.owner) == key:
                makes[value.owner] = None
            # What the whole program reads says nothing about who differentiates whom.
            if isinstance(value, OpResult) and value.owner not in self.known:
                continue
            for reader, _ in value.uses:
                if forward.get(reader) == key:
                    reads[reader] = None
        for maker in makes:
            if maker.name in _RESULT_IS_RESIDUAL or not self._forward_reader(maker):
                return [maker]
        return list(reads) if reads else list(makes)

    def _forward_reader(self, op: Operation) -> bool:
        """Whether an operation of the forward pass reads what ``op`` makes."""
        return any(reader in self.forward for result in op.results for reader, _ in result.uses)

    def _note_recomputed(self, op: Operation, forward: Operation) -> None:
        if "rematted_computation" not in op.location.name or op.name != forward.name:
            return
        for result, original in zip(op.results, forward.results):
            self.original[result] = original
