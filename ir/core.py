"""Operations, values, blocks and regions.

The structure is MLIR's: an operation takes values, gives values, carries attributes, and holds
regions of blocks of operations. Nodes compare by identity. Operands change only through methods,
which keep every value's use list right.

Speed matters here (thousands of ops in a training step, dozens of passes): plain slots classes,
no metaclass, use lists as insertion-ordered dicts so that adding and removing a use is O(1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.types import Type


class Value:
    """What an operation reads: the result of an operation, or an argument of a block."""

    __slots__ = ("index", "name", "type", "uses")

    def __init__(self, type_: Type, index: int, name: str | None = None) -> None:
        self.type = type_
        self.index = index
        #: A hint for the printer; need not be unique.
        self.name = name
        #: ``(operation, operand index)`` of each reader, in the order in which they came.
        self.uses: dict[tuple[Operation, int], None] = {}

    @property
    def users(self) -> list[Operation]:
        """The operations that read this value, each once, in order of their first use."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    @property
    def defining_op(self) -> Operation | None:
        """The operation whose result this is; None for a block argument."""
        return None

    def replace_all_uses_with(self, other: Value) -> None:
        """Make every reader of this value read ``other``."""
        if other is self:
            return
        for op, index in list(self.uses):
            op.set_operand(index, other)


class OpResult(Value):
    """The ``index``-th result of ``owner``."""

    __slots__ = ("owner",)

    # Written out, since most values are results: a call of the base's costs as much again.
    def __init__(self, owner: Operation, index: int, type_: Type, name: str | None = None) -> None:
        self.type = type_
        self.index = index
        self.name = name
        self.uses = {}
        self.owner = owner

    @property
    def defining_op(self) -> Operation:
        """The operation whose result this is."""
        return self.owner


class BlockArgument(Value):
    """The ``index``-th argument of ``owner``."""

    __slots__ = ("owner",)

    def __init__(self, owner: Block, index: int, type_: Type, name: str | None = None) -> None:
        super().__init__(type_, index, name)
        self.owner = owner


class Operation:
    """One operation. ``operands`` is read-only from outside: change it by the methods below."""

    __slots__ = ("_operands", "attributes", "location", "name", "parent", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Iterable[Region] = (),
        location: Location = UNKNOWN,
    ) -> None:
        self.name = name
        self._operands: list[Value] = list(operands)
        self.attributes: dict[str, Attribute] = dict(attributes) if attributes else {}
        self.location = location
        self.parent: Block | None = None
        results: list[OpResult] = []
        self.results = results
        for type_ in result_types:
            results.append(OpResult(self, len(results), type_))
        self.regions: list[Region] = list(regions)
        for region in self.regions:
            region.parent = self
        for index, value in enumerate(self._operands):
            value.uses[self, index] = None

    # Operands -------------------------------------------------------------------------------

    @property
    def operands(self) -> Sequence[Value]:
        """The values that this operation reads, in order."""
        return self._operands

    def set_operand(self, index: int, value: Value) -> None:
        """Read ``value`` as operand ``index`` from now on."""
        old = self._operands[index]
        if old is value:
            return
        del old.uses[self, index]
        self._operands[index] = value
        value.uses[self, index] = None

    def set_operands(self, values: Iterable[Value]) -> None:
        """Replace all operands; their number may change."""
        for index, value in enumerate(self._operands):
            del value.uses[self, index]
        self._operands = list(values)
        for index, value in enumerate(self._operands):
            value.uses[self, index] = None

    # Results --------------------------------------------------------------------------------

    @property
    def result(self) -> OpResult:
        """The only result; raises IRError when there is not exactly one."""
        if len(self.results) != 1:
            raise IRError(f"'{self.name}' has {len(self.results)} results, expected one")
        return self.results[0]

    # Structure ------------------------------------------------------------------------------

    @property
    def body(self) -> Block:
        """The only block of the only region (of a function, a task, a loop body)."""
        if len(self.regions) != 1 or len(self.regions[0].blocks) != 1:
            raise IRError(f"'{self.name}' does not have exactly one region of one block")
        return self.regions[0].blocks[0]

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all regions."""
        return [block for region in self.regions for block in region.blocks]

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this one."""
        region = self.parent.parent if self.parent is not None else None
        return region.parent if region is not None else None

    def walk(self) -> Iterator[Operation]:
        """This operation and every one inside it, each before its regions."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in block.ops:
                    if op.regions:
                        yield from op.walk()
                    else:
                        yield op

    # Changing -------------------------------------------------------------------------------

    def drop_operands(self) -> None:
        """Read nothing any more, here and in the regions."""
        self.set_operands(())
        for region in self.regions:
            for block in region.blocks:
                for op in block.ops:
                    op.drop_operands()

    def erase(self) -> None:
        """Take this operation out of its block; raises IRError while a result is still read.

        O(length of the block): to erase many, use ``Block.retain``.
        """
        for result in self.results:
            if result.uses:
                raise IRError(f"cannot erase '{self.name}': its result {result.index} is in use")
        self.drop_operands()
        if self.parent is not None:
            self.parent.ops.remove(self)
            self.parent = None

    def clone(self, mapping: dict[Value, Value] | None = None) -> Operation:
        """A detached copy, regions included.

        Operands found in ``mapping`` are replaced; the copies of results and block arguments are
        added to it, so cloning a sequence with one mapping keeps its data flow.
        """
        mapping = {} if mapping is None else mapping
        copy = Operation(
            self.name,
            [mapping.get(value, value) for value in self._operands],
            [result.type for result in self.results],
            self.attributes,
            (),
            self.location,
        )
        for old, new in zip(self.results, copy.results):
            new.name = old.name
            mapping[old] = new
        for region in self.regions:
            copy.add_region(region.clone(mapping))
        return copy

    def add_region(self, region: Region) -> Region:
        """Append ``region`` and return it."""
        region.parent = self
        self.regions.append(region)
        return region

    def __repr__(self) -> str:
        return f"<{self.name} at {self.location}>"


class Block:
    """A list of operations with arguments. The last operation is its terminator."""

    __slots__ = ("arguments", "ops", "parent")

    def __init__(self, argument_types: Iterable[Type] = ()) -> None:
        self.arguments: list[BlockArgument] = [
            BlockArgument(self, index, type_) for index, type_ in enumerate(argument_types)
        ]
        self.ops: list[Operation] = []
        self.parent: Region | None = None

    def add_argument(self, type_: Type, name: str | None = None) -> BlockArgument:
        """Append an argument and return it."""
        argument = BlockArgument(self, len(self.arguments), type_, name)
        self.arguments.append(argument)
        return argument

    def append(self, op: Operation) -> Operation:
        """Append ``op`` and return it."""
        op.parent = self
        self.ops.append(op)
        return op

    def extend(self, ops: Iterable[Operation]) -> None:
        """Append each of ``ops``."""
        for op in ops:
            op.parent = self
            self.ops.append(op)

    def set_ops(self, ops: Iterable[Operation]) -> None:
        """Make ``ops`` the content of this block, in that order; those left out are detached."""
        new = list(ops)
        for op in self.ops:
            op.parent = None
        for op in new:
            op.parent = self
        self.ops = new

    def insert_before(self, anchor: Operation, op: Operation) -> Operation:
        """Put ``op`` before ``anchor``; O(length of the block)."""
        op.parent = self
        self.ops.insert(self.ops.index(anchor), op)
        return op

    def retain(self, keep: Callable[[Operation], bool]) -> None:
        """Erase the operations for which ``keep`` is false, last first, in one sweep."""
        kept: list[Operation] = []
        for op in reversed(self.ops):
            if keep(op):
                kept.append(op)
                continue
            for result in op.results:
                if result.uses:
                    raise IRError(f"cannot erase '{op.name}': its result is in use")
            op.drop_operands()
            op.parent = None
        kept.reverse()
        self.ops = kept

    @property
    def terminator(self) -> Operation:
        """The last operation; raises IRError for an empty block."""
        if not self.ops:
            raise IRError("a block without operations has no terminator")
        return self.ops[-1]

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this block."""
        return self.parent.parent if self.parent is not None else None


