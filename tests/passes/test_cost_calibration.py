"""Families of operations, factors fitted to measured tasks, and how they reach the passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError, VerificationError
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.measured_cost import CostFactor, TaskSeconds
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.annotate_costs import AnnotateCosts
from baechi_jax.passes.cost.calibration import PULL, Sample, calibrate
from baechi_jax.passes.cost.families import ELEMENTWISE, FAMILIES, LOOP, MATMUL, family_seconds
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.cost.task import task_cost
from baechi_jax.passes.fuse_tasks import FuseTasks
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.passes.use_measured_costs import UseMeasuredCosts

_DEVICE = Device(kind="cpu", flops_per_second=1e9, bytes_per_second=1e9, launch_seconds=1e-4)
_TOPOLOGY = Topology.uniform(2, _DEVICE)


def _f(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


def _module(fn: Callable[..., Any], *args: Any) -> Module:
    module = trace(fn, args).module
    module.attributes["baechi.topology"] = _TOPOLOGY
    InlineCalls().run(module)
    return module


def _layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w) * 2.0


def test_families_add_up_to_the_model() -> None:
    module = _module(_layer, _f(64, 64), _f(64, 64))
    body = module.main.body
    inputs, outputs = body.arguments, body.terminator.operands
    families = family_seconds(body.ops[:-1], inputs, outputs, _DEVICE)
    assert set(families) == {MATMUL, ELEMENTWISE}
    assert families[MATMUL] == pytest.approx(2 * 64**3 / 1e9)
    AnnotateCosts().run(module)
    whole = task_cost(body.ops[:-1], inputs, outputs, _TOPOLOGY)
    assert sum(families.values()) == pytest.approx(whole.seconds[0] - 1e-4)


def test_a_loop_is_a_family_of_its_own() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=3)[0]

    body = _module(loop, _f(16, 16)).main.body
    families = family_seconds(body.ops[:-1], body.arguments, body.terminator.operands, _DEVICE)
    assert families == {LOOP: pytest.approx(3 * 2 * 16**3 / 1e9)}


def test_the_fit_finds_factors_that_were_used() -> None:
    truth = {MATMUL: 3.0, ELEMENTWISE: 0.5}
    samples = [
        Sample({MATMUL: a, ELEMENTWISE: b}, truth[MATMUL] * a + truth[ELEMENTWISE] * b + 2e-5)
        for a in (1e-4, 1e-3, 1e-2)
        for b in (1e-4, 1e-3, 1e-2)
    ] * 20
    found = calibrate(samples, 1e-5)
    for sample in samples:
        assert found.seconds(sample.families) == pytest.approx(sample.seconds, rel=0.05)
    assert found.factors[MATMUL] == pytest.approx(3.0, rel=0.03)
    assert found.factors[ELEMENTWISE] == pytest.approx(0.5, rel=0.1)


def test_a_family_that_was_not_measured_gets_the_common_ratio() -> None:
    found = calibrate([Sample({MATMUL: 1e-2}, 4e-2)], 0.0)
    assert found.factors[LOOP] == pytest.approx(4.0, rel=1e-3)
    assert PULL > 0


def test_without_samples_the_model_stays() -> None:
    found = calibrate([Sample({}, 1.0)], 7e-6)
    assert set(found.factors.values()) == {1.0}
    assert found.launch_seconds == 7e-6


def test_factors_reach_operations_and_fused_kernels() -> None:
    plain, corrected = (_module(_layer, _f(64, 64), _f(64, 64)) for _ in range(2))
    factors = {("cpu", family): 2.0 for family in FAMILIES}
    MeasuredCosts(factors=factors).attach(corrected, _TOPOLOGY)
    seconds = []
    for module in (plain, corrected):
        AnnotateCosts().run(module)
        FuseTasks().run(module)
        seconds.append([_seconds(task) - 1e-4 for task in tasks_of(module.main)])
    assert seconds[1] == pytest.approx([2 * each for each in seconds[0]])


def test_measured_tasks_and_links_survive_the_text() -> None:
    module = _module(_layer, _f(8, 8), _f(8, 8))
    costs = MeasuredCosts(
        {("ab", "cpu"): 0.25}, {("cpu", MATMUL): 1.5}, {"cpu": 3e-5}, {(0, 1): (1e-5, 2e9)}
    )
    costs.attach(module, _TOPOLOGY)
    verify(module)
    again = MeasuredCosts.of(parse_module(print_module(module)))
    assert again == costs
    assert MeasuredCosts.of(_module(_layer, _f(8, 8), _f(8, 8))) is None


def test_a_measured_task_takes_what_was_measured() -> None:
    module = _module(_layer, _f(8, 8), _f(8, 8))
    AnnotateCosts().run(module)
    FuseTasks().run(module)
    (task, *_) = tasks_of(module.main)
    MeasuredCosts({(fingerprint(task), "cpu"): 0.125}).attach(module, _TOPOLOGY)
    UseMeasuredCosts().run(module)
    assert _seconds(task) == 0.125


def test_tasks_must_have_costs() -> None:
    module = _module(_layer, _f(8, 8), _f(8, 8))
    AnnotateCosts().run(module)
    FuseTasks().run(module)
    del tasks_of(module.main)[0].attributes["baechi.cost"]
    MeasuredCosts({("ab", "cpu"): 0.125}).attach(module, _TOPOLOGY)
    with pytest.raises(PassError, match=r"t0.*has no cost; run fuse-tasks first"):
        UseMeasuredCosts().run(module)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("baechi.task_seconds", (TaskSeconds("a", "cpu", -1.0),), "not negative"),
        ("baechi.task_seconds", 3, "must be an array"),
        ("baechi.cost_factors", (CostFactor("cpu", MATMUL, 0.0),), "finite and positive"),
        ("baechi.cost_factors", ("x",), "must be an array"),
        ("baechi.declared_topology", 1, "must be a #baechi.topology"),
    ],
)
def test_wrong_attributes_are_refused(key: str, value: Any, message: str) -> None:
    module = _module(_layer, _f(8, 8), _f(8, 8))
    module.attributes[key] = value
    with pytest.raises(VerificationError, match=message):
        verify(module)


def _seconds(task: Any) -> float:
    cost = task.attributes["baechi.cost"]
    assert isinstance(cost, Cost)
    return cost.seconds[0]
