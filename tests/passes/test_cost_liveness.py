"""Predicted temporaries against ``compiled.memory_analysis()``, before anything is compiled.

Each function is one task. The totals are compared (arguments, results that take no argument's
buffer, temporaries), since that is what a device must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from baechi_jax.ir.core import Module
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import trace
from baechi_jax.passes.annotate_costs import AnnotateCosts
from baechi_jax.passes.cost.liveness import temporary_bytes
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls

Case = tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]

_NHWC = ("NHWC", "HWIO", "NHWC")


def _f(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _adam(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(state: Any, batch: Any) -> Any:
        params, m, v = state
        value, grads = jax.value_and_grad(loss)(params, batch)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
        params = jax.tree.map(lambda p, a, b: p - 1e-3 * a / (jnp.sqrt(b) + 1e-8), params, m, v)
        return (params, m, v), value

    return step


def _mlp_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for w, b in params:
        x = jax.nn.relu(x @ w + b)
    return jnp.mean((x - y) ** 2)


_MLP = [(_f(512, 512), _f(512))] * 4
_MLP_BATCH = (_f(256, 512), _f(256, 512))


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale


def _block(p: Any, x: jax.Array) -> jax.Array:
    b, t, d = x.shape
    q, k, v = jnp.moveaxis((_norm(x, p["s"]) @ p["qkv"]).reshape(b, t, 3, 4, d // 4), 2, 0)
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8.0
    mask = jnp.tril(jnp.ones((t, t), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    x = x + jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, d) @ p["o"]
    return x + jax.nn.gelu(_norm(x, p["s"]) @ p["up"]) @ p["down"]


_BLOCK = {
    "s": _f(256),
    "qkv": _f(256, 768),
    "o": _f(256, 256),
    "up": _f(256, 1024),
    "down": _f(1024, 256),
}


def _split_heads(p: Any, x: jax.Array) -> jax.Array:
    """Attention whose heads are cut apart by ``jnp.split``: their gradients are concatenated."""
    b, t, d = x.shape
    q, k, v = jnp.split((x @ p["qkv"] + p["bias"]).reshape(b, t, 12, d // 4), 3, axis=2)
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 8.0, axis=-1)
    return x + jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, d) @ p["o"]


_HEADS = {"qkv": _f(256, 768), "bias": _f(768), "o": _f(256, 256)}


def _reshaped_twice(x: jax.Array, y: jax.Array, w: jax.Array, z: jax.Array) -> Any:
    joined = jnp.concatenate([x * 2, y], 1)
    return joined.reshape(-1, 64) @ w, z @ joined.reshape(64, -1)


def _block_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for p in params:
        x = _block(p, x)
    return jnp.mean((x - y) ** 2)


def _backward(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(p: Any, x: jax.Array, cotangent: jax.Array) -> Any:
        return jax.vjp(fn, p, x)[1](cotangent)

    return run


def _conv(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=_NHWC)


def _conv_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    x = _conv(x, params["stem"])
    for w in params["blocks"]:
        h = _conv(x, w)
        mean, var = jnp.mean(h, (1, 2), keepdims=True), jnp.var(h, (1, 2), keepdims=True)
        x = jax.nn.relu(x + (h - mean) * lax.rsqrt(var + 1e-5))
    logits = jnp.mean(x, (1, 2)) @ params["head"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], -1))


def _nchw_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for w in params:
        x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jnp.mean((x - y) ** 2)


def _rnn_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch

    def cell(h: jax.Array, xt: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(xt @ params["w"] + h @ params["u"])
        return h, h

    _, hs = lax.scan(cell, jnp.zeros((64, 256)), x)
    return jnp.mean((hs - y) ** 2)


def _bf16_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for w in params:
        x = jax.nn.gelu(x @ w)
    return jnp.mean((x - y).astype(jnp.float32) ** 2)


def _dropout_loss(params: Any, batch: Any) -> jax.Array:
    x, y, key = batch
    h = jax.nn.relu(x @ params[0])
    h = jnp.where(jax.random.bernoulli(key, 0.9, h.shape), h / 0.9, 0.0)
    return jnp.mean((h @ params[1] - y) ** 2)


def _remat_loss(params: Any, batch: Any) -> jax.Array:
    x, y = batch
    for w1, w2 in params:
        x = jax.checkpoint(lambda a, b, x: x + jax.nn.gelu(x @ a) @ b)(w1, w2, x)
    return jnp.mean((x - y) ** 2)


def _lstm(params: Any, x: jax.Array) -> jax.Array:
    def cell(state: Any, xt: jax.Array) -> Any:
        h, c = state
        i, f, o, z = jnp.split(xt @ params["w"] + h @ params["u"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(cell, (jnp.zeros((64, 256)),) * 2, x)[1]


def _attend_in_blocks(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    def add(total: jax.Array, block: Any) -> Any:
        return total + jax.nn.softmax(q @ block[0].T) @ block[1], None

    return lax.scan(add, jnp.zeros_like(q), (k, v))[0]


def _fill(x: jax.Array, w: jax.Array) -> jax.Array:
    rows = jnp.zeros((16, 128, 256))
    return lax.fori_loop(0, 16, lambda i, rows: rows.at[i].set(jnp.tanh(x[i] @ w)), rows)


def _clip_transposed(g: jax.Array, h: jax.Array) -> Any:
    """The global norm of gradients that a layer has transposed."""
    g, h = g.T, h.T
    return g, h, jnp.sqrt(jnp.sum(g**2) + jnp.sum(h**2))


def _masked_scores(x: jax.Array, y: jax.Array) -> Any:
    """Divided by the root of a constant, for which nothing runs."""
    y = y / jnp.sqrt(32.0)
    return y, jnp.einsum("bthd,bshd->bhts", y, x)


def _depthwise_step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A channel at a time; XLA makes the gradient of the kernel for all pairs of channels."""

    def loss(w: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=_NHWC, feature_group_count=x.shape[-1]
        )
        return jnp.mean(jnp.tanh(y) ** 2)

    value, grad = jax.value_and_grad(loss)(w)
    return w - 0.1 * grad, value


