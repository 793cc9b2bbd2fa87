"""Units: what must share a device whatever the placement.

A unit is a colocation group, or an operation in none. Operations joined by an effect's token are
one unit, since tokens are never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import Operation, OpResult
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.clustering.op_graph import OpGraph


@dataclass(slots=True)
class Units:
    """``of[i]`` is operation i's unit; units are numbered by their first operation.

    ``group`` and ``pin`` are what a unit carries, ``members`` its operations, ascending.
    """

    of: list[int]
    group: list[str | None]
    pin: list[tuple[int, ...] | None]
    members: list[list[int]]

    def bound(self, index: int) -> bool:
        """Whether operation ``index`` is in a group or pinned."""
        unit = self.of[index]
        return self.group[unit] is not None or self.pin[unit] is not None


def find_units(graph: OpGraph) -> Units:
    """Join operations by group and by token; raises PassError when a unit holds two pins."""
    unit_of_group: dict[str, int] = {}
    first_of: list[int] = []
    count = 0
    for op in graph.ops:
        group = op.attributes.get("baechi.group")
        unit = unit_of_group.setdefault(group, count) if isinstance(group, str) else count
        if unit == count:
            count += 1
        first_of.append(unit)
    number = _joined_by_tokens(graph, first_of, count)
    units = Units([], [], [], [])
    for index, op in enumerate(graph.ops):
        unit = number[first_of[index]]
        if unit == len(units.members):
            units.members.append([])
            units.group.append(None)
            units.pin.append(None)
        units.of.append(unit)
        units.members[unit].append(index)
        attributes = op.attributes
        if units.group[unit] is None and "baechi.group" in attributes:
            units.group[unit] = str(attributes["baechi.group"])
        if "baechi.pin" in attributes:
            _set_pin(graph, units, unit, op)
    for unit, members in enumerate(units.members):
        if len(members) > 1 and units.group[unit] is None:
            units.group[unit] = f"effects.{unit}"
    return units


def _joined_by_tokens(graph: OpGraph, unit_of: list[int], count: int) -> list[int]:
    """The final number of each of ``count`` units, those joined by tokens having the same."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for index, joined in enumerate(graph.has_effect):
        if not joined:
            continue
        for value in graph.inputs[index]:
            if isinstance(value, OpResult) and isinstance(value.type, TokenType):
                left, right = root(unit_of[graph.position[value.owner]]), root(unit_of[index])
                parent[max(left, right)] = min(left, right)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(unit), len(numbers)) for unit in range(count)]


def _set_pin(graph: OpGraph, units: Units, unit: int, op: Operation) -> None:
    pin = op.attributes["baechi.pin"]
    if not isinstance(pin, tuple):
        raise PassError(f"'{op.name}' at {op.location}: 'baechi.pin' must be [device], not {pin!r}")
    devices = tuple(device for device in pin if isinstance(device, int))
    known = units.pin[unit]
    if known is not None and known != devices:
        other = next(
            graph.ops[i] for i in units.members[unit] if "baechi.pin" in graph.ops[i].attributes
        )
        raise PassError(
            f"'{op.name}' at {op.location} is pinned to devices {list(devices)}, but it must share "
            f"a device with '{other.name}' at {other.location}, which is pinned to {list(known)}; "
            "pin both to one device, or neither"
        )
    units.pin[unit] = devices
