"""m-TOPO, m-ETF, m-SCT, expert and one device: by hand, and on random problems."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.baselines import expert, single
from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.list_scheduling import ListScheduler
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_sct import m_sct
from baechi_jax.passes.placement.m_topo import m_topo
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import Placement
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import (
    layered_problem,
    random_problem,
    training_problem,
)
from baechi_jax.passes.simulate.simulator import simulate

PLACERS = [m_topo, m_etf, m_sct]


def machine(count: int = 2, limit: int = 1 << 30, latency: float = 0.5) -> Machine:
    return Machine.uniform_of(count, limit, latency_seconds=latency)


def check_valid(problem: PlacementProblem, placement: Placement) -> None:
    assignment = placement.assignment
    assert len(assignment) == problem.nodes
    for group, members in enumerate(problem.members):
        assert len({assignment[node] for node in members}) == 1
        assert assignment[members[0]] in problem.allowed[group]


@pytest.mark.parametrize("placer", PLACERS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000), tasks=st.integers(1, 25), devices=st.integers(1, 4))
def test_valid_whatever_the_problem(placer, seed: int, tasks: int, devices: int) -> None:
    problem = random_problem(seed, tasks=tasks, devices=devices, limit_bytes=300)
    placement = placer(problem)
    check_valid(problem, placement)
    assert placer(problem) == placement


@pytest.mark.parametrize("placer", PLACERS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_within_the_ledger_unless_it_says_otherwise(placer, seed: int) -> None:
    problem = random_problem(seed, tasks=14, devices=3, limit_bytes=400)
    placement = placer(problem)
    ledger = Ledger(Profiles(problem))
    for group, members in enumerate(problem.members):
        ledger.place(group, placement.assignment[members[0]])
    over = [peak > limit for peak, limit in zip(ledger.peak, problem.lists.limit_bytes)]
    if not placement.overflows:
        assert not any(over)


# Ledger -----------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_on_one_device_the_ledger_is_the_simulator(seed: int) -> None:
    problem = random_problem(seed, tasks=12, devices=1, limit_bytes=500)
    ledger = Ledger(Profiles(problem))
    groups = list(range(problem.groups))
    foreseen = ledger.excess(groups, 0)
    random.Random(seed).shuffle(groups)
    for group in groups:
        ledger.place(group, 0)
    peak = simulate(problem, [0] * problem.nodes, problem.order).peak_bytes[0]
    # State taken over within a group is foreseen; between groups the ledger counts both.
    assert ledger.peak[0] >= peak
    if len({problem.group[node] for node in problem.producer[problem.alias >= 0]}) == 0:
        assert ledger.peak[0] == peak
    limit = problem.lists.limit_bytes[0]
    assert (foreseen > 0) == (ledger.peak[0] > limit)


def test_the_ledger_foresees_backward_tasks_and_activations() -> None:
    problem = training_problem(4, machine(2))
    profiles = Profiles(problem)
    layer = problem.group_names.index("layer0")
    # Parameter, two moments, gradient, and the activations kept in between.
    assert profiles.group_peak[layer] >= 4 << 20
    ledger = Ledger(profiles, [6 << 20, 6 << 20])
    assert ledger.excess([layer], 0) <= 0
    ledger.place(layer, 0)
    assert ledger.excess([problem.group_names.index("layer1")], 0) > 0
    assert ledger.excess([problem.group_names.index("layer1")], 1) <= 0


def test_long_curves_keep_the_worst_positions() -> None:
    problem = layered_problem(3000, 8, machine(1))
    profiles = Profiles(problem)
    assert profiles.slots == 512
    ledger = Ledger(profiles)
    for group in range(problem.groups):
        ledger.place(group, 0)
    assert ledger.peak[0] == simulate(problem, [0] * problem.nodes, problem.order).peak_bytes[0]


# m-TOPO -----------------------------------------------------------------------------------------


def chain(count: int, nbytes: int, limits: list[int]) -> PlacementProblem:
    builder = ProblemBuilder(machine(len(limits)).with_limits(limits))
    nodes = [builder.add_node(f"n{index}", 1.0) for index in range(count)]
    for node in nodes:
        builder.add_tensor(node, nbytes, [node + 1] if node + 1 < count else [], persistent=True)
    return builder.build()


def test_m_topo_fills_up_to_its_cap() -> None:
    # Sum 80, two devices: cap 80 / 2 + 10 = 50.
    assert m_topo(chain(8, 10, [1000, 1000])).assignment == (0, 0, 0, 0, 0, 1, 1, 1)


def test_m_topo_shares_by_the_limits() -> None:
    # Shares 20 and 60, each plus the largest memory.
    assert m_topo(chain(8, 10, [100, 300])).assignment == (0, 0, 0, 1, 1, 1, 1, 1)


def test_m_topo_keeps_the_real_limit() -> None:
    # The cap would be 50; the device has only 45, of which copies take their part too.
    placement = m_topo(chain(8, 10, [45, 1000]))
    assert placement.assignment.count(0) == 4 - 3
    assert m_topo(chain(8, 10, [45, 55])).overflows == 0


def test_m_topo_takes_layers_in_order() -> None:
    problem = training_problem(8, machine(4))
    placement = m_topo(problem)
    forward = [problem.node_names.index(f"layer{index}.forward") for index in range(8)]
    assert [placement.assignment[node] for node in forward] == [0, 0, 0, 1, 1, 1, 2, 2]


# m-ETF ------------------------------------------------------------------------------------------


def naive_etf(problem: PlacementProblem) -> list[int]:
    """Re-estimates every ready pair at every step, as the paper says; no groups, no memory."""
    free = [0.0] * problem.devices
    wire: dict[int, float] = {}
    finish: dict[int, float] = {}
    device: dict[int, int] = {}
    arrived: dict[tuple[int, int], float] = {}
    lists, machine_ = problem.lists, problem.machine

    def arrival(tensor: int, target: int) -> float:
        source = device[lists.producer[tensor]]
        if source == target:
            return finish[lists.producer[tensor]]
        if (tensor, target) in arrived:
            return arrived[tensor, target]
        begin = max(
            finish[lists.producer[tensor]], wire.get(int(machine_.wire[source, target]), 0.0)
        )
        return begin + machine_.transfer_seconds(source, target, lists.tensor_bytes[tensor])

    while len(device) < problem.nodes:
        ready = [
            node
            for node in range(problem.nodes)
            if node not in device
            and all(lists.producer[tensor] in device for tensor in lists.reads[node])
        ]
        _, node, target = min(
            (max([free[d], *(arrival(x, d) for x in lists.reads[n])]), n, d)
            for n in ready
            for d in range(problem.devices)
        )
        start = free[target]
        for tensor in lists.reads[node]:
            time = arrival(tensor, target)
            source = device[lists.producer[tensor]]
            if source != target and (tensor, target) not in arrived:
                arrived[tensor, target] = time
                wire[int(machine_.wire[source, target])] = time
            start = max(start, time)
        device[node] = target
        finish[node] = free[target] = start + lists.seconds[node][target]
    return [device[node] for node in range(problem.nodes)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000_000), devices=st.integers(1, 4))
def test_m_etf_is_earliest_task_first(seed: int, devices: int) -> None:
    links = Machine.uniform_of(devices, 1 << 40, latency_seconds=1e-4, seconds_per_byte=1e-9)
    problem = layered_problem(60, 6, links, seed=seed)
    assert list(m_etf(problem).assignment) == naive_etf(problem)


def test_m_etf_prefers_the_fast_device_to_an_idle_slow_one() -> None:
    builder = ProblemBuilder(machine(2))
    for index in range(3):
        builder.add_node(f"n{index}", [1.0, 10.0])
    assert m_etf(builder.build()).assignment == (0, 0, 0)


def test_m_etf_places_a_whole_group_with_its_first_node() -> None:
    problem = training_problem(6, machine(3, 11 << 20))
    placement = m_etf(problem)
    check_valid(problem, placement)
    assert placement.overflows == 0
    assert simulate(problem, placement.assignment).fits(problem.lists.limit_bytes)


def test_arguments_come_along_with_their_reader() -> None:
    builder = ProblemBuilder(machine(2))
    busy = builder.add_node("busy", 10.0)
    _, weight = builder.add_argument("weight", 100)
    reader = builder.add_node("reader", 1.0)
    builder.set_readers(weight, [reader])
    for placer in (m_etf, m_sct):
        assignment = placer(builder.build()).assignment
        assert assignment[busy] == 0
        assert assignment[1] == assignment[reader] == 1


def test_a_group_that_fits_nowhere_is_counted_not_lost() -> None:
    builder = ProblemBuilder(machine(2, 10))
    big = builder.add_node("big", 1.0)
    builder.add_tensor(big, 100)
    for placer in PLACERS:
        placement = placer(builder.build())
        assert placement.overflows == 1
        check_valid(builder.build(), placement)


# m-SCT ------------------------------------------------------------------------------------------


def fork(latency: float) -> PlacementProblem:
    """One node with a long and a short successor, both of which go on."""
    builder = ProblemBuilder(machine(2, latency=latency))
    root = builder.add_node("root", 1.0)
    short = builder.add_node("short", 1.0)
    long = builder.add_node("long", 1.0)
    end = builder.add_node("end", 5.0)
    builder.add_tensor(root, 0, [short, long])
    builder.add_tensor(long, 0, [end])
    builder.add_tensor(short, 0, [])
    return builder.build()


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_favourite_child_is_on_the_critical_path(solver: str) -> None:
    found = favourite_children(fork(0.9), solver=solver)
    # root -> long is the favourite; long -> end are alone with one another, so contracted.
    assert found.child == [2, -1, 3, -1]
    assert found.makespan_seconds == pytest.approx(7.0)


def lp_by_enumeration(problem: PlacementProblem) -> float:
    """The program with integral x: no less than the linear one."""
    lists, machine_ = problem.lists, problem.machine
    edges = [
        (lists.producer[x], reader, x)
        for x in range(problem.tensors)
        for reader in lists.readers[x]
    ]
    best = float("inf")
    for apart in itertools.product((0, 1), repeat=len(edges)):
        zeros = [edge for edge, x in zip(edges, apart) if not x]
        if len({a for a, _, _ in zeros}) < len(zeros) or len({b for _, b, _ in zeros}) < len(zeros):
            continue
        end = [0.0] * problem.nodes
        for node in problem.order:
            start = 0.0
            for (a, b, tensor), x in zip(edges, apart):
                if b == node:
                    cost = machine_.transfer_seconds(0, 1, lists.tensor_bytes[tensor])
                    start = max(start, end[a] + x * cost)
            end[node] = start + lists.seconds[node][0]
        best = min(best, max(end))
    return best


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_program_is_a_relaxation_and_solvers_agree(seed: int) -> None:
    rng = random.Random(seed)
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 40, seconds_per_byte=1e-4))
    for node in range(6):
        builder.add_node(f"n{node}", rng.uniform(0.5, 2.0))
    for node in range(5):
        readers = rng.sample(range(node + 1, 6), rng.randrange(0, min(3, 6 - node)))
        builder.add_tensor(node, rng.randrange(1, 9000), sorted(readers))
    problem = builder.build()
    highs, cbc = (favourite_children(problem, solver=each) for each in ("highs", "cbc"))
    assert highs.makespan_seconds == pytest.approx(cbc.makespan_seconds)
    assert highs.makespan_seconds <= lp_by_enumeration(problem) * (1 + 1e-6)
    for found in (highs, cbc):
        children = [child for child in found.child if child >= 0]
        assert len(set(children)) == len(children)


def test_edges_inside_a_group_take_nobodys_favourite() -> None:
    problem = training_problem(4, machine(2, latency=1e-4))
    group = problem.group
    for node, child in enumerate(favourite_children(problem).child):
        assert child < 0 or group[node] != group[child]


def test_an_awake_device_waits_for_its_favourite_child() -> None:
    # Device 0 runs a; its favourite child c could start there at once, b could start now too.
    builder = ProblemBuilder(machine(2, latency=5.0))
    a = builder.add_node("a", 1.0)
    b = builder.add_node("b", 1.0)
    c = builder.add_node("c", 1.0)
    builder.add_tensor(a, 0, [b])
    builder.add_tensor(a, 0, [c])
    problem = builder.build()
    awake = ListScheduler(problem, Profiles(problem), [c, -1, -1])
    awake.run()
    plain = ListScheduler(problem, Profiles(problem))
    plain.run()
    assert awake.finish[c] < awake.finish[b]
    assert plain.finish[b] < plain.finish[c]


def test_m_sct_says_when_its_program_takes_too_long() -> None:
    problem = layered_problem(400, 8, machine(2, latency=1e-4))
    with pytest.raises(PlacerError, match=r"not solved within 1e-06 s.*raise the time limit, or"):
        m_sct(problem, time_limit=1e-6)


# One device, pins -------------------------------------------------------------------------------


def test_single_leaves_pins_where_they_are() -> None:
    builder = ProblemBuilder(machine(3))
    a, b = builder.add_node("a", 1.0), builder.add_node("b", 1.0)
    builder.pin(b, 2)
    placement = single(builder.build(), 1)
    assert (placement.assignment, placement.placer) == ((1, 2), "single:1")
    assert placement.notes == ("1 groups must be on other devices",)
    assert a == 0


def test_expert_spreads_pins_along_the_thickest_edges() -> None:
    builder = ProblemBuilder(machine(3))
    nodes = [builder.add_node(name, 1.0) for name in "abcde"]
    builder.add_tensor(nodes[0], 10, [nodes[1]])
    builder.add_tensor(nodes[1], 100, [nodes[2]])
    builder.add_tensor(nodes[2], 50, [nodes[3]])
    builder.pin(nodes[0], 1)
    builder.pin(nodes[3], 2)
    placement = expert(builder.build())
    assert placement.assignment == (1, 2, 2, 2, 0)
    assert "2 groups without a pin follow" in placement.notes[0]
    assert "1 groups hang on no pin, among them 'e'" in placement.notes[1]


def test_expert_needs_a_pin() -> None:
    builder = ProblemBuilder(machine(2))
    builder.add_node("a", 1.0)
    with pytest.raises(PlacerError, match=r"nothing is pinned; pin parts.*named_scope"):
        expert(builder.build())
