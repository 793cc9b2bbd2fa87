"""Every primitive that has a rule runs on the whole and on pieces, and the values are compared.

One small case each, the axis where the rule keeps it: no rule is without a run. What else a rule
says is tested by family, in the other files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding, reshard

import baechi_jax.passes.axis.analysis  # noqa: F401 - fills RULES
from baechi_jax.passes.axis.rule import RULES
from baechi_jax.passes.axis.states import Partial, Split
from tests.passes.axis.arrays import array, integers
from tests.passes.axis.execution import compare, follow


@dataclass(frozen=True, eq=False)
class Case:
    """A function that has the primitive, its arguments, and where the axis is in them."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    axes: Mapping[int, int]
    #: It cannot run alone, but in a compiled program.
    jit: bool


CASES: dict[str, Case] = {}


def case(
    name: str,
    fn: Callable[..., Any],
    *args: Any,
    axes: Mapping[int, int] | None = None,
    jit: bool = False,
) -> None:
    """Enter a case; without ``axes`` all arguments are split along dimension 0."""
    assert name not in CASES, name
    CASES[name] = Case(fn, args, axes or dict.fromkeys(range(len(args)), 0), jit)


def named(name: str) -> Callable[..., Any]:
    """The function of ``jax.lax`` of that name, looked up when called: some versions lack it."""

    def call(*args: Any) -> Any:
        if not hasattr(lax, name):
            pytest.skip(f"jax {jax.__version__} has no lax.{name}")
        return getattr(lax, name)(*args)

    return call


def private(name: str, *modules: str) -> Any:
    """What JAX keeps to itself, from the first of its modules that has it."""
    for module in modules:
        found = getattr(importlib.import_module(f"jax._src.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(f"jax {jax.__version__} has no {name} in {modules}")


def bound(primitive: Any, **parameters: Any) -> Callable[..., Any]:
    """The primitive itself, for those that no public function binds alone."""
    return lambda *args: primitive.bind(*args, **parameters)


X, Y, Z = (array(4, 3, seed=seed) for seed in range(3))
NUMBERS, MORE = integers(4, 3, high=99), integers(4, 3, high=9, seed=1)
INSIDE = np.tanh(X)
CUBE = array(4, 3, 2)
SQUARES = array(4, 3, 3)
POSITIVE = SQUARES @ SQUARES.swapaxes(1, 2) + 3 * np.eye(3, dtype=np.float32)
WORDS = integers(4, 2, high=99).astype(np.uint32)


def keys() -> Any:
    """A key for each position of the axis."""
    return jax.random.wrap_key_data(jnp.asarray(WORDS))


# Element by element -------------------------------------------------------------------------------

for each in (
    "abs asinh atan bessel_i0e bessel_i1e cbrt ceil cos cosh erf erfc exp exp2 expm1 floor "
    "is_finite logistic neg one_minus_square round sign sin sinh square stop_gradient tan tanh"
).split():
    case(each, named(each), 2 * X)
for each in "acos asin atanh erf_inv".split():
    case(each, named(each), INSIDE)
for each in "digamma lgamma log log1p log2 rsqrt sqrt".split():
    case(each, named(each), np.abs(X))
case("acosh", lax.acosh, 1 + np.abs(X))
for each in "clz population_count".split():
    case(each, named(each), NUMBERS)
case("not", lax.bitwise_not, NUMBERS)

for each in "add sub mul div max min rem atan2 nextafter eq ne lt le gt ge".split():
    case(each, named(each), X, Y)
for each in "eq_to lt_to le_to".split():
    case(each, bound(getattr(lax, f"{each}_p")), X, np.where(Y > 0, X, Y))
for each in "igamma igammac igamma_grad_a pow".split():
    case(each, named(each), np.abs(X), np.abs(Y))
case("zeta", lax.zeta, 1 + np.abs(X), np.abs(Y))
case("polygamma", lax.polygamma, MORE.astype(np.float32), np.abs(Y))
for each in "mulhi shift_left shift_right_arithmetic shift_right_logical".split():
    case(each, named(each), NUMBERS << 20, MORE)
for each in "and or xor".split():
    case(each, named(f"bitwise_{each}"), NUMBERS, MORE)
case("regularized_incomplete_beta", lax.betainc, np.abs(X), np.abs(Y), np.abs(np.tanh(Z)))
case("clamp", lax.clamp, X, Y, Z)
case("select_n", lax.select_n, X > 0, Y, Z)
case("polynomial", lambda *args: named("polynomial")(args[0], args[1:]), X, Y, Z)
case("integer_pow", lambda x: lax.integer_pow(x, 3), X)
case("convert_element_type", lambda x: x.astype(jnp.bfloat16), X)
case("reduce_precision", lambda x: lax.reduce_precision(x, 5, 4), X)
case("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.uint8), X)
case("complex", lax.complex, X, Y)
for each in "conj imag real".split():
    case(each, named(each), X + 1j * Y)
case("add_any", lambda x: jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x)))(x), X)

