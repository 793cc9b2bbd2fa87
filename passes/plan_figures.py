"""What a finished plan says of its step: predicted seconds, bytes sent, each device's memory."""

from __future__ import annotations

from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.tasks import device_of, tasks_of


def step_seconds(plan: Module) -> float:
    """The predicted time of one step; raises IRError for a module that was not scheduled."""
    return _seconds(plan, "baechi.step_seconds")


def lower_bound_seconds(plan: Module) -> float:
    """What no schedule can beat; raises IRError for a module that was not scheduled."""
    return _seconds(plan, "baechi.lower_bound_seconds")


def device_memory(plan: Module) -> tuple[DeviceMemory, ...]:
    """The memory plan of each device; none for a module whose memory was not planned."""
    entries = plan.main.attributes.get("baechi.memory", ())
    assert isinstance(entries, tuple)
    return tuple(entry for entry in entries if isinstance(entry, DeviceMemory))


def peak_bytes(plan: Module) -> tuple[int, ...]:
    """The predicted peak of each device; raises IRError where memory was not planned."""
    memory = device_memory(plan)
    if not memory:
        raise IRError("the plan's @main has no baechi.memory; its pipeline lacks 'plan-memory'")
    return tuple(entry.peak_bytes for entry in memory)


def used_devices(plan: Module) -> set[int]:
    """The devices that run tasks."""
    return {device_of(task) for task in tasks_of(plan.main)}


def sent_bytes(plan: Module) -> int:
    """The bytes that all devices send in a step."""
    sends = (op for op in plan.main.body.ops if op.name == "baechi.send")
    return sum(nbytes(op.operands[0].type) for op in sends)


def _seconds(plan: Module, key: str) -> float:
    value = plan.main.attributes.get(key)
    if not isinstance(value, float | int):
        raise IRError(f"the plan's @main has no {key}; its pipeline lacks 'schedule'")
    return float(value)
