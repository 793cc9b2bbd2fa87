"""The attributes that passes leave on operations, whatever the operation is."""

from __future__ import annotations

import math

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import Operation
from baechi_jax.ir.cost import Cost, DeviceMemory, TaskMemory
from baechi_jax.ir.dialect import define_attribute, invalid
from baechi_jax.ir.dialects.checks import device_list, operand_indices, topology_of
from baechi_jax.ir.topology import Topology


@define_attribute("baechi.cost")
def _cost(op: Operation, value: Attribute) -> None:
    if not isinstance(value, Cost):
        raise invalid(op, f"'baechi.cost' must be a #baechi.cost, found {value!r}")
    amounts = (
        *value.seconds,
        *(value.flops, value.read_bytes, value.written_bytes),
        *(value.temporary_bytes, value.output_bytes),
    )
    # A sum with a NaN or an infinity in it is not finite.
    if min(amounts) < 0 or not math.isfinite(sum(amounts)):
        wrong = next(amount for amount in amounts if not 0 <= amount < math.inf)
        raise invalid(op, f"'baechi.cost' holds {wrong}; costs are finite and not negative")
    topology = topology_of(op) if value.seconds else None
    if topology is not None and len(value.seconds) != len(topology.kinds):
        raise invalid(
            op,
            f"'baechi.cost' has seconds for {len(value.seconds)} kinds of device, but the topology "
            f"has {len(topology.kinds)}: {list(topology.kinds)}; run annotate-costs again",
        )


@define_attribute("baechi.group")
def _group(op: Operation, value: Attribute) -> None:
    if not isinstance(value, str) or not value:
        raise invalid(op, f"'baechi.group' must be the name of a group, found {value!r}")


@define_attribute("baechi.pin")
def _pin(op: Operation, value: Attribute) -> None:
    device_list(op, value, "'baechi.pin'")


@define_attribute("baechi.devices")
def _devices(op: Operation, value: Attribute) -> None:
    device_list(op, value, "'baechi.devices'")


@define_attribute("baechi.eqn")
def _equation(op: Operation, value: Attribute) -> None:
    if type(value) is not int or value < 0:
        raise invalid(op, f"'baechi.eqn' must be the index of an equation, found {value!r}")


@define_attribute("baechi.frees")
def _frees(op: Operation, value: Attribute) -> None:
    operand_indices(op, "baechi.frees")


@define_attribute("baechi.donates")
def _donates(op: Operation, value: Attribute) -> None:
    if op.name not in ("baechi.task", "baechi.run"):
        raise invalid(op, "only a task or its run can donate operands ('baechi.donates')")
    operand_indices(op, "baechi.donates")


@define_attribute("baechi.start_seconds")
def _start(op: Operation, value: Attribute) -> None:
    _seconds(op, "baechi.start_seconds", value)
    end = op.attributes.get("baechi.end_seconds")
    if isinstance(end, float) and isinstance(value, float) and end < value:
        raise invalid(op, f"it ends at {end} s, before its start at {value} s")


@define_attribute("baechi.end_seconds")
def _end(op: Operation, value: Attribute) -> None:
    _seconds(op, "baechi.end_seconds", value)
    if "baechi.start_seconds" not in op.attributes:
        raise invalid(op, "'baechi.end_seconds' needs 'baechi.start_seconds' beside it")


@define_attribute("baechi.step_seconds")
def _step(op: Operation, value: Attribute) -> None:
    _seconds(op, "baechi.step_seconds", value)


@define_attribute("baechi.lower_bound_seconds")
def _lower_bound(op: Operation, value: Attribute) -> None:
    _seconds(op, "baechi.lower_bound_seconds", value)


def _seconds(op: Operation, key: str, value: Attribute) -> None:
    if not isinstance(value, float) or not value >= 0 or math.isinf(value):
        raise invalid(op, f"'{key}' must be seconds, a float that is not negative, found {value!r}")


@define_attribute("baechi.memory")
def _memory(op: Operation, value: Attribute) -> None:
    if not isinstance(value, tuple) or not all(isinstance(e, DeviceMemory) for e in value):
        raise invalid(op, f"'baechi.memory' must be an array of #baechi.memory, found {value!r}")
    topology = topology_of(op)
    if topology is not None and len(value) != topology.size:
        raise invalid(op, f"'baechi.memory' has {len(value)} entries for {topology.size} devices")


@define_attribute("baechi.task_memory")
def _task_memory(op: Operation, value: Attribute) -> None:
    if not isinstance(value, tuple) or not all(isinstance(e, TaskMemory) for e in value):
        raise invalid(
            op, f"'baechi.task_memory' must be an array of #baechi.task_memory, found {value!r}"
        )
    for entry in value:
        assert isinstance(entry, TaskMemory)
        if min(entry.temporary_bytes, entry.modelled_bytes) < 0:
            raise invalid(op, f"'baechi.task_memory' holds {entry}; bytes are not negative")


@define_attribute("baechi.memory_margin")
def _memory_margin(op: Operation, value: Attribute) -> None:
    if not isinstance(value, tuple) or not all(type(e) is int and e >= 0 for e in value):
        raise invalid(op, f"'baechi.memory_margin' must be bytes per device, found {value!r}")
    topology = topology_of(op)
    if topology is not None and len(value) != topology.size:
        raise invalid(op, f"'baechi.memory_margin' has {len(value)} entries for {topology.size}")


@define_attribute("baechi.memory_note")
def _memory_note(op: Operation, value: Attribute) -> None:
    if not isinstance(value, str):
        raise invalid(op, f"'baechi.memory_note' must be a string, found {value!r}")


@define_attribute("baechi.topology")
def _topology(op: Operation, value: Attribute) -> None:
    if op.name != "builtin.module" or not isinstance(value, Topology):
        raise invalid(op, "'baechi.topology' is a #baechi.topology on the module")


@define_attribute("baechi.fingerprint")
def _fingerprint(op: Operation, value: Attribute) -> None:
    if not isinstance(value, str):
        raise invalid(op, f"'baechi.fingerprint' must be a string, found {value!r}")


@define_attribute("baechi.pipeline")
def _pipeline(op: Operation, value: Attribute) -> None:
    if not isinstance(value, str):
        raise invalid(op, f"'baechi.pipeline' must be the text of a pipeline, found {value!r}")


@define_attribute("baechi.placement")
def _placement(op: Operation, value: Attribute) -> None:
    if not isinstance(value, DictAttr):
        raise invalid(op, f"'baechi.placement' must be a dictionary, found {value!r}")
