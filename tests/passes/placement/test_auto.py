"""The portfolio, repair, and what is said when nothing fits."""

import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.placement import auto
from baechi_jax.passes.placement.auto import PLACERS, Choice, choose
from baechi_jax.passes.placement.baselines import single
from baechi_jax.passes.placement.bounds import makespan_bound
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.live import live_bytes, peak_table
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder
from baechi_jax.passes.placement.repair import pack, repair
from baechi_jax.passes.placement.synthetic import random_problem, training_problem
from baechi_jax.passes.simulate.judge import ALL_RULES, judge
from baechi_jax.passes.simulate.simulator import simulate


def machine(count: int, limit: int = 1 << 40) -> Machine:
    return Machine.uniform_of(count, limit, latency_seconds=2e-5, seconds_per_byte=1e-10)


def check(problem: PlacementProblem, choice: Choice) -> None:
    best = choice.best
    assignment = best.placement.assignment
    for group, members in enumerate(problem.members):
        assert len({assignment[node] for node in members}) == 1
        assert assignment[members[0]] in problem.allowed[group]
    limits = problem.lists.limit_bytes
    assert best.fits
    assert best.simulation.fits(limits)
    again = judge(problem, assignment)
    if not again.fits(limits):
        again = judge(problem, assignment, ALL_RULES)
    assert again.fits(limits)
    assert again.makespan_seconds == best.simulation.makespan_seconds
    assert again.makespan_seconds >= makespan_bound(problem) * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000), limit=st.sampled_from([200, 400, 1 << 40]))
def test_never_worse_than_any_placer_or_device(seed: int, limit: int) -> None:
    problem = random_problem(seed, tasks=10, devices=3, limit_bytes=limit)
    try:
        best = choose(problem)
    except InfeasiblePlacementError:
        best = None
    if best is not None:
        check(problem, best)
    for placer in PLACERS:
        if placer in ("auto", "milp") or (placer == "expert" and (problem.pinned < 0).all()):
            continue
        try:
            other = choose(problem, placer)
        except InfeasiblePlacementError:
            continue
        check(problem, other)
        assert best is not None
        if other.best.placement.placer == "packing program" or not judge(
            problem, other.best.placement.assignment
        ).fits(problem.lists.limit_bytes):
            # Not the placer's own any more: last resorts, which auto leaves for when nothing fits.
            continue
        longest = other.best.simulation.makespan_seconds
        assert best.best.simulation.makespan_seconds <= longest
    for device in range(problem.devices):
        simulation = judge(problem, single(problem, device).assignment)
        if simulation.fits(problem.lists.limit_bytes):
            assert best is not None
            assert best.best.simulation.makespan_seconds <= simulation.makespan_seconds


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_repeatable(seed: int) -> None:
    problem = random_problem(seed, tasks=10, devices=3, limit_bytes=350)
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(choose(problem).best.placement)
        except InfeasiblePlacementError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000), limit=st.integers(60, 300))
def test_a_small_problem_is_infeasible_only_if_nothing_fits(seed: int, limit: int) -> None:
    problem = random_problem(seed, tasks=5, devices=2, limit_bytes=limit, pins=False)
    limits = problem.lists.limit_bytes
    try:
        choose(problem)
    except InfeasiblePlacementError:
        assert not any(
            judge(problem, expand(problem, each), ALL_RULES).fits(limits)
            for each in itertools.product(*problem.allowed)
        )


def test_one_device_wins_where_transfers_cost_more_than_they_save() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30, latency_seconds=10.0))
    a, b, c = (builder.add_node(name, 1.0) for name in "abc")
    builder.add_tensor(a, 1, [b, c])
    choice = choose(builder.build())
    assert choice.best.placement.placer == "single:0"
    assert choice.best.placement.status == "one device"


def test_several_devices_win_where_they_save_time() -> None:
    builder = ProblemBuilder(Machine.uniform_of(2, 1 << 30, latency_seconds=0.1))
    for index in range(6):
        builder.add_node(f"n{index}", 1.0)
    assert choose(builder.build()).best.simulation.makespan_seconds == 3.0


