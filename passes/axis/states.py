"""What an axis can become in a value: the lattice of the analysis.

The axis has ``size`` elements and is cut into equal, contiguous pieces; ``size`` must be a multiple
of their number. A state says how a value of the whole run is found from the values of the runs on
the pieces:

- ``Full``: every piece has the whole value.
- ``Split(d)``: each piece has its part of dimension ``d``, in order. The dimension may be larger
  than the axis (the axis merged with dimensions inside it): then it is a multiple of ``size``.
- ``Partial(kind)``: the whole value is the sum (product, maximum, ...) of the pieces' values.
- ``Neither``: none of these; it names the operation that mixed the axis, and why.

In the body of a scan over the axis itself there are two more: ``Each`` (a value of the one position
that an iteration works on) and ``Running`` (what the loop has gathered so far).

A ``Full`` value can stand in for others: a piece takes its part of it where ``Split`` is needed; a
value that is all zero is a partial sum, all one a partial product, and any value is its own partial
maximum, minimum, conjunction and disjunction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from baechi_jax.ir.core import Operation

#: How the values of the pieces make the whole one.
KINDS = ("sum", "prod", "max", "min", "and", "or")

#: Kinds for which combining a value with itself changes nothing.
IDEMPOTENT = frozenset({"max", "min", "and", "or"})

#: Kind -> the number that changes nothing.
NEUTRAL = {"sum": 0, "prod": 1}


@dataclass(frozen=True, slots=True)
class Full:
    """Does not depend on the axis. ``uniform`` is 0 or 1 where every element is known to be."""

    uniform: int | None = None

    def __str__(self) -> str:
        return "full"


@dataclass(frozen=True, slots=True)
class Split:
    """Each piece has its part of ``dimension``."""

    dimension: int

    def __str__(self) -> str:
        return f"split {self.dimension}"


@dataclass(frozen=True, slots=True)
class Partial:
    """The whole value is the ``kind`` (one of ``KINDS``) of the pieces' values."""

    kind: str

    def __str__(self) -> str:
        return f"partial {self.kind}"


@dataclass(frozen=True, slots=True)
class Each:
    """In a scan over the axis: a value of the position of one iteration."""

    def __str__(self) -> str:
        return "each"


@dataclass(frozen=True, slots=True)
class Running:
    """In a scan over the axis: a carry that has gathered the positions so far.

    ``carry`` is its number; ``kind`` is empty as long as nothing was added in this iteration.
    """

    carry: int
    kind: str = ""

    def __str__(self) -> str:
        return f"running {self.kind}".rstrip()


@dataclass(frozen=True, slots=True)
class Neither:
    """The axis is mixed: by ``op``, because of ``reason`` (a clause about the operation)."""

    op: Operation
    reason: str

    def __str__(self) -> str:
        return "neither"

    @property
    def message(self) -> str:
        """``train.py:12: 'jax.rev' reverses the axis``."""
        return f"{self.op.location}: '{self.op.name}' {self.reason}"


State: TypeAlias = Full | Split | Partial | Each | Running | Neither

FULL = Full()


def serves_as_partial(state: State, kind: str) -> bool:
    """Whether each piece can use a value in this state as its part of a ``kind``."""
    if isinstance(state, Partial):
        return state.kind == kind
    if isinstance(state, Full):
        return kind in IDEMPOTENT or state.uniform == NEUTRAL.get(kind, -1)
    return False


def join(left: State, right: State, op: Operation, what: str) -> State:
    """The state that covers both: of two branches, of a carry before and after an iteration.

    Neither, by ``op``, where none does; ``what`` names the value in the reason.
    """
    if left == right or isinstance(left, Neither):
        return left
    if isinstance(right, Neither):
        return right
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Partial) and serves_as_partial(other, one.kind):
            return one
        if isinstance(one, Split) and isinstance(other, Full):
            return one
    if isinstance(left, Full) and isinstance(right, Full):
        return FULL
    return Neither(op, f"makes {what} {left} in one place and {right} in another")
