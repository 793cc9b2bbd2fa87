"""Flops and bytes of dense linear algebra, which XLA leaves to a library (LAPACK, cuSOLVER).

Flops are those of the textbook (G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th ed.),
since XLA counts none. The library wants matrices by columns, and JAX puts NaN where it failed: so
operands are copied, and results read and written once more. XLA counts these bytes alone, and so do
we.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from baechi_jax.ir.core import Operation
from baechi_jax.ir.types import TensorType


def _shape(op: Operation, index: int) -> tuple[int, ...]:
    type_ = op.operands[index].type
    return type_.shape if isinstance(type_, TensorType) else ()


def _cubic(factor: float) -> Callable[[Operation], float]:
    """``factor * m * n * min(m, n)`` for each (m, n)."""

    def flops(op: Operation) -> float:
        shape = _shape(op, 0)
        return factor * math.prod(shape) * min(shape[-2:], default=1)

    return flops


def _reflected(factor: float) -> Callable[[Operation], float]:
    """``factor * (m n^2 - n^3 / 3)`` for each (m, n) or (n, m) with m >= n."""

    def flops(op: Operation) -> float:
        shape = _shape(op, 0)
        n, m = sorted(shape[-2:])
        return factor * math.prod(shape[:-2]) * n * n * (m - n / 3)

    return flops


def _either(flag: tuple[str, ...], without: float, with_vectors: float) -> Callable[..., float]:
    """Cubic, by whether one of the parameters ``flag`` asks for vectors."""

    def flops(op: Operation) -> float:
        wanted = any(op.attributes.get(name) is not False for name in flag)
        return _cubic(with_vectors if wanted else without)(op)

    return flops


def _cholesky_update(op: Operation) -> float:
    """A rotation for each row: nine flops for each element."""
    return 9.0 * math.prod(_shape(op, 0))


def _ormqr(op: Operation) -> float:
    """Each of k reflectors of length m meets each of the vectors of the other operand."""
    length, reflectors = _shape(op, 0)[-2], _shape(op, 1)[-1]
    vectors = math.prod(_shape(op, 2)) / max(1, length)
    return vectors * (4.0 * length * reflectors - 2.0 * reflectors**2)


def _triangular_solve(op: Operation) -> float:
    return float(math.prod(_shape(op, 1)) * _shape(op, 0)[-1])


def _tridiagonal_solve(op: Operation) -> float:
    return 10.0 * math.prod(_shape(op, 3))


#: Primitive -> flops, and how often its operands and results are read and written.
LINEAR_ALGEBRA: dict[str, tuple[Callable[[Operation], float], float]] = {
    # JAX's mask of the upper half, an operation of its own, is fused with the copy of the result.
    "cholesky": (_cubic(1 / 3), 1.0),
    "cholesky_update": (_cholesky_update, 2.0),
    "eig": (_either(("compute_left_eigenvectors", "compute_right_eigenvectors"), 10.0, 25.0), 2.0),
    "eigh": (_cubic(9.0), 2.0),
    "hessenberg": (_cubic(10 / 3), 2.0),
    "householder_product": (_reflected(2.0), 2.0),
    "lu": (_reflected(1.0), 2.0),
    "ormqr": (_ormqr, 2.0),
    # The reflectors, then Q from them: two calls of the library.
    "qr": (_reflected(4.0), 3.0),
    "schur": (_either(("compute_schur_vectors",), 10.0, 25.0), 2.0),
    "svd": (_either(("compute_uv",), 8 / 3, 22.0), 2.0),
    "triangular_solve": (_triangular_solve, 2.0),
    "tridiagonal": (_cubic(4 / 3), 2.0),
    "tridiagonal_solve": (_tridiagonal_solve, 2.0),
}