def _small_conv(x: jax.Array, w: jax.Array) -> jax.Array:
    """The kernel is larger than the image: XLA lets them change places."""
    return _conv(jnp.tanh(x), w, 2)


def _same_pad_update(state: Any, g: jax.Array) -> Any:
    """Every parameter is read by what need not come before its update."""
    params, moments = state
    sums = [m + g.T for m in moments]
    return [p - jnp.sign(p + m) for p, m in zip(params, moments)], sums


def _skipped_update(state: Any, g: jax.Array, finite: jax.Array) -> Any:
    """As of ``optax.apply_if_finite``: the moments are written over in both branches."""
    (m, v, p), unused = state

    def apply(m: jax.Array, v: jax.Array) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return m / (jnp.sqrt(v) + 1e-8), m, v

    update, m, v = lax.cond(finite, apply, lambda m, v: (jnp.zeros_like(m), m, v), m, v)
    return ([m, v, p - update], unused)


def _segment_softmax(x: jax.Array, segments: jax.Array) -> jax.Array:
    e = jnp.exp(x - jax.ops.segment_max(x, segments, 64)[segments])
    return e / jax.ops.segment_sum(e, segments, 64)[segments]


def _split_and_scatter(x: jax.Array, w: jax.Array, to: jax.Array, of: jax.Array) -> Any:
    a, b, c, d = jnp.split(x @ w, 4, 1)
    return x + a, b, jax.ops.segment_sum(d, to, 8), c[of]


def _returned_activations(
    x: jax.Array, b: jax.Array, w: jax.Array, c: jax.Array, v: jax.Array
) -> Any:
    """What a backward pass wants, beside what comes next: both are made of the same."""
    first = x + b
    second = jax.nn.relu(first) @ w + c
    return first, second, jax.nn.relu(second) @ v


def _state(params: Any) -> Any:
    return (params, params, params)


