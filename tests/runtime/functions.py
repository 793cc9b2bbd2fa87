"""Functions that JAX users write, small, with arguments: the table that value tests go through.

Each is run as ``jax.jit`` runs it and as we do, and the results compared: values, dtypes, weak
types. Add to it whatever once went wrong.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.interpreters import mlir


@dataclass(frozen=True)
class Case:
    """One function. ``arguments()`` makes its positional arguments; call both in ``context()``."""

    name: str
    fn: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    #: Needs 64-bit types.
    x64: bool = False
    #: Relative tolerance against ``jax.jit``, absolute too but at most 1e-6; 0 means bit for bit.
    rtol: float = 2e-5
    donate_argnums: tuple[int, ...] = ()
    #: Has effects (prints, callbacks).
    effects: bool = False

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """The configuration that the function is traced and run under."""
        return jax.enable_x64(True) if self.x64 else contextlib.nullcontext()

    def __repr__(self) -> str:
        return self.name


FUNCTIONS: list[Case] = []


def case(*arguments: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: enter a function into the table. An argument that is callable is called later."""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        def make() -> tuple[Any, ...]:
            return tuple(a() if callable(a) else a for a in arguments)

        FUNCTIONS.append(Case(fn.__name__, fn, make, **options))
        return fn

    return enter


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Callable[[], Any]:
    """Normally distributed numbers."""

    def make() -> Any:
        rng = np.random.default_rng(seed + 31 * sum(shape))
        values = rng.standard_normal(shape)
        if np.issubdtype(np.dtype(dtype), np.complexfloating):
            values = values + 1j * rng.standard_normal(shape)
        return jnp.asarray(values.astype(dtype))

    return make


def integers(*shape: int, low: int = 0, high: int = 8, dtype: Any = np.int32) -> Callable[[], Any]:
    """Uniform integers in ``[low, high)``."""
    return lambda: jnp.asarray(
        np.random.default_rng(7).integers(low, high, shape).astype(np.dtype(dtype))
    )


def positive_definite(size: int) -> Callable[[], Any]:
    """A symmetric positive definite matrix."""

    def make() -> Any:
        a = np.random.default_rng(3).standard_normal((size, size)).astype(np.float32)
        return jnp.asarray(a @ a.T + size * np.eye(size, dtype=np.float32))

    return make


# Training steps -----------------------------------------------------------------------------------


def mlp_params(*sizes: int) -> Callable[[], Any]:
    def make() -> Any:
        return [
            {"w": normal(m, n, seed=i)() * 0.3, "b": normal(n, seed=i)()}
            for i, (m, n) in enumerate(itertools.pairwise(sizes))
        ]

    return make


