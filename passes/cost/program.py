"""A sequence of operations as one compiled program: kernels, work and memory, found once.

Layers repeat, and several passes ask about the same operations: ``fuse-tasks`` and ``merge-tasks``
for costs, ``plan-memory`` for the peak with what is really donated, and all of them again where a
placement is made again with smaller limits. So programs are remembered by their structure.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Hashable, Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.topology import Device
from baechi_jax.ir.types import Type
from baechi_jax.passes.cost.buffers import Buffers
from baechi_jax.passes.cost.fusion import find_kernels
from baechi_jax.passes.cost.liveness import buffers_of, shared_buffers
from baechi_jax.passes.cost.lowering import lower
from baechi_jax.passes.cost.operation import Work, kernels_work

#: Operations in all remembered programs together (the oldest are forgotten first); also kinds of
#: operations and types.
_REMEMBERED = 100_000


class Program:
    """``ops`` in def-before-use order, without the terminator, compiled and run as one.

    ``work`` is what its kernels do on ``devices`` (one of each kind). Holds no operation, so that a
    remembered program keeps no module alive.
    """

    __slots__ = ("_buffers", "_outputs", "_peaks", "size", "work")

    def __init__(
        self,
        ops: Sequence[Operation],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        devices: Sequence[Device],
    ) -> None:
        lowered = lower(ops, inputs, outputs)
        kernels = find_kernels(lowered)
        self.size = len(ops)
        self.work: Work = kernels_work(lowered, kernels, devices)
        self._buffers: Buffers = buffers_of(lowered, kernels)
        self._outputs = kernels.outputs
        #: What was asked before, by donated inputs and order of the results.
        self._peaks: dict[Hashable, int] = {}

    def temporary_bytes(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        donated: Collection[int] | None,
        order: Sequence[int] | None = None,
    ) -> int:
        """The most bytes that live at once on top of ``inputs`` and ``outputs``.

        ``donated`` as in ``task_cost``. ``order``: the position that each of ``outputs`` had when
        the program was made, where they have been put into another order.
        """
        key = (
            None if donated is None else frozenset(donated),
            None if order is None else tuple(order),
        )
        peak = self._peaks.get(key)
        if peak is None:
            found = self._outputs
            if order is not None and len(found) == len(order):
                found = [found[place] for place in order]
            shared = shared_buffers(found, inputs, outputs, donated)
            peak = self._peaks[key] = self._buffers.peak_bytes(found, shared)
        return peak


def program_of(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    devices: Sequence[Device],
) -> Program:
    """The program of ``ops``, a remembered one if there is one; see ``Program``."""
    with _lock:
        key = (tuple(devices), _structures.of(ops, inputs, outputs))
        program = _known.pop(key, None)
        if program is not None:
            _known[key] = program
            return program
    program = Program(ops, inputs, outputs, devices)
    with _lock:
        _known[key] = program
        while len(_known) > 1 and sum(each.size for each in _known.values()) > _REMEMBERED:
            del _known[next(iter(_known))]
    return program


class _Structures:
    """Structures of programs as tuples of numbers.

    Equal for operations that cost the same: names, types, parameters, data flow, own costs. Each
    operation counts by a number for its name, parameters and result types; where literals stand
    does not count. No number is given twice, also after forgetting.
    """

    def __init__(self) -> None:
        self._next = itertools.count()
        self._numbers: dict[Hashable, int] = {}
        #: By address, since hashing a type takes long; keeps the type alive, and so the address.
        self._types: dict[int, tuple[Type, int]] = {}
        #: Names of attributes as an operation has them -> those that count.
        self._counted: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of(
        self, ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> tuple[int, ...]:
        """The structure of ``ops``, which read ``inputs`` and give ``outputs``."""
        if len(self._numbers) + len(self._types) > _REMEMBERED:
            self._numbers.clear()
            self._types.clear()
            self._counted.clear()
        found = [self._type(value.type) for value in inputs]
        place = {value: index for index, value in enumerate(inputs)}
        literals: dict[Value, int] = {}
        self._add(ops, place, literals, found)
        found += [literals[value] if value in literals else place[value] for value in outputs]
        return tuple(found)

    def _add(
        self,
        ops: Sequence[Operation],
        place: dict[Value, int],
        literals: dict[Value, int],
        found: list[int],
    ) -> None:
        types = self._types
        for op in ops:
            attributes, operands, results = op.attributes, op.operands, op.results
            names = tuple(attributes)
            counted = self._counted.get(names)
            if counted is None:
                counted = self._counted[names] = tuple(
                    name for name in names if not name.startswith("baechi.")
                )
            parts: list[Hashable] = [op.name, len(operands)]
            parts += [attributes[name] for name in counted]
            cost = attributes.get("baechi.cost")
            if isinstance(cost, Cost):
                parts += (cost.seconds, cost.temporary_bytes)
            for result in results:
                known = types.get(id(result.type))
                parts.append(self._type(result.type) if known is None else known[1])
            number = self._number(tuple(parts))
            if op.name == "baechi.literal":
                # Below zero, as no place is.
                literals[results[0]] = -1 - number
                continue
            found.append(number)
            for value in operands:
                at = place.get(value)
                if at is None:
                    at = literals.get(value)
                if at is None:
                    # What a region reads from outside.
                    at = place[value] = len(place)
                    found.append(self._type(value.type))
                found.append(at)
            for region in op.regions:
                for block in region.blocks:
                    found += [self._type(argument.type) for argument in block.arguments]
                    for argument in block.arguments:
                        place[argument] = len(place)
                    self._add(block.ops, place, literals, found)
            for result in results:
                place[result] = len(place)

    def _type(self, type_: Type) -> int:
        known = self._types.get(id(type_))
        if known is None:
            known = self._types[id(type_)] = (type_, self._number(type_))
        return known[1]

    def _number(self, what: Hashable) -> int:
        number = self._numbers.get(what)
        if number is None:
            number = self._numbers[what] = next(self._next)
        return number


_structures = _Structures()
#: Least recently used first.
_known: dict[tuple[tuple[Device, ...], tuple[int, ...]], Program] = {}
_lock = threading.Lock()