_HALF = "bfloat16"
_CONV = {"stem": _f(3, 3, 3, 64), "blocks": [_f(3, 3, 64, 64)] * 2, "head": _f(64, 10)}
_X = _f(8, 128, 256)
_CASES: dict[str, Case] = {
    "mlp step": (_adam(_mlp_loss), (_state(_MLP), _MLP_BATCH), (0,)),
    "mlp step, nothing donated": (_adam(_mlp_loss), (_state(_MLP), _MLP_BATCH), ()),
    "mlp gradients": (jax.grad(_mlp_loss), (_MLP, _MLP_BATCH), ()),
    "mlp forward": (_mlp_loss, (_MLP, _MLP_BATCH), ()),
    "transformer step": (_adam(_block_loss), (_state([_BLOCK] * 2), (_X, _X)), (0,)),
    "transformer layer forward": (_block, (_BLOCK, _X), ()),
    "transformer layer backward": (_backward(_block), (_BLOCK, _X, _X), ()),
    "split heads backward": (_backward(_split_heads), (_HEADS, _X, _X), ()),
    "concatenation under two shapes": (
        _reshaped_twice,
        (_f(64, 96, 64), _f(64, 96, 64), _f(64, 256), _f(32, 64)),
        (),
    ),
    "conv step": (
        _adam(_conv_loss),
        (_state(_CONV), (_f(16, 32, 32, 3), _f(16, dtype="int32"))),
        (0,),
    ),
    "conv nchw gradients": (
        jax.grad(_nchw_loss),
        ([_f(32, 16, 3, 3), _f(64, 32, 3, 3)], (_f(16, 16, 32, 32), _f(16, 64, 16, 16))),
        (),
    ),
    "strided conv": (lambda x, w: _conv(x, w, 2), (_f(16, 32, 32, 64), _f(3, 3, 64, 128)), ()),
    "scan step": (
        _adam(_rnn_loss),
        (_state({"w": _f(128, 256), "u": _f(256, 256)}), (_f(32, 64, 128), _f(32, 64, 256))),
        (0,),
    ),
    "bf16 gradients": (
        jax.grad(_bf16_loss),
        ([_f(512, 512, dtype=_HALF)] * 3, (_f(256, 512, dtype=_HALF),) * 2),
        (),
    ),
    "dropout step": (
        _adam(_dropout_loss),
        (
            _state([_f(256, 1024), _f(1024, 256)]),
            (_f(256, 256), _f(256, 256), jax.ShapeDtypeStruct((2,), "uint32")),
        ),
        (0,),
    ),
    "remat step": (
        _adam(_remat_loss),
        (_state([(_f(256, 1024), _f(1024, 256))] * 2), (_f(512, 256), _f(512, 256))),
        (0,),
    ),
    "update": (
        lambda p, m, g: (p - 0.1 * (0.9 * m + g), 0.9 * m + g),
        (_f(1024, 1024),) * 3,
        (0, 1),
    ),
    "softmax": (lambda x: jax.nn.softmax(x, -1), (_f(8, 4, 256, 256),), ()),
    "cumsum": (lambda x: jnp.cumsum(jnp.sin(x), 0) * 2, (_f(1024, 512),), ()),
    "while": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 9, lambda c: (c[0] + 1, jnp.sin(c[1] @ x)), (0, x)
        ),
        (_f(512, 512),),
        (),
    ),
    "cond": (
        lambda p, x: lax.cond(p, lambda x: jnp.sin(x @ x) @ x, lambda x: x + 1, x),
        (_f(dtype="bool"), _f(512, 512)),
        (),
    ),
    "lstm": (_lstm, ({"w": _f(128, 1024), "u": _f(256, 1024)}, _f(32, 64, 128)), ()),
    "lstm gradients": (
        jax.grad(lambda p, x: jnp.sum(_lstm(p, x) ** 2)),
        ({"w": _f(128, 1024), "u": _f(256, 1024)}, _f(32, 64, 128)),
        (),
    ),
    "rnn gradients": (
        jax.grad(_rnn_loss),
        ({"w": _f(128, 256), "u": _f(256, 256)}, (_f(32, 64, 128), _f(32, 64, 256))),
        (),
    ),
    "loop, elementwise": (
        lambda x: lax.fori_loop(0, 5, lambda _, x: jnp.sin(x) * 2, x),
        (_f(512, 512),),
        (),
    ),
    "loop, two products": (
        lambda x, w: lax.fori_loop(0, 5, lambda _, c: x + jax.nn.gelu(c @ w) @ w, x),
        (_f(512, 512), _f(512, 512)),
        (),
    ),
    "loop, values that change places": (
        lambda x, y: lax.fori_loop(0, 5, lambda _, c: (c[1], c[0]), (x, y)),
        (_f(512, 512), _f(512, 512)),
        (),
    ),
    "loop that fills rows": (_fill, (_f(16, 128, 256), _f(256, 256)), ()),
    "scan over blocks": (
        _attend_in_blocks,
        (_f(512, 64), _f(8, 128, 64), _f(8, 128, 64)),
        (),
    ),
    "map": (
        lambda x, w: lax.map(lambda a: jnp.tanh(a @ w), x),
        (_f(16, 128, 256), _f(256, 256)),
        (),
    ),
    "softmax of a product, times a matrix": (
        lambda c, q, k, v: c + jax.nn.softmax(q @ k.T) @ v,
        (_f(512, 64), _f(512, 64), _f(128, 64), _f(128, 64)),
        (0,),
    ),
    "tied embedding": (lambda x, e: jnp.tanh(x) @ e.T, (_f(128, 256), _f(4096, 256)), ()),
    "transposed in batches": (
        lambda x, y: jnp.swapaxes(x, 1, 2) @ y,
        (_f(8, 256, 64), _f(8, 256, 32)),
        (),
    ),
    "transposed row": (lambda x, y: x.T @ y, (_f(1, 256), _f(1, 128)), ()),
    "norm of transposed gradients": (_clip_transposed, (_f(1024, 256), _f(512, 256)), ()),
    "transposed twice returned": (
        lambda w, y: (w.T * 2, w.T + y),
        (_f(1024, 256), _f(256, 1024)),
        (),
    ),
    "scores": (_masked_scores, (_f(8, 64, 4, 32), _f(8, 64, 4, 32)), (1,)),
    "depthwise step": (_depthwise_step, (_f(3, 3, 1, 256), _f(4, 8, 8, 256)), (0,)),
    "depthwise step, large images": (_depthwise_step, (_f(3, 3, 1, 64), _f(8, 28, 28, 64)), (0,)),
    "kernel larger than the image": (_small_conv, (_f(4, 2, 2, 256), _f(3, 3, 256, 256)), ()),
    "donated and read elsewhere": (
        _same_pad_update,
        (([_f(256, 512)] * 4, [_f(256, 512)] * 4), _f(512, 256)),
        (0,),
    ),
    "update that may be skipped": (
        _skipped_update,
        (([_f(512, 512)] * 3, _f(512, 512)), _f(512, 512), _f(dtype="bool")),
        (0,),
    ),
    "segment sums": (
        lambda x, y, s: jax.ops.segment_sum(x, s, 64) + jax.ops.segment_sum(y, s, 64),
        (_f(2048, 96), _f(2048, 96), _f(2048, dtype="int32")),
        (),
    ),
    "segment sum of transposed rows": (
        lambda x, s: jax.ops.segment_sum(x.T, s, 64),
        (_f(96, 2048), _f(2048, dtype="int32")),
        (),
    ),
    "softmax over segments": (_segment_softmax, (_f(4096, 8), _f(4096, dtype="int32")), ()),
    "rows that are set": (
        lambda w, t, g: w.at[t].set(g),
        (_f(512, 256), _f(128, dtype="int32"), _f(128, 256)),
        (0,),
    ),
    "split, one piece scattered": (
        _split_and_scatter,
        (_f(512, 96), _f(96, 384), _f(512, dtype="int32"), _f(2048, dtype="int32")),
        (),
    ),
    "activations that are returned": (
        _returned_activations,
        (_f(512, 256), _f(256), _f(256, 256), _f(256), _f(256, 8)),
        (),
    ),
    "distances": (lambda x: jnp.sum((x[:, None] - x[None]) ** 2), (_f(1024, 8),), ()),
    "embedding gradient": (
        jax.grad(lambda w, t: jnp.sum(jnp.sin(w[t]))),
        (_f(4096, 256), _f(8, 128, dtype="int32")),
        (),
    ),
}

