"""Literals, dtypes and parameters as attributes and types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from baechi_jax.ir.attributes import Attribute, DictAttr, FloatAttr, IntegerAttr, OpaqueAttr
from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.jax_params import NONE, encode
from baechi_jax.ir.jax_types import FLOAT0, aval_of, dtype_of, element_of, type_of
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import ScalarType, TensorType

X = jax.ShapeDtypeStruct((4,), np.float32)
M = jax.ShapeDtypeStruct((4, 4), np.float32)


def ops(tr: Trace, name: str) -> list[Operation]:
    return [op for op in tr.module.walk() if op.name == name]


def only(tr: Trace, name: str) -> Operation:
    (op,) = ops(tr, name)
    return op


def test_literals_are_typed_and_shared_within_a_block() -> None:
    tr = trace(lambda x: (x * 2.0 + 2.0) * 3.0 > 2.0, (X,))
    literals = ops(tr, "baechi.literal")
    assert [op.attributes["value"] for op in literals] == [
        FloatAttr(2.0, ScalarType("f32")),
        FloatAttr(3.0, ScalarType("f32")),
    ]
    assert literals[0].results[0].type == TensorType((), "f32")


def test_literals_keep_zero_signs_nan_and_weak_types() -> None:
    tr = trace(lambda x: (x * 0.0, x * -0.0, x * np.nan, x**2.5, 7), (X,))
    texts = print_module(tr.module)
    assert "value = 0.0 : f32" in texts
    assert "value = -0.0 : f32" in texts
    assert "value = 0x7FC00000 : f32" in texts
    assert tr.module.main.body.terminator.operands[-1].type == TensorType((), "i32", weak=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.1), FloatAttr(float(np.float32(0.1)), ScalarType("f32"))),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.int32(-3), IntegerAttr(-3, ScalarType("i32"))),
        (np.uint64(2**64 - 1), IntegerAttr(2**64 - 1, ScalarType("ui64"))),
        (np.bool_(True), True),
        (jnp.bfloat16(1.5), FloatAttr(1.5, ScalarType("bf16"))),
        (jnp.float8_e4m3fn(0.5), FloatAttr(0.5, ScalarType("f8E4M3FN"))),
        (jnp.int4(-8), IntegerAttr(-8, ScalarType("i4"))),
        (np.complex64(1 - 2j), tuple(FloatAttr(v, ScalarType("f32")) for v in (1.0, -2.0))),
        (np.complex128(1 - 2j), (1.0, -2.0)),
    ],
)
def test_numpy_scalars(value: object, expected: Attribute) -> None:
    encoded = encode(np.asarray(value)[()])
    assert encoded == expected
    assert type(encoded) is type(expected)


@pytest.mark.parametrize(
    "name",
    [
        *("bool_", "int2", "int4", "int8", "int16", "int32", "int64"),
        *("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
        *("float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
        *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    ],
)
def test_dtypes_go_both_ways(name: str) -> None:
    dtype = jnp.dtype(getattr(jnp, name))
    element = element_of(dtype)
    assert not element.startswith("!")
    assert dtype_of(element) == dtype
    type_ = TensorType((2, 3), element, weak=True)
    assert type_of(aval_of(type_)) == type_


def test_random_keys_and_float0() -> None:
    key = jax.random.key(0).dtype
    assert element_of(key) == '!baechi.key<"fry">'
    assert dtype_of('!baechi.key<"fry">') == key
    assert dtype_of(element_of(jax.random.key(0, impl="rbg").dtype))._impl.tag == "rbg"
    assert element_of(jax.dtypes.float0) == FLOAT0
    assert dtype_of(FLOAT0) == jax.dtypes.float0
    with pytest.raises(IRError, match="no JAX dtype for the element type 'f128'"):
        dtype_of("f128")
    with pytest.raises(IRError, match="key"):
        dtype_of('!baechi.key<"nothing">')


def test_parameters() -> None:
    def f(x, w, i):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", precision="highest")
        return y, x.at[i].get(mode="clip"), x.astype(jnp.bfloat16)

    image = jax.ShapeDtypeStruct((1, 1, 4, 4), np.float32)
    tr = trace(f, (image, image, jax.ShapeDtypeStruct((2,), np.int32)))
    conv = only(tr, "jax.conv_general_dilated").attributes
    assert conv["window_strides"] == (1, 1)
    assert conv["padding"] == ((1, 2), (1, 2))
    numbers = conv["dimension_numbers"]
    assert isinstance(numbers, DictAttr)
    assert numbers["lhs_spec"] == (0, 1, 2, 3)
    assert conv["precision"] == ("HIGHEST", "HIGHEST")
    assert conv["preferred_element_type"] == NONE
    assert only(tr, "jax.gather").attributes["mode"] == "CLIP"
    convert = only(tr, "jax.convert_element_type").attributes
    assert convert["new_dtype"] == ScalarType("bf16")
    assert convert["weak_type"] is False


def test_what_has_no_text_is_opaque_and_without_addresses() -> None:
    def f(x):
        return jax.pure_callback(lambda a: a, X, x)

    tr = trace(f, (X,))
    callback = only(tr, "jax.pure_callback").attributes["callback"]
    assert isinstance(callback, DictAttr)
    assert callback["callback_func"] == OpaqueAttr("jax", "opaque", '"function"')
    assert encode(object()) == OpaqueAttr("jax", "opaque", '"object"')
    assert "0x" not in print_module(tr.module)


def test_encode_odds_and_ends() -> None:
    assert encode({"b": 1, "a": None}) == DictAttr((("b", 1), ("a", NONE)))
    assert encode({1: 2}) == ((1, 2),)
    assert encode(frozenset({3, 1, 2})) == (1, 2, 3)
    assert encode([1, [2.5, "x"]]) == (1, (2.5, "x"))
    assert encode(2j) == (0.0, 2.0)
    assert encode(np.float32) == ScalarType("f32")
    assert encode(2**63) == IntegerAttr(2**63, ScalarType("ui64"))
    assert encode(jax.typeof(jnp.zeros((2, 3)))) == TensorType((2, 3), "f32")
    assert encode((True, 1)) == (True, 1)
    assert encode(object) == OpaqueAttr("jax", "opaque", '"type"')