@pytest.mark.parametrize("placer", ["auto", "m-topo", "m-etf", "m-sct"])
@pytest.mark.parametrize("share", [0.6, 0.4, 0.3])
def test_training_fits_in_a_share_of_one_devices_peak(placer: str, share: float) -> None:
    problem = training_problem(12, machine(4))
    peak = judge(problem, single(problem, 0).assignment).peak_bytes[0]
    tight = problem.with_limits([int(peak * share)] * 4)
    choice = choose(tight, placer)
    check(tight, choice)


@pytest.mark.parametrize("placer", ["auto", "m-topo", "m-etf"])
def test_training_fits_on_unequal_devices(placer: str) -> None:
    problem = training_problem(12, machine(4))
    peak = judge(problem, single(problem, 0).assignment).peak_bytes[0]
    tight = problem.with_limits([int(peak * share) for share in (0.15, 0.5, 0.3, 0.3)])
    check(tight, choose(tight, placer))


def test_placers_by_name() -> None:
    problem = training_problem(3, machine(2))
    for placer in PLACERS:
        if placer == "expert":
            continue
        check(problem, choose(problem, placer, time_limit=5))
    assert choose(problem, "single:1").best.placement.placer == "single:1"
    with pytest.raises(PlacerError, match="unknown placer 'm-tops'; there are: auto, single"):
        choose(problem, "m-tops")
    with pytest.raises(PlacerError, match="there is no device '2'; the machine has 2"):
        choose(problem, "single:2")
    with pytest.raises(PlacerError, match="nothing is pinned"):
        choose(problem, "expert")


def test_the_portfolio_holds_all_placers() -> None:
    builder = ProblemBuilder(machine(2))
    builder.pin(builder.add_node("a", 3.0), 1)
    for name in "bcd":
        builder.add_node(name, 2.0)
    problem = builder.build()
    names = [each.placement.placer for each in choose(problem).candidates]
    assert names == ["single:0", "single:1", "m-topo", "m-etf", "m-sct", "expert", "milp"]
    names = [each.placement.placer for each in choose(problem, auto_milp_nodes=0).candidates]
    assert "milp" not in names


def test_no_program_where_there_is_nothing_to_gain() -> None:
    builder = ProblemBuilder(machine(2))
    builder.add_node("a", 1.0)
    builder.add_node("b", 1.0)
    choice = choose(builder.build())
    assert choice.gap == 0
    assert "milp" not in [each.placement.placer for each in choice.candidates]


def test_a_placer_that_fails_is_left_out_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PlacerError("no time left")

    monkeypatch.setattr(auto, "m_sct", fail)
    problem = training_problem(3, machine(2))
    with caplog.at_level(logging.WARNING):
        choose(problem)
    assert "left out of the portfolio: no time left" in caplog.text
    with pytest.raises(PlacerError, match="no time left"):
        choose(problem, "m-sct")


def test_milp_in_the_portfolio_never_loses_to_its_start() -> None:
    problem = training_problem(5, machine(3, 11 << 20))
    without = choose(problem, auto_milp_nodes=0).best.simulation.makespan_seconds
    with_milp = choose(problem, auto_milp_nodes=1000).best.simulation.makespan_seconds
    assert with_milp <= without


# Repair -----------------------------------------------------------------------------------------


def test_repair_moves_groups_off_an_overfull_device() -> None:
    problem = training_problem(8, machine(4, 16 << 20))
    profiles = Profiles(problem)
    outcome = repair(problem, profiles, [0] * problem.groups)
    assert outcome.excess_bytes == 0
    assert outcome.moves > 0
    assert simulate(problem, expand(problem, outcome.device_of_group)).peak_bytes is not None
    assert outcome.simulation.fits(problem.lists.limit_bytes)


def test_repair_leaves_alone_what_fits_and_what_is_pinned() -> None:
    problem = training_problem(4, machine(2))
    assert repair(problem, Profiles(problem), [0] * problem.groups).moves == 0
    builder = ProblemBuilder(machine(2, 10))
    builder.pin(builder.add_node("a", 1.0, temporary_bytes=50), 0)
    pinned = builder.build()
    outcome = repair(pinned, Profiles(pinned), [0])
    assert (outcome.moves, outcome.excess_bytes) == (0, 40)