case("copy", jnp.copy, X)
case("name", lambda x: checkpoint_name(x, "x"), X)
case("layout_constraint", lambda x: with_layout_constraint(x, Layout((1, 0))), X, jit=True)
case("pvary", lambda x: private("pvary_p", "core").bind(x, axes=()), X, jit=True)
case(
    "sharding_constraint",
    lambda x: lax.with_sharding_constraint(x, SingleDeviceSharding(jax.devices()[0])),
    X,
)
case(
    "reshard",
    lambda x: reshard(x, NamedSharding(Mesh(np.array(jax.devices()[:1]), "a"), PartitionSpec())),
    X,
)
case(
    "with_memory_space_constraint",
    lambda x: private("with_memory_space_constraint_p", "pallas.core", "state.primitives").bind(
        x, memory_space=jax.memory.Space.Device
    ),
    X,
    jit=True,
)

# Random numbers -----------------------------------------------------------------------------------

case("random_bits", lambda words: jax.vmap(jax.random.bits)(jax.random.wrap_key_data(words)), WORDS)
case("random_clone", jax.random.clone, keys())
case("random_fold_in", jax.vmap(jax.random.fold_in), keys(), np.arange(4))
case("random_gamma", jax.vmap(jax.random.gamma), keys(), np.arange(1, 5, dtype=np.float32))
case("random_split", jax.vmap(jax.random.split), keys())
case("random_unwrap", jax.random.key_data, keys())
case("random_wrap", jax.random.wrap_key_data, WORDS)
case("threefry2x32", bound(jax.extend.random.threefry2x32_p), *WORDS.T, *WORDS.T[::-1])

# Shapes -------------------------------------------------------------------------------------------

