"""A task as XLA's CPU compiler sees it before it fuses: nodes over numbered values.

What differs from the jaxpr, measured on jax 0.10.2 by reading the dumped HLO:

- A reshape is the same buffer under another shape (a bitcast). So are a transpose that moves axes
  of one element only, a sum over such axes, and a broadcast that adds them.
- Operands of an elementwise operation have its shape: smaller ones go through a broadcast. Equal
  broadcasts are one.
- A matrix product takes ``[batch, free, contracted]`` times ``[batch, contracted, free]``. Other
  orders are copied, unless both sides of the swap are one axis. Several free or contracted axes
  are flattened by a bitcast.
- A convolution takes channels last; other layouts are copied, the result too. Where the kernel is
  the larger one, the two change places.
- Half-precision products are computed in single precision, so operands and result are converted.
- Equal operations on equal operands are one.
- The transpose of a matrix product is the product of the operands the other way round.
- A transposed elementwise result that the task returns is made first, then copied into its order.
- The updates of a scatter are copied unless they have one axis of indices, the first.
- The operand of a running sum is copied into blocks.
- A split is its slices.
- Random bits are two arrays of words, combined where they are read.

Only sizes matter here, so nodes carry no values. Assumes def-before-use order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from baechi_jax.ir.core import Operation, Value
from baechi_jax.passes.cost.layout import (
    Facts,
    elementwise_kind,
    is_bitcast,
    joins_rows,
    parameters,
    rows_come_last,
    type_facts,
)
from baechi_jax.passes.cost.primitives import (
    BITCAST,
    BROADCAST,
    ELEMENTWISE,
    EXPENSIVE,
    KERNEL,
    MOVE,
    NOTHING,
    REDUCE,
    Kind,
)
from baechi_jax.passes.cost.products import PRODUCTS, lower_product
from baechi_jax.passes.cost.roofline import kind_of

#: Kinds and operations for which ``is_bitcast`` need or must be asked.
_NEVER_BITCASTS = frozenset({ELEMENTWISE, EXPENSIVE, KERNEL})
_MAY_BE_BITCASTS = frozenset({"jax.convert_element_type", "jax.copy"})


@dataclass(slots=True)
class Lowered:
    """Nodes and values, by number. Inputs of the task are the first values.

    Per node: ``kinds``, ``reads`` and ``writes`` (values; a literal is below zero in ``reads``) and
    ``ops`` (None for a node that stands for no operation). Per value: ``sizes`` in bytes,
    ``elements``, ``ranks`` (axes of more than one element), ``floats``, ``producer`` (node, -1 for
    an input) and ``readers``.
    """

    input_count: int = 0
    outputs: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)
    writes: list[list[int]] = field(default_factory=list)
    ops: list[Operation | None] = field(default_factory=list)
    #: Per value; ``sizes`` and the like are filled from it when all nodes are there.
    facts: list[Facts] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    floats: list[bool] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    readers: list[list[int]] = field(default_factory=list)
    #: Dots whose left operand is not swapped.
    plain_dots: set[int] = field(default_factory=set)
    #: What a literal is, by the number ``-1 - n`` that stands for it in ``reads``.
    literals: list[Hashable] = field(default_factory=list)
    #: Nodes that something else was read instead of, and those of them that nothing reads.
    replaced: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    def value(self, facts: Facts) -> int:
        """A new value."""
        self.facts.append(facts)
        self.readers.append([])
        self.producer.append(-1)
        return len(self.facts) - 1

    def node(self, kind: Kind, reads: list[int], writes: list[int], op: Operation | None) -> None:
        """A new node."""
        number = len(self.kinds)
        self.kinds.append(kind)
        self.reads.append(reads)
        self.writes.append(writes)
        self.ops.append(op)
        for value in writes:
            self.producer[value] = number
        for value in reads:
            if value >= 0:
                reading = self.readers[value]
                if not reading or reading[-1] != number:
                    reading.append(number)

    def finish(self, outputs: list[int]) -> None:
        """All nodes are there; ``outputs`` are the task's results."""
        self.outputs = outputs
        for node in sorted(self.replaced, reverse=True):
            if not self.readers[self.writes[node][0]] and self.writes[node][0] not in outputs:
                self.dead.add(node)
                for value in self.reads[node]:
                    if value >= 0:
                        self.readers[value].remove(node)
                self.reads[node] = []
        self.sizes = [facts[0] for facts in self.facts]
        self.elements = [facts[1] for facts in self.facts]
        self.ranks = [facts[2] for facts in self.facts]
        self.floats = [facts[3] for facts in self.facts]