def test_pack_balances_memory() -> None:
    problem = training_problem(8, machine(4, 100 << 20))
    device = pack(problem, Profiles(problem), problem.lists.limit_bytes)
    peaks = judge(problem, expand(problem, device)).peak_bytes
    assert max(peaks) < 1.3 * min(peaks)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_live_bytes_add_up_to_the_peak(seed: int) -> None:
    problem = random_problem(seed, tasks=10, devices=3)
    assignment = tuple((seed >> node) % 3 for node in range(problem.nodes))
    simulation = simulate(problem, assignment)
    for device in range(3):
        live = sum(live_bytes(problem, assignment, simulation, device).values())
        assert live == simulation.peak_bytes[device]
        table = peak_table(problem, assignment, simulation, device)
        assert sum(each.nbytes for each in table.buffers) == live


# Infeasible -------------------------------------------------------------------------------------


def test_message_of_a_group_that_is_too_large() -> None:
    problem = training_problem(4, machine(2, 3 << 20))
    with pytest.raises(InfeasiblePlacementError) as caught:
        choose(problem)
    error = caught.value
    message = str(error)
    assert isinstance(error, BaechiError)
    assert error.proven
    assert "no placement fits the memory of 2 devices (3.00 MiB each)" in message
    assert "None can: group 'layer" in message
    assert "which must be on one device, takes at least" in message
    assert "model.py:1" in message
    assert "too large for any device" in message
    assert "a limit of" in message
    assert "choose-residuals" in message
    worst = max(error.shortfalls, key=lambda each: each.missing_bytes)
    assert worst.missing_bytes == worst.peak_bytes - (3 << 20) > 0


def test_message_says_how_many_devices_would_do() -> None:
    problem = training_problem(12, machine(2, 14 << 20))
    with pytest.raises(InfeasiblePlacementError) as caught:
        choose(problem)
    message = str(caught.value)
    assert "all that lives at once takes at least" in message
    assert "2 more devices like device:1" in message
    larger = training_problem(12, machine(4, 14 << 20))
    choose(larger)


def test_the_limit_that_the_message_names_does_fit() -> None:
    problem = training_problem(6, machine(2, 10 << 20))
    with pytest.raises(InfeasiblePlacementError) as caught:
        choose(problem)
    line = next(each for each in str(caught.value).splitlines() if "a limit of" in each)
    mebibytes = float(line.split("a limit of ")[1].split(" MiB")[0])
    choose(training_problem(6, machine(2, int((mebibytes + 0.01) * (1 << 20)))))


def test_message_of_unequal_devices_and_pins_and_undonated_arguments() -> None:
    builder = ProblemBuilder(machine(2).with_limits([1000, 3000]))
    node, tensor = builder.add_argument("weights", 2000)
    task = builder.add_node("use", 1.0)
    builder.set_readers(tensor, [task])
    builder.pin(node, 0)
    with pytest.raises(InfeasiblePlacementError) as caught:
        choose(builder.build())
    message = str(caught.value)
    assert "2 devices (1000 B, 2.93 KiB)" in message
    assert "'weights', which must be on one device" in message
    assert "at the start of the step" in message
    assert "limits of 1.96 KiB, 2.93 KiB (" in message
    assert caught.value.needed_bytes == (2000, 3000)
    assert "unpin some of the 1 groups pinned to those devices; the largest is 'weights'" in message
    assert "donate arguments" in message


def test_message_of_one_device() -> None:
    problem = training_problem(2, machine(1, 1 << 20))
    with pytest.raises(InfeasiblePlacementError, match=r"the memory of the device \(1.00 MiB\)"):
        choose(problem)


def test_one_device_asked_for_is_one_device_or_an_error() -> None:
    problem = training_problem(12, machine(4, 20 << 20))
    choose(problem)
    message = (
        "placer 'single' keeps all that it can on one device, and none holds it.*'auto' spreads"
    )
    with pytest.raises(InfeasiblePlacementError, match=message):
        choose(problem, "single")
