"""Inputs for a task that is run only to see how long it takes.

Assumptions. Time depends on shapes and dtypes, not on values, with two exceptions that are taken
care of: denormal and non-finite floats are slow, so floats are ordinary numbers of both signs and
of the size of activations; integers may be indices, so they are 0 and 1. Where the number of turns
of a loop depends on values, a task is not measured at all (``is_measurable``), nor where it calls
back into Python or has another effect, which would happen for real.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baechi_jax.ir.core import Operation
from baechi_jax.ir.jax_types import dtype_of
from baechi_jax.ir.types import TensorType, TokenType, Type, unplaced
from baechi_jax.runtime.compile import is_opaque

#: So many values are drawn; larger arrays repeat them.
_POOL = 1 << 16

_pools: dict[Any, np.ndarray[Any, Any]] = {}


def is_measurable(task: Operation) -> bool:
    """Whether ``task`` may be run on made-up values; see the module docstring."""
    types = [value.type for value in (*task.operands, *task.results)]
    if not all(_is_array(unplaced(type_)) for type_ in types):
        return False
    return all(op.name not in _NEVER and not _has_token(op) for op in task.walk())


_NEVER = frozenset(
    (
        "jax.while",
        *(
            f"jax.{name}"
            for name in (
                "debug_callback",
                "debug_print",
                "pure_callback",
                "io_callback",
                "python_callback",
                "ffi_call",
            )
        ),
    )
)


def is_told_by_fingerprint(task: Operation) -> bool:
    """Whether tasks with the fingerprint of ``task`` do the same work.

    Not where an operation has a parameter that no text can hold (a kernel's code).
    """
    return not any(
        is_opaque(value)
        for op in task.walk()
        if op.name not in _CALLS
        for name, value in op.attributes.items()
        if not name.startswith("baechi.")
    )


#: Their region says what they do; what else they hold is for JAX.
_CALLS = ("jax.jit", "jax.custom_jvp_call", "jax.custom_vjp_call", "jax.checkpoint")


def make_inputs(types: Sequence[Type], device: jax.Device) -> list[jax.Array]:
    """One array of each of ``types`` on ``device``, ready."""
    arrays = [_make(type_, device) for type_ in types]
    jax.block_until_ready(arrays)
    return arrays


def _make(type_: Type, device: jax.Device) -> jax.Array:
    assert isinstance(type_, TensorType)
    dtype = dtype_of(type_.element)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        size = max(int(np.prod(type_.shape)), 1)
        implementation: Any = str(dtype._impl.name)
        with jax.default_device(device):
            keys = jax.random.split(jax.random.key(0, impl=implementation), size)
            shaped = keys.reshape(type_.shape)
        moved: jax.Array = jax.device_put(shaped, device)
        return moved
    values = np.resize(_pool(dtype), type_.shape)
    array: jax.Array = jax.device_put(values, device, may_alias=False)
    return array


def _pool(dtype: Any) -> np.ndarray[Any, Any]:
    pool = _pools.get(dtype)
    if pool is None:
        generator = np.random.default_rng(0)
        if jnp.issubdtype(dtype, np.inexact):
            drawn = generator.normal(0.0, 0.1, _POOL)
            # Nothing near zero, whose square is denormal.
            pool = np.where(np.abs(drawn) < 1e-3, 1e-3, drawn).astype(dtype)
        else:
            pool = generator.integers(0, 2, _POOL).astype(dtype)
        _pools[dtype] = pool
    return pool


def _is_array(type_: Type) -> bool:
    if not isinstance(type_, TensorType):
        return False
    return not type_.element.startswith("!") or type_.element.startswith("!baechi.key<")


def _has_token(op: Operation) -> bool:
    return any(isinstance(unplaced(value.type), TokenType) for value in op.operands)
