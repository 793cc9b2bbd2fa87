"""Merged tasks cut where layers repeat, so that many of them are one program.

XLA compiles each distinct task once, and equal kernels in different tasks once for each. A model of
equal layers gives merged tasks that hold three layers here, four there, and half a layer more: the
same work, compiled for each of them. Cut layer by layer most of them are equal, and one program
serves all, at the price of some launches.

A task that was placed has a key, its structure. In the sequences of keys of all merged tasks that
chunk is sought whose repetition saves most operations to be compiled. Tasks are cut where it
stands; then the next chunk is sought in what is left. Chunks are large enough that a launch more is
nothing beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from baechi_jax.ir.fingerprint import fingerprints

if TYPE_CHECKING:
    from baechi_jax.passes.merge_tasks import TaskParts
    from baechi_jax.passes.quotient import Quotient

#: Members of the longest chunk that is sought.
LONGEST_CHUNK = 48

#: Operations that must not have to be compiled again for a chunk to be worth its cuts.
_LEAST_SAVED = 32

#: How many times the launch of a task its work must take, for one launch more to be nothing.
LAUNCHES = 200


def cut_where_alike(
    base: Quotient, groups: Sequence[Sequence[int]], parts: TaskParts
) -> list[list[int]]:
    """``groups`` of tasks of ``base``, cut where that makes equal ones; see the module."""
    numbers: dict[str, int] = {}
    keys = [numbers.setdefault(each, len(numbers)) for each in fingerprints(parts.ops)]
    launch = [parts.topology.devices[device].launch_seconds for device in base.device]
    sequences = Sequences(
        [[keys[task] for task in group] for group in groups],
        [[len(parts.ops[task]) for task in group] for group in groups],
        [[base.seconds[task] / max(launch[task], 1e-9) for task in group] for group in groups],
    )
    return [
        list(group[start:stop])
        for group, pieces in zip(groups, cut_alike(sequences), strict=True)
        for start, stop in pieces
    ]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Groups of members, in order: a key of each member, its operations, and its work.

    ``launches[g][i]``: the seconds of member ``i`` of group ``g`` in launches of its device.
    """

    keys: Sequence[Sequence[int]]
    ops: Sequence[Sequence[int]]
    launches: Sequence[Sequence[float]]


def cut_alike(sequences: Sequences) -> list[list[tuple[int, int]]]:
    """For each group its pieces, as ranges ``(start, stop)`` of members, one or more."""
    cutting = _Cutting(sequences)
    while True:
        best = _LEAST_SAVED - 1
        chosen: tuple[int, ...] = ()
        for chunk in cutting.candidates():
            saved = cutting.saved(chunk)
            if saved > best:
                best, chosen = saved, chunk
        if not chosen:
            return [[(each.start, each.stop) for each in pieces] for pieces in cutting.pieces]
        cutting.cut(chosen)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Members ``start`` to ``stop`` of a group; ``whole``: a chunk, which is not cut any more."""

    start: int
    stop: int
    whole: bool = False


class _Cutting:
    """The pieces of each group while chunks are cut out of them."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences
        self.pieces = [[_Piece(0, len(keys))] for keys in sequences.keys]

    def _open(self) -> Iterator[tuple[int, _Piece]]:
        """The pieces that may still be cut, and their groups."""
        for group, pieces in enumerate(self.pieces):
            for piece in pieces:
                if not piece.whole:
                    yield group, piece

    def candidates(self) -> Iterator[tuple[int, ...]]:
        """Chunks that follow one another somewhere, each once: every rotation of every period."""
        seen: set[tuple[int, ...]] = set()
        for group, piece in self._open():
            keys, launches = self.sequences.keys[group], self.sequences.launches[group]
            for period in range(1, min(LONGEST_CHUNK, (piece.stop - piece.start) // 2) + 1):
                equal = 0  # keys in a row that come again one period later
                for index in range(piece.start, piece.stop - period):
                    equal = equal + 1 if keys[index] == keys[index + period] else 0
                    if equal < period:
                        continue
                    first = index + 1 - period
                    chunk = tuple(keys[first : index + 1])
                    if chunk not in seen and sum(launches[first : index + 1]) >= LAUNCHES:
                        seen.add(chunk)
                        yield chunk

    def saved(self, chunk: tuple[int, ...]) -> int:
        """Operations that are compiled once less for each time that ``chunk`` comes again."""
        count = ops = 0
        for group, piece in self._open():
            for first in self._places(group, piece, chunk):
                count += 1
                ops = sum(self.sequences.ops[group][first : first + len(chunk)])
        return (count - 1) * ops

    def cut(self, chunk: tuple[int, ...]) -> None:
        """Cut ``chunk`` out wherever it stands."""
        for group, pieces in enumerate(self.pieces):
            cut: list[_Piece] = []
            for piece in pieces:
                at = piece.start
                for first in () if piece.whole else self._places(group, piece, chunk):
                    if first > at:
                        cut.append(_Piece(at, first))
                    at = first + len(chunk)
                    cut.append(_Piece(first, at, whole=True))
                if at < piece.stop:
                    cut.append(_Piece(at, piece.stop, piece.whole))
            self.pieces[group] = cut

    def _places(self, group: int, piece: _Piece, chunk: tuple[int, ...]) -> Iterator[int]:
        """Where ``chunk`` stands in ``piece``, from the left and without overlap."""
        keys, index = self.sequences.keys[group], piece.start
        while index + len(chunk) <= piece.stop:
            if keys[index] == chunk[0] and tuple(keys[index : index + len(chunk)]) == chunk:
                yield index
                index += len(chunk)
            else:
                index += 1
