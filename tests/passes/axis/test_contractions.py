"""Products and convolutions."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.passes.axis.arrays import array
from tests.passes.axis.execution import check, follow

few = settings(max_examples=5, deadline=None)


@given(st.data())
@few
def test_dot_general(data: st.DataObject) -> None:
    """Batch, contracting and free dimensions in any order, the axis in any of them."""
    roles = data.draw(
        st.lists(st.sampled_from(["batch", "contract", "left", "right"]), min_size=1, max_size=4)
    )
    sizes = [data.draw(st.integers(2, 3)) for _ in roles]
    left = data.draw(st.permutations([i for i, r in enumerate(roles) if r != "right"]))
    right = data.draw(st.permutations([i for i, r in enumerate(roles) if r != "left"]))
    axis = data.draw(st.integers(0, len(roles) - 1))
    dims = {
        role: (
            [left.index(i) for i, r in enumerate(roles) if r == role],
            [right.index(i) for i, r in enumerate(roles) if r == role],
        )
        for role in ("batch", "contract")
    }

    def fn(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, (dims["contract"], dims["batch"]))

    x = array(*(sizes[i] for i in left))
    y = array(*(sizes[i] for i in right), seed=1)
    axes = {}
    if axis in left:
        axes[0] = left.index(axis)
    if axis in right and (0 not in axes or data.draw(st.booleans())):
        axes[1] = right.index(axis)
    role = roles[axis]
    (found,) = check(fn, [x, y], axes)
    if role == "contract":
        assert found == "partial sum"
    else:
        assert found.startswith("split")


@pytest.mark.parametrize(
    ("axes", "expected"),
    [({0: 0, 1: 1}, "neither"), ({0: 1, 1: 1}, "neither"), ({0: 1, 1: 0}, "partial sum")],
)
def test_both_operands_split(axes: dict[int, int], expected: str) -> None:
    assert check(lambda x, y: x @ y, [array(3, 3), array(3, 3, seed=1)], axes) == [expected]


def test_products_are_linear_in_each_operand() -> None:
    def fn(x: Any, w: Any) -> Any:
        a = x.sum(axis=0)
        return a @ w, w.T @ a.T, a @ a.T, x.max(axis=0) @ w

    followed = follow(fn, [array(4, 3, 2), array(2, 3)], {0: 0})
    assert followed.results == ["partial sum", "partial sum", "neither", "neither"]
    assert "'jax.dot_general' multiplies two partial sums" in followed.reason(2)
    assert "'jax.dot_general' of a partial max is no partial max" in followed.reason(3)
    check(fn, [array(4, 3, 2), array(2, 3)], {0: 0}, pieces=2)


SPECS = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("CNHW", "IOHW", "HWNC")]


@given(
    st.sampled_from(SPECS),
    st.sampled_from(["batch", "input", "output", "height"]),
    st.integers(1, 2),
    st.booleans(),
)
@few
def test_convolutions(spec: tuple[str, str, str], role: str, stride: int, side: bool) -> None:
    left, right, out = spec
    sizes = {"N": 4, "C": 2, "H": 5, "W": 4}
    if role == "input":
        sizes["C"] = 4
    if role == "height":
        sizes["H"] = 4
    kernel = {"O": 4 if role == "output" else 3, "I": sizes["C"], "H": 3, "W": 2}
    x = array(*(sizes[d] for d in left))
    w = array(*(kernel[d] for d in right), seed=1)

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=spec
        )

    axes = {
        "batch": {0: left.index("N")},
        "output": {1: right.index("O")},
        "height": {0: left.index("H")},
        "input": {0: left.index("C"), 1: right.index("I")} if side else {1: right.index("I")},
    }[role]
    expected = {
        "batch": f"split {out.index('N')}",
        "output": f"split {out.index('C')}",
        "height": "neither",
        "input": "partial sum",
    }[role]
    assert check(fn, [x, w], axes, pieces=2) == [expected]


@pytest.mark.parametrize(
    ("features", "batches", "axes", "expected"),
    [
        (4, 1, {0: 1}, "split 1"),  # the axis is (a multiple of it is) the groups
        (4, 1, {0: 1, 1: 0}, "split 1"),
        (4, 1, {1: 0}, "split 1"),
        (2, 1, {0: 1}, "neither"),
        (4, 1, {0: 0}, "split 0"),
        (1, 4, {0: 0}, "split 1"),
        (1, 4, {1: 0}, "split 1"),
        (1, 2, {0: 0}, "neither"),
        (1, 2, {0: 1, 1: 1}, "partial sum"),
    ],
)
def test_groups(features: int, batches: int, axes: dict[int, int], expected: str) -> None:
    x, w = array(4, 4, 5), array(4, 4 // features, 2, seed=1)

    def fn(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", feature_group_count=features, batch_group_count=batches
        )

    assert check(fn, [x, w], axes, pieces=2) == [expected]


@pytest.mark.parametrize("features", [True, False])
def test_groups_of_several(features: bool) -> None:
    """Each of the four groups has two features (or two examples), all in one piece."""
    x, w = array(*((2, 8) if features else (8, 2)), 5), array(4, 2, 2, seed=1)

    def fn(x: Any, w: Any) -> Any:
        groups = (4, 1) if features else (1, 4)
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", feature_group_count=groups[0], batch_group_count=groups[1]
        )

    assert check(fn, [x, w], {1: 0}, pieces=2) == ["split 1"]


def test_a_convolution_net_with_gradients() -> None:
    def loss(w: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (2, 1), "SAME", feature_group_count=2)
        z = lax.conv_transpose(y, jnp.ones((3, 3, 4, 2)), (1, 1), "SAME", dimension_numbers=(
            "NCHW", "HWIO", "NCHW"
        ))  # fmt: skip
        return jnp.sum(jnp.tanh(z) ** 2)

    fn = jax.value_and_grad(loss, argnums=(0, 1))
    found = check(fn, [array(4, 2, 3, 3), array(4, 4, 6, 6)], {1: 0}, pieces=2)
    assert found == ["partial sum", "partial sum", "split 0"]
