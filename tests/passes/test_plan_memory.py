"""``schedule``, ``plan-memory`` and donations: what the text tests do not show."""

import jax
import jax.numpy as jnp
import pytest

from baechi_jax.ir.attributes import Unit
from baechi_jax.ir.core import Block, Module, Operation, Region
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.function import function, refresh_function_type, set_argument_attributes
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.donation import Dying, align_results, choose_donations
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.tasks import build_tasks, tasks_of

K = 1024


def type_of(kilobytes: int) -> TensorType:
    return TensorType((256 * kilobytes,), "f32")


def module_of(
    arguments: list[tuple[str, int, int, bool]],
    nodes: list[tuple[str, int, list[str], int]],
    returned: list[str],
    limits: list[int],
    state: dict[str, int] | None = None,
    seconds: dict[str, float] | None = None,
) -> Module:
    """Arguments ``(name, device, KB, donated)``, tasks ``(name, device, reads, KB of the result)``
    of a millisecond each unless ``seconds`` says otherwise."""
    func = function("main", [type_of(size) for _, _, size, _ in arguments])
    values = {a[0]: value for a, value in zip(arguments, func.body.arguments)}
    for name, device, reads, size in nodes:
        inner = Block([values[each].type for each in reads])
        # An opaque kernel, so that neither fusion nor copies are in the way of the figures.
        made = inner.append(Operation("jax.opaque", inner.arguments, (type_of(size),)))
        inner.append(Operation("baechi.yield", made.results))
        time = (seconds or {}).get(name, 1e-3)
        task = Operation(
            "baechi.task",
            [values[each] for each in reads],
            (type_of(size),),
            {
                "sym_name": name,
                "baechi.cost": Cost(seconds=(time,), output_bytes=size * K),
                "baechi.devices": (device,),
            },
            [Region([inner])],
        )
        values[name] = func.body.append(task).result
    func.body.append(Operation("func.return", [values[name] for name in returned]))
    entries: list[dict[str, object]] = []
    for name, device, _, donated in arguments:
        entry: dict[str, object] = {"baechi.name": name, "baechi.devices": (device,)}
        if donated:
            entry["baechi.donated"] = Unit()
        if state and name in state:
            entry["baechi.state"] = state[name]
        entries.append(entry)
    set_argument_attributes(func, entries)  # type: ignore[arg-type]
    refresh_function_type(func)
    count = len(limits)
    module = Module(
        {
            "baechi.topology": Topology(
                tuple(Device(memory_bytes=limit * K) for limit in limits),
                tuple(Link(a, b) for a in range(count) for b in range(count) if a != b),
            )
        }
    )
    module.body.append(func)
    return module


def plan(module: Module) -> tuple[DeviceMemory, ...]:
    pipeline = "insert-transfers,schedule,plan-memory,partition,verify-plan"
    PassManager(parse_pipeline(pipeline)).run(module)
    memory = module.main.attributes["baechi.memory"]
    assert isinstance(memory, tuple)
    return tuple(each for each in memory if isinstance(each, DeviceMemory))


def order(module: Module) -> list[str]:
    """Names of tasks, and ``send``, ``recv``, ``wait``, in order of issue."""
    return [
        str(op.attributes.get("sym_name", op.name.removeprefix("baechi.")))
        for op in module.main.body.ops[:-1]
    ]


# Order ------------------------------------------------------------------------------------------


def updates(limit: int) -> Module:
    """Backward b0 ... b3, each with a result for the next and a large one that update u_i reduces.
    All that is urgent are the b's; the updates have time."""
    nodes: list[tuple[str, int, list[str], int]] = []
    for i in range(4):
        before = [f"b{i - 1}"] if i else ["x"]
        nodes += [(f"b{i}", 0, before, 1), (f"g{i}", 0, [f"b{i}"], 64), (f"u{i}", 0, [f"g{i}"], 1)]
    nodes.append(("far", 1, ["b3"], 1))
    slow = {f"g{i}": 1e-3 for i in range(4)} | {"far": 2e-2}
    return module_of(
        [("x", 0, 1, False)], nodes, ["u0", "u1", "u2", "u3", "far"], [limit, 8], None, slow
    )


def test_what_is_urgent_goes_first() -> None:
    module = updates(1024)
    plan(module)
    names = [name for name in order(module) if name[0] == "b"]
    first = order(module)[: order(module).index("b3") + 1]
    assert names == ["b0", "b1", "b2", "b3"]
    assert [name for name in first if name[0] in "gu"] == []


