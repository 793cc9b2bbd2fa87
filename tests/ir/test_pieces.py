"""Pieces of stacked leaves: reading them, and what the verifier asks of them."""

import pytest

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import IRError, VerificationError
from baechi_jax.ir.function import (
    argument_attributes,
    function,
    refresh_function_type,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.pieces import (
    PIECE,
    Piece,
    argument_pieces,
    leaves,
    piece_of,
    result_pieces,
)
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.types import TensorType
from baechi_jax.ir.verifier import verify


def identity(pieces: list[Piece | None], name: str = "main") -> Module:
    """A function of these arguments that gives them back; 3 columns, or a scalar."""
    types = [TensorType(() if piece is None else (piece.size, 3), "f32") for piece in pieces]
    func = function(name, types)
    func.body.append(Operation("func.return", func.body.arguments))
    refresh_function_type(func)
    entries = [{} if piece is None else {PIECE: piece.attribute()} for piece in pieces]
    set_argument_attributes(func, entries)
    set_result_attributes(func, entries)
    module = Module()
    module.body.append(func)
    return module


GOOD = [None, Piece(1, 0, 2, 5), Piece(1, 2, 3, 5), None, Piece(3, 0, 4, 4)]


def test_pieces_are_read_back_from_the_text() -> None:
    module = identity(GOOD)
    verify(module)
    again = parse_module(print_module(module))
    assert argument_pieces(again.main) == GOOD
    assert result_pieces(again.main) == GOOD


def test_leaves_are_the_original_arguments() -> None:
    assert leaves(GOOD) == [range(1), range(1, 3), range(3, 4), range(4, 5)]
    assert leaves([]) == []


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([Piece(0, 0, 2, 5)], "leaf 0 ends at row 2 of 5"),
        ([Piece(0, 0, 2, 5), None], "leaf 0 ends at row 2 of 5, before 1"),
        ([Piece(0, 2, 3, 5), Piece(0, 0, 2, 5)], "begins at row 0 of 5"),
        ([Piece(0, 0, 2, 5), Piece(0, 3, 2, 5)], "begins at row 2 of 5"),
        ([Piece(1, 0, 5, 5)], "piece of leaf 0"),
        ([Piece(0, 0, 6, 5)], "beyond the 5 rows of leaf 0"),
        ([Piece(0, 0, 0, 5), Piece(0, 0, 5, 5)], "begins at row 0 of 5"),
        ([Piece(0, 0, 2, 5), Piece(0, 2, 2, 4)], "row 2 of 5"),
    ],
)
def test_pieces_that_make_no_whole_are_refused(pieces: list[Piece | None], message: str) -> None:
    with pytest.raises(IRError, match=message):
        leaves(pieces)
    with pytest.raises(VerificationError, match=message):
        verify(identity(pieces))


def test_only_main_must_have_all_pieces() -> None:
    verify(identity([Piece(0, 2, 2, 5)], name="main_d0"))


def test_a_piece_has_its_rows_in_dimension_0() -> None:
    module = identity([Piece(0, 0, 2, 2)])
    set_argument_attributes(module.main, [{PIECE: Piece(0, 0, 3, 3).attribute()}])
    with pytest.raises(VerificationError, match=r"argument 0 is a piece of 3 rows, but its type"):
        verify(module)


@pytest.mark.parametrize("value", [3, Piece(0, 0, 1, 1).attribute().items_[:2]])
def test_a_piece_needs_its_four_numbers(value: object) -> None:
    with pytest.raises(IRError, match="must be a dictionary of leaf, start, size, length"):
        piece_of({PIECE: value})  # type: ignore[dict-item]
    module = identity([Piece(0, 0, 2, 2)])
    set_argument_attributes(module.main, [{PIECE: 3}])
    with pytest.raises(VerificationError, match="must be a dictionary of leaf"):
        verify(module)
    assert argument_attributes(module.main) == [{PIECE: 3}]
