"""``costs="profile"``: the same results, one cache for all processes, a plan that says why."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.passes.use_measured_costs import unmeasured
from baechi_jax.place import PlacedFunction, place
from baechi_jax.plan import Plan
from baechi_jax.planner import Known
from baechi_jax.profiled import ProfileOptions, Profiler, plan_with_profile
from baechi_jax.retarget import retarget
from baechi_jax.runtime import profile_links
from baechi_jax.runtime.errors import DeviceError
from baechi_jax.runtime.instructions import program_of
from baechi_jax.runtime.profile import Budget, TaskSampler
from baechi_jax.runtime.profile_cache import CostCacheError, cache_files, read_costs
from tests.four_layers import arguments as _arguments
from tests.four_layers import step as _step


def _topology(devices: int = 4) -> Topology:
    # Two of the four layers with their gradients.
    return baechi.local_topology("72KiB", jax.devices()[:devices])


def _placed(folder: Path, **options: Any) -> PlacedFunction:
    options = {"topology": _topology(), "costs": "profile", "profile_folder": folder, **options}
    return place(_step, **options)


def test_values_are_those_of_jit_and_the_plan_is_measured(tmp_path: Path) -> None:
    placed = _placed(tmp_path)
    params, x = _arguments()
    wanted = jax.jit(_step)(params, x)
    found = placed(params, x)
    same: bool = jax.tree.structure(found) == jax.tree.structure(wanted)  # type: ignore[operator]
    assert same
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
    plan = placed.plan(params, x)
    assert len(plan.devices_used) > 1
    known = MeasuredCosts.of(plan.module)
    assert known is not None
    assert not unmeasured(plan.module, known.tasks)
    # On shared hardware, the bound is all the work.
    assert plan.lower_bound_seconds <= plan.step_seconds < 3 * plan.lower_bound_seconds
    tasks = len(tasks_of(plan.module.main))
    assert f"Costs measured, {tasks} of {tasks} tasks" in " ".join(str(plan).split())
    assert plan.declared_topology == _topology()
    assert plan.topology != _topology()
    (file,) = cache_files(tmp_path)
    costs, _ = read_costs(file)
    assert {task for task, _ in known.tasks} <= set(costs.tasks)
    assert costs.links


_ANOTHER = """
import sys
sys.path.insert(0, sys.argv[1])
import jax
import jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 8)
from pathlib import Path
import test_profiled
from baechi_jax.runtime import profile, profile_links
def refuse(*_, **__):
    raise AssertionError("measured again")