def test_memory_comes_before_urgency() -> None:
    # Room for one of the large values only.
    module = updates(80)
    memory = plan(module)
    assert memory[0].peak_bytes <= 80 * K
    names = [name for name in order(module) if name[0] in "gu"]
    # Each large value is reduced before the next is made.
    assert [name[0] for name in names] == ["g", "u"] * 4
    assert all(g[1] == u[1] for g, u in zip(names[::2], names[1::2]))


# Counting ---------------------------------------------------------------------------------------


def test_a_kept_argument_that_is_returned_is_copied_at_the_end() -> None:
    module = module_of([("x", 0, 8, False), ("y", 0, 4, True)], [], ["x", "y", "y"], [64])
    # x once more, and y a second time; the first y is the donated buffer itself.
    assert plan(module)[0].peak_bytes == (8 + 4 + 8 + 4) * K


def test_a_copy_lives_on_the_target_from_its_send() -> None:
    nodes = [("a", 0, ["x"], 16), ("b", 1, ["a"], 4), ("c", 1, ["a", "b"], 2)]
    memory = plan(module_of([("x", 0, 1, False)], nodes, ["c"], [64, 64]))
    assert memory[0].peak_bytes == 17 * K
    assert memory[1].peak_bytes == (16 + 4 + 2) * K


def test_state_takes_its_memory_once() -> None:
    nodes = [("g", 0, ["x"], 32), ("u", 0, ["w", "g"], 32)]
    arguments = [("w", 0, 32, True), ("x", 0, 1, False)]
    given = plan(module_of(arguments, nodes, ["u"], [128], {"w": 0}))
    assert given[0].peak_bytes == (32 + 1 + 32) * K
    kept = [("w", 0, 32, False), ("x", 0, 1, False)]
    assert plan(module_of(kept, nodes, ["u"], [128], {"w": 0}))[0].peak_bytes == (32 + 1 + 64) * K


def sent_state(limit: int) -> Module:
    """w is read on device 1 as well, by a task that ends long before w is updated."""
    nodes = [
        ("far", 1, ["w"], 1),
        ("a", 0, ["x"], 1),
        ("b", 0, ["a"], 1),
        ("u", 0, ["w", "b"], 32),
    ]
    arguments = [("w", 0, 32, True), ("x", 0, 1, False)]
    return module_of(arguments, nodes, ["u", "far"], [limit, 64], {"w": 0}, {"b": 1e-1})


def test_what_a_copy_may_still_read_is_not_donated() -> None:
    module = sent_state(128)
    memory = plan(module)
    update = next(t for t in tasks_of(module.main) if t.attributes["sym_name"] == "u")
    assert "baechi.donates" not in update.attributes
    assert "wait" not in order(module)
    assert memory[0].peak_bytes == (32 + 1 + 1 + 32) * K


def test_a_wait_makes_it_donatable_when_memory_is_short() -> None:
    module = sent_state(48)
    memory = plan(module)
    update = next(t for t in tasks_of(module.main) if t.attributes["sym_name"] == "u")
    assert update.attributes["baechi.donates"] == (0,)
    assert memory[0].peak_bytes <= 48 * K
    names = order(module)
    assert names.index("wait") < names.index("u")
    # A wait needs something to wait for: the receive is moved up if it came later.
    assert names.index("recv") < names.index("wait")


def test_waits_are_for_what_ended_longest_ago() -> None:
    """A chain that fits step by step: never more than one operation is issued ahead."""
    names = "abcdefgh"
    nodes = [(n, 0, [names[i - 1] if i else "x"], 8) for i, n in enumerate(names)]
    # Types alternate, or each would be donated to the next.
    nodes = [(n, d, r, size + i % 2) for i, (n, d, r, size) in enumerate(nodes)]
    module = module_of([("x", 0, 1, False)], nodes, ["h"], [18])
    memory = plan(module)
    assert memory[0].peak_bytes == 18 * K
    assert memory[0].run_ahead_bytes == 18 * K
    assert order(module).count("wait") == 6
    roomy = module_of([("x", 0, 1, False)], nodes, ["h"], [1024])
    assert plan(roomy)[0].run_ahead_bytes == (1 + sum(size for *_, size in nodes)) * K
    assert order(roomy).count("wait") == 0


def test_planning_again_gives_the_same_plan() -> None:
    module = sent_state(48)
    first = plan(module)
    before = order(module)
    PassManager(parse_pipeline("plan-memory,partition,verify-plan")).run(module)
    assert order(module) == before
    assert module.main.attributes["baechi.memory"] == first


