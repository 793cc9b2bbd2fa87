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
    pieces = [[(0, len(keys))] for keys in sequences.keys]
    #: Which pieces are chunks already, and stay whole.
    chunks: set[tuple[int, int, int]] = set()
    while True:
        best = _LEAST_SAVED - 1
        chosen: tuple[int, ...] = ()
        for chunk in _candidates(sequences, pieces, chunks):
            saved = _saved(sequences, pieces, chunks, chunk)
            if saved > best:
                best, chosen = saved, chunk
        if not chosen:
            return pieces
        pieces, found = _cut(sequences, pieces, chunks, chosen)
        chunks |= found


def _open(
    pieces: Sequence[Sequence[tuple[int, int]]], chunks: set[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The pieces that may still be cut: their group, start and stop."""
    for group, ranges in enumerate(pieces):
        for start, stop in ranges:
            if (group, start, stop) not in chunks:
                yield group, start, stop


def _candidates(
    sequences: Sequences,
    pieces: Sequence[Sequence[tuple[int, int]]],
    chunks: set[tuple[int, int, int]],
) -> Iterator[tuple[int, ...]]:
    """Chunks that follow one another somewhere, each once: every rotation of every period."""
    seen: set[tuple[int, ...]] = set()
    for group, start, stop in _open(pieces, chunks):
        keys = sequences.keys[group]
        for period in range(1, min(LONGEST_CHUNK, (stop - start) // 2) + 1):
            equal = 0  # keys in a row that come again one period later
            for index in range(start, stop - period):
                equal = equal + 1 if keys[index] == keys[index + period] else 0
                if equal < period:
                    continue
                first = index + 1 - period
                work = sum(sequences.launches[group][first : first + period])
                chunk = tuple(keys[first : first + period])
                if work >= LAUNCHES and chunk not in seen:
                    seen.add(chunk)
                    yield chunk


def _saved(
    sequences: Sequences,
    pieces: Sequence[Sequence[tuple[int, int]]],
    chunks: set[tuple[int, int, int]],
    chunk: tuple[int, ...],
) -> int:
    """Operations that are compiled once less for each time that ``chunk`` comes again."""
    count = ops = 0
    for group, start, stop in _open(pieces, chunks):
        for first in _places(sequences.keys[group], start, stop, chunk):
            count += 1
            ops = sum(sequences.ops[group][first : first + len(chunk)])
    return (count - 1) * ops


def _cut(
    sequences: Sequences,
    pieces: Sequence[Sequence[tuple[int, int]]],
    chunks: set[tuple[int, int, int]],
    chunk: tuple[int, ...],
) -> tuple[list[list[tuple[int, int]]], set[tuple[int, int, int]]]:
    """All pieces with ``chunk`` cut out of the open ones, and where it stands."""
    found: set[tuple[int, int, int]] = set()
    result: list[list[tuple[int, int]]] = []
    for group, ranges in enumerate(pieces):
        parts: list[tuple[int, int]] = []
        for start, stop in ranges:
            at = start
            if (group, start, stop) not in chunks:
                for first in _places(sequences.keys[group], start, stop, chunk):
                    if first > at:
                        parts.append((at, first))
                    at = first + len(chunk)
                    parts.append((first, at))
                    found.add((group, first, at))
            if at < stop:
                parts.append((at, stop))
        result.append(parts)
    return result, found


def _places(keys: Sequence[int], start: int, stop: int, chunk: tuple[int, ...]) -> Iterator[int]:
    """Where ``chunk`` stands in ``keys[start:stop]``, from the left and without overlap."""
    index = start
    while index + len(chunk) <= stop:
        if keys[index] == chunk[0] and tuple(keys[index : index + len(chunk)]) == chunk:
            yield index
            index += len(chunk)
        else:
            index += 1
