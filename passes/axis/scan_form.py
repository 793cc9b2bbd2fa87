"""The parts of a ``jax.scan``: which operands are constants, carries, and rows to scan over."""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.types import TokenType


@dataclass(frozen=True, slots=True)
class ScanForm:
    """How many operands and results of each sort a scan has.

    Operands, and the arguments of its body: constants, carries, rows (``xs``), tokens. Results, and
    what its body yields: carries, rows (``ys``), tokens.
    """

    length: int
    consts: int
    carries: int
    xs: int
    ys: int
    tokens: int
    reverse: bool

    @staticmethod
    def of(op: Operation) -> ScanForm:
        """Read it; raises PassError, with the source line, where an attribute is missing."""
        length = _integer(op, "length")
        consts = _integer(op, "num_consts")
        carries = _integer(op, "num_carry")
        tokens = sum(isinstance(value.type, TokenType) for value in op.operands)
        return ScanForm(
            length,
            consts,
            carries,
            len(op.operands) - consts - carries - tokens,
            len(op.results) - carries - tokens,
            tokens,
            op.attributes.get("reverse") is True,
        )

    @property
    def rows(self) -> range:
        """The operands that are scanned over."""
        first = self.consts + self.carries
        return range(first, first + self.xs)


def _integer(op: Operation, name: str) -> int:
    value = op.attributes.get(name)
    if type(value) is int:
        return value
    raise PassError(
        f"{op.location}: '{op.name}' needs the attribute '{name}', an integer; found {value!r}"
    )
