"""A placed function behaves as ``jax.jit`` of it: arguments, donation, retraces, transforms."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.errors import PipelineError
from baechi_jax.ir.topology import Topology
from baechi_jax.place import PlacedFunction
from baechi_jax.retraces import RETRACE_WARNING_AFTER, RetraceWarning
from tests.runtime.scatter import scattered

#: Two tasks on two devices.
place: Callable[..., Any] = functools.partial(
    baechi.place,
    topology=Topology.uniform(2),
    pipeline=scattered(2, seed=3, pieces=2),
    compiler_options={"xla_backend_optimization_level": 0},
)


class Point(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize("style", ["bare", "options", "call"])
def test_decorator_and_call(style: str) -> None:
    def double(x: Any) -> Any:
        """Twice."""
        return x * 2

    match style:
        case "bare":
            placed = baechi.place(double)
        case "options":
            placed = baechi.place(placer="m-etf")(double)
        case _:
            placed = baechi.place(double, placer="m-etf")
    assert isinstance(placed, PlacedFunction)
    assert placed.__name__ == "double"
    assert placed.__doc__ == "Twice."
    np.testing.assert_array_equal(placed(jnp.arange(3.0)), [0.0, 2.0, 4.0])


def test_pytrees_and_keywords() -> None:
    def f(p: Point, *, scale: Any, extra: dict[str, Any]) -> Any:
        return {"sum": p.x + p.y * scale, "none": None, "rest": [extra["b"], extra["a"] + 1]}

    args = Point(jnp.ones(3), jnp.arange(3.0))
    keywords = {"scale": 3.0, "extra": {"a": jnp.zeros(2), "b": 7}}
    got, want = place(f)(args, **keywords), jax.jit(f)(args, **keywords)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_keyword_order_is_one_call() -> None:
    traces = []

    @place
    def f(x: Any, *, a: Any, b: Any) -> Any:
        traces.append(1)
        return x + a - b

    assert f(jnp.ones(2), a=1.0, b=2.0)[0] == f(jnp.ones(2), b=2.0, a=1.0)[0]
    assert len(traces) == 1


@pytest.mark.parametrize("value", [3, 2.5, True, 1 + 2j, np.float32(2), np.int8(3), np.arange(3)])
def test_host_values(value: Any) -> None:
    def f(x: Any) -> Any:
        return x, x * 2

    for got, want in zip(place(f)(value), jax.jit(f)(value), strict=True):
        assert (got.dtype, got.weak_type, got.shape) == (want.dtype, want.weak_type, want.shape)
        np.testing.assert_array_equal(got, want)
        assert got.committed


def test_no_arguments_and_no_results() -> None:
    assert place(lambda: None)() is None
    assert place(lambda x: None)(jnp.ones(3)) is None
    assert place(lambda: 3.0)().weak_type
    np.testing.assert_array_equal(place(lambda: jnp.arange(3))(), [0, 1, 2])


def test_closed_over_arrays_move_once() -> None:
    constant = jnp.arange(1000.0)
    placed = place(lambda x: x + constant)
    placed(jnp.ones(1000))
    compiled = placed.lower(jnp.ones(1000)).compile()
    assert len(compiled.constants) == 1
    assert compiled.constants[0].committed
    np.testing.assert_array_equal(placed(jnp.ones(1000)), constant + 1)


# Static arguments ---------------------------------------------------------------------------------


def test_static_arguments() -> None:
    traces: list[Any] = []

    @functools.partial(place, static_argnames=("power", "mode"))
    def f(x: Any, power: int, mode: str = "plus") -> Any:
        traces.append((power, mode))
        return x**power if mode == "plus" else -(x**power)

    x = jnp.arange(3.0)
    np.testing.assert_array_equal(f(x, 2), [0, 1, 4])
    np.testing.assert_array_equal(f(x, 2, mode="minus"), [0, -1, -4])
    np.testing.assert_array_equal(f(x, 3), [0, 1, 8])
    np.testing.assert_array_equal(f(x, 2, "plus"), [0, 1, 4])
    np.testing.assert_array_equal(f(x, power=2), [0, 1, 4])
    assert traces[:3] == [(2, "plus"), (2, "minus"), (3, "plus")]
    count = len(traces)
    np.testing.assert_array_equal(f(x, 2), [0, 1, 4])
    np.testing.assert_array_equal(f(x, mode="minus", power=2), f(x, power=2, mode="minus"))
    assert len(traces) == count + 1


def test_equal_static_values_of_other_types_trace_anew() -> None:
    f = place(lambda x, n: x * n, static_argnums=1)
    assert f(jnp.int32(3), 1).dtype == jnp.int32
    assert f(jnp.int32(3), 1.0).dtype == jnp.float32


def test_unhashable_static_argument_is_named() -> None:
    with pytest.raises(ValueError, match="static argument 1 must be hashable, found list"):
        place(lambda x, n: x, static_argnums=1)(1.0, [1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_argnums": 5}, "static_argnums=5: the function has 2 positional"),
        ({"donate_argnames": "z"}, "donate_argnames='z': the function has no such argument"),
        ({"static_argnums": 0, "donate_argnums": 0}, "is both static and donated"),
        ({"pipeline": "place", "placer": "m-sct"}, "a pipeline or a placer, not both"),
        ({"plan": "plan.mlir", "placer": "m-sct"}, "a plan or a placer, not both"),
        ({"plan": "plan.mlir", "pipeline": "default"}, "a plan or a pipeline, not both"),
        ({"profile_folder": "costs"}, "profile_folder is only for costs='profile'"),
        ({"profile_seconds": 5}, "profile_seconds is only for costs='profile'"),
        ({"pipeline": "plcae"}, "did you mean 'place'"),
        ({"topology": 4}, "must be a Topology or a file"),
        ({"like": print}, "like must be a placed function"),
        ({"placer": 3}, "placer must be a string"),
        ({"topology": "nowhere.json"}, "nowhere.json"),
        ({"static_argnums": "x"}, "static_argnums must hold integers"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError, baechi.BaechiError), match=message):
        baechi.place(lambda x, y: x, **options)


def test_unknown_placer_is_named_at_once() -> None:
    with pytest.raises(baechi.BaechiError, match="unknown placer 'm-stc'; did you mean 'm-sct'"):
        baechi.place(lambda x: x, placer="m-stc")


def test_place_needs_a_function() -> None:
    with pytest.raises(TypeError, match="place needs a function, found int"):
        baechi.place(3)


# Donation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "state"}])
def test_donation(options: dict[str, Any]) -> None:
    def f(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x, "n": state["n"] * 2}, jnp.sum(x)

    placed = place(f, **options)
    x = jnp.ones((4, 4))
    state = {"w": jnp.ones((4, 4)), "n": jnp.ones(3)}
    for step in range(3):
        before = state
        state, _ = placed(state, x)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before)), step
        assert not x.is_deleted()
    np.testing.assert_array_equal(state["w"], np.full((4, 4), 4.0))
    np.testing.assert_array_equal(state["n"], np.full(3, 8.0))


def test_undonated_arguments_stay() -> None:
    x = jnp.ones(4)
    y = place(lambda x: x + 1)(x)
    assert not x.is_deleted()
    y.delete()
    np.testing.assert_array_equal(x, np.ones(4))


def test_results_have_their_own_buffers() -> None:
    @place
    def f(x: Any) -> Any:
        y = x * 2
        return x, y, y

    x = jax.device_put(jnp.arange(4.0), jax.devices()[0])
    results = f(x)
    pointers = {result.unsafe_buffer_pointer() for result in results}
    assert len(pointers | {x.unsafe_buffer_pointer()}) == 4


def test_donated_argument_returned_unchanged() -> None:
    f = place(lambda x, y: (x, y + 1), donate_argnums=(0, 1))
    x, y = f(jnp.arange(3.0), jnp.ones(3))
    for _ in range(2):
        x, y = f(x, y)
    np.testing.assert_array_equal(x, [0, 1, 2])
    np.testing.assert_array_equal(y, np.full(3, 4.0))
    assert x.committed


# Retraces -----------------------------------------------------------------------------------------


def test_retraces_exactly_when_types_change() -> None:
    traces = []

    @place
    def f(x: Any) -> Any:
        traces.append(1)
        return jax.tree.map(lambda leaf: leaf + 1, x)

    for argument, count in [
        (jnp.ones(3), 1),
        (jnp.zeros(3), 1),
        (np.ones(3, np.float32), 1),
        (jnp.ones(4), 2),
        (jnp.ones(3, jnp.int32), 3),
        (3.0, 4),
        (jnp.float32(3), 5),
        ([jnp.ones(3)], 6),
        (jnp.ones(3), 6),
    ]:
        f(argument)
        assert len(traces) == count, argument


def test_many_retraces_in_a_row_warn() -> None:
    f = place(lambda x: x + 1)
    for size in range(1, RETRACE_WARNING_AFTER):
        f(jnp.ones(size))
    with pytest.warns(RetraceWarning, match=r"leaf 0 changed from float32\[5\] to float32\[6\]"):
        f(jnp.ones(RETRACE_WARNING_AFTER))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(jnp.ones(2))
        f(jnp.ones(99))


def test_x64_between_calls() -> None:
    f = place(lambda x: x + np.float64(1))
    x = np.arange(3, dtype=np.float64)
    assert f(x).dtype == jnp.float32
    with jax.enable_x64(True):
        assert f(x).dtype == jnp.float64
    assert f(x).dtype == jnp.float32


def test_matmul_precision_is_part_of_the_signature() -> None:
    traces = []

    @place
    def f(x: Any) -> Any:
        traces.append(1)
        return x @ x

    f(jnp.ones((2, 2)))
    with jax.default_matmul_precision("float32"):
        f(jnp.ones((2, 2)))
    f(jnp.ones((2, 2)))
    assert len(traces) == 2


def test_clear_cache() -> None:
    traces = []

    @place
    def f(x: Any) -> Any:
        traces.append(1)
        return x + 1

    f(jnp.ones(2))
    f.clear_cache()
    f(jnp.ones(2))
    assert len(traces) == 2


# Transformations ----------------------------------------------------------------------------------


def test_under_transformations_it_is_the_function() -> None:
    def plain(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) * x)

    placed = place(plain, donate_argnums=0)
    x = jnp.arange(4.0)
    np.testing.assert_allclose(jax.grad(placed)(x), jax.grad(plain)(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(placed)(x), plain(x), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(placed)(x[:, None]), jax.vmap(plain)(x[:, None]), rtol=1e-6)
    assert jax.eval_shape(placed, x).shape == ()
    assert "sin" in str(jax.make_jaxpr(placed)(x))
    assert not x.is_deleted()
    inside = place(lambda x: placed(x) + 1)
    np.testing.assert_allclose(inside(x), plain(x) + 1, rtol=1e-6)


def test_disable_jit_runs_the_python() -> None:
    seen: list[Any] = []
    placed = place(lambda x: seen.append(x) or x + 1)
    with jax.disable_jit():
        placed(jnp.ones(2))
        placed(jnp.ones(2))
    assert len(seen) == 2
    assert not isinstance(seen[0], jax.core.Tracer)


def test_methods() -> None:
    class Model:
        @functools.partial(place, static_argnums=0)
        def scale(self, x: Any) -> Any:
            return x * self.factor

        factor = 3.0

    np.testing.assert_array_equal(Model().scale(jnp.ones(2)), [3, 3])


def test_errors_of_the_function_pass_through() -> None:
    @place
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        f(jnp.ones(2))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("text", 1.0), {}, r"argument config is no array but str 'text': .*not a valid JAX type"),
        (({"a": [1.0, "b"]}, 1.0), {}, r"argument config\['a'\]\[1\] is no array but str 'b'"),
        ((1.0, 2.0, "c"), {}, r"argument args\[2\] is .* mark .* static \(static_argnums=2\)"),
        ((1.0,), {"x": object()}, r"argument x is no array .*\(static_argnames='x'\) or close"),
        ((1.0, np.array(["a"], object)), {}, r"argument x is no array but ndarray.*arrays of num"),
    ],
)
def test_an_argument_that_is_no_array(args: Any, kwargs: Any, message: str) -> None:
    def fn(config: Any, x: Any, *rest: Any) -> Any:
        return x

    for call in (place(fn), place(fn).plan):
        with pytest.raises(TypeError, match=message):
            call(*args, **kwargs)


def test_a_static_argument_before_one_that_is_no_array() -> None:
    fn = place(lambda n, x: x * n, static_argnums=0)
    with pytest.raises(TypeError, match=r"argument x is no array .*static_argnums=1"):
        fn(2, "text")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"devices": [0, 1]}, TypeError, r"must hold JAX devices, .* found 0"),
        ({"devices": []}, ValueError, "devices is empty"),
        ({"plan": 3}, TypeError, "plan must be a Plan or a file's path, found int"),
        ({"dump_folder": __file__}, NotADirectoryError, "dump_folder must be a folder"),
        ({"topology": [1]}, TypeError, "topology must be a Topology or a file's path, found list"),
        ({"pipeline": "defualt"}, PipelineError, "unknown pass 'defualt'; did you mean 'default'"),
    ],
)
def test_options_are_checked_at_once(options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        baechi.place(lambda x: x, **options)


def test_one_device_is_no_sequence_of_devices() -> None:
    with pytest.raises(TypeError, match=r"devices must be a sequence .* alone"):
        baechi.place(lambda x: x, devices=jax.devices()[0])  # type: ignore[arg-type]


def test_calls_from_several_threads() -> None:
    traces = []

    @place
    def f(x: Any) -> Any:
        traces.append(1)
        return jnp.cumsum(jnp.sin(x)) * 2

    inputs = [jnp.arange(4.0) + offset for offset in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(f, inputs))
    assert len(traces) == 1
    for x, got in zip(inputs, results, strict=True):
        np.testing.assert_allclose(got, jnp.cumsum(jnp.sin(x)) * 2, rtol=1e-5)


def test_what_is_jitted_or_partial_already() -> None:
    np.testing.assert_array_equal(place(jax.jit(lambda x: x + 1))(jnp.ones(2)), [2, 2])
    add = functools.partial(lambda a, b: a + b, 1.0)
    np.testing.assert_array_equal(place(add)(jnp.ones(2)), [2, 2])


def test_what_jit_was_told_holds() -> None:
    def power(x: Any, n: int, *, mode: str = "up") -> Any:
        return x**n if mode == "up" else x

    jitted = jax.jit(power, static_argnums=1, static_argnames="mode", donate_argnums=0)
    for given in (place(jitted), place(place(jitted))):
        x = jnp.full(3, 2.0)
        np.testing.assert_array_equal(given(x, 3, mode="up"), np.full(3, 8.0))
        assert x.is_deleted()
    # What is said here counts.
    x = jnp.full(3, 2.0)
    place(jitted, donate_argnums=())(x, 3, mode="down")
    assert not x.is_deleted()


def test_compiler_options_of_jit_hold() -> None:
    jitted = jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": 1})
    for given in (baechi.place(jitted), baechi.place(baechi.place(jitted))):
        with pytest.raises(baechi.CompilationError, match="xla_no_such_option"):
            given(jnp.ones(2))
    placed = baechi.place(jitted, compiler_options={})
    np.testing.assert_array_equal(placed(jnp.ones(2)), [2, 2])


@pytest.mark.parametrize("options", [("in_shardings",), ("out_shardings",), ("backend",)])
def test_where_jit_was_told_to_run_is_refused(options: tuple[str, ...]) -> None:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[1])
    values: Any = {"in_shardings": (sharding, None), "out_shardings": sharding, "backend": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jitted = jax.jit(lambda x, y: x + y, **{name: values[name] for name in options})
    with pytest.raises(ValueError, match=f"jax.jit with {options[0]}, and place decides"):
        baechi.place(jitted)
    baechi.place(jitted.__wrapped__)
    baechi.place(jax.jit(lambda x: x, in_shardings=None, out_shardings=None))


def test_the_name_of_a_partial_function() -> None:
    def scale(factor: float, x: Any) -> Any:
        return factor * x

    assert repr(place(functools.partial(functools.partial(scale), 2.0))) == "<placed scale>"
