"""``split_results``: pieces of results are computed from their own rows, with the values of all."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.ir.pieces import leaves, result_pieces
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import TensorType
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.split_results import split_results
from baechi_jax.runtime.to_jaxpr import operations_to_jaxpr

LAYERS = 5
ROWS = [(0, 2), (2, 3), (3, 5)]
KEY = jax.random.key(3)
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def split(fn: Callable[..., Any], args: Sequence[Any], cuts: Any = ROWS) -> Trace:
    traced = trace(fn, args)
    split_results(
        traced.module, dict.fromkeys(range(len(traced.out_avals)), cuts), partitionable=True
    )
    verify(traced.module)
    return traced


def check(fn: Callable[..., Any], *args: Any) -> Trace:
    """The pieces, put together, against the function."""
    traced = split(fn, args)
    main = traced.module.main
    jaxpr = operations_to_jaxpr(
        main.body.ops[:-1], main.body.arguments, main.body.terminator.operands, traced.equations
    )
    pieces = jit(jaxpr_as_fun(jaxpr))(*traced.constants, *jax.tree.leaves(args))
    want = jax.tree.leaves(jit(fn)(*args))
    ranges = leaves(result_pieces(main))
    assert len(ranges) == len(want)
    for members, whole in zip(ranges, want, strict=True):
        got = jnp.concatenate([pieces[index] for index in members])
        if jnp.issubdtype(got.dtype, jax.dtypes.prng_key):
            got, whole = jax.random.key_data(got), jax.random.key_data(whole)
        np.testing.assert_allclose(got, whole, rtol=1e-5, atol=1e-6)
    return traced


def largest_rows(traced: Trace) -> int:
    """The most rows in a result of an operation that has more than one dimension."""
    return max(
        type_.shape[0]
        for op in traced.module.main.body.ops
        for type_ in (value.type for value in op.results)
        if isinstance(type_, TensorType) and len(type_.shape) == 3
    )


def keys_mapped(key: Any) -> Any:
    def layer(key: Any) -> Any:
        first, second = jax.random.split(key)
        return jax.random.normal(first, (3, 4)) / 2, jax.random.truncated_normal(
            second, -1, 1, (4, 3)
        )

    return jax.vmap(layer)(jax.random.split(key, LAYERS))


def stacked(key: Any) -> Any:
    return jnp.stack([jax.random.normal(k, (3, 4)) for k in jax.random.split(key, LAYERS)])


def repeated(key: Any) -> Any:
    zeros = jnp.zeros((LAYERS, 3, 4))
    return zeros, jnp.ones((LAYERS, 3, 4)) * 0.5, zeros.astype(jnp.bfloat16) + 1


def scanned(key: Any) -> Any:
    def body(carry: Any, key: Any) -> Any:
        return carry, jax.random.normal(key, (3, 4))

    return jax.lax.scan(body, None, jax.random.split(key, LAYERS))[1]


def scanned_with_a_carry(key: Any) -> Any:
    """As flax initialises layers while it runs them; backwards for one of two."""

    def body(x: Any, key: Any) -> Any:
        w = jax.random.normal(key, (3, 4))
        return jnp.tanh(x @ w) @ w.T, (w, w * 2)

    x = jnp.ones((2, 3))
    keys = jax.random.split(key, LAYERS)
    forward = jax.lax.scan(body, x, keys)[1]
    return forward, jax.lax.scan(body, x, keys, reverse=True)[1][0]


def carried(key: Any) -> Any:
    """What is stacked depends on the layer before."""

    def body(x: Any, key: Any) -> Any:
        x = x / 2 + jax.random.normal(key, (3, 4))
        return x, x

    return jax.lax.scan(body, jnp.ones((3, 4)), jax.random.split(key, LAYERS))[1]


def scaled_by_depth(key: Any) -> Any:
    depth = 1 / jnp.sqrt(jnp.arange(LAYERS) + 1.0)
    return keys_mapped(key)[0] * depth[:, None, None]


@pytest.mark.parametrize(
    "fn",
    [
        keys_mapped,
        repeated,
        scanned_with_a_carry,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (stacked, scanned, carried, scaled_by_depth)
        ),
    ],
)
def test_rows_are_made_apart(fn: Callable[..., Any]) -> None:
    traced = check(fn, KEY)
    assert largest_rows(traced) == 2


def test_only_what_is_carried_into_a_result_is_computed() -> None:
    split_ = split(scanned_with_a_carry, [KEY])
    assert not [op for op in split_.module.main.body.ops if op.name in ("jax.tanh", "jax.scan")]


def test_arguments_are_cut() -> None:
    traced = check(lambda x, y: x * 2 + y, np.ones((LAYERS, 3, 4), np.float32), np.float32(2))
    assert largest_rows(traced) == 2


def drawn_at_once(key: Any) -> Any:
    return jax.random.normal(key, (LAYERS, 3, 4)), jax.random.uniform(key, (LAYERS, 4, 3))


def test_rows_of_one_draw() -> None:
    assert largest_rows(check(drawn_at_once, KEY)) == 2
    traced = trace(drawn_at_once, [KEY])
    split_results(traced.module, {0: ROWS, 1: ROWS}, partitionable=False)
    assert largest_rows(traced) == LAYERS


def orthogonal(key: Any) -> Any:
    """Whole: a dimension of the product is cut into layers."""
    return jnp.linalg.qr(jax.random.normal(key, (LAYERS * 3, 4)))[0].reshape(LAYERS, 3, 4)


def mixed(key: Any) -> Any:
    return jnp.cumsum(keys_mapped(key)[0], axis=0)


@pytest.mark.parametrize("fn", [pytest.param(orthogonal, marks=pytest.mark.slow), mixed])
def test_what_mixes_the_rows_is_made_whole_and_told(
    fn: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        traced = check(fn, KEY)
    assert largest_rows(traced) == LAYERS
    if fn is mixed:
        assert "result (240 bytes) is made whole on one device" in caplog.text
        assert "cumsum" in caplog.text


def test_entries_and_state() -> None:
    def fn(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x, "n": state["n"] + 1}

    args = ({"w": np.ones((LAYERS, 2), np.float32), "n": np.int32(0)}, np.float32(1))
    traced = trace(fn, args)
    (w,) = [i for i, name in enumerate(traced.result_names) if name.endswith("['w']")]
    split_results(traced.module, {w: ROWS})
    verify(traced.module)
    main = traced.module.main
    names = [entry["baechi.name"] for entry in result_attributes(main)]
    assert names == ["result['n']", *(f"result['w'][{start}:{stop}]" for start, stop in ROWS)]
    states = [entry.get("baechi.state") for entry in argument_attributes(main)]
    assert states == [0, None, None]


def test_several_lengths() -> None:
    def fn(key: Any) -> Any:
        return jax.random.normal(key, (4, 3)), jnp.zeros((6, 2))

    traced = trace(fn, [KEY])
    split_results(traced.module, {0: [(0, 1), (1, 4)], 1: [(0, 5), (5, 6)]})
    verify(traced.module)
    sizes = [piece and piece.size for piece in result_pieces(traced.module.main)]
    assert sizes == [1, 3, 5, 1]
