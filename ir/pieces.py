"""Pieces: arguments and results of ``@main`` that are a part of a stacked array.

``unroll-scans`` cuts a leaf of the user's arguments (the parameters of all layers, stacked along
dimension 0) into arguments of one or more layers each, so that they can lie on different devices.
Such an argument, or result, has ``baechi.piece`` among its attributes:

    baechi.piece = {leaf = 3 : i64, start = 2 : i64, size = 1 : i64, length = 24 : i64}

``leaf`` is the index of the original argument (or result) among those of the traced function,
closed-over constants included; ``start`` and ``size`` are rows, of its dimension 0; ``length`` is
how many rows the whole has. The pieces of a leaf are consecutive, in order, and make the whole; all
others stand where they stood between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.function import argument_attributes, result_attributes

PIECE = "baechi.piece"

_KEYS = ("leaf", "start", "size", "length")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``start`` to ``stop`` of the original argument (or result) ``leaf``."""

    leaf: int
    start: int
    size: int
    #: Rows of the whole leaf.
    length: int

    @property
    def stop(self) -> int:
        """One behind the last row."""
        return self.start + self.size

    def attribute(self) -> DictAttr:
        """As the value of ``baechi.piece``."""
        return DictAttr.of({key: getattr(self, key) for key in _KEYS})


def piece_of(entry: Mapping[str, Attribute]) -> Piece | None:
    """The piece that an entry of ``arg_attrs`` or ``res_attrs`` describes; None for a whole one.

    Raises IRError where ``baechi.piece`` is not a dictionary of the four numbers.
    """
    value = entry.get(PIECE)
    if value is None:
        return None
    if isinstance(value, DictAttr) and set(value) == set(_KEYS):
        numbers = [value[key] for key in _KEYS]
        if all(type(number) is int for number in numbers):
            return Piece(*(number for number in numbers if isinstance(number, int)))
    raise IRError(f"'{PIECE}' must be a dictionary of {', '.join(_KEYS)}, found {value!r}")


def argument_pieces(function: Operation) -> list[Piece | None]:
    """For each argument the piece that it is; None for one that is whole."""
    return [piece_of(entry) for entry in argument_attributes(function)]


def result_pieces(function: Operation) -> list[Piece | None]:
    """For each result the piece that it is; None for one that is whole."""
    return [piece_of(entry) for entry in result_attributes(function)]


def leaves(pieces: Sequence[Piece | None]) -> list[range]:
    """For each original argument (or result), the indices of what it is made of, one or more.

    Takes what ``argument_pieces`` or ``result_pieces`` gives. Raises IRError where the pieces of a
    leaf are not consecutive, in order, and the whole of it.
    """
    found: list[range] = []
    first = row = 0  # where the leaf at hand begins, and its rows so far
    length = None  # of the leaf at hand, while it is not complete
    for index, piece in enumerate(pieces):
        if piece is None:
            if length is not None:
                raise IRError(f"leaf {len(found)} ends at row {row} of {length}, before {index}")
            found.append(range(index, index + 1))
            continue
        if length is None:
            first, row, length = index, 0, piece.length
        if (piece.leaf, piece.start, piece.length) != (len(found), row, length) or piece.size < 1:
            raise IRError(
                f"{index} must be the piece of leaf {len(found)} that begins at row {row} of "
                f"{length}, found {piece}"
            )
        row = piece.stop
        if row > length:
            raise IRError(f"{index} goes beyond the {length} rows of leaf {piece.leaf}: {piece}")
        if row == length:
            found.append(range(first, index + 1))
            length = None
    if length is not None:
        raise IRError(f"leaf {len(found)} ends at row {row} of {length}")
    return found
