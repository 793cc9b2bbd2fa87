"""A plan gives back the tasks that were placed."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.merge_tasks import PARTS
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.placed_form import placed_form
from baechi_jax.passes.placement.from_module import from_module, placed_devices
from baechi_jax.passes.tasks import tasks_of


def _loss(params: list[jax.Array], x: jax.Array) -> jax.Array:
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def _step(params: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    loss, grads = jax.value_and_grad(_loss)(params, x)
    # A result that is a literal, and one that is an argument.
    return [w - 0.1 * g for w, g in zip(params, grads)], loss


def _quiet(x: jax.Array) -> tuple[jax.Array, int, jax.Array]:
    return jnp.sin(x), 3, x


PARAMS = [jax.ShapeDtypeStruct((128, 128), jnp.float32)] * 6
BATCH = jax.ShapeDtypeStruct((32, 128), jnp.float32)


def _planned(folder: Path, devices: int, memory_bytes: int) -> tuple[Module, Module]:
    """The plan, and what was there before its tasks were merged."""
    machine = Topology.uniform(devices, Device(memory_bytes=memory_bytes))
    placed = baechi.place(
        _step, topology=machine, placer="m-etf", donate_argnums=0, dump_folder=folder
    )
    plan = placed.plan(PARAMS, BATCH)
    (before,) = folder.glob("*_record-decisions.mlir")
    return plan.module, parse_module(before.read_text(encoding="utf-8"), str(before))


@pytest.mark.parametrize(("devices", "memory_bytes"), [(1, 4_000_000), (3, 600_000)])
def test_the_tasks_that_were_placed_come_back(
    tmp_path: Path, devices: int, memory_bytes: int
) -> None:
    plan, before = _planned(tmp_path, devices, memory_bytes)
    assert len(tasks_of(plan.main)) < len(tasks_of(before.main))
    text = str(plan)
    form = placed_form(plan)
    verify(form.module)
    assert str(plan) == text
    found, wanted = from_module(form.module), from_module(before)
    assert found.problem.node_names == wanted.problem.node_names
    assert found.problem.group_names == wanted.problem.group_names
    for name in (
        "seconds temporary_bytes tensor_bytes producer readers persistent alias group pinned"
    ).split():
        np.testing.assert_array_equal(
            getattr(found.problem, name), getattr(wanted.problem, name), err_msg=name
        )
    assert placed_devices(form.module, found) == placed_devices(before, wanted)
    assert sorted(name for parts in form.parts.values() for name in parts) == sorted(
        str(task.attributes["sym_name"]) for task in tasks_of(before.main)
    )


def test_planned_again_it_is_the_same_plan(tmp_path: Path) -> None:
    plan, _ = _planned(tmp_path, 3, 600_000)
    module = placed_form(plan).module
    PassManager(parse_pipeline("lower")).run(module)
    for key in ("baechi.step_seconds", "baechi.memory"):
        assert module.main.attributes[key] == plan.main.attributes[key]


def test_results_that_no_task_computes() -> None:
    machine = Topology.uniform(2, Device(memory_bytes=100_000))
    plan = baechi.place(_quiet, topology=machine, placer="m-etf").plan(BATCH).module
    module = placed_form(plan).module
    PassManager(parse_pipeline("lower")).run(module)
    assert module.main.attributes["baechi.memory"] == plan.main.attributes["baechi.memory"]


def test_a_plan_without_decisions_is_told(tmp_path: Path) -> None:
    plan, _ = _planned(tmp_path, 3, 600_000)
    del plan.attributes["baechi.decisions"]
    with pytest.raises(PassError, match="does not hold what was placed"):
        placed_form(plan)


@pytest.mark.parametrize("change", [{"task": "t999"}, {"ops": 10_000}, {"ops": -1}])
def test_parts_that_are_wrong_are_told(tmp_path: Path, change: dict[str, str | int]) -> None:
    plan, _ = _planned(tmp_path, 3, 600_000)
    task = next(task for task in tasks_of(plan.main) if PARTS in task.attributes)
    parts = task.attributes[PARTS]
    assert isinstance(parts, tuple)
    assert isinstance(parts[0], DictAttr)
    task.attributes[PARTS] = (DictAttr.of({**dict(parts[0].items_), **change}), *parts[1:])
    with pytest.raises(PassError, match="says that it was made of"):
        placed_form(plan)


def test_a_plan_of_an_older_release_is_told(tmp_path: Path) -> None:
    plan, _ = _planned(tmp_path, 3, 600_000)
    for task in tasks_of(plan.main):
        task.attributes.pop(PARTS, None)
    with pytest.raises(PassError, match="made by another release: plan again"):
        placed_form(plan)
