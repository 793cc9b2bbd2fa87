"""Devices that share hardware: one runs at a time, so a second one brings memory and no time."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from baechi_jax.ir.core import Module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import default_pipeline
from baechi_jax.passes.placement.bounds import makespan_bound
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import ProblemBuilder
from baechi_jax.passes.simulate.simulator import simulate
from baechi_jax.passes.tasks import device_of, tasks_of


def _machine(*hardware: int, memory_bytes: int = 1 << 30) -> Machine:
    devices = tuple(Device(memory_bytes=memory_bytes, hardware=each) for each in hardware)
    uniform = Topology.uniform(len(devices), latency_seconds=1.0, bytes_per_second=1e30)
    return Machine.from_topology(Topology(devices, uniform.links))


@pytest.mark.parametrize(
    ("hardware", "assignment", "makespan"),
    [
        # Two nodes of 3 s and 2 s, and one of 1 s that reads both. A transfer takes 1 s.
        ((-1, -1), [0, 0, 0], 6.0),
        ((-1, -1), [0, 1, 0], 4.0),
        # One after the other: 3 s, then 2 s there, 1 s on the way, 1 s.
        ((0, 0), [0, 1, 0], 7.0),
        # The third device is another processor.
        ((0, 0, -1), [0, 2, 0], 4.0),
        ((0, 0, 1), [0, 1, 2], 7.0),
        # The same number is the same hardware wherever it stands.
        ((3, -1, 3), [0, 2, 0], 7.0),
    ],
)
def test_by_hand(hardware: tuple[int, ...], assignment: list[int], makespan: float) -> None:
    builder = ProblemBuilder(_machine(*hardware))
    long, short = builder.add_node("long", 3.0), builder.add_node("short", 2.0)
    last = builder.add_node("last", 1.0)
    builder.add_tensor(long, 8, [last])
    builder.add_tensor(short, 8, [last])
    problem = builder.build()
    assert simulate(problem, assignment).makespan_seconds == makespan
    assert makespan_bound(problem) <= makespan
    if len(set(hardware)) == 1 and hardware[0] >= 0:
        assert makespan_bound(problem) == 6.0


def _branches(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
    return sum((jnp.tanh(x @ w) @ w.T for w in weights), x)


def _planned(topology: Topology, placer: str = "auto") -> Module:
    shapes = (
        jax.ShapeDtypeStruct((256, 256), jnp.float32),
        [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 4,
    )

    def fresh() -> Module:
        module = trace(_branches, shapes).module
        module.attributes["baechi.topology"] = topology
        return module

    module = fresh()
    PassManager(default_pipeline(placer)).run(module, fresh)
    return module


def _used(module: Module) -> set[int]:
    return {device_of(task) for task in tasks_of(module.main)}


def _seconds(module: Module, key: str) -> float:
    value = module.main.attributes[key]
    assert isinstance(value, float)
    return value


def _topology(hardware: int, memory_bytes: int) -> Topology:
    device = Device(
        memory_bytes=memory_bytes, hardware=hardware, flops_per_second=1e9, bytes_per_second=1e10
    )
    return Topology.uniform(4, device)


def test_auto_takes_one_device_where_all_fits() -> None:
    assert len(_used(_planned(_topology(-1, 1 << 30)))) > 1
    shared = _planned(_topology(0, 1 << 30))
    assert len(_used(shared)) == 1
    bound = _seconds(shared, "baechi.lower_bound_seconds")
    assert _seconds(shared, "baechi.step_seconds") == pytest.approx(bound, rel=0.05)


@pytest.mark.parametrize("placer", ["auto", "m-etf", "m-sct", "m-topo"])
def test_memory_still_spreads_and_nothing_overlaps(placer: str) -> None:
    module = _planned(_topology(0, 1_400_000), placer)
    assert len(_used(module)) > 1
    spans: list[tuple[Any, Any]] = sorted(
        (task.attributes["baechi.start_seconds"], task.attributes["baechi.end_seconds"])
        for task in tasks_of(module.main)
    )
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
