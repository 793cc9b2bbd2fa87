"""Rules of transforms and linear algebra: the leading dimensions are a batch.

Where the axis is one of them it stays; in the matrix (or the vector) itself it is mixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.passes.axis.rule import At, Mixed, rule
from baechi_jax.passes.axis.states import Partial, Split, State

#: Primitive -> trailing dimensions of each operand that are no batch (the last number repeats).
_CORE: dict[str, tuple[int, ...]] = {
    "cholesky": (2,),
    "cholesky_update": (2, 1),
    "eig": (2,),
    "eigh": (2,),
    "geqp3": (2, 1),
    "geqrf": (2,),
    "hessenberg": (2,),
    "householder_product": (2, 1),
    "lu": (2,),
    "lu_pivots_to_permutation": (1,),
    "ormqr": (2, 1, 2),
    "qr": (2,),
    "schur": (2,),
    "svd": (2,),
    "symmetric_product": (2,),
    "tridiagonal": (2,),
    "tridiagonal_solve": (1, 1, 1, 2),
}


def _batched(at: At, cores: Sequence[int]) -> list[State]:
    """``cores[i]`` trailing dimensions of operand ``i`` are no batch."""
    split = at.split()
    dimension = next(iter(split.values()))
    for operand in range(len(at.states)):
        core = cores[min(operand, len(cores) - 1)]
        if dimension >= len(at.shape(operand)) - core:
            raise Mixed(f"works on the axis as a dimension of a matrix, dimension {dimension}")
        at.need_split(operand, dimension, "an operand")
    return [Split(dimension)] * len(at.op.results)


@rule(*_CORE)
def _factorization(at: At) -> Sequence[State]:
    if not at.split():
        raise at.not_linear(at.kind())
    return _batched(at, _CORE[at.op.name.removeprefix("jax.")])


@rule("triangular_solve")
def _triangular_solve(at: At) -> Sequence[State]:
    """``a x = b``, or ``x a = b``: linear in ``b``, and its columns (its rows) stand alone."""
    split = at.split()
    if not split:
        kind = at.kind()
        if kind != "sum":
            raise at.not_linear(kind)
        at.need_full([0], "a matrix")
        return [Partial(kind)]
    rank = len(at.shape(1))
    alone = rank - 1 if at.op.attributes.get("left_side") is True else rank - 2
    if split == {1: alone}:
        at.need_full([0], "a matrix")
        return [Split(alone)]
    return _batched(at, (2,))


@rule("fft")
def _fft(at: At) -> Sequence[State]:
    dimension = at.split().get(0)
    if dimension is None:
        kind = at.kind()
        if kind != "sum":
            raise at.not_linear(kind)
        return [Partial(kind)]
    if dimension >= len(at.shape(0)) - len(at.integers("fft_lengths")):
        raise Mixed(f"transforms along the axis, dimension {dimension}")
    return [Split(dimension)]