def lower(ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value]) -> Lowered:
    """The nodes of ``ops``."""
    lowering = Lowering()
    for value in inputs:
        lowering.input(value)
    lowering.add(ops, outputs)
    lowering.out.finish(lowering.in_order([lowering.result(value) for value in outputs]))
    return lowering.out


class Lowering:
    """Makes ``out``: first its inputs, then the nodes of operations."""

    def __init__(self) -> None:
        self.out = Lowered()
        self.number: dict[Value, int] = {}
        self.literal: dict[Hashable, int] = {}
        #: What a bitcast reads, so that a bitcast of it reads the same.
        self.bare: dict[int, int] = {}
        self.broadcasts: dict[Hashable, int] = {}
        self.returned: set[Value] = set()
        #: Operation on operands -> its result, so that equal ones are one.
        self.known: dict[Hashable, int] = {}

    def input(self, value: Value) -> None:
        """A value that comes from outside."""
        self.number[value] = self.out.value(type_facts(value.type))
        self.out.input_count += 1

    def cut(self, value: Value, stack: int) -> None:
        """``value`` is one of the slices of ``stack``."""
        self.out.node(MOVE, [stack], [self.new(value)], None)

    def result(self, value: Value) -> int:
        """What ``value`` is, to be returned: a constant is written out."""
        number = self.number.get(value, -1)
        if number < 0:
            number = self.out.value(type_facts(value.type))
            self.out.node(BROADCAST, [], [number], None)
        return number

    def add(self, ops: Sequence[Operation], outputs: Sequence[Value]) -> None:
        """The nodes of ``ops``; ``outputs`` are returned."""
        number, node = self.number, self.out.node
        self.returned = set(outputs)
        for op in ops:
            name = op.name
            if name == "baechi.literal":
                self._literal(op)
                continue
            kind = kind_of(op)
            results, operands = op.results, op.operands
            if (kind not in _NEVER_BITCASTS or name in _MAY_BE_BITCASTS) and (
                len(results) == 1 and operands and is_bitcast(op, kind)
            ):
                self._bitcast(op)
                continue
            reads = [number[value] for value in operands]
            if kind is ELEMENTWISE or kind is EXPENSIVE:
                if len(results) == 1:
                    self._elementwise(op, kind, reads)
                    continue
                kind = KERNEL
            elif kind is BROADCAST and name == "jax.broadcast_in_dim":
                self._broadcast(op, reads)
                continue
            elif kind is REDUCE or kind is MOVE:
                if name == "jax.transpose":
                    if self._is_swapped_dot(op, reads[0]):
                        number[results[0]] = reads[0]
                        continue
                    if results[0] in self.returned and self._is_elementwise(reads[0]):
                        kind = KERNEL
                elif kind is REDUCE:
                    self._before_transpose(reads)
                if name == "jax.split":
                    for result in results:
                        # The work of all is the first one's.
                        first = op if result is results[0] else None
                        node(MOVE, list(reads), [self.new(result)], first)
                    continue
                if len(results) != 1 or joins_rows(op):
                    kind = KERNEL
                elif (known := self._equal(op, reads)) >= 0:
                    number[results[0]] = known
                    continue
            elif kind is NOTHING:
                self._nothing(op)
                continue
            elif kind is KERNEL:
                if name in PRODUCTS:
                    lower_product(self, op, reads)
                    continue
                if name.startswith("jax.scatter") and len(reads) == 3 and not rows_come_last(op):
                    reads[2] = self._copy_of(reads[2])
                if name.startswith("jax.cum"):
                    reads[0] = self._copy_of(reads[0])
                if name == "jax.random_bits":
                    self._random_bits(op, reads)
                    continue
            node(kind, reads, [self.new(result) for result in results], op)

    def new(self, value: Value) -> int:
        """A new value for what an operation gives."""
        number = self.number[value] = self.out.value(type_facts(value.type))
        return number

    def _literal(self, op: Operation) -> None:
        value = op.results[0]
        self._constant(value, (repr(op.attributes.get("value")), value.type))

    def _constant(self, value: Value, key: Hashable) -> None:
        number = self.literal.get(key)
        if number is None:
            self.out.literals.append(key)
            number = self.literal[key] = -len(self.out.literals)
        self.number[value] = number

    def _nothing(self, op: Operation) -> None:
        """A barrier gives what it reads; a token is nothing."""
        if len(op.operands) == len(op.results):
            for operand, result in zip(op.operands, op.results):
                self.number[result] = self.number[operand]
            return
        for result in op.results:
            self.new(result)

    def _bitcast(self, op: Operation) -> None:
        source = self.number[op.operands[0]]
        result = op.results[0]
        if source < 0 or op.operands[0].type == result.type or op.name == "jax.copy":
            self.number[result] = source
            return
        self.number[result] = self.bitcast_of(source, type_facts(result.type), op)

    def bitcast_of(self, source: int, facts: Facts, op: Operation | None) -> int:
        """``source`` under the shape of what ``op`` gives, or of ``facts``."""
        source = self.bare.get(source, source)
        shape = getattr(op.results[0].type, "shape", None) if op is not None else None
        key = (source, facts, shape)
        known = self.known.get(key)
        if known is not None:
            return known
        value = self.known[key] = self.out.value(facts)
        self.bare[value] = source
        self.out.node(BITCAST, [source], [value], op)
        return value

    def _elementwise(self, op: Operation, kind: Kind, reads: list[int]) -> None:
        out = self.out
        result = op.results[0]
        facts = type_facts(result.type)
        elements = facts[1]
        if elements <= 1 and all(value < 0 for value in reads):
            # XLA computes it now.
            self._constant(result, (op.name, tuple(reads), parameters(op), result.type))
            return
        for index, value in enumerate(reads):
            if value >= 0 and (own := out.facts[value])[1] < elements:
                key: Hashable = (value, getattr(result.type, "shape", ()))
                wide = self.broadcasts.get(key)
                if wide is None:
                    each = own[0] // max(1, own[1])
                    wide = out.value((each * elements, elements, facts[2], own[3]))
                    self.broadcasts[key] = wide
                    out.node(BROADCAST, [value], [wide], None)
                reads[index] = wide
        number = self._equal(op, reads)
        if number < 0:
            kind = elementwise_kind(op, kind, reads)
            if op.name == "jax.div" and kind is EXPENSIVE and self._by_reciprocal(reads):
                kind = ELEMENTWISE
            number = out.value(facts)
            out.node(kind, reads, [number], op)
        self.number[result] = number

    def _by_reciprocal(self, reads: list[int]) -> bool:
        """Replace a divisor that is a broadcast by that of its reciprocal, if it is one."""
        out = self.out
        wide = reads[1]
        maker = out.producer[wide]
        if maker < 0 or out.kinds[maker] is not BROADCAST or not out.reads[maker]:
            return False
        narrow = out.reads[maker][0]
        if narrow < 0 or out.facts[narrow][1] <= 1:
            return False
        key: Hashable = ("reciprocal", wide)
        known = self.known.get(key)
        if known is None:
            small = out.value(out.facts[narrow])
            out.node(EXPENSIVE, [narrow], [small], None)
            known = self.known[key] = out.value(out.facts[wide])
            out.node(BROADCAST, [small], [known], out.ops[maker])
            out.replaced.add(maker)
        reads[1] = known
        return True

    def _equal(self, op: Operation, reads: list[int]) -> int:
        """The result of an earlier operation that computes the same as ``op``; -1 for none."""
        out = self.out
        fewest: list[int] | None = None
        for value in reads:
            if value >= 0:
                readers = out.readers[value]
                if not readers:
                    return -1
                if fewest is None or len(readers) < len(fewest):
                    fewest = readers
        if fewest is None:
            return -1
        name, type_ = op.name, op.results[0].type
        for node in fewest:
            other = out.ops[node]
            if (
                other is not None
                and other.name == name
                and out.reads[node] == reads
                and other.results[0].type == type_
                and parameters(other) == parameters(op)
            ):
                return out.writes[node][0]
        return -1

    def _broadcast(self, op: Operation, reads: list[int]) -> None:
        type_ = op.results[0].type
        dimensions = op.attributes.get("broadcast_dimensions")
        key: Hashable = (reads[0] if reads else None, type_, dimensions)
        value = self.broadcasts.get(key)
        if value is None:
            value = self.broadcasts[key] = self.out.value(type_facts(type_))
            self.out.node(BROADCAST, reads, [value], op)
        self.number[op.results[0]] = value

    def _before_transpose(self, reads: list[int]) -> None:
        """A sum over a transposed value reads what that is made of."""
        out = self.out
        maker = out.producer[reads[0]] if reads[0] >= 0 else -1
        if maker >= 0 and self._transposes(maker) and out.reads[maker][0] >= 0:
            out.replaced.add(maker)
            reads[0] = out.reads[maker][0]

    def _transposes(self, node: int) -> bool:
        op = self.out.ops[node]
        return self.out.kinds[node] is MOVE and op is not None and op.name == "jax.transpose"

    def in_order(self, outputs: list[int]) -> list[int]:
        """``outputs``, those that XLA makes in another order as copies.

        A transposed value that is returned is a bitcast in another order of axes. What else reads
        it has a copy of its own, or is made in that order and copied where it is returned itself.
        """
        out = self.out
        copies: dict[int, int] = {}
        for value in outputs:
            maker = out.producer[value]
            if maker < 0 or value in copies:
                continue
            if self._transposes(maker) and out.readers[value]:
                copy = copies[value] = out.value(out.facts[value])
                out.node(MOVE, list(out.reads[maker]), [copy], out.ops[maker])
            elif self._follows_order(value, outputs):
                copy = copies[value] = out.value(out.facts[value])
                out.node(KERNEL, [value], [copy], None)
        return [copies.get(value, value) for value in outputs]

    def _follows_order(self, value: int, outputs: list[int]) -> bool:
        """Whether ``value`` is made element by element of one transposed value that others read."""
        out = self.out
        maker = out.producer[value]
        steps = 0
        while maker >= 0 and out.kinds[maker] in (ELEMENTWISE, EXPENSIVE):
            sources = {
                read
                for read in out.reads[maker]
                if read >= 0
                and not (out.producer[read] >= 0 and out.kinds[out.producer[read]] is BROADCAST)
            }
            if len(sources) != 1:
                return False
            (value,) = sources
            maker = out.producer[value]
            steps += 1
        if not steps or maker < 0 or not self._transposes(maker):
            return False
        return value in outputs or len(out.readers[value]) > 1

    def _copy_of(self, value: int) -> int:
        out = self.out
        if value < 0:
            return value
        copy = out.value(out.facts[value])
        out.node(MOVE, [value], [copy], None)
        return copy

    def _is_elementwise(self, value: int) -> bool:
        maker = self.out.producer[value] if value >= 0 else -1
        return maker >= 0 and self.out.kinds[maker] in (ELEMENTWISE, EXPENSIVE)

    def _is_swapped_dot(self, op: Operation, value: int) -> bool:
        maker = self.out.producer[value] if value >= 0 else -1
        product = self.out.ops[maker] if maker >= 0 else None
        return (
            product is not None
            and product.name == "jax.dot_general"
            and self.out.facts[value][2] <= 2
            and len(op.operands[0].uses) == 1
            and op.operands[0] is product.results[0]
        )

    def _random_bits(self, op: Operation, reads: list[int]) -> None:
        out = self.out
        facts = type_facts(op.results[0].type)
        words = [out.value((4 * facts[1], facts[1], facts[2], False)) for _ in range(2)]
        out.node(KERNEL, reads, words, op)
        out.node(ELEMENTWISE, words, [self.new(op.results[0])], None)