profile.TaskSampler._sample = refuse
profile_links._measure = refuse
placed = test_profiled._placed(Path(sys.argv[2]))
print(placed.plan(*jax.eval_shape(test_profiled._arguments)).step_seconds)
"""


def test_what_is_in_the_cache_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = jax.eval_shape(_arguments)
    plan = _placed(tmp_path).plan(*shapes)

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(TaskSampler, "_sample", refuse)
    monkeypatch.setattr(profile_links, "_measure", refuse)
    assert _placed(tmp_path).plan(*shapes).step_seconds == pytest.approx(plan.step_seconds)


def test_bars_of_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("baechi_jax.runtime.progress.SHOWN_AFTER_SECONDS", 0.0)
    shapes = jax.eval_shape(_arguments)
    _placed(tmp_path / "quiet", progress=False, profile_seconds=0.2).plan(*shapes)
    assert capsys.readouterr().err == ""
    _placed(tmp_path / "shown", progress=True, profile_seconds=0.2).plan(*shapes)
    captured = capsys.readouterr()
    assert captured.out == ""
    # Each ends with all that there was to do.
    for title in ("compiling", "links", "measuring"):
        assert re.search(rf"{title} \S+ +([1-9]\d*)/\1 ", captured.err), (title, captured.err)


def test_ctrl_c_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = TaskSampler._sample
    count = iter(range(100))

    def interrupted(self: TaskSampler, state: Any) -> None:
        if next(count) == 3:
            raise KeyboardInterrupt
        taken(self, state)

    placed = _placed(tmp_path)
    shapes = jax.eval_shape(_arguments)
    with monkeypatch.context() as patch:
        patch.setattr(TaskSampler, "_sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            placed.plan(*shapes)
    # The links were done; of the tasks nothing is there, and the next call measures them.
    (file,) = cache_files(tmp_path)
    assert not read_costs(file)[0].tasks
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".lock"}
    assert MeasuredCosts.of(placed.plan(*shapes).module) is not None


@pytest.mark.slow
def test_another_process_does_not_measure_again(tmp_path: Path) -> None:
    plan = _placed(tmp_path).plan(*jax.eval_shape(_arguments))
    (file,) = cache_files(tmp_path)
    before = file.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", _ANOTHER, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(plan.step_seconds)
    assert file.read_bytes() == before


def test_kinds_of_devices_that_the_plan_leaves_out_are_measured_too(tmp_path: Path) -> None:
    # The second kind looks too slow to be used; both are the same processor in truth.
    fast, slow = Device(kind="fast"), Device(kind="slow", flops_per_second=1e6)
    topology = Topology((fast, slow), (Link(0, 1), Link(1, 0)))
    placed = _placed(tmp_path, topology=topology, devices=jax.devices()[:2])
    plan = placed.plan(*jax.eval_shape(_arguments))
    known = MeasuredCosts.of(plan.module)
    assert known is not None
    assert {kind for _, kind in known.tasks} == {"fast", "slow"}


def test_a_saved_plan_brings_its_costs(tmp_path: Path) -> None:
    shapes = jax.eval_shape(_arguments)
    plan = _placed(tmp_path / "costs").plan(*shapes)
    plan.save(tmp_path / "plan.mlir")
    again = place(_step, plan=tmp_path / "plan.mlir", topology=_topology()).plan(*shapes)
    assert again.step_seconds == pytest.approx(plan.step_seconds)
    assert again.topology == plan.topology
    loaded = Plan.load(tmp_path / "plan.mlir")
    assert loaded.declared_topology == _topology()
    other = Topology.uniform(4)
    (note, *_) = retarget(loaded.module, other)
    assert "the plan was made with measured costs" in note
    assert MeasuredCosts.of(loaded.module) is None
    assert loaded.declared_topology == other


def test_nothing_is_measured_without_time(tmp_path: Path) -> None:
    params, x = _arguments()
    placed = _placed(tmp_path, profile_seconds=0)
    plan = placed.plan(params, x)
    assert not cache_files(tmp_path)
    plain = place(_step, topology=_topology()).plan(params, x)
    assert plan.step_seconds == pytest.approx(plain.step_seconds)


def test_the_plan_is_the_best_of_those_measured(tmp_path: Path) -> None:
    # A clock that says that everything takes no time at all: plans differ in links only.
    placed = place(_step, topology=_topology())
    shapes = jax.eval_shape(_arguments)
    plan = placed.plan(*shapes)
    lowered = placed.lower(*shapes)
    seconds = iter(np.linspace(1.0, 2.0, 100_000))
    budget = Budget(1e9, lambda: float(next(seconds)))
    profiler = Profiler(
        _topology(), jax.devices()[:4], ProfileOptions(folder=tmp_path, repeats=1), budget
    )
    made: list[Plan] = [plan]

    def plan_again(costs: MeasuredCosts) -> Plan:
        entry = placed._entry(shapes, {})
        entry.costs = costs
        made.append(placed._plan_entry(entry))
        return made[-1]

    found = plan_with_profile(plan, plan_again, profiler, lowered._compile_tasks)
    assert found.plan in made
    assert len(made) > 1
    assert found.plan.step_seconds == min(each.step_seconds for each in made)


def test_what_there_was_no_time_for_is_scaled_by_what_was_measured(tmp_path: Path) -> None:
    # A clock that ticks whenever it is looked at: everything takes far longer than modelled.
    ticks = itertools.count()
    budget = Budget(1e9, lambda: float(next(ticks)))
    profiler = Profiler(
        _topology(), jax.devices()[:4], ProfileOptions(folder=tmp_path, repeats=1), budget
    )
    shapes = jax.eval_shape(_arguments)
    placed = place(_step, topology=_topology())
    lowered = placed.lower(*shapes)
    profiler.measure_links()
    budget.seconds = budget.spent + 40
    profiler.measure(program_of(lowered.plan.module), lowered._compile_tasks)
    costs = profiler.costs()

    entry = placed._entry(shapes, {})
    modelled = {fingerprint(task): _seconds(task) for task in tasks_of(lowered.plan.module.main)}
    entry.costs = costs
    again = placed._plan_entry(entry)
    left_out = unmeasured(again.module, costs.tasks)
    tasks = tasks_of(again.module.main)
    assert (
        0
        < len({fingerprint(task) for task in left_out})
        < len({fingerprint(task) for task in tasks})
    )
    slower = [
        _seconds(task) / modelled[fingerprint(task)]
        for task in left_out
        if fingerprint(task) in modelled
    ]
    assert slower
    assert min(slower) > 1000


def _seconds(task: Operation) -> float:
    cost = task.attributes["baechi.cost"]
    assert isinstance(cost, Cost)
    return cost.seconds[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"costs": "measured"}, ValueError, "must be 'analytic' or 'profile', found 'measured'"),
        ({"costs": 3}, ValueError, "found 3"),
        ({"profile_seconds": -1}, ValueError, "must be finite and not negative, found -1"),
        ({"profile_seconds": float("nan")}, ValueError, "finite and not negative"),
        ({"profile_seconds": "5"}, TypeError, "must be a number of seconds, found '5'"),
        ({"profile_folder": __file__}, NotADirectoryError, "profile_folder must be a folder"),
        ({"plan": __file__}, ValueError, "give a plan or costs, not both"),
    ],
)
def test_wrong_options(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _placed(tmp_path, **options)


def test_a_machine_that_is_not_there(tmp_path: Path) -> None:
    placed = _placed(tmp_path, topology=Topology.uniform(20))
    with pytest.raises(DeviceError, match="plan with costs='analytic'"):
        placed.plan(*_arguments())


def test_a_cache_that_cannot_be_trusted_is_told(tmp_path: Path) -> None:
    _placed(tmp_path).plan(*_arguments())
    (file,) = cache_files(tmp_path)
    file.write_text(json.dumps({"format": "else"}), encoding="utf-8")
    with pytest.raises(CostCacheError, match="no file of measured costs"):
        _placed(tmp_path).plan(*_arguments())


def test_a_repeated_plan_keeps_its_own_costs(tmp_path: Path) -> None:
    placed = _placed(tmp_path)
    plan = placed.plan(*jax.eval_shape(_arguments))
    (entry,) = placed._entries.values()
    assert entry.costs is not None
    # Measured anew, matrix products take all the time, which makes fewer tasks.
    factors = {key: 1e4 if key[1] == "matmul" else 1.0 for key in entry.costs.factors}
    entry.costs = replace(entry.costs, factors=factors)
    anew = placed._plan_entry(entry)
    decided = plan.module.attributes["baechi.decisions"]
    assert anew.module.attributes["baechi.decisions"] != decided
    repeated = placed._plan_entry(entry, Known(), plan)
    assert repeated.module.attributes["baechi.decisions"] == decided


def _loop(params: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
    """Turns as often as the values say: much oftener than the model takes for granted."""

    def turn(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        count, y = carry
        return count + 1, jnp.tanh(y @ params["w"])

    _, y = jax.lax.while_loop(lambda carry: carry[0] < params["turns"], turn, (0, x))
    return {**params, "w": params["w"] + jnp.mean(y)}, jnp.sum(y)


def test_real_steps_tell_how_long_loops_take(tmp_path: Path) -> None:
    params = {"w": np.eye(32, dtype=np.float32) / 2, "turns": np.int32(400)}
    x = np.ones((16, 32), np.float32)

    def placed() -> PlacedFunction:
        topology = baechi.local_topology(devices=jax.devices()[:1])
        return place(_loop, topology=topology, costs="profile", profile_folder=tmp_path)

    def seconds(step: PlacedFunction) -> float:
        (task,) = tasks_of(step.plan(params, x).module.main)
        cost = task.attributes["baechi.cost"]
        assert isinstance(cost, Cost)
        return cost.seconds[0]

    first = placed()
    compiled = first.lower(params, x).compile()
    compiled(params, x)
    _, timeline = compiled.measure_times(params, x)
    (event,) = [each for each in timeline.events if each.kind == "task"]
    took = event.end_seconds - event.start_seconds
    assert seconds(first) != took
    # Whoever plans next knows it, in this process and in others.
    again = placed()
    assert seconds(again) == took
    # It says nothing of other tasks, which the model knows how often they turn.
    (path,) = cache_files(tmp_path)
    learnt = read_costs(path)[0].tasks
    assert [entry.families for entry in learnt.values() if entry.seconds == took] == [{}]
    jax.tree.map(np.testing.assert_allclose, again(params, x), jax.jit(_loop)(params, x))
