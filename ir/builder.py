"""A builder: operations made where it stands, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Block, Operation, OpResult, Region, Value
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.types import TensorType, Type


class Builder:
    """Inserts operations into a block, by default at its end.

    ``location`` is given to every operation that names none of its own.
    """

    __slots__ = ("block", "index", "location")

    def __init__(
        self, block: Block, *, index: int | None = None, location: Location = UNKNOWN
    ) -> None:
        self.block = block
        #: Where the next operation goes; None: at the end.
        self.index = index
        self.location = location

    @classmethod
    def before(cls, op: Operation) -> Builder:
        """A builder in front of ``op``; raises IRError when it is in no block."""
        return cls(_block_of(op), index=_block_of(op).ops.index(op), location=op.location)

    @classmethod
    def after(cls, op: Operation) -> Builder:
        """A builder behind ``op``; raises IRError when it is in no block."""
        return cls(_block_of(op), index=_block_of(op).ops.index(op) + 1, location=op.location)

    def insert(self, op: Operation) -> Operation:
        """Put ``op`` here and return it; the next one goes behind it."""
        if op.parent is not None:
            raise IRError(f"'{op.name}' is in a block already; detach it first")
        if self.index is None:
            return self.block.append(op)
        op.parent = self.block
        self.block.ops.insert(self.index, op)
        self.index += 1
        return op

    def create(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Iterable[Region] = (),
        location: Location | None = None,
    ) -> Operation:
        """Make an operation here."""
        where = self.location if location is None else location
        op = Operation(name, operands, result_types, attributes, regions, where)
        if self.index is not None:
            return self.insert(op)
        op.parent = self.block
        self.block.ops.append(op)
        return op

    def value(
        self,
        name: str,
        operands: Iterable[Value],
        result_type: Type,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> OpResult:
        """Make an operation of one result here, and return the result."""
        return self.create(name, operands, (result_type,), attributes).result

    def literal(self, value: Attribute, type_: TensorType) -> OpResult:
        """A ``baechi.literal``; ``value`` must be written as ``type_``'s element type is."""
        return self.value("baechi.literal", (), type_, {"value": value})


def _block_of(op: Operation) -> Block:
    if op.parent is None:
        raise IRError(f"'{op.name}' is in no block")
    return op.parent
