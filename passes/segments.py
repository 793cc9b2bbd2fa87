"""Classes, phases and wanted labels of operations: the first half of ``fuse-tasks``.

Terms. A *unit* is a colocation group, or an operation in none; operations joined by tokens are one
unit. The *phase* of an operation counts how often the way to it switches between operations that
are and are not named ``transpose(...)``: 0 forward, 1 backward, 2 update, and so on. The forward
operations, in program order, are cut into *segments*; a unit belongs to the segment of its first
forward operation. A *class* is what must share a device: the units of one segment with one pin.

A unit whose forward operations lie far apart (a tied embedding) is a class of its own, so that it
does not tie the segments between which it spans to one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import BlockArgument, Operation, OpResult, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.types import TokenType, nbytes
from baechi_jax.passes.cuts import cut_positions
from baechi_jax.passes.op_graph import OpGraph

#: Distance between the wanted labels of neighbouring segments: room for classes that alternate.
_STRIDE = 64

#: A unit spans when its forward operations reach over more than this many segments.
_SPAN = 2


@dataclass(slots=True)
class Units:
    """The units: ``of[i]`` is operation i's unit; units are numbered by their first operation."""

    of: list[int]
    group: list[str | None]
    pin: list[tuple[int, ...] | None]
    members: list[list[int]]


@dataclass(slots=True)
class Classes:
    """What the labelling starts from, per operation, and what each class carries."""

    of: list[int]
    phase: list[int]
    wanted: list[int]
    group: list[str | None]
    pin: list[tuple[int, ...] | None]
    #: Colocation group of the module -> class that holds it.
    of_group: dict[str, int]


def find_units(graph: OpGraph) -> Units:
    """Join operations by group and by token.

    Raises PassError when a unit holds two pins.
    """
    parent = list(range(graph.size))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(left: int, right: int) -> None:
        left, right = root(left), root(right)
        parent[max(left, right)] = min(left, right)

    first: dict[str, int] = {}
    for index, op in enumerate(graph.ops):
        group = op.attributes.get("baechi.group")
        if isinstance(group, str):
            join(first.setdefault(group, index), index)
        for value in op.operands:
            if isinstance(value.type, TokenType) and isinstance(value, OpResult):
                join(graph.position[value.owner], index)
    number: dict[int, int] = {}
    units = Units([], [], [], [])
    for index, op in enumerate(graph.ops):
        unit = number.setdefault(root(index), len(number))
        if unit == len(units.members):
            units.members.append([])
            units.group.append(None)
            units.pin.append(None)
        units.of.append(unit)
        units.members[unit].append(index)
        group = op.attributes.get("baechi.group")
        if units.group[unit] is None and isinstance(group, str):
            units.group[unit] = group
        pin = op.attributes.get("baechi.pin")
        if pin is not None:
            _set_pin(graph, units, unit, op, pin)
    for unit, members in enumerate(units.members):
        if len(members) > 1 and units.group[unit] is None:
            units.group[unit] = f"effects.{unit}"
    return units


def _set_pin(graph: OpGraph, units: Units, unit: int, op: Operation, pin: Attribute) -> None:
    devices = (
        tuple(int(device) for device in pin if isinstance(device, int))
        if (isinstance(pin, tuple))
        else ()
    )
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


def find_phases(graph: OpGraph) -> list[int]:
    """The phase of each operation; see the module docstring.

    A cheap forward operation that only later phases read is counted to the earliest of these when
    that keeps no more bytes alive: choose-residuals puts recomputation there, and computing it in
    the forward phase would keep its result instead of its operand.
    """
    phase = [0] * graph.size
    for index, op in enumerate(graph.ops):
        backward = "transpose(" in op.location.name
        most = 0
        for source in graph.predecessors[index]:
            most = max(most, phase[source])
        if most % 2 != backward:
            most += 1
        phase[index] = most
    heavy = sum(graph.seconds) / 200
    for index in range(graph.size - 1, -1, -1):
        readers = graph.successors[index]
        if not readers or graph.seconds[index] > heavy:
            continue
        op = graph.ops[index]
        first = min(phase[reader] for reader in readers)
        if first <= phase[index] or any(_returned(result) for result in op.results):
            continue
        kept = sum(
            nbytes(value.type)
            for value in graph.inputs[index]
            if isinstance(value, OpResult)
            and value.owner in graph.position
            and max(phase[r] for r in graph.successors[graph.position[value.owner]]) < first
        )
        if kept <= graph.result_bytes[index]:
            phase[index] = first
    return phase


def _returned(value: Value) -> bool:
    return any(user.name == "func.return" for user, _ in value.uses)


