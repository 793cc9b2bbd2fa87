"""``refine-placement`` and its local search."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.place import Place
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.placement.local_search import local_search
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.problem import ProblemBuilder
from baechi_jax.passes.placement.synthetic import (
    layered_problem,
    random_problem,
    training_problem,
)
from baechi_jax.passes.placement.to_module import to_module
from baechi_jax.passes.refine_placement import RefinePlacement
from baechi_jax.passes.simulate.judge import judge


def test_patience_ends_the_search() -> None:
    problem = training_problem(8, Machine.uniform_of(3, 1 << 30, latency_seconds=1e-4))
    start = [0] * problem.groups
    long = local_search(problem, start, evaluations=60)
    for patience in (1, 3, 8):
        found = local_search(problem, start, evaluations=60, patience=patience)
        # Between two improvements, and after the last one, at most so many.
        assert found.evaluations <= (found.improvements + 1) * patience
        assert found.evaluations <= long.evaluations
        assert found.simulation.makespan_seconds >= long.simulation.makespan_seconds


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1_000_000),
    limit=st.sampled_from([250, 400, 1 << 40]),
    evaluations=st.integers(0, 40),
)
def test_never_worse_and_within_limits(seed: int, limit: int, evaluations: int) -> None:
    problem = random_problem(seed, tasks=10, devices=3, limit_bytes=limit)
    limits = problem.lists.limit_bytes
    start = [
        allowed[(seed >> group) % len(allowed)] for group, allowed in enumerate(problem.allowed)
    ]
    before = judge(problem, expand(problem, start))
    found = local_search(problem, start, evaluations=evaluations)
    after = found.simulation
    assert found.evaluations <= evaluations
    key = (after.excess_bytes(limits), after.makespan_seconds)
    assert key <= (before.excess_bytes(limits), before.makespan_seconds)
    for group, device in enumerate(found.device_of_group):
        assert device in problem.allowed[group]
    assert local_search(problem, start, evaluations=evaluations) == found


def test_spreads_what_waits_for_its_processor() -> None:
    builder = ProblemBuilder(Machine.uniform_of(3, 1 << 30, latency_seconds=0.1))
    for index in range(6):
        builder.add_node(f"n{index}", 1.0)
    found = local_search(builder.build(), [0] * 6, evaluations=50)
    assert found.simulation.makespan_seconds == 2.0
    assert found.improvements > 0


def test_brings_the_ends_of_a_slow_transfer_together() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30, latency_seconds=5.0))
    a, b = builder.add_node("a", 1.0), builder.add_node("b", 1.0)
    builder.add_tensor(a, 1, [b])
    found = local_search(builder.build(), [0, 1], evaluations=10)
    assert found.simulation.makespan_seconds == 2.0


def test_swaps_where_a_move_alone_does_not_fit() -> None:
    # Each device has room for two; c belongs to a, b to d.
    builder = ProblemBuilder(Machine.uniform_of(2, 20, latency_seconds=5.0))
    a, b, c, d = (builder.add_node(name, 1.0) for name in "abcd")
    builder.add_tensor(a, 10, [c], persistent=True)
    builder.add_tensor(b, 10, [d], persistent=True)
    builder.add_tensor(c, 10, persistent=True)
    builder.add_tensor(d, 10, persistent=True)
    problem = builder.build()
    problem = problem.with_limits([30, 30])
    found = local_search(problem, [0, 0, 1, 1], evaluations=60)
    assert found.simulation.fits([30, 30])
    assert found.simulation.makespan_seconds == 2.0


def test_other_starts_are_used_when_the_first_is_stuck() -> None:
    machine = Machine.uniform_of(3, 1 << 40, latency_seconds=1e-5, seconds_per_byte=1e-10)
    problem = layered_problem(40, 6, machine, seed=2)
    topo = [m_topo(problem).assignment[members[0]] for members in problem.members]
    alone = local_search(problem, [0] * problem.groups, evaluations=300)
    helped = local_search(problem, [0] * problem.groups, evaluations=300, others=[topo])
    assert helped.simulation.makespan_seconds <= alone.simulation.makespan_seconds
    assert helped.evaluations <= 300


def test_a_start_that_was_passed_is_not_searched_from_again() -> None:
    machine = Machine.uniform_of(3, 1 << 40, latency_seconds=1e-5, seconds_per_byte=1e-10)
    problem = layered_problem(40, 6, machine, seed=2)
    start = [0] * problem.groups
    alone = local_search(problem, start, evaluations=300)
    assert alone.evaluations < 298
    assert alone.improvements > 0
    # Neither the start nor where the search ended costs a simulation; another start does.
    again = local_search(
        problem, start, evaluations=300, others=[start, alone.device_of_group, list(start)]
    )
    assert again == alone
    topo = [m_topo(problem).assignment[members[0]] for members in problem.members]
    helped = local_search(problem, start, evaluations=300, others=[start, topo])
    assert helped == local_search(problem, start, evaluations=300, others=[topo])
    assert helped.evaluations > alone.evaluations


# The pass ---------------------------------------------------------------------------------------


def placed(placer: str = "m-topo", megabytes: int = 1000) -> Module:
    topology = Topology.uniform(3, Device("gpu", memory_bytes=megabytes << 20))
    module = to_module(training_problem(6, Machine.from_topology(topology)), topology)
    Place(placer).run(module)
    return module


def test_improves_a_placement_and_says_so() -> None:
    module = placed()
    before = module.attributes["baechi.placement"]
    assert isinstance(before, DictAttr)
    RefinePlacement().run(module)
    after = module.attributes["baechi.placement"]
    assert isinstance(after, DictAttr)
    assert after["makespan_seconds"] < before["makespan_seconds"]
    assert after["gap"] < before["gap"]
    assert (after["placer"], after["status"]) == ("m-topo", "refined")
    refinement = after["refinement"]
    assert isinstance(refinement, DictAttr)
    assert 0 < refinement["improvements"] <= refinement["evaluations"] <= 40


def test_keeps_groups_and_limits() -> None:
    module = placed(megabytes=11)
    RefinePlacement(evaluations=100).run(module)
    source = from_module(module)
    devices = placed_devices(module, source)
    for members in source.problem.members:
        assert len({devices[node] for node in members}) == 1
    assert judge(source.problem, devices).fits(source.problem.lists.limit_bytes)


def test_no_evaluations_change_nothing() -> None:
    module = placed()
    main = print_module(module).split("baechi.placement")[0]
    RefinePlacement(evaluations=0).run(module)
    assert print_module(module).split("baechi.placement")[0] == main
    refinement = module.attributes["baechi.placement"]["refinement"]
    assert dict(refinement) == {"evaluations": 0, "improvements": 0}


def test_repeatable() -> None:
    texts = []
    for _ in range(2):
        module = placed("m-etf", 11)
        RefinePlacement().run(module)
        texts.append(print_module(module))
    assert texts[0] == texts[1]


def test_errors() -> None:
    with pytest.raises(PassError, match="evaluations must not be negative, found -1"):
        RefinePlacement(evaluations=-1).run(placed())
    with pytest.raises(PassError, match="patience must be at least 1"):
        RefinePlacement(patience=0).run(placed())
    with pytest.raises(PassError, match="memory-scale must be positive"):
        RefinePlacement(memory_scale=0.0).run(placed())
    module = placed()
    entries = argument_attributes(module.main)
    entries[0]["baechi.devices"] = (2,)
    entries[1]["baechi.devices"] = (0,)
    set_argument_attributes(module.main, entries)
    with pytest.raises(PassError, match="splits a group that must share a device; run place"):
        RefinePlacement().run(module)
