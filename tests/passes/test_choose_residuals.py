"""What is kept for the backward pass: fewer bytes, the same values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import baechi_jax as baechi
from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.verifier import verify
from baechi_jax.passes import choose_residuals
from baechi_jax.passes.choose_residuals import ChooseResiduals
from baechi_jax.passes.cost.min_cut import min_vertex_cut
from baechi_jax.passes.dataflow import is_backward
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls


def _f(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _traced(fn: Callable[..., Any], *args: Any) -> Module:
    module = trace(fn, args).module
    module.attributes["baechi.topology"] = Topology.uniform(2)
    InlineCalls().run(module)
    EliminateDeadCode().run(module)
    return module


def _chosen(fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[Module, int, int]:
    module = _traced(fn, *args)
    ChooseResiduals(**options).run(module)
    verify(module)
    before = module.main.attributes["baechi.residual_bytes_before"]
    after = module.main.attributes["baechi.residual_bytes_after"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert after <= before
    return module, before, after


def _copies(module: Module) -> list[Operation]:
    return [op for op in module.main.body.ops if "rematted_computation" in op.location.name]


# Models -------------------------------------------------------------------------------------------


def _layer(p: Any, x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    h = (x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"]
    scores = jnp.einsum("btd,bsd->bts", h @ p["q"], h @ p["k"]) / 4.0
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    x = x + weights @ (h @ p["v"])
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def _transformer(layers: int, width: int = 16) -> tuple[Callable[..., Any], Any, Any]:
    layer = {
        "scale": _f(width),
        **{name: _f(width, width) for name in "qkv"},
        "up": _f(width, 4 * width),
        "down": _f(4 * width, width),
    }

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for p in params:
            x = _layer(p, x)
        return jnp.mean(x**2)

    return loss, [layer] * layers, _f(2, 8, width)


def _step(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


def _dropout(params: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    for w in params:
        key, own = jax.random.split(key)
        h = jax.nn.silu(x @ w)
        x = jnp.where(jax.random.bernoulli(own, 0.8, h.shape), h / 0.8, 0.0)
    return jnp.mean(x**2)


def _remat(params: Any, x: jax.Array) -> jax.Array:
    for w in params:
        x = jax.checkpoint(lambda w, x: jnp.sin(jnp.tanh(x @ w)))(w, x)
    return jnp.mean(x**2)


def _mlp(params: Any, x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w) * 1.5
    return jnp.mean(x**2)


def _gated(params: Any, x: jax.Array) -> jax.Array:
    for w in params:
        gate, value = jnp.split(x @ jnp.concatenate([w, w.T], axis=1), 2, axis=1)
        x = x + jax.nn.sigmoid(gate) * value
    return jnp.mean(x**2)


def _conv(params: Any, x: jax.Array) -> jax.Array:
    for w in params:
        h = lax.conv_general_dilated(x, w, (1, 1), "SAME")
        x = jax.nn.relu(x + (h - h.mean((2, 3), keepdims=True)) / (1e-3 + h.std()))
    return jnp.mean(x**2)


def _mixed(params: Any, x: jax.Array) -> jax.Array:
    x = x.astype(jnp.bfloat16)
    for w in params:
        x = jax.nn.gelu(x @ w.astype(jnp.bfloat16))
    return jnp.mean(x.astype(jnp.float32) ** 2)


@jax.custom_vjp
def _clipped(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


_clipped.defvjp(
    lambda x: (jnp.sin(x), (x, jnp.cos(x) * 2)), lambda kept, g: (g * kept[1] + kept[0],)
)


def _custom(params: Any, x: jax.Array) -> jax.Array:
    for w in params:
        x = _clipped(x @ w)
    return jnp.mean(x**2)


_W = [_f(16, 16)] * 3
_MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "transformer": (lambda *a: _transformer(2)[0](*a), _transformer(2)[1:]),
    "mlp": (_mlp, (_W, _f(8, 16))),
    "gated": (_gated, (_W, _f(8, 16))),
    "dropout": (_dropout, (_W, _f(8, 16), jax.ShapeDtypeStruct((2,), "uint32"))),
    "remat": (_remat, (_W, _f(8, 16))),
    "conv": (_conv, ([_f(4, 4, 3, 3)] * 2, _f(2, 4, 8, 8))),
    "mixed precision": (_mixed, (_W, _f(8, 16))),
    "custom derivative": (_custom, (_W, _f(8, 16))),
}

# Values -------------------------------------------------------------------------------------------


def _materialised(args: Any) -> Any:
    generator = np.random.default_rng(0)

    def leaf(spec: jax.ShapeDtypeStruct) -> jax.Array:
        if spec.dtype == np.uint32:
            return jnp.asarray(generator.integers(0, 100, spec.shape), spec.dtype)
        return jnp.asarray(generator.normal(0, 0.5, spec.shape), spec.dtype)

    return jax.tree.map(leaf, args)


@pytest.mark.parametrize("name", _MODELS)
def test_values_and_gradients_are_those_of_jit(name: str) -> None:
    """Forward and backward in different tasks, on two devices."""
    loss, shapes = _MODELS[name]
    step = _step(loss)
    args = _materialised(shapes)
    pipeline = (
        "inline-calls,eliminate-dead-code,annotate-costs,colocate,choose-residuals,"
        "fuse-tasks{max-tasks=12},place{placer=m-topo},lower"
    )
    found = baechi.place(step, topology=Topology.uniform(2), pipeline=pipeline)(*args)
    wanted = jax.jit(step)(*args)
    # Two bfloat16 products may round apart; float32 differs by the order of sums.
    tolerance = 1e-2 if name == "mixed precision" else 1e-5
    for left, right in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


# What is chosen -----------------------------------------------------------------------------------


def test_a_transformer_keeps_less_than_half() -> None:
    loss, params, x = _transformer(12)
    module, before, after = _chosen(_step(loss), params, x)
    assert after < 0.5 * before
    # What XLA merges again where both passes are in one task is there twice, no more.
    assert len(_copies(module)) < 0.3 * len(module.main.body.ops)


def test_a_layer_keeps_no_more_than_in_one_jit() -> None:
    """What each layer adds: to the values kept, without the pass and with it, and to XLA's peak.

    Gradients are summed up, so that no result's buffer holds residuals.
    """

    def figures(layers: int) -> tuple[int, int, int]:
        loss, params, x = _transformer(layers)

        def sums(params: Any, x: jax.Array) -> Any:
            return jax.tree.map(jnp.sum, jax.value_and_grad(loss)(params, x))

        jitted = jax.jit(sums, compiler_options={"xla_backend_optimization_level": 0})
        memory = jitted.lower(params, x).compile().memory_analysis()
        _, before, after = _chosen(_step(loss), params, x)
        return before, after, memory.temp_size_in_bytes

    before, after, jitted = (more - less for less, more in zip(figures(2), figures(3)))
    # Without the pass 1.7 times what one jit keeps, with it half of that.
    assert after < 0.7 * jitted
    assert before > 1.4 * jitted


def test_copies_are_counted_to_the_backward_pass_and_keep_their_equation() -> None:
    module, _, _ = _chosen(_step(_custom), _W, _f(8, 16))
    copies = _copies(module)
    assert copies
    position = {op: index for index, op in enumerate(module.main.body.ops)}
    for op in copies:
        assert is_backward(op)
        assert "baechi.eqn" in op.attributes
        for reader in op.results[0].users:
            assert is_backward(reader) or reader.name == "func.return"
            assert position[reader] > position[op]


def _cones(layers: int) -> list[tuple[int, set[int]]]:
    """For each copy: operations that make it from kept values, and the layers of all of these.

    Each layer adds ``tanh(x @ w)`` to its input. The tanh is kept for its own derivative, so by
    bytes alone all inputs ``x`` would be made again as sums over the layers before.
    """

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for index, w in enumerate(params):
            with jax.named_scope(f"layer{index}"):
                h = x * jnp.float32(0.5)
                x = x + jnp.tanh(h @ w)
        return jnp.mean(x**2)

    module, _, _ = _chosen(_step(loss), [_f(16, 16)] * layers, _f(8, 16))
    copies = set(_copies(module))
    cones: list[tuple[int, set[int]]] = []
    for copy in _copies(module):
        cone, kept, stack = {copy}, set[Operation](), [copy]
        while stack:
            for operand in stack.pop().operands:
                source = operand.defining_op
                if source in copies and source not in cone:
                    cone.add(source)
                    stack.append(source)
                elif source is not None and source not in copies:
                    kept.add(source)
        names = [
            found for op in cone | kept if (found := re.search(r"layer(\d+)", op.location.name))
        ]
        cones.append((len(cone), {int(found[1]) for found in names}))
    return cones


def _spread(layers: set[int]) -> int:
    return max(layers) - min(layers) if layers else 0


def test_nothing_is_computed_again_over_several_layers() -> None:
    """Where a skip connection joins is kept: a layer needs its own values and its input."""
    few, many = _cones(3), _cones(6)
    # How many depends on the derivative of tanh, for which jax 0.12 has an operation of its own.
    assert {layer for _, layers in many for layer in layers} >= {0, 1}
    assert all(_spread(layers) <= 1 for _, layers in many)
    assert max(size for size, _ in few) == max(size for size, _ in many)


def test_skip_connections_are_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes alone the sums of all layers before are made again."""
    monkeypatch.setattr(choose_residuals, "_joins", lambda ops: set())
    few, many = _cones(3), _cones(6)
    assert max(_spread(layers) for _, layers in many) > 1
    assert max(size for size, _ in few) < max(size for size, _ in many)


