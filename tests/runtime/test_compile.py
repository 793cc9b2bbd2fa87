"""Compiling: each distinct task once per device, in threads that end; errors that name the task."""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import baechi_jax as baechi
from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.topology import Topology
from baechi_jax.runtime.compile import usable_donations
from baechi_jax.runtime.errors import CompilationError
from tests.runtime.scatter import scattered

place: Callable[..., Any] = functools.partial(
    baechi.place,
    topology=Topology.uniform(2),
    compiler_options={"xla_backend_optimization_level": 0},
)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a jaxpr was lowered, and a lowering compiled."""
    counts = {"lowered": 0, "compiled": 0}
    lower, compile_ = compat.lower_jaxpr, compat.LoweredJaxpr.compile

    def counting_lower(*args: Any) -> Any:
        counts["lowered"] += 1
        return lower(*args)

    def counting_compile(self: Any, *args: Any) -> Any:
        counts["compiled"] += 1
        return compile_(self, *args)

    monkeypatch.setattr(compat, "lower_jaxpr", counting_lower)
    monkeypatch.setattr(compat.LoweredJaxpr, "compile", counting_compile)
    return counts


def chain(count: int, devices: int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        for index in range(count):
            with baechi.on(index % devices):
                x = jnp.sin(x)
        return x

    return fn


def test_equal_tasks_are_compiled_once_and_copied(counted: dict[str, int]) -> None:
    placed = place(chain(12, 2), pipeline=scattered(2, seed=1, pieces=12))
    x = jnp.ones(3)
    got = placed(x)
    np.testing.assert_allclose(got, jax.jit(chain(12, 2))(x), rtol=1e-6)
    assert counted == {"lowered": 1, "compiled": 1}


def test_a_copy_takes_the_buffers_of_donated_arguments(counted: dict[str, int]) -> None:
    def fn(a: Any, b: Any) -> Any:
        with baechi.on(0):
            a = jnp.sin(a) * 2
        with baechi.on(1):
            b = jnp.sin(b) * 2
        return a, b

    placed = place(fn, placer="expert", donate_argnums=(0, 1))
    a, b = (jax.device_put(jnp.full(1000, 0.5), device) for device in jax.devices()[:2])
    expected = np.sin(np.asarray(a)) * 2
    pointers = [each.unsafe_buffer_pointer() for each in (a, b)]
    got = placed(a, b)
    assert counted == {"lowered": 1, "compiled": 1}
    assert a.is_deleted()
    assert b.is_deleted()
    assert [each.unsafe_buffer_pointer() for each in got] == pointers
    assert [each.devices() for each in got] == [{device} for device in jax.devices()[:2]]
    for each in got:
        np.testing.assert_allclose(each, expected, rtol=1e-6)


def test_what_calls_back_is_compiled_for_each_device(counted: dict[str, int]) -> None:
    def called(v: Any) -> Any:
        return np.asarray(v) + 1

    def fn(a: Any, b: Any) -> Any:
        with baechi.on(0):
            a = jax.pure_callback(called, a, a)
        with baechi.on(1):
            b = jax.pure_callback(called, b, b)
        return a, b

    x = jnp.ones(3)
    got = place(fn, placer="expert")(x, x)
    assert counted == {"lowered": 1, "compiled": 2}
    for each in got:
        np.testing.assert_array_equal(each, np.full(3, 2.0))


def test_without_serialisation_each_device_compiles(
    counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat.Executable, "copy_to", lambda self, device: None)
    x = jnp.ones(3)
    got = place(chain(12, 2), pipeline=scattered(2, seed=1, pieces=12))(x)
    np.testing.assert_allclose(got, jax.jit(chain(12, 2))(x), rtol=1e-6)
    assert counted == {"lowered": 1, "compiled": 2}


def test_tasks_that_differ_in_what_text_cannot_tell(counted: dict[str, int]) -> None:
    def fn(x: Any) -> Any:
        y = jax.pure_callback(lambda v: np.asarray(v) + 1, x, x)
        return jax.pure_callback(lambda v: np.asarray(v) * 10, x, y)

    placed = place(fn, pipeline=scattered(1, pieces=2))
    assert float(placed(jnp.float32(1))) == 20.0
    assert counted["lowered"] == 2


def test_weak_types_and_donation_are_told_apart(counted: dict[str, int]) -> None:
    placed = place(lambda a, b: (a + 1, b + 1), pipeline=scattered(1, pieces=2), donate_argnums=0)
    a, b = placed(jnp.ones(3), jnp.ones(3))
    np.testing.assert_array_equal(a + b, np.full(3, 4.0))
    assert counted["lowered"] == 2


# Sharing executables ----------------------------------------------------------------------------


def two_parts(a: Any, b: Any) -> Any:
    with baechi.on(0):
        a = jnp.sin(a) * 2
    with baechi.on(1):
        b = jnp.cos(b) * 3
    return a, b


def test_stages_and_calls_compile_once(counted: dict[str, int]) -> None:
    placed = place(two_parts, placer="expert")
    x = jnp.ones(3)
    lowered = placed.lower(x, x)
    compiled = lowered.compile()
    assert counted["compiled"] == 2
    placed(x, x)
    assert placed.lower(x, x).compile() is compiled is lowered.compile()
    compiled(*jax.device_put((x, x), compiled.input_shardings[0]))
    assert counted == {"lowered": 2, "compiled": 2}


def test_calls_first_and_stages_then_compile_once(counted: dict[str, int]) -> None:
    placed = place(two_parts, placer="expert")
    x = jnp.ones(3)
    placed(x, x)
    placed.lower(x, x).compile()
    assert counted == {"lowered": 2, "compiled": 2}


def test_what_other_shapes_leave_alike_is_not_compiled_again(counted: dict[str, int]) -> None:
    placed = place(two_parts, placer="expert")
    x = jnp.ones(3)
    placed(x, x)
    got = placed(jnp.ones(4), x)
    assert counted == {"lowered": 3, "compiled": 3}
    for one, other in zip(got, jax.jit(two_parts)(jnp.ones(4), x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_functions_placed_alike_share(counted: dict[str, int]) -> None:
    placed = place(two_parts, placer="expert")
    x = jnp.ones(3)
    placed(x, x)
    place(two_parts, topology=None, like=placed, placer="expert")(x, x)
    assert counted["compiled"] == 2
    # But not functions that have nothing to do with one another.
    place(two_parts, placer="expert")(x, x)
    assert counted["compiled"] == 4


def test_the_configuration_decides_too(counted: dict[str, int]) -> None:
    placed = place(lambda a, b: a @ b)
    x = jnp.ones((3, 3))
    placed(x, x)
    before = counted["compiled"]
    with jax.default_matmul_precision("highest"):
        placed(x, x)
    assert counted["compiled"] == before + 1


def test_nothing_is_kept_that_no_program_uses(counted: dict[str, int]) -> None:
    placed = place(two_parts, placer="expert")
    x = jnp.ones(3)
    placed(x, x)
    placed.clear_cache()
    gc.collect()
    placed(x, x)
    assert counted["compiled"] == 4


def test_constants_that_look_alike_are_told_apart() -> None:
    def scaled(factor: float) -> Any:
        constant = np.full(4, factor, np.float32)
        return place(lambda x: x * constant)

    two, three = scaled(2.0), scaled(3.0)
    three._executables = two._executables
    np.testing.assert_array_equal(two(jnp.ones(4)), np.full(4, 2.0))
    np.testing.assert_array_equal(three(jnp.ones(4)), np.full(4, 3.0))


# Failures ---------------------------------------------------------------------------------------


def test_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Any, *args: Any) -> Any:
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr(compat.LoweredJaxpr, "compile", slow)
    x = jnp.ones(3)
    placed = place(lambda x: jnp.cos(jnp.sin(x)), donate_argnums=0, pipeline=scattered(2, seed=1))
    with pytest.raises(KeyboardInterrupt):
        placed(x)
    assert not [t for t in threading.enumerate() if t.name.startswith("baechi-compile")]
    assert not x.is_deleted()
    monkeypatch.undo()
    # Nothing half-done was kept.
    np.testing.assert_allclose(placed(x), jnp.cos(jnp.sin(jnp.ones(3))), rtol=1e-6)


def test_interrupt_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def slow(self: Any, *args: Any) -> Any:
        started.append(1)
        time.sleep(0.3)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(compat.LoweredJaxpr, "compile", slow)
    monkeypatch.setattr("baechi_jax.runtime.compile.wait", interrupted)
    ops = (jnp.sin, jnp.cos, jnp.tan, jnp.exp)
    placed = place(
        lambda x: functools.reduce(lambda x, op: op(x), ops, x),
        compile_threads=1,
        pipeline=scattered(1, pieces=4),
    )
    with pytest.raises(KeyboardInterrupt):
        placed(jnp.ones(3))
    assert len(started) < 4, "what had not started is dropped"
    assert not [t for t in threading.enumerate() if t.name.startswith("baechi-compile")]


def test_compiler_errors_name_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, *args: Any) -> Any:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(compat.LoweredJaxpr, "compile", refuse)
    placed = place(lambda x: jnp.sin(x), pipeline=scattered(1))
    message = r"XLA cannot compile task 't0' on .*0 \(.*test_compile.py:\d+\): no such instruction"
    with pytest.raises(CompilationError, match=message):
        placed(jnp.ones(3))


def test_lowering_errors_name_the_task() -> None:
    from jax.extend.core import Primitive

    unlowered = Primitive("unlowered")
    unlowered.def_abstract_eval(lambda x: x)
    placed = place(lambda x: unlowered.bind(x), pipeline=scattered(1))
    with pytest.raises(CompilationError, match=r"cannot lower task 't0' .*unlowered"):
        placed(jnp.ones(3))


def test_progress_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("baechi_jax.runtime.progress.SHOWN_AFTER_SECONDS", 0.0)
    fn: Callable[[Any], Any] = lambda x: lax.fori_loop(0, 3, lambda i, x: x @ x, x)  # noqa: E731
    place(fn, progress=False, pipeline=scattered(1))(jnp.ones((3, 3)))
    assert capsys.readouterr().err == ""
    place(fn, progress=True, pipeline=scattered(1))(jnp.ones((4, 4)))
    captured = capsys.readouterr()
    assert "compiling" in captured.err
    assert captured.out == ""


@pytest.fixture
def cache_folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of JAX's persistent compilation cache, which keeps everything."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    old = {key: getattr(jax.config, key) for key in settings}
    from jax.experimental.compilation_cache import compilation_cache

    try:
        for key, value in settings.items():
            jax.config.update(key, value)
        compilation_cache.reset_cache()
        yield tmp_path
    finally:
        for key, value in old.items():
            jax.config.update(key, value)
        compilation_cache.reset_cache()


def test_persistent_cache(cache_folder: Path) -> None:
    events: list[str] = []

    def listen(event: str, **_: Any) -> None:
        if event.startswith("/jax/compilation_cache/cache_"):
            events.append(event.rpartition("/")[2])

    def compiled() -> Any:
        """Compile a function placed anew: from shapes, so that nothing else is compiled."""
        placed = place(lambda x: jnp.sinh(x) * 3, pipeline=scattered(2, pieces=2))
        return placed.lower(jax.ShapeDtypeStruct((7,), jnp.float32)).compile()

    jax.monitoring.register_event_listener(listen)
    try:
        first = compiled()
        tasks = [f"t{index}" for index in range(len(first.program.tasks))]
        assert len(tasks) == 2
        kept = sorted(path.name for path in cache_folder.iterdir() if path.name.endswith("-cache"))
        assert [name.partition("-")[0] for name in kept] == [f"jit_{task}" for task in tasks]
        assert events == ["cache_misses"] * 2
        # As another process would: nothing is compiled again.
        jax.clear_caches()
        events.clear()
        second = compiled()
        assert events == ["cache_hits"] * 2
        found = sorted(path.name for path in cache_folder.iterdir() if path.name.endswith("-cache"))
        assert found == kept
    finally:
        jax.monitoring.unregister_event_listener(listen)
    np.testing.assert_allclose(second(jnp.ones(7)), 3 * np.sinh(np.ones(7)), rtol=1e-6)


def test_usable_donations() -> None:
    aval = lambda *shape: jax.core.ShapedArray(shape, np.dtype(np.float32))  # noqa: E731
    ins = [aval(3), aval(3), aval(4), aval(5)]
    assert usable_donations(ins, [aval(3), aval(5)], [0, 1, 2]) == [True, False, False, False]
    assert usable_donations(ins, [aval(3), aval(5)], [1, 3]) == [False, True, False, True]


def test_unusable_donations_free_and_do_not_warn() -> None:
    placed = place(lambda x: jnp.sum(x), donate_argnums=0, pipeline=scattered(1))
    x = jnp.ones(8)
    placed(x)
    assert x.is_deleted()
