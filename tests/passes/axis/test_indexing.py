"""Gathers and scatters: along, across, batched."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.examples import few
from tests.passes.axis.arrays import array, integers
from tests.passes.axis.execution import check, follow

MODES = ["clip", "fill", "promise_in_bounds"]


@given(st.sampled_from(MODES), st.integers(2, 4), st.integers(0, 2))
@few(3)
def test_gathers(mode: str, size: int, at: int) -> None:
    """Rows of a table by an array of indices: the axis in the table's columns or in the indices."""

    def fn(table: Any, rows: Any) -> Any:
        return table.at[rows].get(mode=mode)

    high = 5 if mode == "promise_in_bounds" else 9
    shape = [2, 3]
    shape.insert(at, size)
    rows = integers(*shape, high=high)
    table = array(5, size)
    assert check(fn, [table, rows], {1: at}) == [f"split {at}"]
    assert check(fn, [table, rows], {0: 1}) == ["split 3"]
    assert check(fn, [table, rows], {0: 0}) == ["neither"]


@given(st.sampled_from(MODES), st.integers(2, 4), st.sampled_from([(0,), (1,), (0, 1)]))
@few(3)
def test_batched_gathers(mode: str, size: int, split: tuple[int, ...]) -> None:
    def fn(x: Any, rows: Any) -> Any:
        batched = jax.vmap(lambda t, r: t.at[r].get(mode=mode))
        return jnp.take_along_axis(x, rows, axis=1, mode=mode), batched(x, rows[:, :, 0])

    high = 4 if mode == "promise_in_bounds" else 9
    args = [array(size, 4, 3), integers(size, 2, 3, high=high)]
    assert check(fn, args, dict.fromkeys(split, 0)) == ["split 0", "split 0"]


def test_gathers_of_partial_values() -> None:
    def fn(x: Any, rows: Any) -> Any:
        a = x.sum(0)
        return (
            a[rows],
            jnp.take(a, rows, axis=0, mode="clip"),
            jnp.take(a, rows, axis=0, fill_value=0.0, mode="fill"),
            jnp.take(a, rows, axis=0, fill_value=7.0, mode="fill"),
            jnp.take(x.max(0), rows, axis=0, fill_value=7.0, mode="fill"),
        )

    args = [array(4, 5, 3), integers(2, high=9)]
    found = check(fn, args, {0: 0}, pieces=2)
    assert found == [*["partial sum"] * 3, "neither", "partial max"]
    assert "fills what is out of bounds with what is no partial sum" in follow(
        fn, args, {0: 0}
    ).reason(3)


@pytest.mark.parametrize("name", ["add", "subtract", "max", "min", "multiply", "set"])
def test_scatters(name: str) -> None:
    kind = {"add": "sum", "subtract": "sum", "multiply": "prod"}.get(name, name)
    neutral = {"sum": 0.0, "prod": 1.0}.get(kind, 0.5)

    def fn(table: Any, rows: Any, updates: Any) -> Any:
        start = jnp.full((5, 4), neutral, jnp.float32)
        return (
            getattr(start.at[rows], name)(updates),
            getattr(table.at[rows], name)(updates),
        )

    args = [array(5, 4), integers(4, high=9), array(4, 4, seed=1)]
    across = "neither" if name == "set" else f"partial {kind}"
    full = across if kind in ("max", "min") else "neither"
    assert check(fn, args, {1: 0}, pieces=2) == [across, full]
    assert check(fn, args, {2: 0}, pieces=2) == [across, full]
    assert check(fn, args, {1: 0, 2: 0}) == [across, full]
    assert check(fn, args, {0: 1}, pieces=2) == ["full", "split 1"]
    assert check(fn, args, {2: 1}) == ["split 1", "split 1"]
    assert check(fn, [array(4, 4), *args[1:]], {0: 0}) == ["full", "neither"]


SCATTERS = {
    "add": "sum", "subtract": "sum", "multiply": "prod", "max": "max", "min": "min", "set": "",
}  # fmt: skip


@given(st.data())
@few(4)
def test_scatters_along_any_dimension(data: st.DataObject) -> None:
    """Into a dimension of three; the axis in another, in that one, or in the indices."""
    name = data.draw(st.sampled_from(sorted(SCATTERS)))
    mode = data.draw(st.sampled_from(MODES[:2]))
    into = data.draw(st.integers(0, 2))
    axis = data.draw(st.integers(0, 3))  # 3: in the indices
    shape = [2, 3, 2]
    shape[into] = 5
    many = [*shape[:into], 4, *shape[into + 1 :]]
    size = 4 if axis == 3 else shape[axis]
    rows = integers(4, high=9)

    def fn(table: Any, rows: Any, updates: Any) -> Any:
        at = table.at[(*[slice(None)] * into, rows)]
        return getattr(at, name)(updates, mode=mode)

    places = {1: 0, 2: into} if axis == 3 else {0: axis} if axis == into else {0: axis, 2: axis}
    chosen = data.draw(st.sets(st.sampled_from(sorted(places)), min_size=1))
    axes = {operand: places[operand] for operand in sorted(chosen)}
    (found,) = check(fn, [array(*shape), rows, array(*many, seed=1)], axes, pieces=size)
    if axis == 3:
        kind = SCATTERS[name]
        assert found == (f"partial {kind}" if kind in ("max", "min") else "neither")
    else:
        assert found == ("neither" if axis == into else f"split {axis}")


@pytest.mark.parametrize("name", ["add", "max", "set"])
def test_batched_scatters(name: str) -> None:
    def fn(table: Any, rows: Any, updates: Any) -> Any:
        return jax.vmap(lambda t, r, u: getattr(t.at[r], name)(u))(table, rows, updates)

    args = [array(4, 3, 2), integers(4, 2, high=5), array(4, 2, 2, seed=1)]
    for split in ((0,), (1,), (2,), (0, 1, 2)):
        assert check(fn, args, dict.fromkeys(split, 0), pieces=2) == ["split 0"]


def test_scatters_of_partial_values() -> None:
    def fn(x: Any, rows: Any, y: Any) -> Any:
        a = x.sum(0)
        return (
            a.at[rows].add(2 * a[:2]),
            jnp.zeros((3, 2)).at[rows].add(a[:2]),
            a.at[rows].set(3 * a[:2]),
            y.at[rows].add(a[:2]),
            a.at[rows].max(a[:2]),
            a.at[rows].multiply(y[:2]),
        )

    found = check(fn, [array(4, 3, 2), integers(2, high=3), array(3, 2)], {0: 0}, pieces=2)
    assert found == [*["partial sum"] * 3, *["neither"] * 3]


def test_an_embedding_and_its_gradient() -> None:
    def fn(table: Any, tokens: Any, labels: Any) -> Any:
        def loss(table: Any) -> Any:
            logits = table[tokens] @ table.T
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
            return -jnp.sum(picked)

        return jax.value_and_grad(loss)(table)

    args = [array(7, 3), integers(4, 5, high=7), integers(4, 5, high=7, seed=1)]
    assert check(fn, args, {1: 0, 2: 0}, pieces=2) == ["partial sum", "partial sum"]
    assert check(fn, args, {0: 1})[1] == "neither"


def test_parts_of_an_index_are_no_axis() -> None:
    def fn(x: Any, at: Any) -> Any:
        numbers = lax.GatherDimensionNumbers((0, 1), (), (0, 1))
        return lax.gather(x, at, numbers, (2, 2), mode="clip")

    followed = follow(fn, [array(4, 4), integers(2, high=3)], {1: 0})
    assert followed.results == ["neither"]
    assert "takes the parts of an index for positions of the axis" in followed.reason()
