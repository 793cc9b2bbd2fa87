"""``merge-tasks``: convexity, time, memory; and the small graphs on which it works."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baechi_jax.ir.core import Block, Module, Operation, Region
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import function, refresh_function_type, set_argument_attributes
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.types import TensorType
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.merge_tasks import MergeTasks, placed_quotient
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.quotient import Quotient, Tensor
from baechi_jax.passes.reachability import Reachability
from baechi_jax.passes.tasks import tasks_of

BYTES = 4 * 1024
TYPE = TensorType((1024,), "f32")


def module_of(
    nodes: list[tuple[str, int, list[str]]],
    returned: list[str],
    memory_bytes: int = 1 << 30,
    devices: int = 2,
) -> Module:
    """Tasks ``(name, device, names of what it reads)`` of one millisecond and 4096 bytes each;
    ``x`` is an argument on device 0."""
    func = function("main", [TYPE])
    values = {"x": func.body.arguments[0]}
    for name, device, reads in nodes:
        inner = Block([TYPE] * len(reads))
        total = inner.arguments[0]
        for argument in inner.arguments[1:]:
            total = inner.append(Operation("jax.add", (total, argument), (TYPE,))).result
        made = inner.append(Operation("jax.tanh", (total,), (TYPE,)))
        inner.append(Operation("baechi.yield", made.results))
        task = Operation(
            "baechi.task",
            [values[each] for each in reads],
            (TYPE,),
            {
                "sym_name": name,
                "baechi.cost": Cost(seconds=(1e-3,), output_bytes=BYTES),
                "baechi.devices": (device,),
            },
            [Region([inner])],
        )
        values[name] = func.body.append(task).result
    func.body.append(Operation("func.return", [values[name] for name in returned]))
    set_argument_attributes(func, [{"baechi.name": "x", "baechi.devices": (0,)}])
    refresh_function_type(func)
    topology = Topology.uniform(devices, Device(memory_bytes=memory_bytes))
    module = Module({"baechi.topology": topology})
    module.body.append(func)
    verify(module)
    return module


def merged_sizes(module: Module, **options) -> list[tuple[int, int]]:
    """``(device, how many tanh)`` of each task after merging."""
    MergeTasks(**options).run(module)
    verify(module)
    return [
        (
            task.attributes["baechi.devices"][0],
            sum(op.name == "jax.tanh" for op in task.body.ops),
        )
        for task in tasks_of(module.main)
    ]


def test_one_device_is_one_task() -> None:
    module = module_of(
        [("a", 0, ["x"]), ("b", 0, ["x"]), ("c", 0, ["a", "b"]), ("d", 0, ["c"])], ["d", "b"]
    )
    assert merged_sizes(module) == [(0, 4)]


def test_a_chain_over_two_devices_is_two_tasks() -> None:
    names = "abcdefgh"
    nodes = [(n, int(i >= 4), [names[i - 1] if i else "x"]) for i, n in enumerate(names)]
    assert merged_sizes(module_of(nodes, ["h"])) == [(0, 4), (1, 4)]


def test_a_path_through_another_device_keeps_tasks_apart() -> None:
    nodes = [("a", 0, ["x"]), ("b", 1, ["a"]), ("c", 0, ["a", "b"])]
    assert merged_sizes(module_of(nodes, ["c"])) == [(0, 1), (1, 1), (0, 1)]


def test_two_merges_that_are_convex_alone_are_not_both_made() -> None:
    """a1 -> b2 and b1 -> a2: a1 with a2 and b1 with b2 would need one another."""
    nodes = [("a1", 0, ["x"]), ("b1", 1, ["x"]), ("a2", 0, ["b1"]), ("b2", 1, ["a1"])]
    sizes = merged_sizes(module_of(nodes, ["a2", "b2"]), slowdown=10.0, tasks_per_device=1)
    assert sorted(sizes) in ([(0, 1), (0, 1), (1, 2)], [(0, 2), (1, 1), (1, 1)])


def test_a_send_is_not_delayed() -> None:
    # u could be merged with a, but what a gives is awaited on device 1.
    nodes = [("a", 0, ["x"]), ("u", 0, ["a"]), ("b", 1, ["a"]), ("c", 1, ["b"])]
    assert sorted(merged_sizes(module_of(nodes, ["u", "c"]))) == [(0, 1), (0, 1), (1, 2)]


def test_a_send_that_has_time_is() -> None:
    # Device 1 is busy for five milliseconds before it needs what a gives.
    busy = [(f"b{i}", 1, [f"b{i - 1}" if i else "y"]) for i in range(5)]
    nodes = [("y", 1, ["x"]), ("a", 0, ["x"]), ("u", 0, ["a"]), *busy, ("c", 1, ["b4", "a"])]
    sizes = merged_sizes(module_of(nodes, ["u", "c"]))
    assert (0, 2) in sizes


def forward_and_backward(memory_bytes: int = 1 << 30) -> Module:
    """a0 ... a7 on device 0, m on device 1, then b7 ... b0 on device 0: b_i reads a_i, and the step
    returns every b. Merged, the b's keep all a's until all b's are there."""
    forward = [(f"a{i}", 0, [f"a{i - 1}" if i else "x"]) for i in range(8)]
    backward = [(f"b{i}", 0, [f"b{i + 1}" if i < 7 else "m", f"a{i}"]) for i in range(7, -1, -1)]
    nodes = [*forward, ("m", 1, ["a7"]), *backward]
    return module_of(nodes, [f"b{i}" for i in range(8)], memory_bytes)


