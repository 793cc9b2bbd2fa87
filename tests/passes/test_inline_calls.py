"""``inline-calls`` on what JAX really traces: values, and the memory that remat saves."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import CALLS, InlineCalls
from baechi_jax.runtime.to_jaxpr import function_to_jaxpr


def inlined(fn: Callable[..., Any], *args: Any) -> Trace:
    traced = trace(fn, args)
    InlineCalls().run(traced.module)
    verify(traced.module)
    assert not [op for op in traced.module.walk() if op.name in CALLS]
    EliminateDeadCode().run(traced.module)
    verify(traced.module)
    return traced


def as_function(traced: Trace) -> Callable[..., Any]:
    """The module as a function of the flat arguments, constants first."""
    run = jaxpr_as_fun(function_to_jaxpr(traced.module.main, traced.equations))
    return lambda *args: run(*traced.constants, *args)


@jax.custom_jvp
def soft(x: jax.Array) -> jax.Array:
    return jnp.log1p(jnp.exp(x))


soft.defjvp(lambda primals, tangents: (soft(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]))


@jax.custom_vjp
def clipped(x: jax.Array) -> jax.Array:
    return x * 2.0


clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(g, -1.0, 1.0) * jnp.sign(x),))

TABLE = jnp.arange(16.0).reshape(4, 4)


@jax.jit
def helper(x: jax.Array) -> jax.Array:
    with jax.named_scope("helper"):
        return jnp.tanh(x @ TABLE) + jax.nn.silu(x)


def nested(x: jax.Array) -> jax.Array:
    return jnp.sum(jax.jit(lambda y: helper(helper(y)) * y)(x))


def custom(x: jax.Array) -> jax.Array:
    return jnp.sum(soft(x) * clipped(x))


def remat(x: jax.Array) -> jax.Array:
    return jnp.sum(jax.checkpoint(lambda y: jnp.sin(helper(jnp.sin(y))))(x))


def loop(x: jax.Array) -> jax.Array:
    body = jax.checkpoint(lambda c: helper(c) + custom(c), prevent_cse=False)
    return jnp.sum(jax.lax.scan(lambda c, _: (body(c), None), x, length=3)[0])


def branch(x: jax.Array) -> jax.Array:
    return jnp.sum(jax.lax.cond(x[0, 0] > 0, helper, soft, x))


def search(x: jax.Array) -> jax.Array:
    return jnp.sum(
        jax.lax.while_loop(
            lambda c: (c[0] < 3) & (jnp.sum(helper(c[1])) < 1e6),
            lambda c: (c[0] + 1, soft(c[1])),
            (0, x),
        )[1]
    )


@pytest.mark.parametrize("transform", [None, jax.grad, jax.vmap])
@pytest.mark.parametrize("fn", [nested, custom, remat, loop, branch, search])
def test_values_stay(fn: Callable[..., Any], transform: Callable[..., Any] | None) -> None:
    if transform is jax.grad and fn is search:
        pytest.skip("a while loop has no reverse derivative")
    shape = (3, 4, 4) if transform is jax.vmap else (4, 4)
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    fn = fn if transform is None else transform(fn)
    (value,) = as_function(inlined(fn, x))(x)
    np.testing.assert_allclose(value, jax.jit(fn)(x), rtol=1e-5, atol=1e-5)


def test_effects_keep_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    def noisy(x: jax.Array) -> jax.Array:
        jax.debug.print("first {}", x, ordered=True)
        jax.jit(lambda y: jax.debug.print("second {}", y, ordered=True))(x)
        jax.debug.print("third {}", x, ordered=True)
        return x

    run = as_function(inlined(noisy, 1.0))
    jax.block_until_ready(jax.jit(run)(jnp.float32(1.0)))
    jax.effects_barrier()
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "first",
        "second",
        "third",
    ]


def test_name_stacks_nest() -> None:
    def fn(x: jax.Array) -> jax.Array:
        with jax.named_scope("layer"):
            return jnp.sum(helper(x))

    names = {op.name: op.location.name for op in inlined(fn, TABLE).module.main.body.ops}
    assert names["jax.dot_general"] == names["jax.tanh"] == "layer/helper"


# What remat saves ---------------------------------------------------------------------------

GROUPS, LAYERS, WIDTH = 3, 3, 16


def deep(w: jax.Array, x: jax.Array) -> jax.Array:
    @jax.checkpoint
    def group(h: jax.Array, weights: jax.Array) -> jax.Array:
        for index in range(LAYERS):
            h = jnp.sin(h @ weights[index])
        return h

    for index in range(GROUPS):
        x = group(x, w[index])
    return jnp.sum(x)


def products(fn: Callable[..., Any], *args: Any) -> int:
    """Matrix products in the compiled program: recomputation that XLA merged away is not there."""
    return jax.jit(fn).lower(*args).compile().as_text().count(" dot(")


def test_the_recomputation_of_remat_survives_compilation() -> None:
    args = (
        jax.ShapeDtypeStruct((GROUPS, LAYERS, WIDTH, WIDTH), jnp.float32),
        jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32),
    )
    traced = inlined(jax.grad(deep), *args)
    barriers = [op for op in traced.module.walk() if op.name == "jax.optimization_barrier"]
    assert len(barriers) == GROUPS
    # As many as in jax.jit's program; without the barriers the recomputation is gone.
    with_barriers = products(as_function(traced), *args)
    assert with_barriers == products(jax.grad(deep), *args)
    for barrier in barriers:
        for operand, result in zip(barrier.operands, barrier.results):
            result.replace_all_uses_with(operand)
    assert products(as_function(traced), *args) <= with_barriers - GROUPS * (LAYERS - 1)


def test_a_call_of_a_jaxpr() -> None:
    # jax 0.12 has no closed calls any more, but this.
    call = getattr(jax._src.core, "eval_jaxpr_p", None)
    if call is None:
        pytest.skip("needs jax 0.12")
    constant = np.arange(3.0, dtype=np.float32)
    body = jax.make_jaxpr(lambda x: jnp.sin(x) * constant)(constant)
    x = jnp.ones(3)
    traced = inlined(lambda x: call.bind(x, call_jaxpr=body)[0] + 1, x)
    assert "jax.sin" in [op.name for op in traced.module.main.body.ops]
    (result,) = as_function(traced)(x)
    np.testing.assert_allclose(result, jnp.sin(x) * constant + 1, rtol=1e-6)
