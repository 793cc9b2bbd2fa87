"""A GPU, alone and together with CPU devices. ``JAX_PLATFORMS=cuda,cpu pytest -m gpu``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.local import devices_of
from baechi_jax.units import format_bytes
from tests.four_layers import arguments, step

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu() -> jax.Device:
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("needs a GPU that JAX may use: JAX_PLATFORMS=cuda,cpu")


@pytest.fixture
def both(gpu: jax.Device) -> list[jax.Device]:
    try:
        return [gpu, jax.devices("cpu")[0]]
    except RuntimeError:
        pytest.skip("needs JAX's CPU devices beside the GPU: JAX_PLATFORMS=cuda,cpu")


def _trains(placed: Any, steps: int = 3) -> None:
    """The placed step gives what ``jax.jit`` gives, step after step."""
    state, x = arguments()
    wanted, _ = arguments()
    jitted = jax.jit(step)
    for _ in range(steps):
        state, *found = placed(state, x)
        wanted, *expected = jitted(wanted, x)
        for one, other in zip(
            jax.tree.leaves((state, found)), jax.tree.leaves((wanted, expected)), strict=True
        ):
            # GPUs round products of float32 to TF32 unless told otherwise.
            np.testing.assert_allclose(one, other, rtol=5e-3, atol=5e-3)
            assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)


def test_a_gpu_is_found_by_its_names(gpu: jax.Device) -> None:
    topology = baechi.local_topology(devices=[gpu])
    assert devices_of(topology) == (gpu,)
    # Room for the context and libraries is kept.
    assert 0 < topology.devices[0].usable_bytes < topology.devices[0].memory_bytes


def test_one_gpu(gpu: jax.Device) -> None:
    _trains(baechi.place(step, topology=baechi.local_topology(devices=[gpu]), donate_argnums=0))


def test_a_cpu_takes_what_a_gpu_cannot_hold(both: list[jax.Device]) -> None:
    whole = baechi.place(
        step, topology=baechi.local_topology(devices=both[:1]), donate_argnums=0
    ).plan(*arguments())
    small = format_bytes(int(0.6 * max(whole.peak_bytes)))
    topology = baechi.local_topology(small, both, reserved_bytes=0)
    placed = baechi.place(step, topology=topology, donate_argnums=0)
    assert placed.plan(*arguments()).devices_used == (0, 1)
    _trains(placed)
    state, x = arguments()
    state, *_ = placed(state, x)
    platforms = {device.platform for leaf in jax.tree.leaves(state) for device in leaf.devices()}
    assert platforms == {"gpu", "cpu"}


def test_the_allocator_agrees_with_the_plan(gpu: jax.Device) -> None:
    topology = baechi.local_topology(devices=[gpu])
    placed = baechi.place(step, topology=topology, donate_argnums=0)
    state, x = jax.device_put(arguments(), gpu)
    before = (gpu.memory_stats() or {}).get("bytes_in_use")
    if before is None:
        pytest.skip("this GPU does not report its memory")
    own = sum(leaf.nbytes for leaf in jax.tree.leaves((state, x)))
    for _ in range(3):
        state, *_ = placed(state, x)
    jax.block_until_ready(state)
    peak = gpu.memory_stats()["peak_bytes_in_use"] - (before - own)
    (predicted,) = placed.plan(state, x).peak_bytes
    assert peak <= predicted + topology.devices[0].reserved_bytes


def test_costs_are_measured_on_both(both: list[jax.Device], tmp_path: Path) -> None:
    topology = baechi.local_topology(devices=both)
    placed = baechi.place(
        step, topology=topology, donate_argnums=0, costs="profile", profile_folder=tmp_path
    )
    _trains(placed)
    plan = placed.plan(*arguments())
    assert plan.topology != plan.declared_topology
    assert len(list(tmp_path.glob("*.json"))) == 2
