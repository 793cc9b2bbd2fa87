"""Types and attributes as values: sizes, equality, hashing."""

import math

import pytest

from baechi_jax.ir.attributes import (
    DictAttr,
    FloatAttr,
    ParameterizedAttr,
    Unit,
    as_tuple,
)
from baechi_jax.ir.types import (
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
    Type,
    element_bits,
    nbytes,
    unplaced,
)


@pytest.mark.parametrize(
    ("element", "bits"),
    [
        *(("i1", 8), ("ui1", 8), ("i2", 2), ("ui4", 4), ("f4E2M1FN", 4), ("bf16", 16)),
        *(("f8E8M0FNU", 8), ("si64", 64), ("index", 64), ("complex<f32>", 64)),
        *(("complex<f64>", 128), ("!baechi.float0", 0), ('!baechi.key<"fry">', 64)),
        *(('!baechi.key<"rbg">', 128), ('!baechi.key<"new">', 128), ('!jax.dtype<"x">', 64)),
    ],
)
def test_bits_of_elements(element: str, bits: int) -> None:
    assert element_bits(element) == bits


def test_bytes_of_tensors() -> None:
    assert TensorType((3, 5), "i4").nbytes == 8
    assert TensorType((), "f32").nbytes == 4
    assert TensorType((2, 0), "f32").nbytes == 0
    assert TensorType((2, 3), "f32").size == 6


def test_places_are_looked_through() -> None:
    tensor = TensorType((4,), "f32")
    for type_ in (tensor, OnType((0,), tensor), InFlightType(tensor)):
        assert unplaced(type_) == tensor
        assert nbytes(type_) == 16
    others: tuple[Type, ...] = (TokenType(), OpaqueType("a", "b"), ScalarType("f32"))
    for type_ in others:
        assert nbytes(type_) == 0


def test_floats_are_equal_by_value_and_type() -> None:
    f32 = ScalarType("f32")
    assert FloatAttr(math.nan, f32) == FloatAttr(float("nan"), f32)
    assert hash(FloatAttr(math.nan, f32)) == hash(FloatAttr(float("nan"), f32))
    assert FloatAttr(0.0, f32) != FloatAttr(-0.0, f32)
    assert FloatAttr(1.0, f32) != FloatAttr(1.0, ScalarType("bf16"))
    assert FloatAttr(1.0, f32) != 1.0


def test_dictionaries_are_equal_in_any_order() -> None:
    one = DictAttr.of({"a": 1, "b": Unit()})
    other = DictAttr.of({"b": Unit(), "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != DictAttr.of({"a": 1})
    assert one["b"] == Unit()
    assert dict(one) == {"a": 1, "b": Unit()}
    assert len(one) == 2
    with pytest.raises(KeyError, match="c"):
        _ = one["c"]


def test_arrays_are_asked_for() -> None:
    assert as_tuple((1, 2)) == (1, 2)
    with pytest.raises(TypeError, match="expected an array attribute, found 3"):
        as_tuple(3)


def test_attributes_are_frozen() -> None:
    with pytest.raises(AttributeError):
        TensorType((), "f32").element = "i32"  # type: ignore[misc]
    assert ParameterizedAttr() == ParameterizedAttr()
