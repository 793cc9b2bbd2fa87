"""JAX's dtypes and abstract values as IR types, and back.

Elements are spelled as JAX lowers them (``i32`` for int32, ``ui32`` for uint32, ``i1`` for bool).
What is no array (a reference, a token, an unknown abstract value) becomes an opaque type whose text
is the value's own; the way back from it goes through the traced equation.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.types import OpaqueType, ScalarType, TensorType, Type

_MLIR_FLOAT_NAMES = {
    "bfloat16": "bf16",
    "float4_e2m1fn": "f4E2M1FN",
    "float6_e2m3fn": "f6E2M3FN",
    "float6_e3m2fn": "f6E3M2FN",
    "float8_e3m4": "f8E3M4",
    "float8_e4m3": "f8E4M3",
    "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU",
}

_ELEMENT_OF_NAME: dict[str, str] = {
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    **_MLIR_FLOAT_NAMES,
}

_NAME_OF_ELEMENT = {element: name for name, element in _ELEMENT_OF_NAME.items()}

FLOAT0 = "!baechi.float0"


@functools.lru_cache(maxsize=1024)
def element_of(dtype: Any) -> str:
    """The element type of ``dtype``: ``f32``, ``!baechi.key<"fry">``, ...

    A dtype that JAX extended and we do not know becomes ``!jax.dtype<"its name">``.
    """
    tag = compat.key_tag(dtype)
    if tag is not None:
        return f'!baechi.key<"{tag}">'
    if dtype == jax.dtypes.float0:
        return FLOAT0
    name = str(getattr(dtype, "name", dtype))
    return _ELEMENT_OF_NAME.get(name, f'!jax.dtype<"{name}">')


@functools.lru_cache(maxsize=1024)
def dtype_of(element: str) -> Any:
    """The reverse of ``element_of``; raises IRError for an element type that JAX lacks."""
    name = _NAME_OF_ELEMENT.get(element)
    if name is not None:
        return np.dtype(getattr(jnp, name)) if name in _MLIR_FLOAT_NAMES else _plain_dtype(name)
    if element == FLOAT0:
        return jax.dtypes.float0
    if element.startswith('!baechi.key<"'):
        try:
            return compat.key_dtype(element[len('!baechi.key<"') : -len('">')])
        except KeyError:
            pass
    raise IRError(f"no JAX dtype for the element type '{element}'")


def _plain_dtype(name: str) -> Any:
    # int2, int4 and their unsigned kin are ml_dtypes' and reached through jax.numpy.
    return np.dtype(getattr(np, "bool_" if name == "bool" else name, None) or getattr(jnp, name))


def type_of(aval: Any) -> Type:
    """The type of an abstract value."""
    if isinstance(aval, ShapedArray):
        return TensorType(
            tuple(int(dim) for dim in aval.shape), element_of(aval.dtype), bool(aval.weak_type)
        )
    text = str(aval).replace("\\", "\\\\").replace('"', '\\"')
    return OpaqueType("jax", "aval", f'"{text}"')


def aval_of(type_: Type) -> Any:
    """The abstract value of a tensor type; raises IRError for other types."""
    if isinstance(type_, TensorType):
        return _shaped_array(type_.shape, type_.element, type_.weak)
    raise IRError(f"'{type_}' has no abstract value in JAX: only tensors can be rebuilt from text")


@functools.lru_cache(maxsize=4096)
def _shaped_array(shape: tuple[int, ...], element: str, weak: bool) -> Any:
    return ShapedArray(shape, dtype_of(element), weak_type=weak)


def dtype_attribute(dtype: Any) -> ScalarType | OpaqueType:
    """``dtype`` as a type attribute."""
    element = element_of(dtype)
    if not element.startswith("!"):
        return ScalarType(element)
    name, _, body = element[1:].partition("<")
    dialect, _, name = name.partition(".")
    return OpaqueType(dialect, name, body[:-1] if body else None)
