"""Products and convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.examples import few
from tests.passes.axis.arrays import array, integers
from tests.passes.axis.execution import check, compare, follow

ROLES = ["batch", "contract", "left", "right"]


@dataclass(frozen=True)
class Product:
    """A product whose dimensions have roles; ``left`` and ``right`` are their numbers in order."""

    roles: list[str]
    left: list[int]
    right: list[int]

    @staticmethod
    def draw(data: st.DataObject, roles: list[str]) -> Product:
        """The dimensions of both operands in any order; ``group`` is one of the right."""
        left, right = (
            data.draw(st.permutations([i for i, role in enumerate(roles) if role not in without]))
            for without in (("right", "group"), ("left",))
        )
        return Product(roles, left, right)

    @property
    def numbers(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """``dimension_numbers``."""
        contract, batch = (
            tuple(
                tuple(own.index(i) for i, each in enumerate(self.roles) if each == role)
                for own in (self.left, self.right)
            )
            for role in ("contract", "batch")
        )
        return contract, batch

    def places(self, axis: int) -> dict[int, int]:
        """Operand -> where it has this dimension."""
        return {
            side: own.index(axis) for side, own in enumerate((self.left, self.right)) if axis in own
        }


def some(data: st.DataObject, places: dict[int, int]) -> dict[int, int]:
    """Some of the places where the axis can be: what is not split is read in parts."""
    chosen = data.draw(st.sets(st.sampled_from(sorted(places)), min_size=1))
    return {operand: places[operand] for operand in sorted(chosen)}


@given(st.data())
@few(5)
def test_dot_general(data: st.DataObject) -> None:
    """Batch, contracting and free dimensions in any order, the axis in any of them."""
    roles = data.draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=4))
    sizes = [data.draw(st.integers(2, 3)) for _ in roles]
    product = Product.draw(data, roles)
    axis = data.draw(st.integers(0, len(roles) - 1))

    def fn(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, product.numbers)

    x = array(*(sizes[i] for i in product.left))
    y = array(*(sizes[i] for i in product.right), seed=1)
    (found,) = check(fn, [x, y], some(data, product.places(axis)))
    if roles[axis] == "contract":
        assert found == "partial sum"
    else:
        assert found.startswith("split")


@given(st.data())
@few(5)
def test_ragged_dot(data: st.DataObject) -> None:
    """Groups along any dimension of the left operand; the axis in any of both, or in the sizes."""
    roles = data.draw(st.lists(st.sampled_from(ROLES), max_size=3))
    ragged = data.draw(st.integers(0, len(roles)))
    roles.insert(ragged, data.draw(st.sampled_from(["left", "contract", "batch"])))
    free = roles[ragged] == "left"
    roles += ["group"] * free
    sizes = [data.draw(st.integers(2, 3)) for _ in roles]
    sizes[ragged] = 4
    product = Product.draw(data, roles)
    contract, batch = product.numbers
    at = product.left.index(ragged)
    dimensions = lax.RaggedDotDimensionNumbers(
        product.numbers, [at], [product.right.index(len(roles) - 1)] if free else []
    )
    x = array(*(sizes[i] for i in product.left))
    y = array(*(sizes[i] for i in product.right), seed=1)
    frees = tuple(d for d in range(x.ndim) if d not in contract[0] + batch[0])
    own = {"left": frees, "contract": contract[0], "batch": batch[0]}[roles[ragged]]
    outside = own[: own.index(at)]
    if roles[ragged] != "batch":
        outside = batch[0] + outside
    each_own_sizes = data.draw(st.booleans())
    counts = [x.shape[d] for d in outside] if each_own_sizes else []
    groups = integers(*counts, sizes[-1] if free else 2, high=3)

    axis = data.draw(st.integers(0, len(roles) - 1))
    places = product.places(axis)
    if each_own_sizes and places.get(0) in outside:
        places[2] = outside.index(places[0])

    def fn(x: Any, y: Any, groups: Any) -> Any:
        return lax.ragged_dot_general(x, y, groups, dimensions)

    (found,) = check(fn, [x, y, groups], some(data, places))
    if axis == ragged or roles[axis] == "group":
        assert found == "neither"
    elif roles[axis] == "contract":
        assert found == "partial sum"
    else:
        assert found.startswith("split")


@pytest.mark.parametrize("axes", [{0: 0}, {1: 0}, {2: 0}, {0: 0, 1: 0, 2: 0}])
def test_a_batch_of_ragged_dots(axes: dict[int, int]) -> None:
    """Each with sizes of its own."""
    args = [array(4, 5, 3), array(4, 2, 3, 2, seed=1), integers(4, 2, high=4)]
    assert check(jax.vmap(lax.ragged_dot), args, axes, pieces=2) == ["split 0"]


def test_reasons_of_ragged_dots() -> None:
    args = [array(6, 3), array(2, 3, 4), np.array([2, 3], np.int32)]
    for axes, reason in (
        ({0: 0}, "has groups along the axis, dimension 0 of a left operand"),
        ({1: 0}, "has groups along the axis, dimension 0 of a right operand"),
        ({2: 0}, "takes sizes of groups for positions of the axis"),
    ):
        assert f"'jax.ragged_dot_general' {reason}" in follow(lax.ragged_dot, args, axes).reason()

    args = [array(4, 6, 3), array(2, 3, 4), np.array([2, 3], np.int32)]
    assert check(lambda x, w, g: lax.ragged_dot(x.sum(0), w, g), args, {0: 0}) == ["partial sum"]


def test_a_mixture_of_experts_with_gradients() -> None:
    """The axis is the features inside each expert, as tensor parallelism has it."""

    def fn(up: Any, down: Any, x: Any, groups: Any) -> Any:
        def loss(up: Any, down: Any) -> Any:
            inside = jnp.tanh(lax.ragged_dot(x, up, groups))
            return lax.ragged_dot(inside, down, groups)

        out, pull = jax.vjp(loss, up, down)
        return out, *pull(jnp.ones_like(out))

    args = [array(2, 3, 4), array(2, 4, 3, seed=1), array(6, 3), np.array([2, 4], np.int32)]
    assert check(fn, args, {0: 2, 1: 1}) == ["partial sum", "split 2", "split 1"]


@given(st.data())
@few(5)
def test_scaled_dot(data: st.DataObject) -> None:
    """The axis is outermost in 8 elements of a dimension, which the scales have in blocks."""
    frees = data.draw(st.integers(1, 2))
    roles = ["contract", *["batch"] * data.draw(st.integers(0, 1)), *["left", "right"] * frees]
    product = Product.draw(data, roles)
    axis = data.draw(st.integers(0, len(roles) - 1))
    size = data.draw(st.sampled_from([2, 4]))
    blocks = [data.draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    args: list[Any] = []
    shapes: list[list[int]] = []
    places: dict[int, int] = {}
    for operand in range(4):
        own = (product.left, product.right)[operand % 2]
        shape = [8 if i == axis or roles[i] == "contract" else 2 for i in own]
        if operand > 1:
            shape[own.index(0)] = blocks[operand % 2]
        shapes.append(list(shape))
        if axis in own and shape[own.index(axis)] % size == 0:
            places[operand] = own.index(axis)
            shape[places[operand]] //= size
            shape.insert(places[operand], size)
        numbers = array(*shape, seed=operand)
        args.append(numbers if operand < 2 else jnp.float8_e8m0fnu(jnp.exp2(jnp.round(numbers))))

    def fn(*args: Any) -> Any:
        left, right, *scales = (jnp.reshape(x, shape) for x, shape in zip(args, shapes))
        return lax.scaled_dot(
            *(left, right),
            lhs_scale=scales[0],
            rhs_scale=scales[1],
            dimension_numbers=product.numbers,
        )

    (found,) = check(fn, args, some(data, places))
    if axis:
        assert found.startswith("split")
    elif all(each == 1 or each % size == 0 for each in blocks):
        assert found == "partial sum"
    else:
        assert found == "neither"


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


def test_partial_sums_of_unsigned_numbers_may_have_wrapped() -> None:
    def fn(x: Any, w: Any) -> Any:
        a = lax.reduce_sum(x, (0,))
        wide = lax.dot_general(a, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.uint32)
        return a @ w, wide

    args = [np.full((4, 3, 2), 90, np.uint8), np.ones((2, 3), np.uint8)]
    followed = follow(fn, args, {0: 0})
    assert followed.results == ["partial sum", "neither"]
    assert "widens a partial sum of ui8, which may have wrapped around" in followed.reason(1)
    compare(followed, args, 2)


SPECS = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("CNHW", "IOHW", "HWNC")]


@given(
    st.sampled_from(SPECS),
    st.sampled_from(["batch", "input", "output", "height"]),
    st.integers(1, 2),
    st.booleans(),
)
@few(5)
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
