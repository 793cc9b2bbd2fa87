"""jaxpr -> IR -> text -> IR -> jaxpr gives what jit gives: values, dtypes, weak types."""

from __future__ import annotations

import functools
import re

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.verifier import verify
from baechi_jax.runtime.to_jaxpr import function_to_jaxpr
from tests.runtime.functions import FUNCTIONS, Case

#: Compiling is most of the time here, and twice as fast without optimisation.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def run(fn, tr: Trace, args: tuple) -> object:
    flat = jax.tree.leaves((args, {}))
    return jax.tree.unflatten(tr.out_tree, fn(*tr.constants, *flat))


def assert_is_mlir(text: str) -> None:
    from jaxlib.mlir import ir

    assert not re.search(r"\bat 0x[0-9a-f]{6}", text), "an address in the text"
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        assert ir.Module.parse(text).operation.verify()


def assert_same(got: object, want: object, rtol: float) -> None:
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree
    for g, w in zip(got_leaves, want_leaves):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        assert g.aval.weak_type == w.aval.weak_type
        if jax.dtypes.issubdtype(w.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        wide = np.complex128 if jnp.issubdtype(w.dtype, jnp.complexfloating) else np.float64
        np.testing.assert_allclose(
            np.asarray(g).astype(wide), np.asarray(w).astype(wide), rtol, 1e-6
        )


@pytest.mark.parametrize("case", FUNCTIONS, ids=repr)
def test_round_trip(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    with case.context():
        args = case.arguments()
        tr = trace(case.fn, args)
        verify(tr.module)
        text = print_module(tr.module)
        back = parse_module(text)
        assert print_module(back) == text
        assert_is_mlir(text)
        jaxpr = function_to_jaxpr(back.main, tr.equations)
        jax.extend.core.check_jaxpr(jaxpr.jaxpr)
        assert [v.aval for v in jaxpr.jaxpr.outvars] == [v.aval for v in tr.jaxpr.jaxpr.outvars]
        want = jax.block_until_ready(jit(case.fn)(*args))
        jax.effects_barrier()
        printed = capfd.readouterr().out
        got = jax.block_until_ready(run(jit(jax.extend.core.jaxpr_as_fun(jaxpr)), tr, args))
        jax.effects_barrier()
        assert capfd.readouterr().out == printed
        assert_same(got, want, case.rtol)
