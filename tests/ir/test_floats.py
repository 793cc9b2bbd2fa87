"""Every format against ml_dtypes: bits, rounding, and text that reads back."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baechi_jax.ir.floats import FLOAT_FORMATS, float_text, from_bits, rounded, to_bits

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
}


def value_of(bits: int, name: str) -> float:
    """What numpy makes of ``bits``."""
    dtype = np.dtype(DTYPES[name])
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    with np.errstate(invalid="ignore"):
        return float(np.array(bits, unsigned).view(dtype))


def same(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def check_bits(bits: int, name: str) -> None:
    value = from_bits(bits, name)
    assert same(value, value_of(bits, name))
    text = float_text(value, name)
    if math.isnan(value):
        assert from_bits(to_bits(value, name), name) != from_bits(to_bits(value, name), name)
    else:
        assert to_bits(value, name) == bits
    if text.startswith("0x"):
        assert same(from_bits(int(text, 16), name), value)
        smallest = math.ldexp(1.0, 1 - FLOAT_FORMATS[name].bias)
        assert not math.isfinite(value) or abs(value) < smallest
    else:
        assert "." in text
        assert same(rounded(float(text), name), value)


def test_every_format_of_the_ir_is_here() -> None:
    assert set(DTYPES) == set(FLOAT_FORMATS)


@pytest.mark.parametrize("name", [n for n, f in FLOAT_FORMATS.items() if f.bits <= 8])
def test_all_values_of_narrow_formats(name: str) -> None:
    for bits in range(1 << FLOAT_FORMATS[name].bits):
        check_bits(bits, name)


@given(st.sampled_from(["f64", "f32", "f16", "bf16"]), st.integers(0, 2**64 - 1))
def test_values_of_wide_formats(name: str, bits: int) -> None:
    check_bits(bits >> (64 - FLOAT_FORMATS[name].bits), name)


@given(st.sampled_from(sorted(set(FLOAT_FORMATS) - {"f8E8M0FNU"})), st.floats(allow_nan=False))
def test_rounding(name: str, value: float) -> None:
    if FLOAT_FORMATS[name].kind == "finite" and math.isinf(value):
        return
    with np.errstate(over="ignore"):
        expected = float(np.array(value).astype(DTYPES[name]))
    assert same(rounded(value, name), expected)


def test_the_shortest_text_is_short() -> None:
    assert float_text(rounded(0.1, "f32"), "f32") == "0.1"
    assert float_text(rounded(0.1, "bf16"), "bf16") == "0.1"
    assert float_text(rounded(1 / 3, "f32"), "f32") == "0.33333334"
    assert float_text(1e22) == "1.0e+22"
    assert float_text(0.0, "f32") == "0.0"
    assert float_text(-0.0, "f32") == "-0.0"


def test_what_a_format_cannot_hold() -> None:
    with pytest.raises(ValueError, match="f4E2M1FN has no NaN"):
        to_bits(math.nan, "f4E2M1FN")
    with pytest.raises(ValueError, match="f8E8M0FNU has no negative numbers"):
        to_bits(-1.0, "f8E8M0FNU")
    with pytest.raises(ValueError, match="0x10 has more than the 4 bits of f4E2M1FN"):
        from_bits(16, "f4E2M1FN")
    assert math.isnan(rounded(math.inf, "f8E8M0FNU"))
    assert math.isnan(rounded(2.0**128, "f8E8M0FNU"))
    assert rounded(0.0, "f8E8M0FNU") == 2.0**-127
    assert rounded(1.5, "f8E8M0FNU") == 2.0
    assert rounded(1e9, "f6E2M3FN") == 7.5
