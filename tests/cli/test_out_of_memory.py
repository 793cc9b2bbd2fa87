"""What a user sees when nothing fits: the table of buffers, the limit that would, the status."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

import baechi_jax as baechi
from baechi_jax.cli import main
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.placement.errors import InfeasiblePlacementError

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
    assert "in simulation; less may do" in text
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


def test_unequal_limits_get_limits_of_their_own() -> None:
    link = Topology.uniform(2).links
    small, large = Device(memory_bytes=20_000), Device(memory_bytes=50_000)
    error = refused(chain, Topology((small, large), link), *shapes())
    assert error.peak is not None
    assert error.peak.peak_bytes == sum(each.nbytes for each in error.peak.buffers)
    assert error.peak.limit_bytes in (20_000, 50_000)
    assert error.needed_bytes[0] >= 20_000
    assert error.needed_bytes[1] >= 50_000
    assert "limits of" in error.advice
    devices = tuple(Device(memory_bytes=int(1.07 * each)) for each in error.needed_bytes)
    baechi.place(chain, topology=Topology(devices, link)).plan(*shapes())


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