case("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (1, 2)), X)
case("concatenate", lambda x, y: lax.concatenate([x, y], 1), X, Y)
case("dynamic_slice", lambda x: lax.dynamic_slice(x, (0, x.size % 5), (4, 2)), X)
case("dynamic_update_slice", lambda x, y: lax.dynamic_update_slice(x, y[:, :2], (0, 1)), X, Y)
case("pad", lambda x: lax.pad(x, 2.0, [(0, 0, 0), (1, -1, 1)]), X)
case("reshape", lambda x: lax.reshape(x, (12, 2)), CUBE)
case("rev", lambda x: lax.rev(x, (1,)), X)
case("slice", lambda x: lax.slice(x, (0, 1), (4, 3)), X)
case("split", lambda x: lax.split(x, (1, 2), 1), X)
case("squeeze", lambda x: lax.squeeze(x, (1,)), X[:, None])
case("stack", lambda x, y: jnp.stack([x, y]), X, Y)
case("tile", lambda x: jnp.tile(x, (1, 2)), X)
case("transpose", lambda x: lax.transpose(x, (2, 0, 1)), CUBE)
case("unstack", lambda x: jnp.unstack(x, axis=1), X)

# Products -----------------------------------------------------------------------------------------

case("dot_general", lambda x, w: x @ w, X, array(3, 2), axes={0: 0})
case(
    "conv_general_dilated",
    lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
    array(4, 3, 5),
    array(2, 3, 2),
    axes={0: 0},
)
case(
    "ragged_dot_general",
    lax.ragged_dot,
    *(array(5, 4), array(3, 4, 2), np.array([2, 0, 3], np.int32)),
    axes={0: 1, 1: 1},
)
case("scaled_dot", lax.scaled_dot, array(4, 3, 2), array(4, 2, 3))

# Reductions, windows, sorts -----------------------------------------------------------------------

for each in "sum prod max min".split():
    case(f"reduce_{each}", lambda x, each=each: getattr(jnp, each)(x, 0), X)
for each, fn in (("and", jnp.all), ("or", jnp.any)):
    case(f"reduce_{each}", lambda x, fn=fn: fn(x > 0, 0), X)
case("reduce_xor", lambda x: lax.reduce_xor(x, (1,)), NUMBERS)
for each in "argmax argmin".split():
    case(each, lambda x, each=each: getattr(lax, each)(x, 1, np.int32), X)
for each in "cumsum cumprod cummax cummin cumlogsumexp".split():
    case(each, lambda x, each=each: getattr(lax, each)(x, 1), X)
case("sort", lambda x, y: lax.sort([x, y], dimension=1), X, Y)
case("top_k", lambda x: lax.top_k(x, 2), X)
case("approx_top_k", lambda x: lax.approx_max_k(x, 2), X)


def product(a: Any, b: Any) -> Any:
    """Multiplies; to JAX no reduction it knows."""
    return a * b + 0.5 * b


case("reduce", lambda x: lax.reduce(x, np.float32(1), product, (1,)), X)


def window(x: Any, start: float, by: Callable[..., Any]) -> Any:
    """Windows of two along dimension 1."""
    return lax.reduce_window(x, np.float32(start), by, (1, 2), (1, 1), "SAME")


case("reduce_window", lambda x: window(x, 1, product), X)
case("reduce_window_sum", lambda x: window(x, 0, lax.add), X)
case("reduce_window_max", lambda x: window(x, -np.inf, lax.max), X)
case("reduce_window_min", lambda x: window(x, np.inf, lax.min), X)
case(
    "select_and_gather_add",
    lambda x, y: jax.jvp(lambda x: window(x, -np.inf, lax.max), (x,), (y,))[1],
    *(X, Y),
)
case(
    "select_and_scatter_add",
    lambda x, y: jax.vjp(lambda x: window(x, -np.inf, lax.max), x)[1](y)[0],
    *(X, Y),
)
case(
    "select_and_scatter",
    lambda x, y: private("_select_and_scatter", "lax.windowed_reductions")(
        x, lax.ge, (1, 2), (1, 1), ((0, 0), (0, 0)), y, np.float32(0), product
    ),
    *(X, Y[:, :2]),
)

# Gathers and scatters -----------------------------------------------------------------------------

case("gather", lambda x, at: x[:, at], X, np.array([2, 0]), axes={0: 0})
for each, method in (
    ("scatter", "set"),
    ("scatter-add", "add"),
    ("scatter-sub", "subtract"),
    ("scatter-mul", "multiply"),
    ("scatter-max", "max"),
    ("scatter-min", "min"),
):
    case(
        each,
        lambda x, y, at, method=method: getattr(x.at[:, at], method)(y[:, :2]),
        *(X, Y, np.array([2, 0])),
        axes={0: 0, 1: 0},
    )

# Linear algebra, transforms -----------------------------------------------------------------------

linalg = lax.linalg
case("cholesky", linalg.cholesky, POSITIVE)
case("eig", linalg.eig, SQUARES)
case("eigh", lambda x: jnp.abs(linalg.eigh(x)[0]), POSITIVE)
case(
    "geqp3",
    lambda x: private("geqp3", "lax.linalg")(x, jnp.zeros((len(x), 3), np.int32)),
    SQUARES,
)
case("geqrf", lambda x: private("geqrf", "lax.linalg")(x), SQUARES)
case("hessenberg", linalg.hessenberg, SQUARES)
case("householder_product", linalg.householder_product, SQUARES, X)
case("lu", linalg.lu, SQUARES)
case(
    "lu_pivots_to_permutation",
    lambda p: linalg.lu_pivots_to_permutation(p, 3),
    np.array([[0, 1, 2], [2, 1, 2], [1, 2, 2], [2, 2, 2]], np.int32),
)
case("ormqr", linalg.ormqr, SQUARES, X, CUBE)
case("qr", linalg.qr, SQUARES)
case("schur", linalg.schur, SQUARES)
case("svd", lambda x: linalg.svd(x), SQUARES)
case("symmetric_product", linalg.symmetric_product, CUBE, POSITIVE)
case("triangular_solve", linalg.triangular_solve, POSITIVE, SQUARES)
case("tridiagonal", linalg.tridiagonal, POSITIVE)
case("tridiagonal_solve", linalg.tridiagonal_solve, X, 9 + Y, Z, CUBE)
case("fft", lambda x: jnp.fft.fft(x), X)


#: Those that mix every axis that they can read, and how they say it.
MIXES: dict[str, tuple[Case, str]] = {
    "cholesky_update": (
        Case(linalg.cholesky_update, (np.triu(POSITIVE[0]), X[0]), {0: 0, 1: 0}, jit=False),
        "'jax.cholesky_update' works on the axis as a dimension of a matrix, dimension 0",
    ),
    "rng_bit_generator": (
        Case(lambda key: lax.rng_bit_generator(key, (4, 3)), (WORDS[:, 0],), {0: 0}, jit=False),
        "'jax.rng_bit_generator' draws all bits from one key",
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_whole_and_pieces_agree(name: str) -> None:
    each = CASES[name]
    followed = follow(each.fn, each.args, each.axes)
    states = [
        followed.report.state(result)
        for op in followed.report.function.body.ops
        if op.name == f"jax.{name}"
        for result in op.results
    ]
    assert states
    assert all(isinstance(state, Split | Partial) for state in states), states
    compare(followed, each.args, 2, rtol=1e-4, jit=each.jit)


@pytest.mark.parametrize("name", sorted(MIXES))
def test_what_always_mixes(name: str) -> None:
    each, reason = MIXES[name]
    followed = follow(each.fn, each.args, each.axes)
    assert set(followed.results) == {"neither"}
    assert reason in followed.reason()


def test_every_rule_has_a_case() -> None:
    assert sorted({*CASES, *MIXES}) == sorted(name.removeprefix("jax.") for name in RULES)
