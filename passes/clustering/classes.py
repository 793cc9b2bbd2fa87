"""Classes and wanted labels: where in the step each operation belongs, and with what.

The forward operations that are not late, in program order, are cut into *segments*; a unit belongs
to the segment of its first such operation. A *class* is the units of one segment with one pin: they
will share a device. A unit whose forward operations lie far apart (a tied embedding) is a class of
its own, so that it does not tie what lies between to one device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import BlockArgument, OpResult, Value
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.clustering.cuts import Cutter, find_repeat
from baechi_jax.passes.clustering.op_graph import OpGraph
from baechi_jax.passes.clustering.phases import Phases
from baechi_jax.passes.clustering.units import Units

#: Distance between the wanted labels of neighbouring segments: room for classes that alternate.
STRIDE = 64

#: A unit spans when its forward operations reach over more than this many segments...
_SPAN = 2

#: ...or, for the choice of cuts, over more than this fraction of the forward operations.
_LONG = 0.2


#: The share of the arguments' bytes from which on a unit does not follow its reader.
_LARGE = 0.1

#: What the share of the step's bytes counts against the share of its seconds. Little: cutting a
#: chain of elementwise operations balances bytes, and makes XLA write out what it would fuse.
_BYTES = 0.2


@dataclass(slots=True)
class Classes:
    """``of``, ``phase`` and ``wanted`` (label): per operation; ``group`` and ``pin``: per class."""

    of: list[int]
    phase: list[int]
    wanted: list[int]
    group: list[str | None]
    pin: list[tuple[int, ...] | None]
    #: Colocation group of the module -> class that holds it.
    of_group: dict[str, int]


class Classifier:
    """What does not depend on the number of segments is found once."""

    def __init__(self, graph: OpGraph, units: Units, phases: Phases) -> None:
        self.graph = graph
        self.units = units
        self.phases = phases
        self.forward = [
            index
            for index in range(graph.size)
            if phases.phase[index] == 0 and not phases.late[index]
        ]
        self.cutter = self._cutter()
        arguments = {
            value for values in graph.inputs for value in values if isinstance(value, BlockArgument)
        }
        self.argument_bytes = max(1, sum(nbytes(value.type) for value in arguments))

    # Cutting --------------------------------------------------------------------------------

    def _cutter(self) -> Cutter:
        graph, units = self.graph, self.units
        place = {index: position for position, index in enumerate(self.forward)}
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, position in place.items():
            first.setdefault(units.of[index], position)
            last[units.of[index]] = position
        seconds = sum(graph.seconds)
        total_bytes = sum(graph.result_bytes) or 1
        weights = [0.0] * len(self.forward)
        for index, unit in enumerate(units.of):
            # Backward operations and updates weigh where their forward operations are.
            position = place.get(index, first.get(unit, -1))
            if position >= 0:
                weights[position] += (
                    graph.seconds[index] / seconds
                    + _BYTES * graph.result_bytes[index] / total_bytes
                )
        size = len(self.forward)
        crossing = [0] * (size + 1)
        passing = [0] * (size + 1)
        for unit, position in first.items():
            if position < last[unit] <= position + _LONG * size:
                crossing[position + 1] += 1
                crossing[last[unit] + 1] -= 1
        for index, position in place.items():
            end = max([place.get(reader, 0) for reader in graph.successors[index]], default=0)
            if end > position:
                passing[position + 1] += graph.result_bytes[index]
                passing[end + 1] -= graph.result_bytes[index]
        units_open = bytes_open = 0
        resistance: list[float] = []
        for position in range(size):
            units_open += crossing[position]
            bytes_open += passing[position]
            resistance.append(units_open + bytes_open / total_bytes * size)
        return Cutter(weights, resistance, find_repeat([self._key(i) for i in self.forward]))

    def _key(self, index: int) -> Hashable:
        op = self.graph.ops[index]
        return (op.name, *[result.type for result in op.results])

    # Classes --------------------------------------------------------------------------------

    def classify(self, segments: int) -> Classes:
        """Classes and wanted labels with about ``segments`` forward segments."""
        graph, units, phase = self.graph, self.units, self.phases.phase
        segment_of = self._segments(segments)
        count = max(segment_of.values(), default=0) + 1
        classes = Classes([-1] * graph.size, list(phase), [0] * graph.size, [], [], {})
        numbers: dict[tuple[object, ...], int] = {}
        segment_of_class: list[int] = []

        def class_for(segment: int, unit: int) -> int:
            """The class of ``segment``; for -1 one of the unit's own."""
            pin = units.pin[unit]
            key = (segment, pin) if segment >= 0 else ("unit", unit)
            number = numbers.setdefault(key, len(numbers))
            if number == len(classes.pin):
                classes.pin.append(pin)
                classes.group.append(None)
                segment_of_class.append(segment)
            return number

        class_of_unit = [-1] * len(units.members)
        for unit, members in enumerate(units.members):
            places = [segment_of[index] for index in members if index in segment_of]
            if places:
                spans = segments > 1 and places[-1] - places[0] > _SPAN
                class_of_unit[unit] = class_for(-1 if spans else places[0], unit)
        self._follow_forward_readers(class_of_unit, segment_of, segment_of_class, class_for)
        self._follow_sources(class_of_unit, segment_of, segment_of_class, class_for)
        self._follow_readers(class_of_unit, segment_of_class, class_for)
        base = (count + 4) * STRIDE
        for index, unit in enumerate(units.of):
            own = class_of_unit[unit]
            classes.of[index] = own
            segment = segment_of_class[own]
            if index in segment_of:
                classes.wanted[index] = segment_of[index] * STRIDE
            elif phase[index] % 2 and segment >= 0 and not self.phases.late[index]:
                classes.wanted[index] = phase[index] * base + (count - 1 - segment) * STRIDE
        for unit, group in enumerate(units.group):
            if group is None:
                continue
            own = class_of_unit[unit]
            if classes.group[own] is None:
                classes.group[own] = group
            for index in units.members[unit]:
                name = graph.ops[index].attributes.get("baechi.group")
                if isinstance(name, str):
                    classes.of_group[name] = own
        return classes

    def _segments(self, segments: int) -> dict[int, int]:
        cuts = self.cutter.cuts(segments)
        segment_of: dict[int, int] = {}
        segment = 0
        for position, index in enumerate(self.forward):
            if segment < len(cuts) and position >= cuts[segment]:
                segment += 1
            segment_of[index] = segment
        return segment_of

    def _follow_forward_readers(
        self,
        class_of_unit: list[int],
        segment_of: dict[int, int],
        segment_of_class: list[int],
        class_for: Callable[[int, int], int],
    ) -> None:
        """Units whose forward operations are all late (a bias that is only broadcast) go where
        the first of them is read; those with large arguments (a table of embeddings, of which a
        few rows are read) are a class of their own, since room for them may be elsewhere."""
        for unit, members in enumerate(self.units.members):
            if class_of_unit[unit] >= 0:
                continue
            if self._argument_share(members) >= _LARGE:
                class_of_unit[unit] = class_for(-1, unit)
                continue
            for index in members:
                readers = [r for r in self.graph.successors[index] if r in segment_of]
                if readers:
                    near = class_of_unit[self.units.of[readers[0]]]
                    class_of_unit[unit] = self._join(unit, near, segment_of_class, class_for)
                    break

    def _argument_share(self, members: Sequence[int]) -> float:
        """The share of the arguments' bytes that these operations read, if any of them is a
        forward operation."""
        if not any(self.phases.phase[index] == 0 for index in members):
            return 0.0
        inputs = [value for index in members for value in self.graph.inputs[index]]
        read = {value for value in inputs if isinstance(value, BlockArgument)}
        return sum(nbytes(value.type) for value in read) / self.argument_bytes

    def _follow_sources(
        self,
        class_of_unit: list[int],
        segment_of: dict[int, int],
        segment_of_class: list[int],
        class_for: Callable[[int, int], int],
    ) -> None:
        """Units without a forward operation go where what they read is.

        A backward operation goes to the largest value that the forward phase kept for it, an
        update to the gradient that came last.
        """
        graph, units, phase, late = self.graph, self.units, self.phases.phase, self.phases.late
        class_of_argument: dict[Value, int] = {}
        for index in segment_of:
            for value in graph.inputs[index]:
                if isinstance(value, BlockArgument):
                    class_of_argument.setdefault(value, class_of_unit[units.of[index]])
        for index, unit in enumerate(units.of):
            if class_of_unit[unit] >= 0 or late[index]:
                continue
            best, near = (-1, -1, -1), -1
            for member in units.members[unit]:
                backward = phase[member] % 2 == 1
                for value in graph.inputs[member]:
                    source = -1
                    if isinstance(value, OpResult):
                        source = graph.position.get(value.owner, -1)
                        found = class_of_unit[units.of[source]] if source >= 0 else -1
                    else:
                        found = class_of_argument.get(value, -1)
                    if found < 0:
                        continue
                    kept = source < 0 or phase[source] == 0
                    size = nbytes(value.type) if kept and backward else 0
                    rank = (2 if kept and backward else int(not kept), size, source)
                    if rank > best:
                        best, near = rank, found
            if near >= 0:
                class_of_unit[unit] = self._join(unit, near, segment_of_class, class_for)

    def _follow_readers(
        self,
        class_of_unit: list[int],
        segment_of_class: list[int],
        class_for: Callable[[int, int], int],
    ) -> None:
        """What is left (late, or reading nothing that has a place) goes where it is read first."""
        for index in range(self.graph.size - 1, -1, -1):
            unit = self.units.of[index]
            if class_of_unit[unit] < 0:
                readers = self.graph.successors[index]
                near = class_of_unit[self.units.of[readers[0]]] if readers else -1
                class_of_unit[unit] = self._join(unit, near, segment_of_class, class_for)

    def _join(
        self,
        unit: int,
        near: int,
        segment_of_class: list[int],
        class_for: Callable[[int, int], int],
    ) -> int:
        """The class ``near``, or the one of its segment that has the unit's pin."""
        if near >= 0 and self.units.pin[unit] is None:
            return near
        return class_for(max(0, segment_of_class[near]) if near >= 0 else 0, unit)
