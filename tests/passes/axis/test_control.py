"""Calls, branches, loops beside the axis and over it."""

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from baechi_jax.passes.axis.states import FULL, Each, Running, Split
from tests.examples import few
from tests.passes.axis.arrays import array
from tests.passes.axis.execution import check, compare, follow


def test_calls_are_their_bodies() -> None:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 2

    clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(g, -1, 1) * x,))

    @jax.jit
    def inner(x: Any, y: Any) -> Any:
        return x @ y, y * 2

    @jax.checkpoint
    def block(x: Any) -> Any:
        return jax.nn.relu(jnp.sin(x))

    def fn(x: Any, w: Any) -> Any:
        a, b = inner(x, w)
        return (clipped(block(a)).sum(0), b, jax.grad(lambda x: block(clipped(x)).sum())(x))

    args = [array(4, 3), array(3, 2)]
    expected = ["partial sum", "full", "split 0"]
    assert check(fn, args, {0: 0}, pieces=2) == expected
    outlined = follow(fn, args, {0: 0}, inline=False)
    assert outlined.results == expected
    assert compare(outlined, args, 2) > 3


def test_a_branch_that_all_pieces_take() -> None:
    def fn(go: Any, x: Any, y: Any) -> Any:
        def left(x: Any, y: Any) -> Any:
            return x, y, x.sum(0), x, x.max(0)

        def right(x: Any, y: Any) -> Any:
            return y, y, jnp.zeros(3), x[::-1], y[0]

        return lax.cond(go, left, right, x, y)

    expected = ["split 0", "full", "partial sum", "neither", "partial max"]
    args = [jnp.bool_(True), array(4, 3), array(4, 3, seed=1)]
    followed = follow(fn, args, {1: 0})
    assert followed.results == expected
    assert "'jax.rev' reverses the axis" in followed.reason(3)

    def kept(go: Any, x: Any, y: Any) -> Any:
        a, b, c, _, e = fn(go, x, y)
        return a, b, c, e

    def without(go: Any, x: Any, y: Any) -> Any:
        return lax.cond(go, lambda x, y: (x, y, x.sum(0)), lambda x, y: (y, y, jnp.zeros(3)), x, y)

    for go in (True, False):
        found = check(without, [jnp.bool_(go), *args[1:]], {1: 0}, pieces=2)
        assert found == ["split 0", "full", "partial sum"]
        assert follow(kept, [jnp.bool_(go), *args[1:]], {1: 0}).results[0] == "split 0"


#: What a branch makes that is as large as its operands: of ``x`` (split) and ``y`` (full).
LARGE: dict[str, Callable[..., Any]] = {
    "x": lambda x, y: x,
    "y": lambda x, y: y,
    "a function of both": lambda x, y: jnp.tanh(x) * y,
    "zeros": lambda x, y: jnp.zeros_like(y),
}

#: What it makes that lacks the axis, by its state; zeros serve as any.
REDUCED: dict[str, Callable[..., Any]] = {
    "zeros": lambda x, y, axis: jnp.zeros_like(y.sum(axis)),
    "full": lambda x, y, axis: y.min(axis),
    "partial sum": lambda x, y, axis: (x * y).sum(axis),
    "partial max": lambda x, y, axis: x.max(axis),
}


def covering(made: Collection[str]) -> str:
    """The state of a result that branches make in these ways of ``REDUCED``."""
    partial = sorted(each for each in made if each.startswith("partial"))
    if not partial:
        return "full"
    served = {"partial sum": ["zeros"], "partial max": ["zeros", "full"]}[partial[0]]
    return partial[0] if set(made) <= {partial[0], *served} else "neither"


@given(st.data())
@few(3)
def test_branches(data: st.DataObject) -> None:
    """Two or three, each with results of any state; the axis in any dimension."""
    axis = data.draw(st.integers(0, 2))
    shape = [2, 3, 2]
    shape[axis] = data.draw(st.sampled_from([2, 4]))
    count = data.draw(st.integers(2, 3))
    large = data.draw(st.lists(st.sampled_from(list(LARGE)), min_size=count, max_size=count))
    reduced = data.draw(st.lists(st.sampled_from(list(REDUCED)), min_size=count, max_size=count))

    def fn(index: Any, x: Any, y: Any) -> Any:
        def branch(one: str, other: str) -> Callable[..., Any]:
            return lambda x, y: (LARGE[one](x, y), REDUCED[other](x, y, axis))

        return lax.switch(index, [branch(*each) for each in zip(large, reduced)], x, y)

    args = [jnp.int32(data.draw(st.integers(0, count - 1))), array(*shape), array(*shape, seed=1)]
    found = check(fn, args, {1: axis})
    split = any(each.startswith(("x", "a")) for each in large)
    assert found == [f"split {axis}" if split else "full", covering(set(reduced))]


