"""What several definitions check: numbers of devices, places, lists of operands."""

from __future__ import annotations

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation
from baechi_jax.ir.dialect import invalid
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import OnType, Type


def topology_of(op: Operation) -> Topology | None:
    """The topology of the module that ``op`` is in."""
    outer: Operation | None = op
    while outer is not None:
        topology = outer.attributes.get("baechi.topology")
        if isinstance(topology, Topology):
            return topology
        outer = outer.parent_op
    return None


def index_in(value: Attribute, count: int) -> bool:
    """Whether ``value`` is an index below ``count``."""
    return type(value) is int and 0 <= value < count


def device_number(op: Operation, value: Attribute, what: str) -> int:
    """``value`` as the number of a device of the topology; ``what`` names it in errors."""
    if type(value) is not int or value < 0:
        raise invalid(op, f"{what} must be the number of a device, found {value!r}")
    topology = topology_of(op)
    if topology is not None and value >= topology.size:
        raise invalid(op, f"{what} is device {value}, but the topology has {topology.size} devices")
    return value


def device_list(op: Operation, value: Attribute, what: str) -> tuple[int, ...]:
    """``value`` as one or more different devices of the topology."""
    if not isinstance(value, tuple) or not value:
        raise invalid(op, f"{what} must be an array of devices, found {value!r}")
    devices = tuple(device_number(op, entry, what) for entry in value)
    if len(set(devices)) != len(devices):
        raise invalid(op, f"{what} names a device twice: {list(devices)}")
    return devices


def check_place(op: Operation, value: Attribute, what: str, type_: Type) -> None:
    """``value`` must be devices; where ``type_`` has a place, the same as there."""
    devices = device_list(op, value, what)
    if isinstance(type_, OnType) and type_.devices != devices:
        raise invalid(op, f"{what} is {list(devices)}, but its type is {type_}")


def operand_indices(op: Operation, key: str) -> tuple[int, ...]:
    """Attribute ``key`` as different indices of operands; empty where it is absent."""
    value = op.attributes.get(key, ())
    count = len(op.operands)
    if not isinstance(value, tuple) or not all(index_in(entry, count) for entry in value):
        raise invalid(op, f"'{key}' must hold indices of the {count} operands, found {value!r}")
    if len(set(value)) != len(value):
        raise invalid(op, f"'{key}' names an operand twice: {list(value)}")
    return value  # type: ignore[return-value]  # index_in has seen that they are integers
