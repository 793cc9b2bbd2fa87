"""What a user sees when nothing fits: the table of buffers, the limit that would, the status."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

import baechi_jax as baechi
from baechi_jax import planner
from baechi_jax.cli import main
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.limits_that_fit import NEAR
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.sweep import parse_axis, sweep
from baechi_jax.units import parse_bytes

STEP = textwrap.dedent(
    """
    import jax
    import jax.numpy as jnp

    def step(params, x):
        def loss(params):
            h = x
            for layer in params:
                h = jnp.tanh(h @ layer["w"])
            return jnp.mean(jnp.sort(h, axis=0)[:2] ** 2)
        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    def step_args():
        f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
        return [{"w": f32(128, 128)} for _ in range(4)], f32(64, 128)
    """
)


def test_the_command_line_shows_a_table_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEP)
    target = f"{tmp_path / 'train.py'}:step"
    result = CliRunner().invoke(
        main, ["plan", target, "--memory", "100KiB"], catch_exceptions=True, color=False
    )
    text = result.output
    assert result.exit_code == 1
    assert "Traceback" not in text
    assert "Error: no placement fits the memory of" in text
    # A rich table: its heading, an argument by its path, an operation by its line, shares.
    assert re.search(r"size\s+share\s+buffer\s+made at", text)
    assert re.search(r"64.00 KiB\s+\d+\.\d%\s+argument params\[\d\]\['w'\]", text)
    assert re.search(r"tanh tensor<64x128xf32>", text)
    # A path may be folded in a narrow table.
    assert "train.py:9" in re.sub(r"[\s│]", "", text)
    limit = re.search(r"a limit of ([\d.]+) (\w+) on each device", text)
    assert limit is not None
    assert re.search(r"\(planning succeeds with that and fails with \d\.\d% less\)", text)
    again = CliRunner().invoke(main, ["plan", target, "--memory", "".join(limit.groups())])
    assert again.exit_code == 0, again.output


def chain(params: Any, x: Any) -> Any:
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def shapes() -> Any:
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return [w] * 6, jax.ShapeDtypeStruct((8, 64), jnp.float32)


def refused(function: Any, topology: Topology, *arguments: Any) -> InfeasiblePlacementError:
    with pytest.raises(InfeasiblePlacementError) as caught:
        baechi.place(function, topology=topology).plan(*arguments)
    return caught.value


def train(params: Any, x: Any) -> Any:
    grads = jax.grad(lambda params: jnp.mean(chain(params, x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def scanned(stack: Any, x: Any) -> Any:
    def loss(stack: Any) -> Any:
        last, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, stack)
        return jnp.mean(last**2)

    return stack - 0.1 * jax.grad(loss)(stack)


def attention(weights: Any, x: Any) -> Any:
    a, b = x @ weights["a"], jnp.sin(x) @ weights["b"]
    return jnp.sum(jax.nn.softmax(a @ b.T) @ jnp.concatenate([a, b], 1)), a + b


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def machine(*memory_bytes: int, reserved_bytes: int = 0) -> Topology:
    devices = tuple(Device(memory_bytes=m, reserved_bytes=reserved_bytes) for m in memory_bytes)
    return Topology(devices, Topology.uniform(len(devices)).links)


WEIGHTS = [f32(96, 96)] * 6


@pytest.mark.parametrize(
    ("function", "arguments", "topology"),
    [
        (chain, shapes(), machine(20_000, 50_000)),
        (train, (WEIGHTS, f32(48, 96)), machine(100_000, 100_000, 100_000)),
        (train, (WEIGHTS, f32(48, 96)), machine(60_000, 150_000, 250_000)),
        (scanned, (f32(4, 32, 32), f32(16, 32)), machine(8_000, 16_000)),
        (attention, ({"a": f32(64, 64), "b": f32(64, 64)}, f32(32, 64)), machine(20_000, 20_000)),
        (attention, ({"a": f32(64, 64), "b": f32(64, 64)}, f32(32, 64)), machine(9_000, 30_000)),
        (train, (WEIGHTS[:2], f32(48, 96)), machine(100_000)),
        (train, (WEIGHTS[:4], f32(48, 96)), machine(90_000, 150_000, reserved_bytes=50_000)),
    ],
    ids=["chain", "equal", "unequal", "scan", "attention", "uneven", "one", "reserved"],
)
def test_planning_succeeds_with_the_limits_that_are_advised(
    function: Any, arguments: Any, topology: Topology
) -> None:
    error = refused(function, topology, *arguments)
    assert error.remedies[0] in error.advice
    found = re.fullmatch(
        r"(?:a limit of|limits of) (.*?)(?: on each device)? \(planning succeeds with that and "
        r"fails with (\d\.\d)% less(?:; what is reserved is counted)?\)",
        error.remedies[0],
    )
    assert found is not None, error.remedies[0]
    printed = tuple(parse_bytes(each) for each in found[1].split(", "))
    assert error.needed_bytes == (printed if len(printed) > 1 else printed * topology.size)
    # Printed sizes are rounded up, by less than a hundredth.
    assert 0 < float(found[2]) <= 100 * (NEAR - 1) + 1

    def scaled(share: float) -> Topology:
        devices = tuple(
            replace(
                device,
                memory_bytes=int(share * (needed - device.reserved_bytes)) + device.reserved_bytes,
            )
            for device, needed in zip(topology.devices, error.needed_bytes, strict=True)
        )
        return replace(topology, devices=devices)

    baechi.place(function, topology=scaled(1.0)).plan(*arguments)
    refused(function, scaled(0.8), *arguments)


def test_unequal_devices_are_told_one_by_one() -> None:
    error = refused(chain, machine(20_000, 50_000), *shapes())
    assert error.peak is not None
    assert error.peak.peak_bytes == sum(each.nbytes for each in error.peak.buffers)
    assert error.peak.limit_bytes in (20_000, 50_000)
    small, large = error.needed_bytes
    assert small > 20_000
    # All grow by one factor.
    assert large / small == pytest.approx(2.5, rel=1e-3)


def test_a_sweep_does_not_search_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "with_limits_that_fit", None)
    traced = baechi.place(chain, topology=machine(20_000, 20_000)).trace(*shapes())
    _, outcomes = sweep(lambda: traced.module, machine(20_000, 20_000), [parse_axis("devices=2")])
    (outcome,) = outcomes
    assert not outcome.fits
    assert max(outcome.needed_bytes) > 20_000


def test_one_huge_buffer_is_named_with_its_line() -> None:
    def outer(x: Any) -> Any:
        return jnp.sort(x[:, None] * x[None, :], axis=0).sum()

    error = refused(
        outer,
        Topology.uniform(2, Device(memory_bytes=1 << 20)),
        jax.ShapeDtypeStruct((1024,), jnp.float32),
    )
    assert error.proven
    assert error.peak is not None
    large = [each for each in error.peak.buffers if each.nbytes == 4 << 20]
    assert any("sort tensor<1024x1024xf32>" in each.what for each in large)
    assert all("test_out_of_memory.py" in each.source for each in large)
    assert "by itself, too large for any device" in error.advice


def test_pins_that_force_it_are_named() -> None:
    def pinned(params: Any, x: Any) -> Any:
        with baechi.on(0):
            return chain(params, x)

    error = refused(pinned, Topology.uniform(2, Device(memory_bytes=60_000)), *shapes())
    assert error.peak is not None
    assert error.peak.device == 0
    assert "unpin some of the" in error.advice


def test_a_message_with_a_prefix_keeps_its_table() -> None:
    error = refused(chain, Topology.uniform(1, Device(memory_bytes=60_000)), *shapes())
    other = error.prefixed("As compiled: ")
    assert str(other) == f"As compiled: {error}"
    assert other.peak is error.peak
    assert not other.proven