def _mlp_loss(params: Any, x: Any, y: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return jnp.mean((x @ params[-1]["w"] + params[-1]["b"] - y) ** 2)


@case(mlp_params(8, 16, 16, 4), normal(5, 8), normal(5, 4), donate_argnums=(0,))
def mlp_step(params: Any, x: Any, y: Any) -> Any:
    loss, grads = jax.value_and_grad(_mlp_loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def _transformer_params() -> Any:
    width = 16
    layer = {
        "qkv": normal(width, 3 * width)() * 0.2,
        "out": normal(width, width)() * 0.2,
        "up": normal(width, 4 * width)() * 0.2,
        "down": normal(4 * width, width)() * 0.2,
        "scale": jnp.ones(width),
    }
    return {"embed": normal(11, width)(), "layers": [layer, jax.tree.map(lambda a: a * 0.9, layer)]}


def _transformer_loss(params: Any, tokens: Any) -> Any:
    x = params["embed"][tokens]
    b, t, width = x.shape
    for i, p in enumerate(params["layers"]):
        with jax.named_scope(f"layer{i}"):
            h = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * p["scale"]
            q, k, v = jnp.moveaxis((h @ p["qkv"]).reshape(b, t, 3, 2, width // 2), 2, 0)
            scores = jnp.einsum("bthd,bshd->bhts", q, k)
            mask = jnp.tril(jnp.ones((t, t), bool))
            weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
            x = x + jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, width) @ p["out"]
            x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    logits = x @ params["embed"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits)[:, :-1], tokens[:, 1:, None], -1)
    return -jnp.mean(picked)


@case(_transformer_params, integers(2, 7, high=11), donate_argnums=(0,), rtol=1e-4)
def transformer_step(params: Any, tokens: Any) -> Any:
    loss, grads = jax.value_and_grad(_transformer_loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


@case(normal(2, 8, 8, 3), normal(3, 3, 3, 4, seed=1), rtol=1e-4)
def conv_forward_backward(x: Any, w: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jax.nn.relu(y)
        return jnp.sum(lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))

    return jax.value_and_grad(loss, argnums=(0, 1))(w, x)


@case(normal(2, 4, 9), normal(6, 2, 3, seed=1))
def grouped_dilated_conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1,), [(2, 1)], lhs_dilation=(2,), rhs_dilation=(2,), feature_group_count=2
    )


# Control flow -------------------------------------------------------------------------------------


@case(normal(4), normal(6, 4))
def scan_forward(carry: Any, xs: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        return jnp.tanh(c + x), c * 2

    return lax.scan(body, carry, xs, reverse=True, unroll=2)


@case(normal(4), normal(4, 4), normal(6, 4))
def scan_grad(carry: Any, w: Any, xs: Any) -> Any:
    def loss(w: Any, carry: Any) -> Any:
        c, ys = lax.scan(lambda c, x: (jnp.tanh(c @ w + x), jnp.sum(c)), carry, xs)
        return jnp.sum(c) + jnp.sum(ys)

    return jax.grad(loss, argnums=(0, 1))(w, carry)


@case(normal(5))
def while_loop(x: Any) -> Any:
    limit = jnp.sum(jnp.abs(x)) * 8

    def more(state: Any) -> Any:
        return jnp.sum(jnp.abs(state[1])) < limit

    return lax.while_loop(more, lambda s: (s[0] + 1, s[1] * 1.5 + x * 0.1), (0, x))


@case(normal(5), lambda: jnp.bool_(True))
def cond(x: Any, flag: Any) -> Any:
    return lax.cond(flag, lambda y: (y + 1, y.sum()), lambda y: (y * x, y.max()), x * 2)


@case(normal(5), lambda: jnp.int32(7))
def switch(x: Any, index: Any) -> Any:
    return lax.switch(index, [jnp.sin, jnp.cos, lambda y: y * 3, lambda y: -y], x)


@case(normal(5), normal(5, seed=1))
def cond_grad(x: Any, y: Any) -> Any:
    def loss(x: Any) -> Any:
        return lax.cond(x[0] > 0, lambda v: jnp.sum(v * y), lambda v: jnp.sum(jnp.sin(v) * y), x)

    return jax.value_and_grad(loss)(x)


@case(normal(3, 4))
def fori_and_map(x: Any) -> Any:
    total = lax.fori_loop(0, 5, lambda i, c: c + x * i, jnp.zeros_like(x))
    return total, lax.map(lambda row: jnp.cumsum(row), x)


@case(normal(8, 3))
def associative_scan(x: Any) -> Any:
    return lax.associative_scan(lambda a, b: a * b + 0.1, x)


# Indexing and sorting -----------------------------------------------------------------------------


@case(normal(4, 6), integers(4, 6, high=100), rtol=0)
def sort_and_argsort(x: Any, keys: Any) -> Any:
    return jnp.sort(x, axis=0), jnp.argsort(keys, descending=True), lax.sort((keys, x), num_keys=2)


@case(normal(4, 16), rtol=0)
def top_k(x: Any) -> Any:
    return lax.top_k(x, 3)


@case(normal(6, 5), integers(3, high=6), integers(4, 2, high=5), rtol=0)
def gathers(x: Any, rows: Any, pairs: Any) -> Any:
    return (
        x[rows],
        x[pairs[:, 0], pairs[:, 1]],
        x.at[rows].get(mode="fill", fill_value=-1.0),
        jnp.take(x, rows - 3, axis=0, mode="wrap"),
        jnp.take_along_axis(x[:4], pairs, axis=1),
    )


@case(normal(6, 5), integers(3, high=6), normal(3, 5, seed=1))
def scatters(x: Any, rows: Any, values: Any) -> Any:
    return (
        x.at[rows].set(values, unique_indices=False),
        x.at[rows].add(values),
        x.at[rows, 1].mul(values[:, 0]),
        x.at[rows].min(values, mode="drop"),
        x.at[rows].max(values),
        x.at[1:3].apply(jnp.sin),
    )


@case(normal(6, 5), integers(3, high=6))
def gather_grad(x: Any, rows: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(jnp.sin(x[rows])))(x)


@case(normal(4, 5), lambda: jnp.int32(2), rtol=0)
def dynamic_slices(x: Any, start: Any) -> Any:
    piece = lax.dynamic_slice(x, (start, 1), (2, 3))
    return piece, lax.dynamic_update_slice(x, piece * 2, (0, start)), x[::2, 1:4]


@case(integers(3, 4, high=6))
def one_hot_embedding(tokens: Any) -> Any:
    table = jnp.arange(12.0).reshape(6, 2)
    return jax.nn.one_hot(tokens, 6) @ table


@case(normal(4, 7))
def arg_reductions(x: Any) -> Any:
    return jnp.argmax(x, axis=1), jnp.argmin(x), jnp.any(x > 2), jnp.all(x > -9, axis=0), x.prod()


@case(normal(4, 7))
def cumulative(x: Any) -> Any:
    return (
        jnp.cumsum(x, axis=1),
        lax.cumprod(x, axis=0, reverse=True),
        lax.cummax(x),
        lax.cumlogsumexp(x, axis=1),
    )


@case(normal(1, 8, 8, 2))
def max_pool_grad(x: Any) -> Any:
    def pooled(x: Any) -> Any:
        y = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        mean = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.sum(y**2) + jnp.sum(mean**3)

    return jax.value_and_grad(pooled)(x)


@case(normal(3, 4), rtol=0)
def shapes(x: Any) -> Any:
    y = jnp.pad(x, ((1, 0), (2, 1)), constant_values=3.0)
    z = lax.pad(x, 0.0, ((0, 1, 1), (-1, 0, 0)))
    return (
        y,
        z,
        x[:, ::-1],
        jnp.concatenate([x, x * 2], axis=1),
        jnp.stack([x, -x]),
        x.T.reshape(2, 6),
        jnp.squeeze(x[None, :, None]),
        jnp.broadcast_to(x[0], (2, 3, 4)),
        jnp.split(x, 2, axis=1),
    )


@case(normal(3, 4))
def custom_reduce(x: Any) -> Any:
    return lax.reduce(x, jnp.float32(1), lambda a, b: a * b + 0.5 * b, (1,))


# Linear algebra and transforms --------------------------------------------------------------------


@case(normal(4, 8))
def fft(x: Any) -> Any:
    y = jnp.fft.fft(x)
    return y, jnp.fft.ifft(y).real, jnp.fft.rfft2(x), jnp.fft.irfft(jnp.fft.rfft(x), n=8)


@case(positive_definite(4), normal(4, 2), rtol=1e-4)
def cholesky_and_solve(a: Any, b: Any) -> Any:
    c = jnp.linalg.cholesky(a)
    return c, jax.scipy.linalg.solve_triangular(c, b, lower=True), jnp.linalg.solve(a, b)


@case(normal(5, 3), rtol=1e-3)
def decompositions(a: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return jnp.abs(q), jnp.abs(r), jnp.linalg.svd(a, compute_uv=False), jnp.linalg.slogdet(a[:3])


@case(positive_definite(4), rtol=1e-3)
def eigenvalues_grad(a: Any) -> Any:
    return jax.grad(lambda a: jnp.sum(jnp.linalg.eigvalsh(a) ** 2))(a)


@case(normal(2, 3, 4), normal(2, 4, 5, seed=1))
def batched_dot(a: Any, b: Any) -> Any:
    return lax.dot_general(
        a,
        b,
        (((2,), (1,)), ((0,), (0,))),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


# Random numbers -----------------------------------------------------------------------------------


@case(lambda: jax.random.key(3))
def random_typed(key: Any) -> Any:
    key, sub = jax.random.split(key)
    return (
        key,
        jax.random.normal(sub, (3,)),
        jax.random.randint(jax.random.fold_in(sub, 7), (4,), 0, 10),
        jax.random.split(sub, (2, 2)),
    )


@case(lambda: jax.random.PRNGKey(3), rtol=0)
def random_raw(key: Any) -> Any:
    keys = jax.random.split(key, 3)
    dropped = jax.random.bernoulli(keys[0], 0.3, (8,))
    return (
        keys,
        dropped,
        jax.random.permutation(keys[1], 6),
        jax.random.categorical(keys[2], jnp.zeros((2, 5))),
        jax.random.truncated_normal(keys[0], -1.0, 1.0, (3,)),
    )


@case(lambda: jax.random.key(3, impl="rbg"))
def random_rbg(key: Any) -> Any:
    return jax.random.uniform(key, (4,), minval=-1.0), jax.random.split(key, 2)


@case(lambda: jnp.arange(4, dtype=jnp.uint32), rtol=0)
def rng_bit_generator(key: Any) -> Any:
    return lax.rng_bit_generator(key, (3, 2), dtype=jnp.uint32)


@case(lambda: jax.random.split(jax.random.key(0), 4))
def keys_vmapped(keys: Any) -> Any:
    return jax.vmap(lambda k: jax.random.gamma(k, 2.0, (2,)))(keys), keys[1]


# Derivatives and calls ----------------------------------------------------------------------------


@jax.custom_jvp
def _softish(x: Any, y: Any) -> Any:
    return jnp.log1p(jnp.exp(x)) * y


@_softish.defjvp
def _softish_jvp(primals: Any, tangents: Any) -> Any:
    x, y = primals
    return _softish(x, y), jax.nn.sigmoid(x) * y * tangents[0] + tangents[1]


@case(normal(4), normal(4, seed=1))
def custom_jvp(x: Any, y: Any) -> Any:
    return _softish(x, y), jax.grad(lambda x: jnp.sum(_softish(x, y) ** 2))(x), jax.nn.relu(x)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _clipped(limit: float, x: Any) -> Any:
    return x * _SCALES


_clipped.defvjp(
    lambda limit, x: (_clipped(limit, x), x),
    lambda limit, x, g: (jnp.clip(g * _SCALES, -limit, limit),),
)

_SCALES = np.linspace(0.5, 2.0, 4, dtype=np.float32)


@case(normal(4))
def custom_vjp(x: Any) -> Any:
    return _clipped(0.7, x), jax.grad(lambda x: jnp.sum(_clipped(0.7, jnp.sin(x)) ** 2))(x)


@case(normal(4, 3))
def logsumexp_and_friends(x: Any) -> Any:
    return (
        jax.nn.logsumexp(x, axis=-1),
        jax.grad(lambda x: jnp.sum(jax.nn.log_softmax(x)[:, 0]))(x),
        jnp.linalg.norm(x),
        jax.jvp(jax.nn.silu, (x,), (x,)),
    )


@case(normal(4, 4), normal(4, 4, seed=1))
def remat(x: Any, w: Any) -> Any:
    @jax.checkpoint
    def block(x: Any) -> Any:
        return jnp.sin(jnp.tanh(x @ w) @ w)

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def other(x: Any) -> Any:
        return jnp.cos(x @ w)

    return jax.value_and_grad(lambda x: jnp.sum(other(block(block(x)))))(x)


@case(normal(4))
def named(x: Any) -> Any:
    with jax.named_scope("outer"):
        y = jax.named_call(lambda z: z * 2, name="inner")(x)
        return jax.jit(lambda z: jnp.sin(z) + _SCALES)(y)


@case(normal(3, 4), normal(3, 4, seed=1))
def vmapped(x: Any, y: Any) -> Any:
    inner = jax.vmap(lambda a, b: jnp.dot(a, b) + lax.cond(a[0] > 0, jnp.sum, jnp.max, b))
    return inner(x, y), jax.vmap(jnp.convolve)(x, y), jax.vmap(jax.grad(lambda a: jnp.sum(a**3)))(x)


@case(normal(3), normal(3, seed=1))
def hessian(x: Any, y: Any) -> Any:
    return jax.hessian(lambda x: jnp.sum(jnp.sin(x) * y * x**2))(x), jax.jacrev(jnp.outer)(x, y)


# Elementwise, dtypes ------------------------------------------------------------------------------


@case(normal(7))
def special_functions(x: Any) -> Any:
    return (
        lax.erf(x),
        lax.erf_inv(x / 9),
        lax.lgamma(jnp.abs(x) + 0.1),
        lax.digamma(jnp.abs(x) + 0.1),
        jax.scipy.special.i0(x),
        lax.integer_pow(x, 3),
        x**-2,
        lax.cbrt(x),
        jnp.exp2(x),
        jnp.log1p(x * x),
        lax.atan2(x, x + 1),
        lax.nextafter(x, x + 1),
        jax.scipy.special.betainc(2.0, 3.0, jnp.abs(x) % 1.0),
    )


@case(normal(6), rtol=0)
def clamps_and_rounds(x: Any) -> Any:
    return (
        lax.clamp(-0.5, x, 0.5),
        jnp.clip(x, 0),
        jnp.round(x),
        jnp.floor(x),
        jnp.sign(x),
        jnp.where(x > 0, x, jnp.nan),
        jnp.isfinite(x / 0.0),
        x % 1.0,
        jnp.nan_to_num(jnp.sqrt(x)),
    )


@case(normal(6), rtol=0)
def bitcasts(x: Any) -> Any:
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return (
        bits,
        lax.bitcast_convert_type(bits ^ np.uint32(0x80000000), jnp.float32),
        lax.bitcast_convert_type(x, jnp.uint8),
        lax.population_count(bits),
        lax.clz(bits),
        bits >> 3,
        bits << np.uint32(2),
    )


@case(normal(4, dtype=np.complex64), normal(4, dtype=np.complex64, seed=1))
def complex_numbers(x: Any, y: Any) -> Any:
    return (
        x * y + (2 - 1j),
        jnp.abs(x),
        jnp.angle(y),
        x.real,
        lax.conj(y),
        lax.complex(x.real, x.imag),
    )


@case(integers(6, high=50), integers(6, low=1, high=9), lambda: jnp.arange(6) % 2 == 0, rtol=0)
def bools_and_ints(a: Any, b: Any, flags: Any) -> Any:
    return (
        a // b,
        a % b,
        -a & b | 3,
        ~flags ^ (a > 7),
        jnp.where(flags, a, b),
        a.astype(jnp.int8),
        a.astype(jnp.uint16),
        jnp.abs(a - b),
        a.max(),
        jnp.sum(flags),
        a / b,
    )


@case(normal(4, 8, dtype=jnp.bfloat16), normal(8, 4, seed=1, dtype=jnp.bfloat16), rtol=1e-2)
def bfloat16_dot(a: Any, b: Any) -> Any:
    return a @ b, jnp.dot(a, b, preferred_element_type=jnp.float32), a * 0.3 + 1, jnp.sum(a)


@case(normal(4, 8), normal(8, 4, seed=1), rtol=1e-2)
def float8_dot(a: Any, b: Any) -> Any:
    x, y = a.astype(jnp.float8_e4m3fn), b.astype(jnp.float8_e5m2)
    return lax.dot(x, y, preferred_element_type=jnp.float32), x, y * jnp.float8_e5m2(2)


@case(normal(6), rtol=0)
def small_types(x: Any) -> Any:
    four = jnp.round(x * 3).astype(jnp.int4)
    return four, four + jnp.int4(1), x.astype(jnp.float16) * 2, (x > 0).astype(jnp.uint4)


@case(
    normal(4, dtype=np.float64),
    lambda: jnp.arange(4, dtype=jnp.int64),
    lambda: np.uint64(2**63 + 5),
    x64=True,
    rtol=1e-12,
)
def sixty_four_bits(x: Any, i: Any, u: Any) -> Any:
    return (
        jnp.sin(x) * 2,
        i * 2**40,
        x.astype(jnp.float32),
        u + np.uint64(2**63),
        jnp.linspace(0, 1, 3),
        i.sum(),
    )


@case(lambda: 3, lambda: 2.5, lambda: np.float32(4), normal(3), rtol=0)
def weak_types(i: Any, f: Any, s: Any, x: Any) -> Any:
    return i * 2, f + i, f * s, x * f, jnp.asarray(1.0), jax.lax.full_like(f, 3), 7, True, 1.5


@case(normal(3), rtol=0)
def infinities(x: Any) -> Any:
    return (
        x * np.float32(np.nan),
        x + np.inf,
        -jnp.inf,
        jnp.where(x > 0, -0.0, x),
        jnp.float32(1e-42),
    )


# Edges of the calling convention ------------------------------------------------------------------


@case(lambda: jnp.zeros((0, 3)), normal(3, 2), rtol=0)
def zero_size(x: Any, y: Any) -> Any:
    return x @ y, jnp.sum(x, axis=0), jnp.concatenate([x, y.T])


@case(normal(3), normal(2), rtol=0)
def returned_unchanged(x: Any, y: Any) -> Any:
    return y, x, y + 1


@case(normal(3), rtol=0)
def returned_twice(x: Any) -> Any:
    y = x * 2
    return {"a": y, "b": (y, x, y)}


@case(normal(3))
def no_outputs(x: Any) -> Any:
    return ()


@case(rtol=0)
def no_arguments() -> Any:
    return jnp.arange(3) * 2, jnp.eye(2)


@case(normal(3), normal(2), rtol=0)
def unused_argument(x: Any, y: Any) -> Any:
    return x + 1


_BIG = np.arange(12, dtype=np.float32).reshape(3, 4)


@case(normal(3))
def closed_over_constants(x: Any) -> Any:
    table = jnp.asarray(_BIG)

    def helper(y: Any) -> Any:
        return y @ _BIG + np.float32(2)

    def body(c: Any, _: Any) -> Any:
        return c + jax.jit(helper)(c).sum(), jax.jit(helper)(c)

    last, ys = lax.scan(body, x, None, length=2)
    looped = lax.while_loop(
        lambda c: jnp.sum(jax.jit(helper)(c)) < 50.0,
        lambda c: c + jax.jit(lambda d: jnp.abs(d) + _BIG[:, 0])(c),
        jnp.abs(x),
    )
    chosen = lax.cond(x[0] > 0, jax.jit(helper), lambda y: y[0] + jax.jit(lambda: table[1])(), x)
    return last, ys, looped, chosen, jax.jit(helper)(x), x @ _BIG


@case(normal(4))
def constants_in_odd_places(x: Any) -> Any:
    scaled = jax.jit(lambda v: v * _SCALES)
    return lax.custom_linear_solve(scaled, x, lambda _, b: jax.jit(lambda c: c / _SCALES)(b))


@dataclass
class Point:
    """A pytree of a user's own."""

    x: Any
    y: Any


jax.tree_util.register_dataclass(Point, data_fields=["x", "y"], meta_fields=[])


@case(lambda: Point(jnp.ones(2), {"k": (jnp.zeros(3), None)}), normal(2), rtol=0)
def pytrees(point: Any, z: Any) -> Any:
    return Point(point.y["k"][0] + 1, [point.x * z, None])


@case(normal(3), normal(3, seed=1), lambda: jnp.float32(0.0))
def loss_first(params: Any, momentum: Any, count: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda p: jnp.sum(p**2))(params)
    momentum = 0.9 * momentum + grads
    return loss, params - 0.1 * momentum, momentum, count + 1


# Effects, references, unknown primitives ----------------------------------------------------------


@case(normal(3), rtol=0)
def pure_callback(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda a: np.sort(np.asarray(a)), shape, x) * 2


@case(normal(3), effects=True)
def debug_prints(x: Any) -> Any:
    jax.debug.print("first {}", x.sum(), ordered=True)
    y = x * 2
    jax.debug.print("unordered {y}", y=y.shape[0])

    def body(c: Any, v: Any) -> Any:
        jax.debug.print("inside {}", v, ordered=True)
        return c + v, None

    total, _ = lax.scan(body, 0.0, y)
    jax.debug.print("last {}", total, ordered=True)
    return total


@case(normal(3), effects=True)
def ordered_io_callback(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), np.float32)
    first = io_callback(lambda a: np.float32(a * 2), shape, x[0], ordered=True)
    second = io_callback(lambda a: np.float32(a + 1), shape, x[1], ordered=True)

    def noted(v: Any) -> Any:
        return io_callback(lambda a: np.float32(a - 1), shape, v, ordered=True)

    third = lax.cond(x[0] > 100.0, lambda v: v, noted, x[2])
    return first, second, third


@case(normal(4, 3))
def references(x: Any) -> Any:
    ref = jax.new_ref(x)
    other = jax.new_ref(jnp.zeros(3))

    def body(i: Any, _: Any) -> None:
        ref[i] = ref[i] * 2 + other[...]
        other[...] += x[i]

    lax.fori_loop(0, 4, body, None)
    lax.cond(x[0, 0] > 0, lambda: other.__setitem__(0, 5.0), lambda: None)
    return ref[...], other[...]


#: A primitive that nobody has heard of.
unheard_p = jax.extend.core.Primitive("unheard")
unheard_p.def_impl(lambda x, *, factor, note: x * factor)
unheard_p.def_abstract_eval(lambda x, *, factor, note: x)
mlir.register_lowering(
    unheard_p,
    mlir.lower_fun(lambda x, *, factor, note: x * factor, multiple_results=False),
)


@case(normal(3))
def unknown_primitive(x: Any) -> Any:
    return unheard_p.bind(x, factor=3.0, note=object) + 1


@case(normal(4))
def sharding_constraint(x: Any) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    return lax.with_sharding_constraint(x * 2, spec) + 1


BY_NAME: dict[str, Case] = {entry.name: entry for entry in FUNCTIONS}
assert len(BY_NAME) == len(FUNCTIONS), "names in the table must differ"
