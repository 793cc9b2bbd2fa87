"""Unrolls the scans of a function and runs what comes out, beside ``jax.jit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.pieces import Piece, argument_pieces, leaves, result_pieces
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import nbytes
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.passes.unroll_scans import UnrollScans
from baechi_jax.runtime.to_jaxpr import operations_to_jaxpr

#: Compiled for a single run.
QUICK = {"xla_backend_optimization_level": 0}


@dataclass(frozen=True, eq=False)
class Unrolled:
    """A traced function whose scans were unrolled."""

    trace: Trace
    pieces: list[Piece | None]
    result_pieces: list[Piece | None]

    @property
    def module(self) -> Module:
        return self.trace.module

    @property
    def ops(self) -> list[Operation]:
        """The operations of ``@main``, its return left out."""
        return self.module.main.body.ops[:-1]

    def names(self, primitive: str) -> list[str]:
        """The name stacks of the operations of one primitive."""
        return [op.location.name for op in self.ops if op.name == f"jax.{primitive}"]

    def count(self, primitive: str) -> int:
        return len(self.names(primitive))

    def largest(self) -> int:
        """Bytes of the largest value in the body, arguments included."""
        body = self.module.main.body
        values = [*body.arguments, *(result for op in body.ops for result in op.results)]
        return max(nbytes(value.type) for value in values)


def unroll(
    fn: Callable[..., Any], args: Sequence[Any], *, donate: Sequence[int] = (), **options: Any
) -> Unrolled:
    """Trace ``fn`` and unroll its scans; small stacks count unless ``share`` is given."""
    traced = trace(fn, args, donate_argnums=tuple(donate))
    module = traced.module
    InlineCalls().run(module)
    EliminateDeadCode().run(module)
    UnrollScans(**{"share": 0.0, **options}).run(module)
    verify(module)
    EliminateDeadCode().run(module)
    verify(module)
    return Unrolled(traced, argument_pieces(module.main), result_pieces(module.main))


def run(unrolled: Unrolled, args: Sequence[Any], *, jit: bool = True) -> Any:
    """Call it: leaves are cut into their pieces, results put together.

    Without ``jit`` one operation after another, whose kernels are compiled once for all programs.
    """
    traced, body = unrolled.trace, unrolled.module.main.body
    program = operations_to_jaxpr(
        body.ops[:-1], body.arguments, body.terminator.operands, traced.equations
    )
    given = [*traced.constants, *jax.tree.leaves(args)]
    flat: list[Any] = []
    for leaf, indices in zip(given, leaves(unrolled.pieces), strict=True):
        for piece in (unrolled.pieces[index] for index in indices):
            flat.append(leaf if piece is None else leaf[piece.start : piece.stop])
    function = jax.extend.core.jaxpr_as_fun(program)
    found = (jax.jit(function, compiler_options=QUICK) if jit else function)(*flat)
    results: list[Any] = []
    for indices in leaves(unrolled.result_pieces):
        parts = [found[index] for index in indices]
        results.append(parts[0] if len(parts) == 1 else jnp.concatenate(parts))
    return jax.tree.unflatten(traced.out_tree, results)


def check(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    donate: Sequence[int] = (),
    rtol: float = 2e-5,
    **options: Any,
) -> Unrolled:
    """Unroll, run, and compare with ``jax.jit``: values, shapes, dtypes, weak types."""
    unrolled = unroll(fn, args, donate=donate, **options)
    same(run(unrolled, args), jax.jit(fn, compiler_options=QUICK)(*args), rtol)
    return unrolled


def same(found: Any, wanted: Any, rtol: float = 2e-5) -> None:
    """Two trees of arrays are equal."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert one.aval.weak_type == other.aval.weak_type
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        left, right = np.asarray(one, np.float64), np.asarray(other, np.float64)
        scale = max(1.0, float(np.abs(right).max(initial=0.0)))
        np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol * scale)