def test_switched_off_it_changes_nothing() -> None:
    module = _traced(_step(_mlp), _W, _f(8, 16))
    before = print_module(module)
    ChooseResiduals(enabled=False).run(module)
    assert print_module(module) == before


def test_random_bits_are_made_once() -> None:
    def count(module: Module) -> int:
        return sum(op.name == "jax.random_bits" for op in module.main.body.ops)

    fn, args = _step(_dropout), (_W, _f(8, 16), jax.ShapeDtypeStruct((2,), "uint32"))
    module, _, _ = _chosen(fn, *args)
    assert count(module) == count(_traced(fn, *args)) == 3


def test_what_remat_keeps_is_kept() -> None:
    fn = _step(_remat)
    before = _traced(fn, _W, _f(8, 16))
    module, _, _ = _chosen(fn, _W, _f(8, 16))

    def barriers(module: Module) -> list[tuple[str, ...]]:
        return [
            tuple(
                value.defining_op.name if value.defining_op is not None else "argument"
                for value in op.operands
            )
            for op in module.main.body.ops
            if op.name == "jax.optimization_barrier"
        ]

    assert barriers(module) == barriers(before)


def test_effects_stay_where_they_are() -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        for w in params:
            x = jnp.tanh(x @ w)
            jax.debug.print("{}", x.sum())
        return jnp.mean(x**2)

    module, _, _ = _chosen(_step(loss), _W, _f(8, 16))
    prints = [op for op in module.main.body.ops if "debug" in op.name]
    assert len(prints) == 3
    assert not any("rematted" in op.location.name for op in prints)


