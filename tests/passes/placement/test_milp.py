"""The mixed-integer program against enumeration of what it minimises."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.latency_model import LatencyGraph
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.milp import milp
from baechi_jax.passes.placement.milp_model import MilpModel, unordered_pairs
from baechi_jax.passes.placement.milp_solve import keeps_memory, solve, value
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.synthetic import (
    layered_problem,
    random_problem,
    training_problem,
)
from baechi_jax.passes.simulate.judge import judge


def groups_of(problem: PlacementProblem, assignment: tuple[int, ...]) -> list[int]:
    return [assignment[members[0]] for members in problem.members]


def build(problem: PlacementProblem, ordered_pairs: int, solver: str = "auto") -> MilpModel:
    graph = LatencyGraph.of(problem)
    return MilpModel.build(problem, Profiles(problem), graph, ordered_pairs, solver=solver)


def ordered_seconds(model: MilpModel, device_of_group: tuple[int, ...]) -> float:
    """Best objective over all orders of the nodes, links never waiting: by enumeration."""
    graph, machine = model.graph, model.problem.machine
    processor = model.problem.lists.processor
    tasks = [node for node in range(len(graph.group)) if not graph.is_argument[node]]
    best = math.inf
    for order in itertools.permutations(tasks):
        rank = {node: index for index, node in enumerate(order)}
        if any(
            rank[e.source] > rank[e.target]
            for e in graph.edges
            if e.source in rank and e.target in rank
        ):
            continue
        free = [0.0] * machine.processors
        end = [0.0] * len(graph.group)
        for node in order:
            device = device_of_group[graph.group[node]]
            start = free[processor[device]]
            for edge in graph.edges:
                if edge.target == node:
                    source = device_of_group[graph.group[edge.source]]
                    seconds = machine.transfer_seconds(source, device, edge.nbytes)
                    start = max(start, end[edge.source] + seconds)
            end[node] = free[processor[device]] = start + graph.seconds[node][device]
        best = min(best, max(end, default=0.0))
    return best


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000), limit=st.sampled_from([150, 300, 1 << 30]))
def test_without_order_it_minimises_model_seconds(seed: int, limit: int) -> None:
    problem = random_problem(seed, tasks=6, devices=2, limit_bytes=limit)
    model = build(problem, ordered_pairs=-1)
    assert not model.unordered
    outcome = solve(model, time_limit=60, max_nodes=None, tolerance=1e-6)
    values = [
        model.graph.model_seconds(each)
        for each in itertools.product(*problem.allowed)
        if keeps_memory(model, each)
    ]
    if not values:
        assert outcome.status == "infeasible"
        return
    assert outcome.status == "optimal"
    assert outcome.device_of_group is not None
    assert keeps_memory(model, outcome.device_of_group)
    assert outcome.objective_seconds == pytest.approx(min(values), rel=1e-5)
    assert model.graph.model_seconds(outcome.device_of_group) == pytest.approx(
        min(values), rel=1e-5
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1_000_000), equal=st.booleans())
def test_with_order_it_minimises_over_orders_too(seed: int, equal: bool) -> None:
    problem = random_problem(seed, tasks=5, devices=2, equal=equal)
    model = build(problem, ordered_pairs=1000)
    outcome = solve(model, time_limit=60, max_nodes=None, tolerance=1e-6)
    values = [ordered_seconds(model, each) for each in itertools.product(*problem.allowed)]
    assert outcome.status == "optimal"
    assert outcome.objective_seconds == pytest.approx(min(values), rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_its_bound_holds_for_every_simulation(seed: int) -> None:
    problem = random_problem(seed, tasks=6, devices=2)
    placement = milp(problem, time_limit=30)
    assert placement.status == "optimal"
    for device_of_group in itertools.product(*problem.allowed):
        assignment = tuple(device_of_group[group] for group in problem.lists.group)
        simulated = judge(problem, assignment).makespan_seconds
        assert placement.bound_seconds <= simulated * (1 + 1e-6)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_solvers_agree(solver: str) -> None:
    problem = random_problem(5, tasks=7, devices=3, equal=True)
    outcome = solve(build(problem, 1000, solver), time_limit=60, max_nodes=None, tolerance=1e-6)
    reference = solve(build(problem, 1000), time_limit=60, max_nodes=None, tolerance=1e-6)
    assert outcome.objective_seconds == pytest.approx(reference.objective_seconds, rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000), ordered=st.booleans())
def test_a_start_is_a_solution_of_the_program(seed: int, ordered: bool) -> None:
    # Fix the groups where a heuristic has them: the program may not be worse than the start says.
    problem = random_problem(seed, tasks=6, devices=3)
    model = build(problem, 1000 if ordered else -1)
    start = [allowed[seed % len(allowed)] for allowed in problem.allowed]
    for (group, device), variable in model.on.items():
        variable.lb = variable.ub = float(start[group] == device)
    if model.numbers_devices:
        return
    outcome = solve(model, time_limit=60, max_nodes=None, tolerance=1e-6)
    assert outcome.status == "optimal"
    assert outcome.objective_seconds <= value(model, start) * (1 + 1e-6)
    if not ordered:
        assert outcome.objective_seconds == pytest.approx(value(model, start), rel=1e-5)


def machine(count: int, limit: int = 1 << 40) -> Machine:
    return Machine.uniform_of(count, limit, latency_seconds=1e-5, seconds_per_byte=1e-11)


def test_a_tight_training_step_is_solved_to_the_optimum() -> None:
    problem = training_problem(6, machine(3, 11 << 20))
    placement = milp(problem, time_limit=30)
    assert placement.status == "optimal"
    assert placement.objective_seconds >= placement.bound_seconds * (1 - 1e-3) > 0
    simulation = judge(problem, placement.assignment)
    assert simulation.fits(problem.lists.limit_bytes)
    assert simulation.makespan_seconds == pytest.approx(placement.objective_seconds, rel=0.01)


def test_the_time_limit_holds_and_the_best_so_far_is_given() -> None:
    import time

    problem = layered_problem(120, 10, machine(4), seed=3)
    before = time.perf_counter()
    placement = milp(problem, time_limit=1.0)
    # Building the program is not counted.
    assert time.perf_counter() - before < 20
    assert placement.status == "time limit"
    assert placement.bound_seconds > 0
    assert len(placement.assignment) == problem.nodes


def test_the_search_limit_makes_it_repeatable() -> None:
    problem = layered_problem(40, 5, machine(3), seed=1)
    first, second = (milp(problem, time_limit=60, max_nodes=5) for _ in range(2))
    assert first == second
    assert first.status in ("search limit", "optimal")


def test_what_fits_nowhere_gives_the_heuristic_and_says_so() -> None:
    problem = training_problem(4, machine(2, 2 << 20))
    placement = milp(problem, time_limit=10)
    assert placement.status == "infeasible"
    assert "the program gave no placement" in placement.notes[0]


def test_problems_that_are_too_large_are_refused() -> None:
    problem = layered_problem(1000, 10, machine(4))
    with pytest.raises(PlacerError, match=r"takes up to 3000 pairs .* found 4000 and 1000; lower"):
        milp(problem)


def test_nothing_to_choose_is_optimal() -> None:
    builder = ProblemBuilder(machine(2))
    builder.pin(builder.add_node("a", 1.0), 1)
    placement = milp(builder.build())
    assert (placement.assignment, placement.status, placement.bound_seconds) == ((1,), "optimal", 1)


def test_rows_are_named_after_their_rules() -> None:
    model = build(random_problem(11, tasks=5, devices=2, limit_bytes=60), 1000)
    rules = {row.name.split("_")[0] for row in model.model.constrs}
    assert {"one", "order", "end", "window", "memory"} <= rules


def test_unordered_pairs() -> None:
    builder = ProblemBuilder(machine(2))
    a, b, c = (builder.add_node(name, 1.0) for name in "abc")
    builder.add_tensor(a, 1, [b, c])
    assert unordered_pairs(LatencyGraph.of(builder.build())) == [(1, 2)]


def test_chains_within_a_group_are_one_node() -> None:
    builder = ProblemBuilder(machine(2))
    nodes = [builder.add_node(f"n{index}", index + 1.0, group="g") for index in range(3)]
    for a, b in itertools.pairwise(nodes):
        builder.add_tensor(a, 1, [b])
    graph = LatencyGraph.of(builder.build())
    assert graph.seconds == [[6.0, 6.0]]
    assert graph.edges == []
