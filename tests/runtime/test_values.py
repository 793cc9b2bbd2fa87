"""A placed function gives what ``jax.jit`` gives: values, dtypes, weak types, structure, effects.

Every function of the table runs cut into tasks on random devices, over 4 devices and, with --slow,
1 and 2; and through the default pipeline, over 4 devices for which spreading pays. Tolerance: that
of the case, 2e-5 relative and 1e-6 absolute unless it says otherwise, since XLA fuses across a
task's border in the one and not in the other; 20 cases without sums and products in a row are
compared bit for bit. All are compiled without optimisation, in half the time.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.runtime.stacked import StackedArray
from tests.runtime.functions import FUNCTIONS, Case
from tests.runtime.scatter import scattered

QUICK = {"xla_backend_optimization_level": 0}

#: Slow devices, and links that cost nothing: whatever can run side by side is worth spreading.
SPREADING = Topology.uniform(
    4,
    Device(flops_per_second=1e6, bytes_per_second=1e6, launch_seconds=1e-9),
    latency_seconds=0.0,
    bytes_per_second=1e12,
)
#: One chain, or one operation, or nothing: the default pipeline rightly keeps them on one device.
ON_ONE_DEVICE = frozenset(
    """
    grouped_dilated_conv scan_forward scan_grad while_loop switch top_k cumulative custom_reduce
    batched_dot rng_bit_generator keys_vmapped custom_jvp custom_vjp named float8_dot
    returned_unchanged returned_twice no_outputs unused_argument constants_in_odd_places
    pure_callback unknown_primitive sharding_constraint
    """.split()
)


def assert_same(got: object, want: object, rtol: float) -> None:
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree
    for g, w in zip(got_leaves, want_leaves):
        # Layers of an unrolled loop may come back in pieces, or over a mesh.
        assert type(g) is type(w) or isinstance(g, StackedArray)
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        assert g.aval.weak_type == w.aval.weak_type
        if jax.dtypes.issubdtype(w.dtype, jax.dtypes.prng_key):
            g, w = jax.random.key_data(g), jax.random.key_data(w)
        wide = np.complex128 if jnp.issubdtype(w.dtype, jnp.complexfloating) else np.float64
        np.testing.assert_allclose(
            np.asarray(g).astype(wide), np.asarray(w).astype(wide), rtol, min(rtol, 1e-6)
        )
        if rtol == 0:
            # Signs of zeros too; the comparison above is for its message.
            assert np.asarray(g).tobytes() == np.asarray(w).tobytes()


#: What jit gives and prints, by case: compiled once for all device counts.
_reference: dict[str, tuple[object, list[str]]] = {}


def reference(case: Case, capfd: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    if case.name not in _reference:
        want = jax.jit(case.fn, compiler_options=QUICK)(*case.arguments())
        jax.block_until_ready(want)
        jax.effects_barrier()
        _reference[case.name] = want, capfd.readouterr().out.splitlines()
        assert case.effects or not _reference[case.name][1]
    return _reference[case.name]


def check(case: Case, placed: Any, capfd: pytest.CaptureFixture[str]) -> object:
    """One call of ``placed`` gives and prints what jit does; returns the results."""
    want, printed = reference(case, capfd)
    got = jax.block_until_ready(placed(*case.arguments()))
    jax.effects_barrier()
    found = capfd.readouterr().out.splitlines()
    # Unordered prints may come anywhere.
    assert sorted(found) == sorted(printed)
    assert _ordered(found) == _ordered(printed)
    assert_same(got, want, case.rtol)
    assert all(leaf.committed for leaf in jax.tree.leaves(got))
    return got


def _ordered(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("unordered")]


@pytest.mark.parametrize(
    "devices", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4]
)
@pytest.mark.parametrize("case", FUNCTIONS, ids=repr)
def test_same_as_jit(case: Case, devices: int, capfd: pytest.CaptureFixture[str]) -> None:
    with case.context():
        placed = baechi.place(
            case.fn,
            topology=Topology.uniform(devices),
            pipeline=scattered(devices, seed=devices, pieces=max(devices, 2)),
            donate_argnums=case.donate_argnums,
            compiler_options=QUICK,
        )
        got = check(case, placed, capfd)
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(got))


@pytest.mark.parametrize("case", FUNCTIONS, ids=repr)
def test_same_as_jit_through_the_default_pipeline(
    case: Case, capfd: pytest.CaptureFixture[str]
) -> None:
    with case.context():
        placed = baechi.place(
            case.fn,
            topology=SPREADING,
            donate_argnums=case.donate_argnums,
            compiler_options=QUICK,
        )
        main = placed.plan(*case.arguments()).module.main
        # Solvers may print.
        capfd.readouterr()
        check(case, placed, capfd)
    used = {task.attributes["baechi.devices"] for task in tasks_of(main)}
    assert len(used) > 1 or case.name in ON_ONE_DEVICE


def test_most_of_the_table_is_spread() -> None:
    assert {case.name for case in FUNCTIONS} > ON_ONE_DEVICE
    assert len(ON_ONE_DEVICE) < len(FUNCTIONS) * 0.4
