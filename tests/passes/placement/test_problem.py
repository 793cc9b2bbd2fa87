"""Problems: building, checking, deriving."""

import dataclasses
import doctest

import numpy as np
import pytest

import baechi_jax.passes.placement.problem as problem_module
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import layered_problem

MACHINE = Machine.uniform_of(2, 100)


def diamond() -> ProblemBuilder:
    builder = ProblemBuilder(MACHINE)
    a, b, c, d = (builder.add_node(name, 1.0, group=group) for name, group in zip("abcd", "ghgh"))
    builder.add_tensor(a, 1, [b, c, b])
    builder.add_tensor(b, 2, [d])
    builder.add_tensor(c, 3, [d])
    return builder


def test_doctest() -> None:
    assert doctest.testmod(problem_module).failed == 0


def test_lists_are_the_arrays() -> None:
    problem = diamond().build()
    assert problem.lists.readers == [[1, 2], [3], [3]]
    assert problem.lists.reads == [[], [0], [0], [1, 2]]
    assert problem.lists.gives == [[0], [1], [2], []]
    assert problem.lists.task_reads == [0, 1, 1, 2]
    assert problem.group_names == ("g", "h")
    assert problem.members == ((0, 2), (1, 3))
    assert problem.readers_of(0).tolist() == [1, 2, 1]


def test_order_is_topological_and_near_the_indices() -> None:
    builder = ProblemBuilder(MACHINE)
    late = builder.add_node("late", 1.0)
    free = builder.add_node("free", 1.0)
    early = builder.add_node("early", 1.0)
    builder.add_tensor(early, 1, [late])
    problem = builder.build()
    assert problem.order == (free, early, late)
    assert problem.position == (2, 0, 1)
    assert diamond().build().order == (0, 1, 2, 3)


def test_cycle_is_an_error() -> None:
    builder = ProblemBuilder(MACHINE)
    a, b = builder.add_node("a", 1.0), builder.add_node("b", 1.0)
    builder.add_tensor(a, 1, [b])
    builder.add_tensor(b, 1, [a])
    with pytest.raises(PlacementProblemError, match="cycle"):
        builder.build()


def test_allowed_devices_follow_pins_and_kinds() -> None:
    builder = ProblemBuilder(MACHINE)
    builder.add_node("anywhere", 1.0)
    builder.add_node("second", [float("inf"), 1.0], group="g")
    builder.add_node("pinned", 1.0)
    builder.pin(2, 0)
    problem = builder.build()
    assert problem.allowed == ((0, 1), (1,), (0,))


def test_a_group_that_can_run_nowhere_is_an_error() -> None:
    builder = ProblemBuilder(MACHINE)
    builder.add_node("left", [1.0, float("inf")], group="g", source="train.py:3")
    builder.add_node("right", [float("inf"), 1.0], group="g")
    message = r"group 'g' \(left at train.py:3 and 1 more\) can run on no device"
    with pytest.raises(PlacementProblemError, match=message):
        builder.build()
    builder = ProblemBuilder(MACHINE)
    builder.pin(builder.add_node("left", [1.0, float("inf")]), 1)
    with pytest.raises(PlacementProblemError, match=r"'left' can run on no device \(pinned to 1\)"):
        builder.build()


def test_pins_that_contradict_are_an_error() -> None:
    builder = diamond()
    builder.pin(0, 0)
    builder.pin(2, 0)
    message = r"'c' is pinned to device 1, but its group 'g' is pinned to device 0"
    with pytest.raises(PlacementProblemError, match=message):
        builder.pin(2, 1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temporary_bytes", np.zeros(3, dtype=np.int64), "'temporary_bytes' has shape"),
        ("seconds", np.zeros((4, 3)), "'seconds' has shape"),
        ("seconds", np.full((4, 2), np.nan), "'seconds' must not be negative or NaN"),
        ("seconds", np.full((4, 2), -1.0), "'seconds' must not be negative or NaN"),
        ("readers", np.array([1, 2, 1, 3, 9]), r"'readers' must be in \[0, 4\)"),
        ("producer", np.array([0, 1, -1]), r"'producer' must be in \[0, 4\)"),
        ("group", np.array([0, 0, 0, 0]), "every group needs a node"),
        ("pinned", np.array([0, 5]), r"'pinned' must be in \[-1, 2\)"),
        ("tensor_bytes", np.array([1, -2, 3]), "bytes must not be negative"),
        ("is_argument", np.array([False, True, False, False]), "an argument cannot read a tensor"),
    ],
)
def test_malformed_arrays_are_errors(field: str, value: np.ndarray, message: str) -> None:
    with pytest.raises(PlacementProblemError, match=message):
        dataclasses.replace(diamond().build(), **{field: value})


def test_with_limits_keeps_the_graph() -> None:
    problem = diamond().build().with_limits([5, 6])
    assert problem.lists.limit_bytes == [5, 6]
    assert problem.nodes == 4


def test_machine_of_a_topology() -> None:
    topology = Topology(
        (
            Device("gpu", memory_bytes=1000, reserved_bytes=100, hardware=7),
            Device("cpu", memory_bytes=50),
            Device("gpu", memory_bytes=1000, hardware=7, name="second"),
        ),
        tuple(
            Link(s, t, latency_seconds=s + t, bytes_per_second=10.0, wire=3 if s + t == 1 else -1)
            for s in range(3)
            for t in range(3)
            if s != t
        ),
    )
    machine = Machine.from_topology(topology, memory_scale=0.5)
    assert machine.limit_bytes.tolist() == [450, 25, 500]
    assert machine.processor.tolist() == [0, 1, 0]
    assert machine.names == ("gpu:0", "cpu:1", "second")
    assert machine.kinds == ("gpu", "cpu", "gpu")
    assert machine.wire[0, 1] == machine.wire[1, 0]
    assert len({machine.wire[s, t] for s in range(3) for t in range(3) if s != t}) == 5
    assert machine.transfer_seconds(0, 2, 20) == 4.0
    assert machine.transfer_seconds(1, 1, 20) == 0.0
    assert not machine.uniform


def test_machine_with_more_devices() -> None:
    machine = Machine.uniform_of(2, 10, latency_seconds=1.0, seconds_per_byte=2.0).repeated(4)
    assert machine.size == machine.processors == 4
    assert machine.transfer_seconds(2, 3, 1) == machine.transfer_seconds(0, 1, 1) == 3.0
    assert machine.limit_bytes.tolist() == [10] * 4


def test_large_problems_are_built_quickly() -> None:
    import time

    before = time.process_time()
    problem: PlacementProblem = layered_problem(20_000, 32, MACHINE)
    _ = problem.lists, problem.members, problem.allowed
    assert time.process_time() - before < 5.0