def test_a_branch_that_depends_on_the_axis() -> None:
    def fn(x: Any) -> Any:
        return lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x)

    followed = follow(fn, [array(4, 3)], {0: 0})
    assert followed.results == ["neither"]
    assert check(fn, [array(4, 3)], {0: 0}, pieces=2, combine=True) == ["split 0"]


def test_a_while_loop_beside_the_axis() -> None:
    def fn(x: Any, y: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            i, a, b, c = carry
            return i + 1, jnp.tanh(a + x), b + (a * x).sum(0), jnp.maximum(c, a.max())

        start = (jnp.int32(0), y, jnp.zeros(3), jnp.float32(-1))
        return lax.while_loop(lambda carry: carry[0] < n, body, start)

    args = [array(4, 3), array(4, 3, seed=1), jnp.int32(3)]
    expected = ["full", "split 0", "partial sum", "partial max"]
    assert check(fn, args, {0: 0}, pieces=2) == expected


@given(st.data())
@few(3)
def test_while_loops(data: st.DataObject) -> None:
    """Carries that start in any state, and steps that keep it or bring the axis in."""
    axis = data.draw(st.integers(0, 2))
    shape = [2, 3, 2]
    shape[axis] = data.draw(st.sampled_from([2, 4]))
    large = data.draw(st.sampled_from(list(LARGE)))
    reduced = data.draw(st.sampled_from(list(REDUCED)))
    brings = data.draw(st.booleans())
    gathers = data.draw(st.sampled_from(["nothing", "partial sum", "partial max"]))

    def fn(n: Any, x: Any, y: Any) -> Any:
        def body(carry: Any) -> Any:
            i, a, b = carry
            new = {
                "nothing": lambda: b * 1.0,
                "partial sum": lambda: 0.5 * b + x.sum(axis),
                "partial max": lambda: jnp.maximum(b, (x * y).max(axis)),
            }[gathers]()
            return i + 1, jnp.sin(a + x) if brings else jnp.sin(a * y), new

        start = (jnp.int32(0), LARGE[large](x, y), REDUCED[reduced](x, y, axis))
        return lax.while_loop(lambda carry: carry[0] < n, body, start)

    args = [jnp.int32(data.draw(st.integers(0, 3))), array(*shape), array(*shape, seed=1)]
    found = check(fn, args, {1: axis})
    split = brings or large.startswith(("x", "a"))
    assert found[:2] == ["full", f"split {axis}" if split else "full"]
    if gathers != "nothing":
        assert found[2] == covering({reduced, gathers})
    else:
        assert found[2] == ("neither" if reduced == "partial max" else covering({reduced}))


def test_a_decaying_sum_from_zeros_is_a_partial_sum() -> None:
    """As momentum: the zeros it starts from stay zeros where they are scaled."""

    def fn(x: Any, start: Any) -> Any:
        def body(m: Any, y: Any) -> Any:
            return 0.9 * m + jnp.sin(x * y).sum(0), None

        ys = jnp.arange(3.0)
        return lax.scan(body, jnp.zeros(3), ys)[0], lax.scan(body, start, ys)[0]

    args = [array(4, 3), array(3)]
    assert check(fn, args, {0: 0}, pieces=2) == ["partial sum", "neither"]


def test_a_while_loop_that_ends_by_the_axis() -> None:
    def fn(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() < 3.0, lambda x: x + 1.0, x)

    followed = follow(fn, [array(4, 3)], {0: 0})
    assert followed.results == ["neither"]
    assert "ends when something says so that is neither" in followed.reason()
    assert "'jax.lt' of a partial sum is no partial sum" in followed.reason()


@given(st.integers(1, 2), st.booleans(), st.integers(2, 3))
@few(2)
def test_a_recurrent_net_over_a_batch(axis: int, reverse: bool, size: int) -> None:
    """Time is dimension 0; the axis is the batch, the carry starts from zeros."""
    shape = [3, 2, 2]
    shape[axis] = size

    def fn(w: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x * w[:, : x.shape[1]] + 0.5 * h)
            return h, (h, jnp.sum(h, axis=0), w)

        return lax.scan(step, jnp.zeros(x.shape[1:]), x, reverse=reverse)

    found = check(fn, [array(1, 4), array(*shape)], {1: axis})
    if axis == 1:
        assert found == ["split 0", "split 1", "partial sum", "full"]
    else:
        assert found == ["split 1", "split 2", "split 1", "full"]


def test_the_gradient_of_a_recurrent_net() -> None:
    def loss(w: Any, u: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ w + h @ u)
            return h, h

        last, hs = lax.scan(step, jnp.zeros((x.shape[1], 3)), x)
        return jnp.sum(last**2) + jnp.mean(hs)

    fn = jax.value_and_grad(loss, argnums=(0, 1, 2))
    args = [array(2, 3), array(3, 3, seed=1), array(5, 4, 2, seed=2)]
    assert check(fn, args, {2: 1}, pieces=2) == [*["partial sum"] * 3, "split 1"]


def test_carries_that_no_state_covers() -> None:
    def fn(x: Any, y: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return c + x.sum(0), None

        return lax.scan(body, y, None, length=3)[0]

    followed = follow(fn, [array(4, 3), array(3)], {0: 0})
    assert followed.results == ["neither"]
    check(fn, [array(4, 3), array(3)], {0: 0}, pieces=2)


# Over the axis ------------------------------------------------------------------------------------


@given(st.integers(2, 4), st.booleans(), st.sampled_from([(0,), (1,), (0, 1)]))
@few(2)
def test_a_scan_that_maps(size: int, reverse: bool, split: tuple[int, ...]) -> None:
    def fn(xs: Any, ys: Any, w: Any) -> Any:
        def body(shared: Any, row: Any) -> Any:
            x, y = row
            z = jax.jit(lambda x: jnp.tanh(x @ shared))(x)
            return shared, (z, z[::-1] * y, shared, lax.sort(x))

        return lax.scan(body, w, (xs, ys), reverse=reverse)

    args = [array(size, 3), array(size, 3, seed=1), array(3, 3)]
    assert check(fn, args, dict.fromkeys(split, 0)) == ["full", *["split 0"] * 4]


def test_a_scan_that_gathers() -> None:
    def fn(xs: Any, starts: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            total, most, least, product, every, count, mixed, _ = c
            new = (
                total + jnp.tanh(x),
                jnp.maximum(x, most),
                jnp.minimum(least, x + 1.0),
                product * x,
                every & jnp.all(x > -1.0),
                count + 1,
                0.9 * mixed + x,
                x,
            )
            return new, x * 2

        zeros, ones = jnp.zeros(3), jnp.ones(3)
        start = (zeros, *starts, ones, jnp.bool_(True), jnp.int32(0), zeros, ones)
        return lax.scan(body, start, xs)

    args = [array(4, 3), (array(3, seed=1), array(3, seed=2))]
    kinds = ["sum", "max", "min", "prod", "and", "sum"]
    expected = [*(f"partial {kind}" for kind in kinds), "neither", "neither", "split 0"]
    followed = follow(fn, args, {0: 0})
    assert followed.results == expected
    assert "keeps in a carry (7) what its last iteration gave" in followed.reason(7)
    assert "'jax.add' gathers a carry by sum and by prod" in followed.reason(6)

    def kept(xs: Any, starts: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            total, most, count = c
            return (total - jnp.tanh(x), jnp.maximum(x, most), count + 1), x * 2

        return lax.scan(body, (jnp.zeros(3), starts[0], jnp.int32(0)), xs)

    assert check(kept, args, {0: 0}) == ["partial sum", "partial max", "partial sum", "split 0"]


def test_states_inside_a_scan_over_the_axis() -> None:
    def fn(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c + x, x * 2), jnp.zeros(3), xs)

    followed = follow(fn, [array(4, 3)], {0: 0})
    (scan,) = (op for op in followed.report.function.body.ops if op.name == "jax.scan")
    states = [followed.report.state(argument) for argument in scan.body.arguments]
    assert states == [Running(0), Each()]
    assert followed.report.shrink(scan, 2) == {"length": 2}
    assert followed.report.state(scan.results[1]) == Split(0)


@pytest.mark.parametrize(
    ("start", "reads", "message"),
    [
        ("zeros", None, "reads a carry of a scan over the axis: iterations depend on another"),
        ("ones", False, "starting from a value that is no partial sum: full"),
        ("zeros", True, "gives what it has gathered at each position of the axis"),
    ],
)
def test_why_a_scan_over_the_axis_mixes(start: str, reads: bool | None, message: str) -> None:
    def fn(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            return c + x, jnp.sin(c) if reads is None else c if reads else x

        return lax.scan(body, getattr(jnp, start)(3), xs)

    followed = follow(fn, [array(4, 3)], {0: 0})
    assert message in followed.reason(0 if reads is False else 1)


def test_a_scan_over_the_axis_and_beside_it() -> None:
    def fn(xs: Any, ys: Any) -> Any:
        return lax.scan(lambda c, x: (c, x @ ys), 0.0, xs)[1]

    followed = follow(fn, [array(4, 3, 4), array(4, 3)], {0: 0, 1: 0})
    assert followed.results == ["neither"]
    assert "goes over the axis and reads an operand (1) that is split 0" in followed.reason()


def test_the_layers_of_a_scanned_net_depend_on_one_another() -> None:
    def fn(ws: Any, x: Any) -> Any:
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, ws)

    followed = follow(fn, [array(4, 3, 3), array(2, 3)], {0: 0})
    assert followed.results == ["neither", "neither"]
    assert check(fn, [array(4, 3, 3), array(2, 3)], {1: 0}) == ["split 0", "split 1"]


# The rest -----------------------------------------------------------------------------------------


def test_what_a_loop_would_mix_is_combined_before_it() -> None:
    def fn(x: Any, y: Any) -> Any:
        total = x.sum(0)
        return lax.scan(lambda c, _: (jnp.sin(c) + total * total, c), y, None, length=2)

    args = [array(4, 3), array(3)]
    apart = follow(fn, args, {0: 0})
    assert apart.results == ["neither", "neither"]
    followed = follow(fn, args, {0: 0}, combine=True)
    assert followed.results == ["full", "full"]
    assert not followed.report.mixed()
    (scan,) = (op for op in followed.report.function.body.ops if op.name == "jax.scan")
    assert followed.report.on_piece(scan).combines == ((0, "sum"),)
    assert all(followed.report.state(v) == FULL for v in scan.body.arguments)
    assert check(fn, args, {0: 0}, pieces=2, combine=True) == ["full", "full"]


def test_effects_mix_only_what_they_touch() -> None:
    def fn(x: Any, y: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), np.float32)
        a = jax.experimental.io_callback(lambda v: np.float32(v), shape, x[0, 0], ordered=True)
        b = jax.experimental.io_callback(lambda v: np.float32(v), shape, y[0], ordered=True)
        return a, b, x * 2

    followed = follow(fn, [array(4, 3), array(2)], {0: 1})
    assert followed.results == ["neither", "full", "split 1"]

    def noted(x: Any) -> Any:
        jax.debug.print("{}", x, ordered=True)
        return x * 2

    assert follow(noted, [array(4, 3)], {0: 1}).results == ["split 1"]


@pytest.mark.slow
def test_linear_solves() -> None:
    def fn(a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b), jnp.linalg.inv(a)

    a = array(4, 3, 3) + 5 * jnp.eye(3)
    b = array(4, 3, 2, seed=1)
    for axes in ({0: 0}, {0: 0, 1: 0}):
        assert check(fn, [a, b], axes, pieces=2, rtol=1e-3) == ["split 0", "split 0"]
    assert check(fn, [a, b], {0: 1}) == ["neither", "neither"]

    def linear(a: Any, x: Any) -> Any:
        return jnp.linalg.solve(a, x.sum(0))

    args = [a[0], array(4, 3, 2)]
    assert check(linear, args, {1: 0}, pieces=2, rtol=1e-3) == ["partial sum"]
