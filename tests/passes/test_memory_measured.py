"""What compiled tasks told: looked up by task, by what is in it, and written into a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost, TaskMemory
from baechi_jax.ir.errors import VerificationError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.memory_measured import (
    KNOWN,
    MARGIN,
    MeasuredMemory,
    add_note,
    donated_operands,
    margin_of,
    note_of,
    rederive,
    set_known,
    structure_of,
    task_memory,
    with_margin,
)
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.tasks import tasks_of

STEP = """
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>):
    %two = "baechi.literal"() {value = 2.0 : f32} : () -> tensor<f32>
    %h = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("m.py":1:0)
    %s = "jax.mul"(%h, %two) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32> loc("m.py":2:0)
    %y = "jax.dot_general"(%s, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("m.py":3:0)
    "func.return"(%y) : (tensor<64x64xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>} : () -> ()
}) : () -> ()
"""  # noqa: E501

#: More than the arguments, the result and the products take.
LIMIT = 100_000


def planned(known: MeasuredMemory | None = None, limit: int = LIMIT) -> Module:
    module = parse_module(STEP)
    module.attributes["baechi.topology"] = Topology.uniform(1, Device(memory_bytes=limit))
    set_known(module, known or MeasuredMemory(), ())
    PassManager(parse_pipeline("default")).run(module)
    return module


def only_task(module: Module) -> Operation:
    (task,) = tasks_of(module.main)
    return task


def temporaries(task: Operation) -> int:
    cost = task.attributes["baechi.cost"]
    assert isinstance(cost, Cost)
    return cost.temporary_bytes


def test_a_known_task_takes_what_was_found() -> None:
    first = planned()
    entry = task_memory(only_task(first), "cpu", 12_345)
    again = planned(MeasuredMemory([entry]))
    assert temporaries(only_task(again)) == 12_345 != temporaries(only_task(first))
    # Less than predicted is as true as more.
    less = planned(MeasuredMemory([replace(entry, temporary_bytes=8)]))
    assert temporaries(only_task(less)) == 8


def test_another_kind_of_device_says_nothing() -> None:
    first = planned()
    entry = replace(task_memory(only_task(first), "gpu", 8), structure="")
    assert temporaries(only_task(planned(MeasuredMemory([entry])))) == temporaries(only_task(first))


def test_fuse_tasks_knows_what_the_operations_take() -> None:
    first = planned()
    modelled = temporaries(only_task(first))
    entry = replace(task_memory(only_task(first), "cpu", modelled + 5_000), task="another")
    assert temporaries(only_task(planned(MeasuredMemory([entry])))) == modelled + 5_000


def test_a_plan_that_does_not_fit_as_compiled_is_refused() -> None:
    entry = task_memory(only_task(planned()), "cpu", LIMIT)
    module = planned(limit=10 * LIMIT)
    module.attributes["baechi.topology"] = Topology.uniform(1, Device(memory_bytes=LIMIT))
    module.attributes[KNOWN] = (entry,)
    with pytest.raises(MemoryLimitError, match=r"temporaries of 't0' at m\.py:1"):
        PassManager(parse_pipeline("plan-memory")).run(module)


def test_the_first_entry_of_a_task_counts() -> None:
    known = MeasuredMemory([TaskMemory("a", "s", "cpu", 100, 40), TaskMemory("a", "s", "cpu", 7)])
    assert known.entries == (TaskMemory("a", "s", "cpu", 100, 40),)
    assert known
    assert not MeasuredMemory()


def test_structure_is_blind_to_order_but_not_to_data_flow() -> None:
    main = parse_module(STEP).main
    two, h, s, y, _ = main.body.ops
    outputs = [y.result]
    whole = structure_of([two, h, s, y], outputs)
    assert structure_of([h, two, s, y], outputs) == whole
    assert structure_of([two, h, s, y], [y.result, h.result]) != whole
    assert structure_of([two, h, s], [s.result]) != whole
    # The same operations on other operands.
    y.set_operand(0, h.result)
    assert structure_of([two, h, s, y], outputs) != whole


def test_rederive_writes_the_true_peaks() -> None:
    module = planned()
    task = only_task(module)
    before = module.main.attributes["baechi.memory"]
    assert isinstance(before, tuple)
    (memory,) = rederive(module, {task: temporaries(task) + 1_000}, MeasuredMemory())
    assert memory.peak_bytes == before[0].peak_bytes + 1_000  # type: ignore[union-attr]
    assert memory.run_ahead_bytes == memory.peak_bytes
    # The plan agrees with itself.
    PassManager(parse_pipeline("verify-plan")).run(module)


def test_the_text_holds_what_is_known() -> None:
    module = planned()
    entry = task_memory(only_task(module), "NVIDIA H200", 99)
    set_known(module, MeasuredMemory([entry]), (512,))
    add_note(module, "One.")
    add_note(module, "Two.")
    read = parse_module(print_module(module))
    assert MeasuredMemory.of(read).entries == (entry,)
    assert margin_of(read) == (512,)
    assert note_of(read) == "One. Two."
    set_known(read, MeasuredMemory(), (0,))
    assert KNOWN not in read.attributes
    assert MARGIN not in read.attributes


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (KNOWN, ("text",), "must be an array of #baechi.task_memory"),
        (KNOWN, (TaskMemory("a", "", "cpu", -1),), "bytes are not negative"),
        (MARGIN, (-1,), "must be bytes per device"),
        (MARGIN, (1, 2), "2 entries for 1"),
        ("baechi.memory_note", 3, "must be a string"),
    ],
)
def test_malformed_attributes(key: str, value: object, message: str) -> None:
    module = planned()
    module.attributes[key] = value  # type: ignore[assignment]
    with pytest.raises(VerificationError, match=message):
        verify(module)


def test_margin_is_reserved_but_never_more_than_there_is() -> None:
    topology = Topology.uniform(2, Device(memory_bytes=100, reserved_bytes=10))
    assert with_margin(topology, ()) is topology
    assert [d.usable_bytes for d in with_margin(topology, (30, 500)).devices] == [60, 1]


def test_donated_operands_are_part_of_the_key() -> None:
    module = planned()
    task = only_task(module)
    one = task_memory(task, "cpu", 1)
    task.attributes["baechi.donates"] = (0,)
    assert donated_operands(task) == (0,)
    assert task_memory(task, "cpu", 1).task != one.task
