"""Running: errors name the task and what is lost; steps ahead are bounded; transfers; memory."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import baechi_jax as baechi
from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.runtime.errors import ExecutionError, execution_error
from baechi_jax.runtime.instructions import Program, Run
from baechi_jax.runtime.pacing import MOST_STEPS, End, Pacer, steps_in_flight
from baechi_jax.runtime.transport import copier, mover
from tests.runtime.scatter import scattered

place: Callable[..., Any] = functools.partial(
    baechi.place,
    topology=Topology.uniform(2),
    pipeline=scattered(2, seed=1, pieces=2),
    compiler_options={"xla_backend_optimization_level": 0},
)


# Errors -------------------------------------------------------------------------------------------


def fails(x: Any) -> Any:
    if np.asarray(x).max() > 5:
        raise ValueError("too large for me")
    return np.asarray(x)


@pytest.mark.parametrize("kind", ["pure", "io", "debug"])
def test_an_error_in_a_callback(kind: str) -> None:
    def fn(x: Any) -> Any:
        y = x + 1
        match kind:
            case "pure":
                return jax.pure_callback(fails, y, y)
            case "io":
                return io_callback(fails, y, y, ordered=True)
            case _:
                jax.debug.callback(fails, y)
                return y

    placed = place(fn)
    assert float(placed(jnp.float32(1))) == 2.0
    with pytest.raises(ExecutionError) as caught:
        placed(jnp.float32(9))
    message = str(caught.value)
    assert re.search(r"task 't\d' on .*\d \(.*test_execute.py:\d+", message)
    assert "too large for me" in message
    assert "All arguments are intact." in message
    # The function stays usable.
    assert float(placed(jnp.float32(2))) == 3.0


def test_lost_arguments_are_named() -> None:
    def fn(state: Any, x: Any) -> Any:
        with baechi.on(0):
            w = state["w"] * 2
        with baechi.on(1):
            return {"w": w}, jax.pure_callback(fails, x, x + w[0])

    placed = baechi.place(fn, topology=Topology.uniform(2), placer="expert", donate_argnums=0)
    state = {"w": jnp.ones(3)}
    with pytest.raises(ExecutionError, match=r"donated arguments state\['w'\] were already given"):
        placed(state, jnp.float32(9))
    assert state["w"].is_deleted()
    state, _ = placed({"w": jnp.ones(3)}, jnp.float32(1))
    np.testing.assert_array_equal(state["w"], np.full(3, 2.0))


def test_donated_but_not_yet_given_away() -> None:
    def fn(state: Any, x: Any) -> Any:
        y = jax.pure_callback(fails, x, x)
        return state + y

    placed = baechi.place(
        fn, topology=Topology.uniform(1), pipeline=scattered(1, pieces=2), donate_argnums=0
    )
    state = jnp.zeros(3)
    with pytest.raises(ExecutionError, match="No donated argument was given away yet"):
        placed(state, jnp.float32(9))
    np.testing.assert_array_equal(placed(state, jnp.float32(1)), np.ones(3))


def test_nan_checks_name_the_task() -> None:
    placed = place(lambda x: jnp.log(x) * 2)
    with (
        jax.debug_nans(True),
        pytest.raises(ExecutionError, match=r"task 't\d' .* failed: a result holds nan"),
    ):
        placed(-jnp.ones(2))


def test_out_of_memory_says_what_helps() -> None:
    error = execution_error(
        "task 't1' on cuda:0 (a.py:3)", RuntimeError("RESOURCE_EXHAUSTED: 4 GiB"), [], False
    )
    assert "task 't1' on cuda:0 (a.py:3) failed" in str(error)
    assert "reserved_bytes" in str(error)


def test_out_of_memory_names_the_task_its_device_and_its_predicted_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed = place(lambda x: jnp.sin(x) @ jnp.cos(x))
    compiled = placed.lower(jnp.ones((8, 8))).compile()

    def full(*arrays: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 256 bytes")

    for number, step in enumerate(compiled.executor._steps):
        if isinstance(step[-1], Run):
            compiled.executor._steps[number] = (full, *step[1:])
    with pytest.raises(ExecutionError) as caught:
        compiled(jax.device_put(jnp.ones((8, 8)), compiled.input_shardings[0][0]))
    message = str(caught.value)
    assert re.search(r"task 't\d' on .*cpu:\d.* \(.*test_execute.py:\d+", message, re.IGNORECASE)
    peaks = [f"a peak of {entry.peak_bytes:,} bytes on" for entry in compiled.plan.memory]
    assert any(peak in message for peak in peaks)
    assert "All arguments are intact" in message
    assert "reserved_bytes" in message


def test_many_lost_arguments_are_counted() -> None:
    error = execution_error("t", RuntimeError("x"), [f"p[{i}]" for i in range(9)], True)
    assert "p[4] and 4 more" in str(error)


# Steps ahead --------------------------------------------------------------------------------------


def program(tasks: int, *memory: DeviceMemory) -> Program:
    from baechi_jax.runtime.instructions import Run

    return Program((), tuple(Run(i, (), ()) for i in range(tasks)), (), (), (), (), memory)


@pytest.mark.parametrize(
    ("tasks", "ahead", "steps"),
    [(1, 50, None), (3, 50, 2), (3, 20, MOST_STEPS), (3, 90, 1), (3, 10, MOST_STEPS)],
)
def test_steps_in_flight(tasks: int, ahead: int, steps: int | None) -> None:
    memory = DeviceMemory(
        peak_bytes=ahead, run_ahead_bytes=ahead, resident_bytes=10, limit_bytes=100
    )
    assert steps_in_flight(program(tasks, memory)) == steps
    assert steps_in_flight(program(tasks)) is None


class Token:
    def __init__(self) -> None:
        self.waited = 0

    def block_until_ready(self) -> None:
        self.waited += 1


def test_pacer_waits_for_the_oldest() -> None:
    pacer = Pacer(2)
    tokens = [Token() for _ in range(3)]
    for token in tokens:
        pacer.wait()
        pacer.start().append(End(token, 0))
    assert [token.waited for token in tokens] == [1, 0, 0]
    pacer.wait()
    assert [token.waited for token in tokens] == [1, 1, 0]


def test_a_step_that_is_interrupted_while_it_waits_is_waited_for_again() -> None:
    class Interrupted(Token):
        def block_until_ready(self) -> None:
            super().block_until_ready()
            if self.waited == 1:
                raise KeyboardInterrupt

    pacer, token = Pacer(1), Interrupted()
    pacer.start().append(End(token, 0))
    with pytest.raises(KeyboardInterrupt):
        pacer.wait()
    pacer.wait()
    assert token.waited == 2


class Failed:
    """What comes from a task that failed after it was launched."""

    def block_until_ready(self) -> None:
        raise RuntimeError("INTERNAL: no luck")


def test_an_earlier_step_that_failed_names_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = place(lambda x: jnp.sin(x) * 2, donate_argnums=0)
    steps = steps_in_flight(placed.lower(jnp.ones(3)).program)
    assert steps is not None
    plain = compat.Executable.call_with_token

    def call(self: Any, *arrays: Any) -> Any:
        return plain(self, *arrays)[0], Failed()

    with monkeypatch.context() as patched:
        patched.setattr(compat.Executable, "call_with_token", call)
        placed(jnp.ones(3))
    for _ in range(steps - 1):
        placed(jnp.ones(3))
    x = jnp.ones(3)
    with pytest.raises(ExecutionError) as caught:
        placed(x)
    message = str(caught.value)
    assert re.search(r"^an earlier step, in task 't\d' on .*test_execute.py:\d+\) or in", message)
    assert "failed: INTERNAL: no luck" in message
    assert "No donated argument was given away yet" in message
    assert not x.is_deleted()
    # The function stays usable.
    np.testing.assert_allclose(placed(x), np.sin(1) * 2 * np.ones(3), 1e-6)


def test_arguments_that_come_from_an_earlier_step_that_failed_are_named() -> None:
    tight = Topology.uniform(2, Device(memory_bytes=30_000))
    compiled = baechi.place(tanh_steps, topology=tight, placer="expert", donate_argnums=0)
    args = [jnp.eye(32) for _ in range(4)], jnp.ones((16, 32))
    executor = compiled.lower(*args).compile().executor
    assert steps_in_flight(executor.program) == 1
    with pytest.raises(ExecutionError) as caught:
        executor.pace([jnp.ones(3), Failed()], ["w[0]", "w[1]"])
    message = str(caught.value)
    assert message.startswith("an earlier step failed: INTERNAL: no luck")
    assert "The arguments w[1] were to come from it and hold nothing" in message


def tanh_steps(w: Any, x: Any) -> Any:
    for index in range(4):
        with baechi.on(index % 2):
            x = jnp.tanh(x @ w[index])
    return [v * 0.9 for v in w], jnp.sum(x)


def test_a_loop_of_steps_under_a_tight_limit() -> None:
    w = [jnp.eye(32) for _ in range(4)]
    x = jnp.ones((16, 32))
    tight = Topology.uniform(2, Device(memory_bytes=30_000))
    placed = baechi.place(tanh_steps, topology=tight, placer="expert", donate_argnums=0)
    roomy = baechi.place(tanh_steps, topology=Topology.uniform(2), placer="expert")
    compiled = placed.lower(w, x).compile()
    assert steps_in_flight(compiled.program) == 1
    state, want = jax.tree.map(jnp.copy, w), w
    for _ in range(5):
        state, y = placed(state, x)
        want, z = roomy(want, x)
    np.testing.assert_array_equal(y, z)


# Transfers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
def test_movers(plain: bool) -> None:
    devices = jax.devices()
    arrays = [jax.device_put(jnp.arange(3.0) + i, devices[i]) for i in range(2)]
    move = mover(devices[:2], devices[2:4], [plain, True])
    for got, array, device in zip(move(*arrays), arrays, devices[2:4], strict=True):
        assert got.device == device
        assert got.committed
        assert got.weak_type == array.weak_type
        np.testing.assert_array_equal(got, array)


def test_copies_never_share() -> None:
    x = jnp.arange(3.0)
    (y,) = copier([x.device])(x)
    assert y.committed
    assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()


def test_random_keys_travel() -> None:
    def fn(key: Any) -> Any:
        with baechi.on(0):
            one, two = jax.random.split(key)
        with baechi.on(1):
            return jax.random.normal(one, (3,)), two

    placed = baechi.place(fn, topology=Topology.uniform(2), placer="expert")
    want, got = jax.jit(fn)(jax.random.key(3)), placed(jax.random.key(3))
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(jax.random.key_data(got[1]), jax.random.key_data(want[1]))


# Memory -------------------------------------------------------------------------------------------


def test_measured_memory() -> None:
    def fn(w: Any, x: Any) -> Any:
        with baechi.on(0):
            y = x * 2
        with baechi.on(1):
            return w + jnp.sum(y), jnp.sum(y)

    placed = baechi.place(fn, topology=Topology.uniform(2), placer="expert", donate_argnums=0)
    w, x = jnp.ones(1024), jnp.ones((1024, 8))
    compiled = placed.lower(w, x).compile()
    want = jax.jit(fn)(w, x)
    got, memory = compiled.measure_memory(jnp.ones(1024), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6), got, want)
    on0, on1 = memory.peak_bytes
    assert on0 == 2 * x.nbytes
    assert w.nbytes + x.nbytes <= on1 <= w.nbytes + x.nbytes + 1024
    assert len(memory.ratios) == len(memory.peak_instructions) == 2
    assert memory.predicted == placed.plan(w, x).memory
    assert memory.moments[0].instruction == -1


def test_measured_errors_are_those_of_a_step() -> None:
    placed = place(lambda x: jax.pure_callback(fails, x, x + 1))
    compiled = placed.lower(jnp.float32(9)).compile()
    with pytest.raises(ExecutionError, match="too large for me"):
        compiled.measure_memory(jnp.float32(9))
