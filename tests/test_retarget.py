"""A plan on another machine: costs anew, and nothing kept that was true of the old one alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import baechi_jax as baechi
from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.report.build import build_view
from baechi_jax.retarget import retarget


def topology(memory_bytes: int = 1 << 20, flops_per_second: float = 1e9) -> Topology:
    device = Device("kind", memory_bytes, flops_per_second=flops_per_second)
    return Topology.uniform(2, device)


def plan() -> baechi.Plan:
    x = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    return baechi.place(lambda x, y: jnp.tanh(x @ y) @ y, topology=topology()).plan(x, x)


def test_a_faster_machine() -> None:
    made = plan()
    before = build_view(made.module, "step")
    assert retarget(made.module, topology(flops_per_second=1e10)) == []
    after = build_view(made.module, "step")
    assert after.step_seconds < before.step_seconds / 5
    # What was found for the other machine says nothing of this one.
    assert before.lower_bound_seconds > 0
    assert before.candidates
    assert after.lower_bound_seconds == 0
    assert not after.candidates
    assert dict(after.placement)["status"] == "for another machine"
    assert [device.peak_bytes for device in after.devices] == list(made.peak_bytes)


def test_the_same_machine_changes_nothing() -> None:
    made = plan()
    text = made.text
    assert retarget(made.module, topology()) == []
    assert made.text == text


def test_memory_that_is_too_small_is_said() -> None:
    made = plan()
    (note,) = retarget(made.module, topology(memory_bytes=64 << 10))
    assert "does not fit there: device 0 needs" in note
    assert "has 64.0 KiB; plan again" in note


def test_measured_costs_are_not_kept_in_silence() -> None:
    made = plan()
    assert isinstance(made.module.attributes["baechi.placement"], DictAttr)
    made.module.attributes["baechi.pipeline"] = "annotate-costs{source=table table=a.json},place"
    (note,) = retarget(made.module, topology(flops_per_second=2e9))
    assert "all costs are those of the analytic model" in note


def test_another_number_of_devices_is_refused() -> None:
    with pytest.raises(TopologyError, match="for 2 devices and this topology has 3"):
        retarget(plan().module, Topology.uniform(3))