def test_a_result_of_the_step_is_no_cost() -> None:
    def fn(w: jax.Array, x: jax.Array) -> Any:
        y, back = jax.vjp(lambda w: jnp.exp(jnp.sin(x @ w)), w)
        return y, back(y)

    module, _, _ = _chosen(fn, _f(16, 16), _f(8, 16))
    # exp(sin(x @ w)) is returned, so it is read as it is.
    assert not any(op.name == "jax.exp" for op in _copies(module))


def test_a_function_without_gradients_is_left_alone() -> None:
    loss, params, x = _transformer(1)
    plain = _traced(loss, params, x)
    module, before, after = _chosen(loss, params, x)
    assert before == after == 0
    assert len(module.main.body.ops) == len(plain.main.body.ops)


def test_more_that_is_cheap_keeps_less() -> None:
    loss, params, x = _transformer(2)
    sizes = [
        _chosen(_step(loss), params, x, cheap=cheap)[2]
        for cheap in (
            (),
            ("elementwise",),
            ("elementwise", "broadcast", "reshape", "convert"),
            ("elementwise", "broadcast", "reshape", "convert", "transpose", "slice", "reduce"),
        )
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def test_a_second_run_finds_nothing_more() -> None:
    loss, params, x = _transformer(2)
    module, _, after = _chosen(_step(loss), params, x)
    count = len(module.main.body.ops)
    ChooseResiduals().run(module)
    assert module.main.attributes["baechi.residual_bytes_after"] == after
    assert len(module.main.body.ops) == count


# The minimum cut ----------------------------------------------------------------------------------


@st.composite
def _graphs(draw: Any) -> tuple[list[int], list[tuple[int, int]], list[int], list[int]]:
    count = draw(st.integers(1, 7))
    capacity = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    vertices = st.lists(st.integers(0, count - 1), unique=True)
    return capacity, edges, draw(vertices), draw(vertices)


def _separates(
    chosen: set[int], edges: list[tuple[int, int]], sources: list[int], sinks: list[int]
) -> bool:
    seen = {vertex for vertex in sources if vertex not in chosen}
    stack = list(seen)
    while stack:
        vertex = stack.pop()
        for tail, head in edges:
            if tail == vertex and head not in chosen and head not in seen:
                seen.add(head)
                stack.append(head)
    return not seen.intersection(sinks)


@settings(max_examples=300, deadline=None)
@given(_graphs())
def test_the_cut_is_a_minimum(
    graph: tuple[list[int], list[tuple[int, int]], list[int], list[int]],
) -> None:
    capacity, edges, sources, sinks = graph
    cut, behind = min_vertex_cut(capacity, edges, sources, sinks)
    chosen = {vertex for vertex, flag in enumerate(cut) if flag}
    assert _separates(chosen, edges, sources, sinks)
    assert not chosen.intersection(v for v, flag in enumerate(behind) if flag)
    best = min(
        sum(capacity[v] for v in subset)
        for size in range(len(capacity) + 1)
        for subset in itertools.combinations(range(len(capacity)), size)
        if _separates(set(subset), edges, sources, sinks)
    )
    assert sum(capacity[v] for v in chosen) == best