def test_memory_keeps_tasks_small() -> None:
    roomy = forward_and_backward()
    assert merged_sizes(roomy) == [(0, 8), (1, 1), (0, 8)]
    whole = placed_quotient(roomy).play()[0].peak_bytes[0]
    limit = whole - 5 * BYTES
    tight = forward_and_backward(limit)
    sizes = merged_sizes(tight)
    assert placed_quotient(tight).play()[0].peak_bytes[0] <= limit
    assert (0, 8) in sizes
    assert 4 <= len(sizes) <= 6


def test_a_merge_that_saves_memory_is_made_under_any_limit() -> None:
    """What is passed on inside a task is fused away: the whole fits where its parts do not."""
    nodes: list[tuple[str, int, list[str]]] = [("s0", 0, ["x"])]
    for i in range(4):
        nodes += [(f"w{i}{j}", 0, [f"s{i}"]) for j in range(6)]
        nodes.append((f"s{i + 1}", 0, [f"w{i}{j}" for j in range(6)]))
    whole = module_of(nodes, ["s4"])
    MergeTasks().run(whole)
    limit = placed_quotient(whole).play()[0].peak_bytes[0]
    assert placed_quotient(module_of(nodes, ["s4"])).play()[0].peak_bytes[0] > limit
    assert merged_sizes(module_of(nodes, ["s4"], memory_bytes=limit)) == [(0, 29)]


def test_options_are_checked() -> None:
    with pytest.raises(PassError, match="slowdown must not be negative"):
        MergeTasks(slowdown=-1.0).run(module_of([], []))
    with pytest.raises(PassError, match="tasks-per-device at least 1"):
        MergeTasks(tasks_per_device=0).run(module_of([], []))


# Quotients --------------------------------------------------------------------------------------


def quotient(tensors: list[Tensor], nodes: int, temporary: int = 0) -> Quotient:
    return Quotient(
        Machine.uniform_of(1, 1 << 30),
        [0] * nodes,
        [1.0] * nodes,
        [temporary] * nodes,
        [(node,) for node in range(nodes)],
        tensors,
    )


def test_what_stays_inside_becomes_temporary() -> None:
    chain = [Tensor(100, 0, (1,), False), Tensor(10, 1, (2,), False), Tensor(1, 2, (), True)]
    merged = quotient(chain, 3, temporary=5).merged([[0, 1, 2]])
    # While node 1 runs, both its input and its result live.
    assert merged.temporary_bytes == [115]
    assert merged.tensors == [Tensor(1, 0, (), True)]
    assert merged.seconds == [3.0]


def test_alike_tensors_are_added_up() -> None:
    tensors = [Tensor(3, 0, (1,), False), Tensor(4, 0, (1,), False), Tensor(9, 0, (), False)]
    merged = quotient(tensors, 2).merged([[0], [1]])
    assert merged.tensors == [Tensor(7, 0, (1,), False), Tensor(9, 0, (), False)]


@given(st.data(), st.integers(2, 9))
def test_reachability_after_joins(data: st.DataObject, size: int) -> None:
    edges = {(a, b) for a in range(size) for b in range(a + 1, size) if data.draw(st.booleans())}
    successors = [{b for a, b in edges if a == node} for node in range(size)]
    reach = Reachability(successors, range(size))
    group = list(range(size))

    def leads(source: int, target: int, without: set[int]) -> bool:
        """Whether a way leads from one group to another through groups not in ``without``."""
        seen = {source}
        stack = [source]
        while stack:
            at = stack.pop()
            for a, b in edges:
                if group[a] == at and group[b] not in seen:
                    if group[b] == target and at != source:
                        return True
                    if group[b] not in without:
                        seen.add(group[b])
                        stack.append(group[b])
        return False

    for _ in range(4):
        left, right = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
        if group[left] == group[right]:
            continue
        ends = {group[left], group[right]}
        expected = not (
            leads(group[left], group[right], ends) or leads(group[right], group[left], ends)
        )
        assert reach.may_join(left, right) == expected
        if expected:
            reach.join(left, right)
            old, new = group[right], group[left]
            group = [new if each == old else each for each in group]