#: Where more than a third is added: small tasks in which one buffer is much.
_LOOSE = {"while": 1.5, "cumsum": 1.5}
#: Where less than the truth is predicted.
_LOW: dict[str, float] = {}
if jax.__version_info__ >= (0, 11):
    # It makes transposed values that are returned once more.
    _LOW = {"norm of transposed gradients": 0.76}
    # A newer XLA than the rules were found in: it saves buffers that they count.
    _LOOSE |= {"remat step": 1.6, "bf16 gradients": 1.5, "softmax over segments": 1.5}


def _prepared(fn: Callable[..., Any], args: tuple[Any, ...], donate: tuple[int, ...]) -> Module:
    module = trace(fn, args, donate_argnums=donate).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    InlineCalls().run(module)
    EliminateDeadCode().run(module)
    AnnotateCosts().run(module)
    return module


@pytest.mark.parametrize("name", _CASES)
def test_total_is_never_below_and_seldom_much_above(name: str) -> None:
    fn, args, donate = _CASES[name]
    module = _prepared(fn, args, donate)
    body = module.main.body
    donated = {
        index
        for index, entry in enumerate(module.main.attributes["arg_attrs"])  # type: ignore[arg-type]
        if "baechi.donated" in entry  # type: ignore[operator]
    }
    results = body.terminator.operands
    predicted = temporary_bytes(body.ops[:-1], body.arguments, results, donated)
    stats = jax.jit(fn, donate_argnums=donate, keep_unused=True).lower(*args).compile()
    memory = stats.memory_analysis()
    base = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    actual = base + memory.temp_size_in_bytes
    ratio = (base + predicted) / actual
    assert _LOW.get(name, 0.995) <= ratio <= _LOOSE.get(name, 1.34), f"{actual / 1e6:.2f} MB really"


