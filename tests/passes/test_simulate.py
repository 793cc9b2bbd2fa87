"""The simulator: rules by hand, and a second implementation that shares no code with it."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.ir.errors import PassError
from baechi_jax.ir.parser import parse_module
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import random_problem, training_problem
from baechi_jax.passes.simulate.judge import (
    ALL_RULES,
    LONGEST_WAY,
    STRICT_ORDER,
    judge,
    judge_with_rule,
    longest_way,
    play,
)
from baechi_jax.passes.simulate.simulator import simulate
from baechi_jax.passes.simulate.timeline import run_module, simulate_module


def two_devices(latency: float = 1.0, per_byte: float = 0.0) -> Machine:
    return Machine.uniform_of(2, 1 << 30, latency_seconds=latency, seconds_per_byte=per_byte)


def chain(machine: Machine, *seconds: float, nbytes: int = 10) -> PlacementProblem:
    builder = ProblemBuilder(machine)
    nodes = [builder.add_node(f"n{i}", s) for i, s in enumerate(seconds)]
    for a, b in itertools.pairwise(nodes):
        builder.add_tensor(a, nbytes, [b])
    return builder.build()


def test_chain_on_one_device_takes_the_sum() -> None:
    result = simulate(chain(two_devices(), 1.0, 2.0, 3.0), [0, 0, 0])
    assert result.makespan_seconds == 6.0
    assert result.start_seconds == [0.0, 1.0, 3.0]
    assert result.busy_seconds == [6.0, 0.0]
    assert result.transfers == []
    # n1 holds its input and its output.
    assert result.peak_bytes == [20, 0]


def test_transfer_takes_latency_and_bytes() -> None:
    result = simulate(chain(two_devices(1.0, 0.1), 1.0, 2.0), [0, 1])
    (move,) = result.transfers
    assert (move.source, move.target, move.start_seconds, move.end_seconds) == (0, 1, 1.0, 3.0)
    assert result.makespan_seconds == 5.0
    assert result.peak_bytes == [10, 10]


def test_a_tensor_goes_to_a_device_once() -> None:
    builder = ProblemBuilder(two_devices())
    source = builder.add_node("source", 1.0)
    readers = [builder.add_node(f"r{i}", 1.0) for i in range(3)]
    builder.add_tensor(source, 8, readers)
    result = simulate(builder.build(), [0, 1, 1, 1])
    assert len(result.transfers) == 1
    assert result.makespan_seconds == 1 + 1 + 3


def test_a_wire_carries_one_transfer_at_a_time() -> None:
    builder = ProblemBuilder(two_devices())
    source = builder.add_node("source", 1.0)
    first = builder.add_node("first", 1.0)
    second = builder.add_node("second", 1.0)
    builder.add_tensor(source, 8, [second])
    builder.add_tensor(source, 8, [first])
    result = simulate(builder.build(), [0, 1, 1])
    # The reader that comes first in program order is served first.
    assert [(m.tensor, m.start_seconds) for m in result.transfers] == [(0, 2.0), (1, 1.0)]
    assert result.start_seconds == [0.0, 2.0, 3.0]


def test_devices_of_one_processor_take_turns() -> None:
    machine = two_devices()
    shared = Machine(
        limit_bytes=machine.limit_bytes,
        processor=machine.processor * 0,
        latency_seconds=machine.latency_seconds,
        seconds_per_byte=machine.seconds_per_byte,
        wire=machine.wire,
        names=machine.names,
        kinds=machine.kinds,
    )
    for each, expected in ((machine, 1.0), (shared, 2.0)):
        builder = ProblemBuilder(each)
        builder.add_node("a", 1.0)
        builder.add_node("b", 1.0)
        assert simulate(builder.build(), [0, 1]).makespan_seconds == expected


def test_temporary_bytes_live_while_the_node_runs() -> None:
    builder = ProblemBuilder(two_devices())
    a = builder.add_node("a", 1.0, temporary_bytes=100)
    b = builder.add_node("b", 1.0, temporary_bytes=70)
    builder.add_tensor(a, 10, [b])
    result = simulate(builder.build(), [0, 0], memory_steps=True)
    assert result.peak_bytes[0] == 110
    assert result.memory_steps[0] == [(0.0, 110), (1.0, 10), (1.0, 80), (2.0, 0)]


def test_arguments_live_from_the_start_and_undonated_ones_to_the_end() -> None:
    for donated, last in ((True, 0), (False, 50)):
        builder = ProblemBuilder(two_devices())
        _, tensor = builder.add_argument("x", 50, donated=donated)
        builder.set_readers(tensor, [builder.add_node("late", 1.0)])
        result = simulate(builder.build(), [0, 0], memory_steps=True)
        assert result.memory_steps[0][0] == (0.0, 50)
        assert result.memory_steps[0][-1][1] == last


def state_problem(other_reader: bool) -> PlacementProblem:
    builder = ProblemBuilder(two_devices())
    _, old = builder.add_argument("w", 64, donated=True)
    update = builder.add_node("update", 1.0)
    late = builder.add_node("late", 5.0)
    builder.add_tensor(update, 64, [late], persistent=True, alias=old)
    builder.set_readers(old, [update, late] if other_reader else [update])
    return builder.build()


def test_next_state_takes_over_the_donated_buffer() -> None:
    assert simulate(state_problem(False), [0, 0, 0]).peak_bytes[0] == 64


def test_no_take_over_while_another_reader_is_to_come() -> None:
    assert simulate(state_problem(True), [0, 0, 0]).peak_bytes[0] == 128


def test_no_take_over_from_another_device() -> None:
    assert simulate(state_problem(False), [0, 1, 1]).peak_bytes == [64, 128]


def test_source_lives_until_its_copy_has_ended() -> None:
    builder = ProblemBuilder(two_devices(10.0))
    source = builder.add_node("source", 1.0)
    local = builder.add_node("local", 1.0)
    remote = builder.add_node("remote", 1.0)
    builder.add_tensor(source, 7, [local, remote])
    result = simulate(builder.build(), [0, 0, 1], memory_steps=True)
    assert result.memory_steps[0][-1] == (11.0, 0)


def test_given_order_is_followed() -> None:
    builder = ProblemBuilder(two_devices())
    builder.add_node("a", 1.0)
    builder.add_node("b", 2.0)
    problem = builder.build()
    assert simulate(problem, [0, 0], [1, 0]).start_seconds == [2.0, 0.0]
    with pytest.raises(PlacementProblemError, match="every node but arguments exactly once"):
        simulate(problem, [0, 0], [1])
    with pytest.raises(PlacementProblemError, match="every node but arguments exactly once"):
        simulate(problem, [0, 0], [1, 1])


def test_order_against_the_data_flow_is_an_error() -> None:
    problem = chain(two_devices(), 1.0, 1.0)
    with pytest.raises(
        PlacementProblemError, match=r"contradicts the data flow: 'n1' never starts"
    ):
        simulate(problem, [0, 0], [1, 0])


def test_transfers_follow_a_given_order() -> None:
    builder = ProblemBuilder(two_devices())
    source = builder.add_node("source", 1.0)
    slow = builder.add_node("slow", 3.0)
    reader = builder.add_node("reader", 1.0)
    x = builder.add_tensor(source, 8, [reader])
    y = builder.add_tensor(slow, 8, [reader])
    problem = builder.build()
    order = [source, slow, reader]
    quick = simulate(problem, [0, 0, 1], order, transfer_order=[(x, 1), (y, 1)])
    blocked = simulate(problem, [0, 0, 1], order, transfer_order=[(y, 1), (x, 1)])
    assert quick.makespan_seconds == 6.0
    assert blocked.makespan_seconds == 7.0


def test_assignment_must_fit_the_problem() -> None:
    problem = chain(two_devices(), 1.0, 1.0)
    with pytest.raises(PlacementProblemError, match="each of 2 nodes one of 2 devices"):
        simulate(problem, [0, 2])
    builder = ProblemBuilder(two_devices())
    builder.add_node("gpu-only", [1.0, float("inf")])
    with pytest.raises(PlacementProblemError, match="'gpu-only' cannot run on device:1"):
        simulate(builder.build(), [1])


def test_empty_problem() -> None:
    result = simulate(ProblemBuilder(two_devices()).build(), [])
    assert (result.makespan_seconds, result.peak_bytes) == (0.0, [0, 0])


# A second implementation ------------------------------------------------------------------------


def reference(problem: PlacementProblem, device: list[int], priority: list[float]) -> dict:
    """Straight from the rules, slowly: scan everything at each moment; memory from lifetimes."""
    n, machine = problem.nodes, problem.machine
    reads = {i: [] for i in range(n)}
    for x in range(problem.tensors):
        for r in set(problem.readers_of(x).tolist()):
            reads[r].append(x)
    producer = problem.producer.tolist()
    start, end = {}, {}
    there: dict[tuple[int, int], float] = {}
    asked: dict[tuple[int, int], float] = {}
    moves: dict[tuple[int, int], tuple[float, float]] = {}

    def finish(node: int, at: float) -> None:
        for x in range(problem.tensors):
            if producer[x] == node:
                there[x, device[node]] = at
                for r in problem.readers_of(x).tolist():
                    if device[r] != device[node]:
                        asked.setdefault((x, device[r]), at)

    for node in range(n):
        if problem.is_argument[node]:
            start[node] = end[node] = 0.0
            finish(node, 0.0)
    running: dict[int, int] = {}
    wires: dict[int, tuple[int, int]] = {}
    now = 0.0
    while True:
        for p in range(machine.processors):
            if p in running:
                continue
            ready = [
                i
                for i in range(n)
                if i not in start
                and machine.processor[device[i]] == p
                and all(there.get((x, device[i]), 1e99) <= now for x in reads[i])
            ]
            if ready:
                i = min(ready, key=lambda i: (priority[i], i))
                start[i] = now
                running[p] = i
        for key, at in sorted(asked.items()):
            x, target = key
            wire = int(machine.wire[device[producer[x]], target])
            if key in moves or wire in wires or at > now:
                continue
            rivals = [
                k
                for k, t in asked.items()
                if k not in moves
                and t <= now
                and machine.wire[device[producer[k[0]]], k[1]] == wire
            ]

            def first(k: tuple[int, int]) -> float:
                return min(
                    priority[r] for r in problem.readers_of(k[0]).tolist() if device[r] == k[1]
                )

            x, target = min(rivals, key=first)
            source = device[producer[x]]
            seconds = machine.transfer_seconds(source, target, int(problem.tensor_bytes[x]))
            moves[x, target] = (now, now + seconds)
            wires[wire] = (x, target)
        ends = [start[i] + problem.seconds[i, device[i]] for i in running.values()]
        ends += [moves[key][1] for key in wires.values()]
        if not ends:
            break
        now = min(ends)
        for p, i in list(running.items()):
            if start[i] + problem.seconds[i, device[i]] == now:
                end[i] = now
                finish(i, now)
                del running[p]
        for wire, key in list(wires.items()):
            if moves[key][1] == now:
                there[key[0], key[1]] = now
                del wires[wire]
    assert len(end) == n
    return {
        "start": start,
        "end": end,
        "moves": moves,
        "peak": peaks(problem, device, start, end, moves),
    }


def peaks(problem, device, start, end, moves) -> list[int]:
    """Peak per device from lifetimes ``[born, dies)``."""
    forever = max([*end.values(), 0.0]) + 1.0
    lives: list[tuple[int, float, float, int]] = []
    life_of: dict[int, list] = {}
    for x in range(problem.tensors):
        node = int(problem.producer[x])
        readers = problem.readers_of(x).tolist()
        size = int(problem.tensor_bytes[x])
        uses = [end[r] for r in readers if device[r] == device[node]]
        uses += [moves[x, d][1] for d in {device[r] for r in readers} - {device[node]}]
        dies = max([end[node], *uses])
        if problem.persistent[x] or (problem.is_argument[node] and not readers):
            dies = forever
        life_of[x] = [device[node], start[node], dies, size]
        for d in {device[r] for r in readers} - {device[node]}:
            lives.append((d, moves[x, d][0], max(end[r] for r in readers if device[r] == d), size))
    for x in range(problem.tensors):
        old = int(problem.alias[x])
        node = int(problem.producer[x])
        if old < 0 or problem.persistent[old] or device[int(problem.producer[old])] != device[node]:
            continue
        readers = problem.readers_of(old).tolist()
        sends = [moves[old, d][1] for d in {device[r] for r in readers} - {device[node]}]
        others = [end[r] for r in readers if r != node and device[r] == device[node]]
        if node in readers and all(t <= start[node] for t in others + sends):
            life_of[old][2] = start[node]
    lives += [tuple(each) for each in life_of.values()]
    for node in range(problem.nodes):
        lives.append((device[node], start[node], end[node], int(problem.temporary_bytes[node])))
    moments = {born for _, born, _, _ in lives}
    return [
        max(
            (
                sum(s for at, born, dies, s in lives if at == d and born <= moment < dies)
                for moment in moments
            ),
            default=0,
        )
        for d in range(problem.devices)
    ]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 12), st.integers(1, 4))
def test_agrees_with_the_second_implementation(seed: int, tasks: int, devices: int) -> None:
    problem = random_problem(seed, tasks=tasks, devices=devices)
    rng = random.Random(seed)
    assignment = [rng.randrange(devices) for _ in range(problem.nodes)]
    priority = [rng.random() for _ in range(problem.nodes)]
    result = simulate(problem, assignment, priority=priority, memory_steps=True)
    expected = reference(problem, assignment, priority)
    assert result.start_seconds == pytest.approx(
        [expected["start"][i] for i in range(problem.nodes)]
    )
    assert result.end_seconds == pytest.approx([expected["end"][i] for i in range(problem.nodes)])
    moves = {(m.tensor, m.target): (m.start_seconds, m.end_seconds) for m in result.transfers}
    assert moves.keys() == expected["moves"].keys()
    for key, span in moves.items():
        assert span == pytest.approx(expected["moves"][key])
    assert result.peak_bytes == expected["peak"]
    assert result.peak_bytes == [
        max((b for _, b in steps), default=0) for steps in result.memory_steps
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000), st.sampled_from(ALL_RULES))
def test_order_of_starts_replays_the_step(seed: int, rule: int) -> None:
    # What `place` and `schedule` rely on: in order of their starts, all happens as before.
    problem = random_problem(seed, tasks=10)
    rng = random.Random(seed)
    assignment = [rng.randrange(problem.devices) for _ in range(problem.nodes)]
    first = play(problem, assignment, rule)
    tasks = [i for i in range(problem.nodes) if not problem.is_argument[i]]
    tasks.sort(key=lambda i: (first.start_seconds[i], problem.position[i]))
    moves = sorted(first.transfers, key=lambda move: move.start_seconds)
    again = simulate(
        problem, assignment, tasks, transfer_order=[(m.tensor, m.target) for m in moves]
    )
    assert again.start_seconds == pytest.approx(first.start_seconds)
    assert again.peak_bytes == first.peak_bytes


# Judge ------------------------------------------------------------------------------------------


def test_longest_way_first_shortens_the_step() -> None:
    builder = ProblemBuilder(two_devices(0.5))
    short = builder.add_node("short", 2.0)
    head = builder.add_node("head", 1.0)
    tail = builder.add_node("tail", 3.0)
    builder.add_tensor(head, 1, [tail])
    builder.add_tensor(short, 1, [])
    problem = builder.build()
    assignment = [0, 0, 1]
    assert longest_way(problem, assignment) == [-2.0, -4.5, -3.0]
    assert simulate(problem, assignment).makespan_seconds == 6.5
    assert judge(problem, assignment).makespan_seconds == 4.5


def test_judge_gives_up_time_for_memory_only_where_it_must() -> None:
    # "early" computes something large that only "last" reads: it could run long before.
    def problem(limit: int) -> PlacementProblem:
        builder = ProblemBuilder(two_devices().with_limits([limit, limit]))
        remote = builder.add_node("remote", 5.0)
        use = builder.add_node("use", 1.0, temporary_bytes=100)
        early = builder.add_node("early", 1.0)
        last = builder.add_node("last", 1.0)
        builder.add_tensor(remote, 1, [use])
        builder.add_tensor(early, 100, [last])
        builder.add_tensor(use, 1, [last])
        return builder.build()

    assignment = [1, 0, 0, 0]
    wide, rule = judge_with_rule(problem(1000), assignment, ALL_RULES)
    assert (wide.makespan_seconds, rule) == (8.0, LONGEST_WAY)
    tight, rule = judge_with_rule(problem(110), assignment, ALL_RULES)
    assert (tight.makespan_seconds, rule) == (9.0, STRICT_ORDER)
    assert tight.fits([110, 110])
    assert not judge(problem(110), assignment).fits([110, 110])


def test_simulation_measures_excess() -> None:
    result = simulate(chain(two_devices(), 1.0, 1.0, 1.0), [0, 0, 0])
    assert result.fits([20, 0])
    assert not result.fits([19, 0])
    assert result.excess_bytes([15, 5]) == 5


# Timelines of modules ---------------------------------------------------------------------------

PLACED = """
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "baechi.task"(%x) ({
    ^bb0(%1: tensor<4xf32>):
      %2 = "jax.sin"(%1) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) {sym_name = "first", baechi.cost = #baechi.cost<seconds = [2.0]>, baechi.devices = [0]}
      : (tensor<4xf32>) -> tensor<4xf32> loc("train.py":12:4)
    %3 = "baechi.task"(%0) ({
    ^bb0(%4: tensor<4xf32>):
      %5 = "jax.cos"(%4) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%5) : (tensor<4xf32>) -> ()
    }) {sym_name = "second", baechi.cost = #baechi.cost<seconds = [3.0]>, baechi.devices = [DEVICE]}
      : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%3) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>,
      arg_attrs = [{baechi.name = "x", baechi.devices = [0]}]} : () -> ()
}) {baechi.topology = #baechi.topology<
      devices = [#baechi.device<name = "left">, #baechi.device<name = "right">],
      links = [#baechi.link<source = 0, target = 1, latency_seconds = 1.0, bytes_per_second = 16.0>,
               #baechi.link<source = 1, target = 0>]>} : () -> ()
"""


def test_timeline_of_a_placed_module() -> None:
    timeline = simulate_module(parse_module(PLACED.replace("DEVICE", "1")))
    assert timeline.device_names == ("left", "right")
    assert timeline.makespan_seconds == 7.0
    assert [
        (e.kind, e.name, e.start_seconds, e.end_seconds, e.source, e.target, e.nbytes)
        for e in timeline.events
    ] == [
        ("task", "first", 0.0, 2.0, 0, 0, 16),
        ("transfer", "first", 2.0, 4.0, 0, 1, 16),
        ("task", "second", 4.0, 7.0, 1, 1, 16),
    ]
    assert str(timeline.events[0].location) == "train.py:12"
    assert timeline.peak_bytes == (32, 32)
    assert timeline.busy_seconds == (2.0, 3.0)
    assert timeline.memory_steps[1] == ((2.0, 16), (4.0, 32), (7.0, 16))


def test_timeline_follows_the_transfers_of_a_module() -> None:
    from baechi_jax.passes.insert_transfers import InsertTransfers

    module = parse_module(PLACED.replace("DEVICE", "1"))
    InsertTransfers().run(module)
    run = run_module(module)
    times = {op.name: span for op, span in run.times.items()}
    assert times["baechi.send"] == times["baechi.recv"] == (2.0, 4.0)
    assert run.timeline().makespan_seconds == 7.0


def test_a_module_without_devices_has_no_timeline() -> None:
    text = PLACED.replace(", baechi.devices = [DEVICE]", "")
    with pytest.raises(PassError, match=r"'baechi.devices' of task 'second'.*found None"):
        simulate_module(parse_module(text))
    with pytest.raises(PassError, match="one of 2 devices"):
        simulate_module(parse_module(PLACED.replace("DEVICE", "7")))


def test_ten_thousand_nodes_are_quick() -> None:
    import time

    problem = training_problem(1200, two_devices())
    assignment = [0] * problem.nodes
    _ = problem.lists
    # On a machine that has not yet run it, the kernel is compiled first.
    simulate(problem, assignment)
    before = time.process_time()
    simulate(problem, assignment)
    assert problem.nodes > 7000
    assert time.process_time() - before < 2.0