def test_temporaries_are_corrected_once() -> None:
    """A second run starts from what the first one donated, not from the worst case again."""

    def step(state, x):
        grads = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) @ w))(state)
        return state - 0.1 * grads

    module = trace(step, (SQUARE, SQUARE), {}, donate_argnums=0).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    front = "inline-calls,eliminate-dead-code,annotate-costs,colocate,fuse-tasks"
    PassManager(parse_pipeline(f"{front},place{{placer=single}},merge-tasks")).run(module)
    first = plan(module)
    costs = [task.attributes["baechi.cost"] for task in tasks_of(module.main)]
    PassManager(parse_pipeline("plan-memory,partition,verify-plan")).run(module)
    assert [task.attributes["baechi.cost"] for task in tasks_of(module.main)] == costs
    assert module.main.attributes["baechi.memory"] == first


def test_the_error_says_what_would_fit() -> None:
    module = sent_state(20)
    with pytest.raises(MemoryLimitError, match="argument w") as caught:
        plan(module)
    needed = [-(-each // K) for each in caught.value.needed_bytes]
    assert caught.value.device == 0
    again = sent_state(needed[0])
    assert plan(again)[0].peak_bytes <= needed[0] * K


# Donations --------------------------------------------------------------------------------------

N = 256
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)


def gradient(ct, h, w):
    d = ct * (1 - h * h)
    return h.T @ d, d @ w.T


def product(ct, h, w):
    return ct @ w.T, h.T @ ct


def chain(ct, h, w):
    return (ct * (1 - h * h)) @ w.T


def elementwise(ct, h, w):
    return ct * h + w


def read_again(ct, h, w):
    s = ct - h
    return jnp.maximum(s, 0), s @ w


def task_of(fn) -> tuple[Operation, int, list[int]]:
    """``fn`` as one task, the operand that is its first argument, and which of its results each
    result of ``fn`` is."""
    module = trace(fn, (SQUARE,) * 3, {}).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    PassManager(parse_pipeline("inline-calls,eliminate-dead-code,annotate-costs")).run(module)
    ops = [op for op in module.main.body.ops[:-1] if op.name != "baechi.literal"]
    task = build_tasks(module.main, [ops], [{"sym_name": "t0"}])[0]
    operand = list(task.operands).index(module.main.body.arguments[0])
    results = [task.results.index(value) for value in module.main.body.terminator.operands]
    return task, operand, results


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        # Both products read d, which is there before either is written.
        (gradient, 0),
        # The first product reads ct while it writes.
        (product, None),
        (chain, 0),
        (elementwise, 0),
        # s may be computed again where it is read, so who reads ct is not known.
        (read_again, None),
    ],
)
def test_donations_that_free_memory(fn, expected: int | None) -> None:
    """What is chosen costs XLA no more than it saves."""
    task, operand, results = task_of(fn)
    pairs = choose_donations(task, [Dying(operand)])
    assert pairs == ([] if expected is None else [(operand, results[expected])])

    def extra_bytes(donated: tuple[int, ...]) -> int:
        # JAX gives the donated buffer to the first result of its type.
        order = sorted(range(len(results)), key=lambda index: index != expected)

        def ordered(*arguments):
            given = fn(*arguments)
            given = given if isinstance(given, tuple) else (given,)
            return [given[index] for index in order]

        compiled = jax.jit(ordered, donate_argnums=donated).lower(*(SQUARE,) * 3).compile()
        stats = compiled.memory_analysis()
        return stats.output_size_in_bytes - stats.alias_size_in_bytes + stats.temp_size_in_bytes

    if expected is not None:
        assert extra_bytes((0,)) <= extra_bytes(())


def test_results_stand_in_the_order_in_which_jax_pairs_them() -> None:
    task, _, _ = task_of(gradient)
    first, second = task.results
    assert align_results(task, [(0, 1)]) == [1, 0]
    assert task.results == [second, first]
    assert [result.index for result in task.results] == [0, 1]
    assert task.body.terminator.operands[0].type == second.type
    assert align_results(task, [(0, 0)]) == [0, 1]


def test_state_is_donated_whatever_reads_it() -> None:
    task, operand, _ = task_of(product)
    successor = task.results[1]
    assert choose_donations(task, [Dying(operand, successor)]) == [(operand, 1)]


def test_temporaries_of_a_task_that_donates_nothing() -> None:
    """Its cost supposed that all operands may be overwritten, which here takes a copy."""
    module = trace(lambda x, w: x @ w, (SQUARE, SQUARE), {}).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    front = "inline-calls,annotate-costs,colocate,fuse-tasks,place{placer=single}"
    PassManager(parse_pipeline(front)).run(module)

    def temporary_bytes() -> int:
        (task,) = tasks_of(module.main)
        cost = task.attributes["baechi.cost"]
        assert isinstance(cost, Cost)
        return cost.temporary_bytes

    assert temporary_bytes() > 0
    # The caller keeps both operands: nothing dies.
    plan(module)
    assert temporary_bytes() == 0