def classify(graph: OpGraph, units: Units, phase: Sequence[int], segments: int) -> Classes:
    """Classes and wanted labels with about ``segments`` forward segments."""
    floating = _find_floating(graph, units, phase)
    anchored = [i for i in range(graph.size) if phase[i] == 0 and not floating[i]]
    segment_of = _cut(graph, units, phase, anchored, segments)
    count = max(segment_of.values(), default=0) + 1

    classes = Classes([-1] * graph.size, list(phase), [0] * graph.size, [], [], {})
    numbers: dict[tuple[object, ...], int] = {}

    def class_for(key: tuple[object, ...], pin: tuple[int, ...] | None) -> int:
        number = numbers.setdefault((*key, pin), len(numbers))
        if number == len(classes.pin):
            classes.pin.append(pin)
            classes.group.append(None)
        return number

    unit_class: list[int] = [-1] * len(units.members)
    unit_segment: list[int] = [-1] * len(units.members)
    class_segment: dict[int, int] = {}
    for unit, members in enumerate(units.members):
        places = [segment_of[i] for i in members if i in segment_of]
        if not places:
            continue
        spans = segments > 1 and max(places) - places[0] > _SPAN
        key = ("unit", unit) if spans else ("segment", places[0])
        unit_class[unit] = class_for(key, units.pin[unit])
        unit_segment[unit] = -1 if spans else places[0]
        class_segment[unit_class[unit]] = unit_segment[unit]
    argument_class = _argument_classes(graph, unit_class, units, segment_of)
    # Units without a forward operation of their own go where what they read is.
    for unit, members in enumerate(units.members):
        if unit_class[unit] >= 0 or all(floating[i] for i in members):
            continue
        near = _neighbour_class(graph, units, phase, unit_class, argument_class, members)
        pin = units.pin[unit]
        if near >= 0 and (pin is None or classes.pin[near] == pin):
            unit_class[unit] = near
        else:
            segment = class_segment.get(near, 0) if near >= 0 else 0
            unit_class[unit] = class_for(("segment", max(segment, 0)), pin)
            class_segment.setdefault(unit_class[unit], segment)
    base = (count + 4) * _STRIDE
    for index in range(graph.size):
        if floating[index]:
            continue
        own = unit_class[units.of[index]]
        classes.of[index] = own
        segment = class_segment[own]
        if phase[index] == 0:
            classes.wanted[index] = segment_of[index] * _STRIDE
        elif phase[index] % 2 and segment >= 0:
            classes.wanted[index] = phase[index] * base + (count - 1 - segment) * _STRIDE
    for index in range(graph.size - 1, -1, -1):
        if floating[index]:
            reader = min(
                graph.successors[index], key=lambda r: (classes.phase[r], classes.wanted[r], r)
            )
            classes.of[index] = classes.of[reader]
            classes.phase[index] = classes.phase[reader]
            classes.wanted[index] = classes.wanted[reader]
    for unit, group in enumerate(units.group):
        if group is None:
            continue
        own = unit_class[unit]
        if classes.group[own] is None:
            classes.group[own] = group
        for index in units.members[unit]:
            name = graph.ops[index].attributes.get("baechi.group")
            if isinstance(name, str):
                classes.of_group[name] = own
    return classes


def _find_floating(graph: OpGraph, units: Units, phase: Sequence[int]) -> list[bool]:
    """Cheap free operations that depend on arguments alone (masks, positions): they go to their
    first reader, wherever the program happened to compute them."""
    light = sum(graph.seconds) / 200
    # Seconds of an operation and all before it, counting shared ones again.
    chain = list(graph.seconds)
    floating = [False] * graph.size
    for index, op in enumerate(graph.ops):
        unit = units.of[index]
        chain[index] += sum(chain[source] for source in graph.predecessors[index])
        # An operation that nobody reads stays, so every chain ends in one that has a place.
        floating[index] = (
            chain[index] <= light
            and units.group[unit] is None
            and units.pin[unit] is None
            and bool(graph.successors[index])
            and not any(_returned(result) for result in op.results)
            and all(floating[source] for source in graph.predecessors[index])
        )
    return floating


def _cut(
    graph: OpGraph, units: Units, phase: Sequence[int], anchored: Sequence[int], segments: int
) -> dict[int, int]:
    """The segment of each anchored operation, from cuts that balance seconds and bytes."""
    total_seconds = sum(graph.seconds) or 1.0
    total_bytes = sum(graph.result_bytes) or 1
    weight = [0.0] * len(units.members)
    for index in range(graph.size):
        weight[units.of[index]] += (
            graph.seconds[index] / total_seconds + graph.result_bytes[index] / total_bytes
        ) + 1e-3 / graph.size
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, index in enumerate(anchored):
        first.setdefault(units.of[index], place)
        last[units.of[index]] = place
    weights = [0.0] * len(anchored)
    for unit, place in first.items():
        weights[place] += weight[unit]
    spans = [(first[unit], last[unit]) for unit in first if last[unit] > first[unit]]
    cuts = cut_positions([graph.ops[i] for i in anchored], weights, spans, segments)
    segment_of: dict[int, int] = {}
    segment = 0
    for place, index in enumerate(anchored):
        if segment < len(cuts) and place >= cuts[segment]:
            segment += 1
        segment_of[index] = segment
    return segment_of


def _argument_classes(
    graph: OpGraph, unit_class: Sequence[int], units: Units, segment_of: dict[int, int]
) -> dict[Value, int]:
    """The class of the first forward reader of each argument."""
    result: dict[Value, int] = {}
    for index in segment_of:
        for value in graph.inputs[index]:
            if isinstance(value, BlockArgument):
                result.setdefault(value, unit_class[units.of[index]])
    return result


def _neighbour_class(
    graph: OpGraph,
    units: Units,
    phase: Sequence[int],
    unit_class: Sequence[int],
    argument_class: dict[Value, int],
    members: Sequence[int],
) -> int:
    """The class of the largest value that ``members`` read: for a backward operation of one that
    the forward phase kept, else of a gradient. -1 when they read nothing that has a class."""
    best, found = (-1, -1), -1
    for index in members:
        backward = phase[index] % 2 == 1
        for value in graph.inputs[index]:
            if isinstance(value, OpResult):
                source = graph.position.get(value.owner)
                if source is None:
                    continue
                own, kept = unit_class[units.of[source]], phase[source] == 0
            else:
                own, kept = argument_class.get(value, -1), True
            rank = (int(kept == backward), nbytes(value.type))
            if own >= 0 and rank > best:
                best, found = rank, own
    return found