class Region:
    """A list of blocks (one, everywhere that we make them)."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks: list[Block] = list(blocks)
        self.parent: Operation | None = None
        for block in self.blocks:
            block.parent = self

    def add_block(self, block: Block) -> Block:
        """Append ``block`` and return it."""
        block.parent = self
        self.blocks.append(block)
        return block

    def clone(self, mapping: dict[Value, Value]) -> Region:
        """A detached copy; see ``Operation.clone``."""
        region = Region()
        for block in self.blocks:
            copy = region.add_block(Block())
            for argument in block.arguments:
                mapping[argument] = copy.add_argument(argument.type, argument.name)
            for op in block.ops:
                copy.append(op.clone(mapping))
        return region


class Module(Operation):
    """``builtin.module``: the unit that passes transform. Holds functions, found by symbol name."""

    __slots__ = ()

    def __init__(
        self,
        attributes: Mapping[str, Attribute] | None = None,
        regions: Iterable[Region] | None = None,
        location: Location = UNKNOWN,
    ) -> None:
        body = [Region([Block()])] if regions is None else regions
        super().__init__("builtin.module", (), (), attributes, body, location)

    @property
    def functions(self) -> list[Operation]:
        """Every ``func.func``, in order."""
        return [op for op in self.body.ops if op.name == "func.func"]

    def lookup(self, symbol: str) -> Operation | None:
        """The top-level operation named ``symbol``, or None."""
        for op in self.body.ops:
            if op.attributes.get("sym_name") == symbol:
                return op
        return None

    @property
    def main(self) -> Operation:
        """The function ``@main``; raises IRError when there is none."""
        func = self.lookup("main")
        if func is None:
            raise IRError("the module has no function @main")
        return func

    def clone(self, mapping: dict[Value, Value] | None = None) -> Module:
        """A copy of the whole module."""
        mapping = {} if mapping is None else mapping
        return Module(
            self.attributes, [region.clone(mapping) for region in self.regions], self.location
        )


def topological_order(ops: Sequence[Operation], key: Callable[[Operation], Any]) -> list[Operation]:
    """``ops`` of one block sorted so that each comes after what it reads; ties by ``key``.

    Raises IRError when they depend on one another in a cycle.
    """
    import heapq

    position = {op: index for index, op in enumerate(ops)}
    waiting: dict[Operation, int] = {}
    readers: dict[Operation, list[Operation]] = {op: [] for op in ops}
    for op in ops:
        sources = {
            owner
            for value in _values_read(op)
            if (owner := value.defining_op) is not None and owner in position and owner is not op
        }
        waiting[op] = len(sources)
        for source in sources:
            readers[source].append(op)
    heap = [(key(op), position[op]) for op in ops if waiting[op] == 0]
    heapq.heapify(heap)
    order: list[Operation] = []
    while heap:
        _, index = heapq.heappop(heap)
        op = ops[index]
        order.append(op)
        for reader in readers[op]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(heap, (key(reader), position[reader]))
    if len(order) != len(ops):
        stuck = next(op for op in ops if waiting[op] > 0)
        raise IRError(f"operations depend on one another in a cycle through {stuck!r}")
    return order


def _values_read(op: Operation) -> Iterator[Value]:
    for inner in op.walk():
        yield from inner.operands
