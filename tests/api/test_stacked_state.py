"""Placed functions whose plan holds stacked leaves in pieces: calls, results, plans, transforms.

The pieces come from a pass of the tests, so that any function and any split can be tried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import baechi_jax as baechi
from baechi_jax.ir.topology import Topology
from baechi_jax.runtime.errors import ArgumentError, ExecutionError
from baechi_jax.runtime.layers import Run, StackedSharding
from baechi_jax.runtime.stacked import StackedArray
from tests.runtime.split_rows import in_pieces

DEVICES = jax.devices()
LAYERS = 6
EVEN = ("0:2@3", "2:4@1", "4:6@2")
UNEVEN = ("0:1@0", "1:4@2", "4:5@0", "5:6@1")
QUICK = {"xla_backend_optimization_level": 0}
jit = functools.partial(jax.jit, compiler_options=QUICK)


def step(state: Any, rate: Any) -> Any:
    """Momentum on stacked parameters; the loss reads all layers."""
    w, m = state["w"], state["m"]
    m = jax.tree.map(lambda m, w: 0.9 * m + jnp.sin(w), m, w)
    w = jax.tree.map(lambda w, m: w - rate * m, w, m)
    return {"w": w, "m": m}, sum(jnp.sum(x) for x in w.values())


def init() -> Any:
    rng = np.random.default_rng(0)
    params = {
        "a": rng.normal(size=(LAYERS, 3, 4)).astype(np.float32),
        "b": rng.normal(size=(LAYERS, 5)).astype(np.float32),
        "c": rng.normal(size=3).astype(np.float32),
    }
    return {"w": params, "m": jax.tree.map(np.zeros_like, params)}


RATE = np.float32(0.1)
STACKED = "'(a|b)'"


def placed(
    fn: Any = step, rows: tuple[str, ...] = UNEVEN, names: str = STACKED, **options: Any
) -> Any:
    return baechi.place(
        fn,
        topology=Topology.uniform(4),
        pipeline=in_pieces(names, *rows),
        compiler_options=QUICK,
        **options,
    )


def runs(rows: tuple[str, ...]) -> tuple[Run, ...]:
    numbers = [tuple(map(int, row.replace("@", ":").split(":"))) for row in rows]
    return tuple(Run(start, stop, DEVICES[device]) for start, stop, device in numbers)


def check(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def pointers(leaf: Any) -> list[int]:
    pieces = leaf.pieces if isinstance(leaf, StackedArray) else leaf._arrays
    return [piece.unsafe_buffer_pointer() for piece in pieces]


# Values, and where they lie -----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [EVEN, UNEVEN, ("0:6@2",)])
def test_training(rows: tuple[str, ...]) -> None:
    fn = placed(rows=rows, donate_argnums=0)
    state, plain = init(), init()
    for number in range(3):
        before = state
        state, loss = fn(state, RATE)
        plain, want = jit(step)(plain, RATE)
        check((state, loss), (plain, want))
        if number:
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    # What the step gave lies as it wants it, and nothing is moved or copied.
    compiled = fn.lower(state, RATE).compile()
    leaves = jax.tree.leaves((state, RATE))
    assert compiled.pending(leaves) == [6]
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == fn.input_shardings(state, RATE)[0]
    assert compiled.output_shardings[0] == compiled.input_shardings[0][0]
    wanted = {
        EVEN: NamedSharding(
            Mesh(np.array([DEVICES[3], DEVICES[1], DEVICES[2]]), ("layers",)),
            PartitionSpec("layers"),
        ),
        UNEVEN: StackedSharding(runs(UNEVEN)),
    }.get(rows, SingleDeviceSharding(DEVICES[2]))
    assert state["w"]["a"].sharding == wanted
    assert (type(state["w"]["a"]) is StackedArray) == (rows is UNEVEN)


@pytest.mark.parametrize("rows", [EVEN, UNEVEN])
def test_leaves_in_place_are_taken_apart_without_a_copy(rows: tuple[str, ...]) -> None:
    fn = placed(rows=rows)
    state, _ = fn(init(), RATE)
    compiled = fn.lower(state, RATE).compile()
    arguments, lost = compiled.placer.place(jax.tree.leaves((state, RATE)), [])
    assert lost == []
    found = [array.unsafe_buffer_pointer() for array in arguments[: len(rows)]]
    assert found == pointers(state["m"]["a"])
    # The second time it is seen by reference.
    again, _ = fn(state, RATE)
    assert compiled.pending(jax.tree.leaves((again, jax.device_put(RATE, DEVICES[0])))) == []


SOURCES: dict[str, Callable[[Any], Any]] = {
    "host": lambda x: x,
    "one device": lambda x: jax.device_put(x, DEVICES[5]),
    "the first device": jnp.asarray,
    "over another mesh": lambda x: jax.device_put(
        x, NamedSharding(Mesh(np.array(DEVICES[:2]), ("d",)), PartitionSpec("d"))
    ),
    "replicated": lambda x: jax.device_put(
        x, NamedSharding(Mesh(np.array(DEVICES[:4]), ("d",)), PartitionSpec())
    ),
    "other pieces": lambda x: baechi.device_put(
        x, StackedSharding((Run(0, 5, DEVICES[1]), Run(5, 6, DEVICES[2])))
    ),
}


@pytest.mark.parametrize(
    ("source", "donated"),
    [
        *((source, True) for source in SOURCES),
        *(pytest.param(source, False, marks=pytest.mark.slow) for source in SOURCES),
    ],
)
def test_stacks_from_anywhere(source: str, donated: bool) -> None:
    fn = DONATED if donated else UNDONATED
    given = init()
    for part in ("w", "m"):
        for name in ("a", "b"):
            given[part][name] = SOURCES[source](given[part][name])
    kept = [np.array(leaf) for leaf in jax.tree.leaves(given)]
    got = fn(given, RATE)
    check(got, jit(step)(init(), RATE))
    for leaf, value in zip(jax.tree.leaves(given), kept, strict=True):
        if donated and not isinstance(leaf, np.ndarray):
            assert leaf.is_deleted()
        else:
            np.testing.assert_array_equal(leaf, value)


UNDONATED = placed()
DONATED = placed(donate_argnums=0)


def test_a_stack_for_a_function_that_holds_it_whole() -> None:
    state, _ = UNDONATED(init(), RATE)
    host = jax.tree.map(np.array, state)
    whole = baechi.place(
        step, topology=Topology.uniform(1), donate_argnums=0, compiler_options=QUICK
    )
    check(whole(state, RATE), jit(step)(host, RATE))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_undonated_arguments_that_are_returned_have_other_buffers() -> None:
    fn = placed(lambda state: (state, state["w"]["a"]), names=".")
    given, _ = UNDONATED(init(), RATE)
    state, again = fn(given)
    check((state, again), (given, given["w"]["a"]))
    found = [pointers(leaf) for leaf in (given["w"]["a"], state["w"]["a"], again)]
    assert len({each for pieces in found for each in pieces}) == 3 * len(UNEVEN)


def test_constants_and_weak_types_and_other_dtypes() -> None:
    table = np.arange(LAYERS * 2, dtype=np.int32).reshape(LAYERS, 2)

    def fn(x: Any, h: Any) -> Any:
        weak = jnp.full((LAYERS,), 2.0) * 1
        return x + table, h * 2, jax.lax.broadcast(2.0, (LAYERS,)), weak

    args = (np.ones((LAYERS, 2), np.int32), jnp.ones((LAYERS, 0), jnp.bfloat16))
    want = jit(fn)(*args)
    for rows in (EVEN, UNEVEN):
        check(placed(fn, rows, ".")(*args), want)


@pytest.mark.parametrize("rows", [pytest.param(EVEN, marks=pytest.mark.slow), UNEVEN])
def test_random_keys(rows: tuple[str, ...]) -> None:
    def fn(keys: Any) -> Any:
        split = jax.vmap(lambda key: jax.random.split(key)[0])(keys)
        return split, jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)

    keys = jax.random.split(jax.random.key(1), LAYERS)
    with_pieces = placed(fn, rows, "keys|result")
    ours, plain = keys, keys
    for _ in range(2):
        ours, drawn = with_pieces(ours)
        plain, want = jit(fn)(plain)
        np.testing.assert_array_equal(drawn, want)
    data = jax.random.key_data(baechi.gather(ours))
    np.testing.assert_array_equal(data, jax.random.key_data(plain))


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [EVEN, UNEVEN])
def test_given_away_and_passed_again(rows: tuple[str, ...]) -> None:
    fn = placed(rows=rows, donate_argnums=0)
    first, _ = fn(init(), RATE)
    second, _ = fn(first, RATE)
    with pytest.raises(ArgumentError, match=r"argument state\['m'\]\['a'\] was donated in an earl"):
        fn(first, RATE)
    twice = {"w": second["w"], "m": {**second["m"], "a": second["w"]["a"]}}
    with pytest.raises(
        ArgumentError, match=r"arguments state\['m'\]\['a'\] and state\['w'\]\['a'\] are the same"
    ):
        fn(twice, RATE)
    fn(second, RATE)


def test_a_stage_says_where_a_stack_lies() -> None:
    compiled = UNDONATED.lower(init(), RATE).compile()
    state, _ = compiled(init(), RATE)
    compiled(state, RATE)
    state["w"]["a"] = baechi.device_put(
        init()["w"]["a"], StackedSharding(runs((*UNEVEN[:1], "1:6@2")))
    )
    message = r"state\['w'\]\['a'\] lies on layers 0 on cpu:0, 1:6 on cpu:2, and was compiled for"
    with pytest.raises(ArgumentError, match=message):
        compiled(state, RATE)
    compiled(*baechi.device_put((state, RATE), compiled.input_shardings[0]))
    state["w"]["a"] = state["w"]["a"].astype(jnp.bfloat16)
    with pytest.raises(ArgumentError, match=r"compiled as f32\[6,3,4\], and is bf16\[6,3,4\]"):
        compiled(state, RATE)


def test_an_error_while_stacks_are_moved_names_what_is_lost(monkeypatch: Any) -> None:
    from baechi_jax.runtime import state as module

    fn = DONATED
    given = jax.device_put(init(), DEVICES[5])
    fn.lower(given, RATE).compile()
    real, calls = module.restack, []

    def failing(leaf: Any, wanted: Any) -> Any:
        calls.append(leaf)
        if len(calls) == 3:
            raise RuntimeError("RESOURCE_EXHAUSTED: no room")
        return real(leaf, wanted)

    monkeypatch.setattr(module, "restack", failing)
    with pytest.raises(ExecutionError, match=r"argument state\['w'\]\['a'\] failed") as caught:
        fn(given, RATE)
    assert "arguments state['m']['a'], state['m']['b'] were already given away" in str(caught.value)
    gone = [leaf.is_deleted() for leaf in jax.tree.leaves(given)]
    assert gone == [True, True, False, False, False, False]


def test_a_step_that_fails_names_whole_leaves() -> None:
    compiled = DONATED.lower(init(), RATE).compile()
    given = jax.tree.leaves(jax.device_put((init(), RATE), DEVICES[5]))
    pending = compiled.pending(given)
    assert pending is not None
    arguments, lost = compiled.placer.place(given, pending)
    assert set(lost) == {f"state['{part}']['{name}']" for part in "mw" for name in "abc"}
    arguments[0].delete()
    item = compiled.program.instructions[0]
    text = str(compiled.executor.error(item, RuntimeError("no"), arguments, ["state['w']['b']"]))
    assert "The donated arguments state['m']['a'], state['w']['b'] were already given" in text


# What else is asked of a placed function ----------------------------------------------------------


def test_other_shapes_and_transformations() -> None:
    fn = placed(rows=EVEN)
    state, _ = fn(init(), RATE)
    # Another rate is another signature; the state stays where it is and is not traced by place.
    rates = np.full(1, 0.1, np.float32)
    check(fn(state, rates), jit(step)(init_after(), rates))

    def loss(step: Any) -> Any:
        return jit(jax.grad(lambda w: step({"w": w, "m": init()["m"]}, RATE)[1]))

    check(loss(fn)(init()["w"]), loss(step)(init()["w"]))
    traced = fn.trace(state, RATE)
    assert traced.out_info[0]["w"]["a"].shape == (LAYERS, 3, 4)
    assert len(traced.lower().program.arguments) == 4 * len(EVEN) + 3


def init_after() -> Any:
    return jit(step)(init(), RATE)[0]


def test_static_arguments_are_not_touched() -> None:
    class Options(list[Any]):
        __hash__ = object.__hash__  # type: ignore[assignment]

    seen: list[Any] = []

    def fn(state: Any, options: Any) -> Any:
        seen.append(options)
        return state["w"]["a"] * len(options)

    options = Options([1, 2])
    state, _ = UNDONATED(init(), RATE)
    check(placed(fn, static_argnums=1)(state, options), state["w"]["a"] * 2)
    assert seen[0] is options


def test_plans_are_saved_and_repeated(tmp_path: Path) -> None:
    fn = placed(donate_argnums=0)
    plan = fn.plan(*jax.eval_shape(lambda: (init(), jnp.asarray(RATE))))
    plan.save(tmp_path / "plan.mlir")
    assert "state['w']['a'][1:4]" in plan.text
    str(plan)
    plan.report(tmp_path / "plan.html")
    loaded = baechi.Plan.load(tmp_path / "plan.mlir")
    assert loaded.text == plan.text


def test_placed_alike() -> None:
    train = placed()
    state, _ = train(init(), RATE)

    def evaluate(w: Any) -> Any:
        return jnp.sum(w["a"] ** 2) + jnp.sum(w["b"])

    like = baechi.place(
        evaluate, like=train, pipeline=in_pieces("a|b", "0:6@3"), compiler_options=QUICK
    )
    np.testing.assert_allclose(
        like(state["w"]), jit(evaluate)(jax.tree.map(np.asarray, state["w"]))
    )


def test_memory_is_measured_with_pieces() -> None:
    compiled = placed(donate_argnums=0).lower(init(), RATE).compile()
    (state, loss), memory = compiled.measure_memory(init(), RATE)
    check((state, loss), jit(step)(init(), RATE))
    assert max(memory.peak_bytes) > 0
