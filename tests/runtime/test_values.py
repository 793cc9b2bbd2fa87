"""A placed function gives what ``jax.jit`` gives: values, dtypes, weak types, structure, effects.

Every function of the table runs cut into tasks on random devices, over 4 devices and, with --slow,
1 and 2. Tolerance: that of the case, 2e-5 relative unless it says otherwise, since XLA fuses across
a task's border in the one and not in the other. Both are compiled without optimisation, in half the
time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.topology import Topology
from tests.runtime.functions import FUNCTIONS, Case
from tests.runtime.scatter import scattered

QUICK = {"xla_backend_optimization_level": 0}


def assert_same(got: object, want: object, rtol: float) -> None:
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree
    for g, w in zip(got_leaves, want_leaves):
        assert type(g) is type(w)
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        assert g.aval.weak_type == w.aval.weak_type
        if jax.dtypes.issubdtype(w.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        wide = np.complex128 if jnp.issubdtype(w.dtype, jnp.complexfloating) else np.float64
        np.testing.assert_allclose(
            np.asarray(g).astype(wide), np.asarray(w).astype(wide), rtol, 1e-6
        )


#: What jit gives and prints, by case: compiled once for all device counts.
_reference: dict[str, tuple[object, str]] = {}


def reference(case: Case, capfd: pytest.CaptureFixture[str]) -> tuple[object, str]:
    if case.name not in _reference:
        want = jax.jit(case.fn, compiler_options=QUICK)(*case.arguments())
        jax.block_until_ready(want)
        jax.effects_barrier()
        _reference[case.name] = want, capfd.readouterr().out
    return _reference[case.name]


@pytest.mark.parametrize(
    "devices", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4]
)
@pytest.mark.parametrize("case", FUNCTIONS, ids=repr)
def test_same_as_jit(case: Case, devices: int, capfd: pytest.CaptureFixture[str]) -> None:
    with case.context():
        want, printed = reference(case, capfd)
        placed = baechi.place(
            case.fn,
            topology=Topology.uniform(devices),
            pipeline=scattered(devices, seed=devices, pieces=max(devices, 2)),
            donate_argnums=case.donate_argnums,
            compiler_options=QUICK,
        )
        got = jax.block_until_ready(placed(*case.arguments()))
        jax.effects_barrier()
        # Unordered prints may come anywhere.
        assert sorted(capfd.readouterr().out.split()) == sorted(printed.split())
        assert_same(got, want, case.rtol)
        for leaf in jax.tree.leaves(got):
            assert len(leaf.devices()) == 1
            assert leaf.committed
