"""``split-conds`` on what JAX traces: values in every branch, and what ends up in which part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxpr_as_fun

import baechi_jax as baechi
from baechi_jax.ir.core import Operation
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.passes.split_conds import SplitConds
from baechi_jax.runtime.to_jaxpr import function_to_jaxpr


def split(fn: Callable[..., Any], *args: Any) -> Trace:
    traced = trace(fn, args)
    InlineCalls().run(traced.module)
    SplitConds(min_bytes=0).run(traced.module)
    verify(traced.module)
    EliminateDeadCode().run(traced.module)
    verify(traced.module)
    return traced


def conds(traced: Trace) -> list[Operation]:
    return [op for op in traced.module.main.body.ops if op.name == "jax.cond"]


def check(fn: Callable[..., Any], *argument_sets: tuple[Any, ...]) -> list[Operation]:
    """The conditionals of ``fn`` once split; its values on each set of arguments are right."""
    traced = split(fn, *argument_sets[0])
    run = jaxpr_as_fun(function_to_jaxpr(traced.module.main, traced.equations))
    for args in argument_sets:
        found = run(*traced.constants, *jax.tree.leaves(args))
        wanted = jax.tree.leaves(jax.jit(fn)(*args))
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return conds(traced)


def state(seed: int = 0, count: int = 3) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    trees = {
        name: [jnp.asarray(random.normal(size=(9, 8)), jnp.float32) for _ in range(count)]
        for name in ("params", "m", "grads")
    }
    return {**trees, "count": jnp.int32(3)}


def adam(state: Any) -> Any:
    count = state["count"] + 1
    correction = 1 - 0.9 ** count.astype(jnp.float32)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["m"], state["grads"])
    params = jax.tree.map(lambda p, a: p - 0.1 * a / correction, state["params"], m)
    return {"params": params, "m": m, "grads": state["grads"], "count": count}


YES, NO = jnp.bool_(True), jnp.bool_(False)


def test_each_parameter_has_its_own_conditional() -> None:
    def fn(ok: Any, state: Any) -> Any:
        return jax.lax.cond(ok, adam, lambda s: s, state)

    found = check(fn, (YES, state()), (NO, state(1)))
    # One for each parameter with its moment; one for the step's number.
    assert [len(op.results) for op in found] == [1, 2, 2, 2]
    # Index, the step's number, parameter, moment, gradient.
    assert [len(op.operands) for op in found] == [2, 5, 5, 5]


def test_what_is_an_operand_in_every_branch_needs_no_conditional() -> None:
    def fn(ok: Any, x: Any, y: Any) -> Any:
        return jax.lax.cond(ok, lambda x, y: (x, y + 1), lambda x, y: (x, y - 1), x, y)

    (only,) = check(fn, (YES, *state()["m"][:2]), (NO, *state()["m"][:2]))
    assert len(only.results) == 1


def test_a_conditional_that_is_one_thing_stays() -> None:
    def fn(ok: Any, x: Any, y: Any) -> Any:
        def both(x: Any, y: Any) -> Any:
            z = x @ y.T
            return z + 1, z - 1

        return jax.lax.cond(ok, both, lambda x, y: (x @ x.T, y @ y.T), x, y)

    assert len(check(fn, (YES, *state()["m"][:2]), (NO, *state()["m"][:2]))) == 1


def test_a_norm_is_computed_once_and_read_by_all() -> None:
    def clipped(state: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in state["grads"]))
        scale = jnp.minimum(1.0, 1.0 / norm)
        return adam({**state, "grads": [g * scale for g in state["grads"]]})

    def fn(ok: Any, state: Any) -> Any:
        return jax.lax.cond(ok, clipped, lambda s: s, state)

    found = check(fn, (YES, state()), (NO, state(1)))
    reduced = [
        sum(inner.name == "jax.reduce_sum" for inner in op.walk() if inner is not op)
        for op in found
    ]
    assert sum(reduced) == 3  # each once
    large = [sum(result.type.size > 1 for result in op.results) for op in found]
    assert max(large) == 3  # parameter, moment and clipped gradient of one layer


def test_parts_that_need_scalars_of_each_other_stay_together() -> None:
    def mixed(x: Any, y: Any) -> Any:
        a, b = jnp.sin(x), jnp.cos(y)
        return a * b.sum(), b * a.sum()

    def fn(ok: Any, x: Any, y: Any, z: Any) -> Any:
        def one(x: Any, y: Any, z: Any) -> Any:
            return (*mixed(x, y), z + 1)

        return jax.lax.cond(ok, one, lambda x, y, z: (y, x, z * 2), x, y, z)

    found = check(fn, (YES, *state()["m"]), (NO, *state()["m"]))
    assert sorted(len(op.results) for op in found) == [1, 2]


@pytest.mark.parametrize("branch", [0, 1, 2])
def test_a_constant_conditional_is_its_branch(branch: int) -> None:
    branches = [jnp.sin, lambda x: x * 2, lambda x: jax.lax.cond(False, jnp.tan, jnp.cos, x)]

    def fn(x: Any) -> Any:
        with jax.named_scope("outer"):
            return jax.lax.switch(jnp.int32(branch), branches, x)

    traced = split(fn, jnp.ones(4))
    assert not conds(traced)
    (op,) = [op for op in traced.module.main.body.ops if op.name.startswith("jax.")]
    assert op.name == ("jax.sin", "jax.mul", "jax.cos")[branch]
    assert op.location.name.startswith("outer")


def test_effects_and_small_conditionals_stay() -> None:
    def fn(ok: Any, x: Any, y: Any) -> Any:
        def shout(x: Any, y: Any) -> Any:
            jax.debug.print("x {}", x.sum())
            return x + 1, y + 1

        return jax.lax.cond(ok, shout, lambda x, y: (x, y), x, y)

    assert len(conds(split(fn, YES, *state()["m"][:2]))) == 1
    traced = trace(lambda ok, s: jax.lax.cond(ok, adam, lambda s: s, s), (YES, state()))
    InlineCalls().run(traced.module)
    SplitConds().run(traced.module)
    assert len(conds(traced)) == 1


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="must not be negative, found -1"):
        SplitConds(min_bytes=-1)


def test_gradients_through_a_conditional() -> None:
    def fn(ok: Any, x: Any, y: Any) -> Any:
        def value(x: Any, y: Any) -> Any:
            a, b = jax.lax.cond(
                ok, lambda x, y: (jnp.sin(x), y * y), lambda x, y: (x * 2, jnp.exp(y)), x, y
            )
            return a.sum() + b.sum()

        return jax.grad(value, (0, 1))(x, y)

    assert len(check(fn, (YES, *state()["m"][:2]), (NO, *state()["m"][:2]))) > 1


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_branches(data: st.DataObject) -> None:
    """Programs over vectors and scalars, with sums that tie them, in three branches."""
    programs = [
        data.draw(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=7))
        for _ in range(3)
    ]
    picks = data.draw(st.lists(st.tuples(*[st.integers(0, 11)] * 3), min_size=2, max_size=4))

    def branch(number: int) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            known = list(values)
            for kind, one, other in programs[number]:
                a, b = known[one % len(known)], known[other % len(known)]
                match kind:
                    case 0 | 1:
                        known.append(a + b)
                    case 2:
                        known.append(jnp.sum(a))
                    case 3:
                        known.append(jnp.sin(a))
                    case 4:
                        known.append(a * 0.5)
                    case _:
                        known.append(jnp.max(b))
            full = [jnp.broadcast_to(v, (80,)) for v in known]
            scalars = [v for v in known if v.shape == ()]
            return [
                scalars[pick[number] % len(scalars)]
                if i % 3 == 2
                else full[pick[number] % len(full)]
                for i, pick in enumerate(picks)
            ]

        return run

    def fn(index: Any, *values: Any) -> Any:
        return jax.lax.switch(index, [branch(0), branch(1), branch(2)], *values)

    values = (jnp.linspace(0, 1, 80), jnp.linspace(1, 2, 80), jnp.float32(0.3))
    check(fn, *[(jnp.int32(index), *values) for index in range(3)])


@pytest.mark.slow
def test_a_placed_step_that_may_be_skipped_spreads_out() -> None:
    """Nothing fits on one device, though all of the update is under one conditional."""

    def step(state: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            y = x
            for w in params:
                y = jnp.tanh(y @ w)
            return jnp.mean(y**2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        new = {**state, "grads": grads}
        return jax.lax.cond(jnp.isfinite(value), adam, lambda s: s, new), value

    width = 128
    keys = jax.random.split(jax.random.key(0), 8)
    params = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
    zeros = [jnp.zeros_like(p) for p in params]
    start = {"params": params, "m": zeros, "grads": zeros, "count": jnp.int32(0)}
    x = jnp.ones((8, width))
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
    topology = baechi.local_topology(memory=int(0.6 * nbytes), devices=jax.devices()[:4])
    placed = baechi.place(step, topology=topology)
    assert len(placed.plan(start, x).devices_used) > 1
    for given_x in (x, x * jnp.nan):
        found, wanted = placed(start, given_x), jax.jit(step)(start, given_x)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted
        )


@pytest.mark.slow
def test_a_skipped_update_of_layers_in_a_scan() -> None:
    """First by parameter, then ``unroll-scans`` by layer; the norm is one sum over all of them."""
    layers, width = 8, 64

    def loss(params: Any, x: Any) -> Any:
        def layer(x: Any, p: Any) -> Any:
            return x + jnp.tanh(x @ p["w"] + p["b"]), None

        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    def update(state: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(state["grads"])))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), state["grads"])
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["m"], grads)
        return jax.tree.map(lambda p, a: p - 0.1 * a, state["params"], m), m

    def step(state: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], x)
        params, m = jax.lax.cond(
            jnp.isfinite(value),
            update,
            lambda s: (s["params"], s["m"]),
            {**state, "grads": grads},
        )
        return {"params": params, "m": m}, value

    params = {
        "w": jax.random.normal(jax.random.key(0), (layers, width, width)) / 8,
        "b": jnp.zeros((layers, width)),
    }
    start = {"params": params, "m": jax.tree.map(jnp.zeros_like, params)}
    x = jnp.ones((8, width))
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
    topology = baechi.local_topology(memory=int(1.1 * nbytes), devices=jax.devices()[:4])
    placed = baechi.place(step, topology=topology)
    plan = placed.plan(start, x)
    assert len(plan.devices_used) > 1
    names = [op.name for task in plan.module.main.body.ops for op in task.walk()]
    assert names.count("jax.cond") >= 2 * layers
    assert "jax.concatenate" not in names
    for given_x in (x, x * jnp.nan):
        found, wanted = baechi.gather(placed(start, given_x)), jax.jit(step)(start, given_x)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted
        )
