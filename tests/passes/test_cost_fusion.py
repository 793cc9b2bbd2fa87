"""Which values a task writes out: the rules of fusion, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from baechi_jax.ir.trace import trace
from baechi_jax.passes.cost.fusion import find_kernels
from baechi_jax.passes.cost.liveness import temporary_bytes
from baechi_jax.passes.cost.lowering import lower
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.inline_calls import InlineCalls

_X = jax.ShapeDtypeStruct((128, 256), "float32")
_W = jax.ShapeDtypeStruct((256, 256), "float32")


def _kernels(fn: Callable[..., Any], *args: Any) -> list[list[str]]:
    """The names of the operations in each kernel, in order."""
    module = trace(fn, args).module
    InlineCalls().run(module)
    EliminateDeadCode().run(module)
    body = module.main.body
    lowered = lower(body.ops[:-1], body.arguments, body.terminator.operands)
    return [
        [op.name[4:] for node in nodes if (op := lowered.ops[node]) is not None]
        for nodes in find_kernels(lowered).nodes
    ]


def _temporaries(fn: Callable[..., Any], *args: Any, donated: tuple[int, ...] = ()) -> int:
    module = trace(fn, args).module
    InlineCalls().run(module)
    body = module.main.body
    return temporary_bytes(body.ops[:-1], body.arguments, body.terminator.operands, donated)


def test_a_chain_of_elementwise_work_is_one_kernel() -> None:
    assert _kernels(lambda x: jnp.exp(x * 2) + 1, _X) == [["mul", "exp", "add"]]


def test_a_cheap_value_is_computed_in_each_reader() -> None:
    kernels = _kernels(lambda x: (jnp.exp(x + 1), jnp.tanh(x + 1)), _X)
    assert kernels == [["add", "exp"], ["add", "tanh"]]


def test_an_expensive_value_is_computed_once() -> None:
    kernels = _kernels(lambda x: (jnp.exp(x) + 1, jnp.exp(x) * x), _X)
    assert sorted(kernels) == [["add"], ["exp"], ["mul"]]


def test_equal_operations_are_one() -> None:
    kernels = _kernels(lambda x, w: (x @ w) + (x @ w), _X, _W)
    assert kernels == [["dot_general"], ["add"]]


def test_a_product_is_a_kernel_of_its_own() -> None:
    assert _kernels(lambda x, w: jnp.sin(x + 1) @ w * 2, _X, _W) == [
        ["add", "sin"],
        ["dot_general"],
        ["mul"],
    ]


def test_a_large_sum_takes_in_what_only_it_reads() -> None:
    assert _kernels(lambda x: jnp.sum(jnp.exp(x) * x, axis=1), _X) == [["exp", "mul", "reduce_sum"]]
    # Read twice: it must lie in memory.
    assert _kernels(lambda x: (jnp.sum(y := x * x, axis=1), y), _X) == [["mul"], ["reduce_sum"]]


def test_a_reshape_is_no_kernel() -> None:
    assert _kernels(lambda x, w: (x @ w).reshape(-1, 64) * 2, _X, _W) == [
        ["dot_general"],
        ["mul"],
    ]
    assert _kernels(lambda x: x.reshape(-1), _X) == []


def test_the_transpose_of_a_product_is_a_product() -> None:
    assert _kernels(lambda x, w: (x @ w).T, _X, _W) == [["dot_general"]]


def test_a_product_over_two_axes_copies_its_left_side() -> None:
    x = jax.ShapeDtypeStruct((8, 16, 256), "float32")
    kernels = _kernels(lambda a, b: lax.dot_general(a, b, (((0, 1), (0, 1)), ((), ()))), x, x)
    assert kernels == [[], ["dot_general"]]


def test_channels_first_is_copied_there_and_back() -> None:
    x = jax.ShapeDtypeStruct((2, 32, 16, 16), "float32")
    w = jax.ShapeDtypeStruct((64, 32, 3, 3), "float32")
    kernels = _kernels(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), x, w)
    assert kernels == [[], [], ["conv_general_dilated"], []]


def test_a_result_is_written_in_place_of_what_dies() -> None:
    size = 4 * 128 * 256
    # x @ w lies where its tanh will; the next product needs both.
    slack = 1.0 + 0.06
    found = _temporaries(lambda x, w: jnp.tanh(x @ w) @ w @ w, _X, _W)
    assert size <= found <= 2 * size * slack


def test_a_donated_input_read_late_is_copied() -> None:
    def fn(w: jax.Array, x: jax.Array) -> Any:
        g = x.T @ x
        # The last product needs the old w, and nothing orders it before the new one.
        return w - g, x @ w

    size = 4 * 256 * 256
    kept = _temporaries(fn, _W, _X)
    donated = _temporaries(fn, _W, _X, donated=(0,))
    assert donated >= kept + size // 2


def test_an_update_in_place_takes_nothing() -> None:
    def fn(p: jax.Array, m: jax.Array, g: jax.Array) -> Any:
        m = 0.9 * m + g
        return p - 0.1 * m, m

    assert _temporaries(fn, _W, _W, _W, donated=(0, 1)) == 0