def test_an_operation_costs_no_temporaries_of_its_own_unless_it_loops() -> None:
    module = _prepared(_mlp_loss, (_MLP, _MLP_BATCH), ())
    for op in module.main.body.ops[:-1]:
        cost: Any = op.attributes["baechi.cost"]
        assert cost.temporary_bytes == 0


@pytest.mark.parametrize("loop", ["while", "scan"])
def test_a_loop_takes_over_what_it_carries(loop: str) -> None:
    """As XLA does: a donated carry needs no copy."""

    def step(state: Any, x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            w, m, count = carry
            m = 0.9 * m + x.T @ jnp.tanh(x @ w)
            return (w - 0.1 * m, m, count + 1), None

        carry = (*state, 0)
        if loop == "scan":
            carry = lax.scan(body, carry, length=5)[0]
        else:
            carry = lax.while_loop(lambda c: c[2] < 5, lambda c: body(c, None)[0], carry)
        return carry[:2], carry[0].sum()

    args = ((_f(256, 256), _f(256, 256)), _f(64, 256))
    body = _prepared(step, args, (0,)).main.body
    inputs, results = body.arguments, body.terminator.operands
    kept, taken = (temporary_bytes(body.ops[:-1], inputs, results, given) for given in ((), {0, 1}))
    assert taken <= kept
    temporary = [
        jax.jit(step, donate_argnums=donate).lower(*args).compile().memory_analysis()
        for donate in ((), (0,))
    ]
    assert temporary[1].alias_size_in_bytes == 2 * 256 * 256 * 4
    assert temporary[1].temp_size_in_bytes <= temporary[0].temp_size_in_bytes <= kept
