"""The pass ``place`` on modules."""

import logging

import pytest

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.place import Place
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.synthetic import training_problem
from baechi_jax.passes.placement.to_module import to_module
from baechi_jax.passes.simulate.timeline import simulate_module


def topology(count: int, megabytes: int = 1000) -> Topology:
    return Topology.uniform(count, Device("gpu", memory_bytes=megabytes << 20))


def training_module(layers: int, count: int, megabytes: int = 1000) -> Module:
    where = topology(count, megabytes)
    return to_module(training_problem(layers, Machine.from_topology(where)), where)


def record(module: Module) -> DictAttr:
    placement = module.attributes["baechi.placement"]
    assert isinstance(placement, DictAttr)
    return placement


def test_to_module_and_from_module_are_inverse() -> None:
    where = topology(3)
    problem = training_problem(4, Machine.from_topology(where))
    again = from_module(to_module(problem, where)).problem
    assert again.node_names == problem.node_names
    assert again.node_sources == problem.node_sources
    assert again.group.tolist() == problem.group.tolist()
    assert (again.seconds == problem.seconds).all()
    name = {i: (problem.node_names[n], i) for i, n in enumerate(problem.producer.tolist())}
    assert len(name) == again.tensors
    # Tensors are numbered by producer; compare each producer's tensors in order.
    for node in range(problem.nodes):
        for old, new in zip(problem.lists.gives[node], again.lists.gives[node], strict=True):
            assert again.lists.tensor_bytes[new] == problem.lists.tensor_bytes[old]
            assert sorted(again.lists.readers[new]) == sorted(problem.lists.readers[old])
            assert again.lists.persistent[new] == problem.lists.persistent[old]


def test_every_task_and_argument_gets_a_device() -> None:
    module = training_module(6, 3, 11)
    Place().run(module)
    source = from_module(module)
    devices = placed_devices(module, source)
    assert set(devices) == {0, 1, 2}
    for members in source.problem.members:
        assert len({devices[node] for node in members}) == 1
    # An argument lies where its next value is made.
    for index, entry in enumerate(argument_attributes(module.main)):
        if "baechi.state" in entry:
            group = source.problem.group[index]
            assert all(devices[node] == devices[index] for node in source.problem.members[group])


def test_the_record_says_what_was_decided() -> None:
    module = training_module(6, 3, 11)
    Place().run(module)
    placement = record(module)
    makespan, bound = placement["makespan_seconds"], placement["bound_seconds"]
    assert isinstance(makespan, float)
    assert isinstance(bound, float)
    assert 0 < bound <= makespan
    assert placement["gap"] == pytest.approx((makespan - bound) / makespan)
    candidates = placement["candidates"]
    assert isinstance(candidates, tuple)
    names = [each["placer"] for each in candidates if isinstance(each, DictAttr)]
    assert names == ["single:0", "single:1", "single:2", "m-topo", "m-etf", "m-sct", "milp"]
    fits = [each["fits"] for each in candidates if isinstance(each, DictAttr)]
    assert fits == [False, False, False, True, True, True, True]
    assert placement["placer"] in names[3:]


def test_order_of_tasks_is_that_of_their_starts() -> None:
    module = training_module(6, 3, 11)
    Place().run(module)
    timeline = simulate_module(module)
    assert timeline.makespan_seconds <= record(module)["makespan_seconds"] * 1.05
    tasks = [op.attributes["sym_name"] for op in module.main.body.ops[:-1]]
    assert tasks != sorted(tasks)
    assert parse_module(print_module(module)) is not None


def test_repeatable_and_through_text() -> None:
    texts = []
    for _ in range(2):
        module = parse_module(print_module(training_module(5, 3, 11)))
        Place().run(module)
        texts.append(print_module(module))
    assert texts[0] == texts[1]


def test_one_device_when_that_is_best() -> None:
    where = Topology.uniform(2, Device("gpu"), latency_seconds=1.0)
    module = to_module(training_problem(4, Machine.from_topology(where)), where)
    Place().run(module)
    assert (record(module)["placer"], record(module)["status"]) == ("single:0", "one device")
    assert all(op.attributes["baechi.devices"] == (0,) for op in module.main.body.ops[:-1])


def test_options_come_from_a_pipeline() -> None:
    text = "place{placer=m-etf time-limit=2.5 seed=3 memory-scale=0.9 auto-milp-nodes=10}"
    (place,) = parse_pipeline(text)
    assert place == Place("m-etf", 2.5, 3, 0.9, 10)
    module = training_module(3, 2)
    place.run(module)
    assert record(module)["placer"] == "m-etf"


def test_memory_scale_leaves_room() -> None:
    module = training_module(6, 3, 11)
    Place(memory_scale=0.95).run(module)
    peaks = record(module)["peak_bytes"]
    assert isinstance(peaks, tuple)
    assert max(peaks) <= 0.95 * (11 << 20)
    with pytest.raises(InfeasiblePlacementError):
        Place(memory_scale=0.5).run(training_module(6, 3, 11))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (Place(memory_scale=0.0), "memory-scale must be positive, found 0.0"),
        (Place(time_limit=0.0), "time-limit must be positive, found 0.0"),
    ],
)
def test_wrong_options_are_errors(place: Place, message: str) -> None:
    with pytest.raises(PassError, match=message):
        place.run(training_module(2, 2))


def test_unknown_placer_is_an_error() -> None:
    with pytest.raises(PlacerError, match="unknown placer 'best'"):
        Place("best").run(training_module(2, 2))


def test_infeasible_leaves_the_module_alone(caplog: pytest.LogCaptureFixture) -> None:
    module = training_module(6, 2, 5)
    before = print_module(module)
    with caplog.at_level(logging.WARNING), pytest.raises(InfeasiblePlacementError):
        Place().run(module)
    assert print_module(module) == before


def test_a_module_without_tasks_is_placed() -> None:
    module = training_module(0, 2)
    Place().run(module)
    assert [entry["baechi.devices"] for entry in argument_attributes(module.main)] == [(0,)]
