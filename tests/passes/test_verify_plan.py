"""Each rule of a plan is broken once, in a plan that is otherwise good."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.types import InFlightType, OnType, TensorType, TokenType
from baechi_jax.passes import plan_errors as errors
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.plan_checks.memory import recount
from baechi_jax.passes.plan_checks.view import view_of
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.passes.verify_plan import VerifyPlan

STEP = Path(__file__).parent / "data" / "step.mlir"


@cache
def plan_text() -> str:
    """Layers 0 and 1 on device 0, the rest on device 1, with so little memory that it waits."""
    module = parse_module(STEP.read_text())
    module.attributes["baechi.topology"] = Topology.uniform(2)
    PassManager(parse_pipeline("fuse-tasks{max-tasks=16}")).run(module)
    first = {"params[0]", "params[1]"}
    entries = argument_attributes(module.main)
    for entry in entries:
        entry["baechi.devices"] = (int(entry["baechi.group"] not in first),)
    set_argument_attributes(module.main, entries)
    for task in tasks_of(module.main):
        task.attributes["baechi.devices"] = (int(task.attributes["baechi.group"] not in first),)
    PassManager(parse_pipeline("insert-transfers,schedule,plan-memory")).run(module)
    # Now that the peak is known, allow no more.
    limit = memory_of(module)[0].peak_bytes
    module.attributes["baechi.topology"] = Topology.uniform(2, Device(memory_bytes=limit))
    PassManager(parse_pipeline("plan-memory,partition")).run(module)
    return print_module(module)


def memory_of(module: Module) -> tuple[DeviceMemory, ...]:
    memory = module.main.attributes["baechi.memory"]
    assert isinstance(memory, tuple)
    return tuple(each for each in memory if isinstance(each, DeviceMemory))


@pytest.fixture
def plan() -> Module:
    return parse_module(plan_text())


def task(module: Module, name: str) -> Operation:
    return next(t for t in tasks_of(module.main) if t.attributes["sym_name"] == name)


def ops(module: Module, name: str) -> list[Operation]:
    return [op for op in module.main.body.ops if op.name == name]


def move(module: Module, op: Operation, before: Operation) -> None:
    rest = [each for each in module.main.body.ops if each is not op]
    rest.insert(rest.index(before), op)
    module.main.body.set_ops(rest)


def insert(module: Module, op: Operation, before: Operation) -> None:
    module.main.body.insert_before(before, op)


def refuse(module: Module, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        VerifyPlan().run(module)
    assert type(caught.value) is kind


def test_a_good_plan_passes_and_is_left_alone(plan: Module) -> None:
    VerifyPlan().run(plan)
    assert print_module(plan) == plan_text()
    assert len(ops(plan, "baechi.wait")) == 1
    assert len(ops(plan, "baechi.send")) == 2


def test_an_unpartitioned_plan_passes(plan: Module) -> None:
    plan.body.retain(lambda op: not str(op.attributes.get("sym_name")).startswith("main_d"))
    VerifyPlan().run(plan)


# Form -------------------------------------------------------------------------------------------


def _foreign(module: Module) -> None:
    insert(module, Operation("jax.add"), task(module, "t3"))


def _no_device(module: Module) -> None:
    del task(module, "t3").attributes["baechi.devices"]


def _no_cost(module: Module) -> None:
    del task(module, "t3").attributes["baechi.cost"]


def _same_name(module: Module) -> None:
    task(module, "t3").attributes["sym_name"] = "t4"


def _no_memory(module: Module) -> None:
    del module.main.attributes["baechi.memory"]


def _unknown_device(module: Module) -> None:
    task(module, "t3").attributes["baechi.devices"] = (2,)


def _no_operand_to_free(module: Module) -> None:
    task(module, "t3").attributes["baechi.frees"] = (9,)


def _frees_twice(module: Module) -> None:
    task(module, "t3").attributes["baechi.frees"] = (0, 0)


def _donating_send(module: Module) -> None:
    ops(module, "baechi.send")[0].attributes["baechi.donates"] = (0,)


def _no_channel(module: Module) -> None:
    del ops(module, "baechi.send")[0].attributes["channel"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_foreign, "'jax.add' .* does not belong in a plan"),
        (_no_device, "task 't3' .* needs one device in 'baechi.devices'"),
        (_no_cost, "task 't3' .* has no 'baechi.cost'"),
        (_same_name, "a task needs a name of its own, found 't4'"),
        (_no_memory, "needs 'baechi.memory' with one entry for each of 2 devices"),
        (_unknown_device, "task 't3' .* on device 2: the topology has 2 devices"),
        (_no_operand_to_free, "'baechi.frees' has no operand 9"),
        (_frees_twice, "'baechi.frees' names one value twice"),
        (_donating_send, "cannot donate"),
        (_no_channel, "needs a number in 'channel'"),
    ],
)
def test_malformed(plan: Module, change: Callable[[Module], None], message: str) -> None:
    change(plan)
    refuse(plan, errors.MalformedPlanError, message)


def test_a_task_that_reads_from_outside(plan: Module) -> None:
    outer = task(plan, "t0").results[0]
    task(plan, "t1").body.ops[0].set_operand(0, outer)
    refuse(plan, errors.OpenTaskError, "'jax.dot_general' .*step.py:4.* in task 't1'")


# Flow and place ---------------------------------------------------------------------------------


def test_a_path_that_leaves_a_task_and_comes_back(plan: Module) -> None:
    # t1 reads t0's result; make t0 read t1's.
    later = task(plan, "t1").results[0]
    task(plan, "t0").set_operand(0, later)
    refuse(
        plan, errors.ConvexityError, r"task 't[01]' .* needs what depends on it, by the way .* <- "
    )


def test_an_operation_issued_too_early(plan: Module) -> None:
    move(plan, task(plan, "t1"), before=task(plan, "t0"))
    refuse(plan, errors.OrderError, "task 't1' .* reads result . of task 't0' .* operation 1")


def test_a_task_that_reads_from_another_device(plan: Module) -> None:
    receive = ops(plan, "baechi.recv")[0]
    sent = receive.operands[0].defining_op
    assert sent is not None
    receive.result.replace_all_uses_with(sent.operands[0])
    refuse(plan, errors.WrongDeviceError, "task 't2' .* reads result . of task 't1' .* a transfer")


def test_a_result_of_a_wrong_type(plan: Module) -> None:
    result = task(plan, "t0").results[0]
    result.type = OnType((0,), TensorType((1,), "f32"))
    refuse(plan, errors.WrongDeviceError, "must have type !baechi.on<.0., tensor<64x32xf32>>")


def test_a_send_from_elsewhere(plan: Module) -> None:
    send = ops(plan, "baechi.send")[0]
    send.attributes["from"], send.attributes["to"] = 1, 0
    ops(plan, "baechi.recv")[0].result.type = OnType((0,), TensorType((64, 32), "f32"))
    refuse(plan, errors.WrongDeviceError, "channel 0 .* on device 1 (sends|reads)|task 't2'")


def _entries(module: Module, index: int, **changes: object) -> None:
    entries = argument_attributes(module.main)
    for key, value in changes.items():
        entries[index][f"baechi.{key}"] = value  # type: ignore[assignment]
    set_argument_attributes(module.main, entries)


def test_an_argument_declared_elsewhere(plan: Module) -> None:
    _entries(plan, 1, devices=(1,))
    refuse(plan, errors.BoundaryError, r"argument params\[1\] is declared on devices \(1,\)")


def test_state_that_ends_elsewhere(plan: Module) -> None:
    # params[0] lies on device 0, result 2 is the next params[2] on device 1.
    _entries(plan, 0, state=2)
    refuse(plan, errors.BoundaryError, r"params\[0\] lies on device 0, but its next value")


def test_state_that_is_no_result(plan: Module) -> None:
    _entries(plan, 0, state=7)
    refuse(plan, errors.BoundaryError, "is result 7, but the step has 4 results")


def test_a_pin_that_does_not_hold(plan: Module) -> None:
    task(plan, "t3").body.ops[0].attributes["baechi.pin"] = (0,)
    refuse(plan, errors.PinError, r"'jax.mul' .* in task 't3' .* is pinned to devices \[0\]")


def test_a_group_torn_apart(plan: Module) -> None:
    task(plan, "t3").body.ops[0].attributes["baechi.group"] = "params[0]"
    refuse(plan, errors.ColocationError, r"in group 'params\[0\]' and lies on device 1; argument")


# Transfers --------------------------------------------------------------------------------------


def test_a_channel_used_twice(plan: Module) -> None:
    ops(plan, "baechi.send")[1].attributes["channel"] = 0
    refuse(plan, errors.ChannelError, "use one channel")


def test_ends_that_do_not_match(plan: Module) -> None:
    ops(plan, "baechi.recv")[0].attributes["channel"] = 5
    refuse(plan, errors.ChannelError, "recv on channel 5 .* receives what send on channel 0")


def test_two_receives(plan: Module) -> None:
    first = ops(plan, "baechi.recv")[0]
    insert(plan, first.clone(), before=task(plan, "t3"))
    refuse(plan, errors.ChannelError, "receive from one channel")


def test_a_send_received_nowhere(plan: Module) -> None:
    value = task(plan, "t0").results[0]
    send = Operation(
        "baechi.send",
        (value,),
        (InFlightType(value.type.type),),  # type: ignore[union-attr]
        {"channel": 9, "from": 0, "to": 1},
    )
    insert(plan, send, before=task(plan, "t3"))
    refuse(plan, errors.ChannelError, "send on channel 9 .* is received nowhere")


def test_a_receive_on_a_third_device(plan: Module) -> None:
    ops(plan, "baechi.send")[0].attributes["to"] = 0
    refuse(plan, errors.ChannelError, "sends to device 0")


def _transfer(module: Module, value: Value, source: int, target: int, before: Operation) -> Value:
    inner = value.type.type  # type: ignore[union-attr]
    send = Operation(
        "baechi.send",
        (value,),
        (InFlightType(inner),),
        {"channel": 9, "from": source, "to": target},
    )
    receive = Operation("baechi.recv", send.results, (OnType((target,), inner),), {"channel": 9})
    insert(module, send, before)
    insert(module, receive, before)
    return receive.result


def test_a_value_sent_twice(plan: Module) -> None:
    sent = ops(plan, "baechi.send")[0]
    _transfer(plan, sent.operands[0], 0, 1, before=task(plan, "t3"))
    refuse(plan, errors.DuplicateTransferError, "to device 1, as send on channel 0")


def test_a_copy_sent_home(plan: Module) -> None:
    copy = ops(plan, "baechi.recv")[0].result
    _transfer(plan, copy, 1, 0, before=task(plan, "t4"))
    refuse(plan, errors.DuplicateTransferError, "back to device 0, where it comes from")


def test_a_token_sent(plan: Module) -> None:
    block = Block()
    inner = block.append(Operation("baechi.token", (), (TokenType(),), {"effect": "io"}))
    block.append(Operation("baechi.yield", inner.results))
    old = task(plan, "t0")
    effect = Operation(
        "baechi.task",
        (),
        (OnType((0,), TokenType()),),
        {**old.attributes, "sym_name": "effect"},
        [Region([block])],
    )
    insert(plan, effect, before=old)
    _transfer(plan, effect.result, 0, 1, before=old)
    refuse(plan, errors.TokenTransferError, "sends an effect's token")


# Memory -----------------------------------------------------------------------------------------


def test_use_after_free(plan: Module) -> None:
    # t7 reads t1's result later.
    send = ops(plan, "baechi.send")[0]
    assert "baechi.frees" not in send.attributes
    send.attributes["baechi.frees"] = (0,)
    refuse(plan, errors.UseAfterFreeError, "which send on channel 0 .* freed")


def test_returned_after_free(plan: Module) -> None:
    update = task(plan, "t10")
    wait = Operation("baechi.wait", [update.result], (), {"baechi.frees": (0,)})
    insert(plan, wait, before=plan.main.body.terminator)
    refuse(plan, errors.UseAfterFreeError, "return .* uses result 0 of task 't10'")


def test_use_after_donation(plan: Module) -> None:
    # params[1] is read by t7 too, which comes after t1.
    first = task(plan, "t1")
    weights = next(
        index for index, value in enumerate(first.operands) if value is plan.main.body.arguments[1]
    )
    first.attributes["baechi.donates"] = (weights,)
    refuse(plan, errors.UseAfterDonationError, r"uses argument params\[1\], whose buffer task 't1'")


def test_an_argument_that_the_caller_keeps_is_freed(plan: Module) -> None:
    last = task(plan, "t9")
    kept = list(last.operands).index(plan.main.body.arguments[3])
    last.attributes["baechi.frees"] = (*last.attributes["baechi.frees"], kept)  # type: ignore[misc]
    refuse(plan, errors.IllegalFreeError, "frees argument x, which the caller does not give away")


def test_an_argument_that_the_caller_keeps_is_donated(plan: Module) -> None:
    last = task(plan, "t9")
    kept = list(last.operands).index(plan.main.body.arguments[3])
    last.attributes["baechi.donates"] = (kept,)
    refuse(plan, errors.IllegalDonationError, "donates argument x, which the caller does not")


def test_a_donation_that_no_result_can_take(plan: Module) -> None:
    # The loss is a scalar.
    last = task(plan, "t3")
    last.attributes["baechi.donates"] = last.attributes["baechi.frees"]
    refuse(plan, errors.IllegalDonationError, "no result of that type is left")


def test_a_donation_that_a_copy_may_still_read(plan: Module) -> None:
    # t1's result is sent to device 1 and read last by t7, before the host has waited for anything.
    sent = ops(plan, "baechi.send")[0].operands[0]
    reader = task(plan, "t7")
    index = list(reader.operands).index(sent)
    reader.attributes["baechi.donates"] = (index,)
    refuse(plan, errors.IllegalDonationError, "send on channel 0 .* may still be copying")


def test_a_record_that_is_too_low(plan: Module) -> None:
    first, second = memory_of(plan)
    plan.main.attributes["baechi.memory"] = (
        replace(first, peak_bytes=first.peak_bytes - 1),
        second,
    )
    refuse(
        plan,
        errors.MemoryRecordError,
        f"records peak_bytes = {first.peak_bytes - 1} for device 0, .* {first.peak_bytes}",
    )


def test_a_peak_above_the_limit(plan: Module) -> None:
    peak = memory_of(plan)[0].peak_bytes
    plan.attributes["baechi.topology"] = Topology.uniform(2, Device(memory_bytes=peak - 1))
    plan.main.attributes["baechi.memory"] = tuple(
        replace(each, limit_bytes=peak - 1) for each in memory_of(plan)
    )
    with pytest.raises(errors.MemoryLimitError, match=f"device 0 needs {peak:,} bytes") as caught:
        VerifyPlan().run(plan)
    assert (caught.value.device, caught.value.peak_bytes) == (0, peak)


def test_a_wait_too_few(plan: Module) -> None:
    plan.main.body.retain(lambda op: op.name != "baechi.wait")
    count = recount(view_of(plan))
    assert count.ahead[0] > memory_of(plan)[0].limit_bytes
    plan.main.attributes["baechi.memory"] = tuple(
        replace(each, run_ahead_bytes=ahead) for each, ahead in zip(memory_of(plan), count.ahead)
    )
    refuse(
        plan,
        errors.RunAheadLimitError,
        f"device 0 may hold {count.ahead[0]:,} bytes .* needs a wait more",
    )


# Programs ---------------------------------------------------------------------------------------


def program(module: Module, device: int) -> Operation:
    func = module.lookup(f"main_d{device}")
    assert func is not None
    return func


def test_a_deadlock(plan: Module) -> None:
    # Device 0 waits for the gradient before it sends the activations that it depends on.
    body = program(plan, 0).body
    send = next(op for op in body.ops if op.name == "baechi.send")
    receive = next(op for op in body.ops if op.name == "baechi.recv")
    rest = [op for op in body.ops if op is not receive]
    rest.insert(rest.index(send), receive)
    body.set_ops(rest)
    refuse(
        plan,
        errors.DeadlockError,
        "device 0 waits .* channel 1 from device 1; device 1 waits .* channel 0 from device 0",
    )


def _one_more(module: Module) -> None:
    body = program(module, 1).body
    extra = Operation("baechi.wait", [body.arguments[0]])
    body.insert_before(body.terminator, extra)


def _one_less(module: Module) -> None:
    body = program(module, 1).body
    last = body.ops[-2]
    body.terminator.set_operands([body.arguments[0]] * len(body.terminator.operands))
    body.retain(lambda op: op is not last)


def _other_attribute(module: Module) -> None:
    run = next(op for op in program(module, 0).body.ops if "baechi.frees" in op.attributes)
    del run.attributes["baechi.frees"]


def _other_operand(module: Module) -> None:
    body = program(module, 0).body
    run = next(op for op in body.ops if op.name == "baechi.run")
    run.set_operands(list(run.operands)[::-1])


def _other_result(module: Module) -> None:
    terminator = program(module, 0).body.terminator
    terminator.set_operands(list(terminator.operands)[::-1])


def _other_argument(module: Module) -> None:
    entries = argument_attributes(program(module, 0))
    entries[0]["baechi.argument"] = 2
    set_argument_attributes(program(module, 0), entries)


def _no_program(module: Module) -> None:
    module.body.retain(lambda op: op.attributes.get("sym_name") != "main_d1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_one_more, "@main_d1 has <baechi.wait at .*> too many"),
        (_one_less, "@main_d1 misses (task|wait) "),
        (_other_attribute, "@main_d0 differs from task .* in its attributes"),
        (_other_operand, "@main_d0 reads other values than task 't0'"),
        (_other_result, "@main_d0 returns results"),
        (_other_argument, r"@main_d0 takes argument 2 .* where argument params\[0\]"),
        (_no_program, "needs the programs main_d0, main_d1; found main_d0"),
    ],
)
def test_a_program_that_differs(
    plan: Module, change: Callable[[Module], None], message: str
) -> None:
    change(plan)
    refuse(plan, errors.ProgramMismatchError, message)


def test_every_fault_has_a_class_of_its_own() -> None:
    kinds = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.PlanError)
    ]
    text = Path(__file__).read_text()
    assert all(f"errors.{kind.__name__}" in text for kind in kinds), kinds
