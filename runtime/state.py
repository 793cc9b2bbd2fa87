"""Bringing a step's arguments to where its plan wants them, and its results to the caller's leaves.

In the steady state every argument is the result of the step before and lies in place: one pass that
compares two references per leaf finds that out. What lies elsewhere (a new batch, a checkpoint, a
NumPy array) is moved leaf by leaf, straight to its device, never over a third one. The sources of
donated leaves are freed once these have arrived and all other copies are under way, as the last
thing before the step's first instruction: an error on the way leaves them as they were, and the
step itself has the memory that they took. Until then both copies take memory.

A stacked leaf that the plan holds in pieces is one leaf to the caller: its pieces are found in it,
or cut out of it. There, a donated source is freed as soon as its own pieces have arrived, since
next to a whole stack there may be no room for the pieces of all the others: an error or Ctrl-C
between two of them loses those that have moved.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import SingleDeviceSharding

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.pieces import Piece
from baechi_jax.ir.pieces import leaves as leaf_ranges
from baechi_jax.runtime.errors import ArgumentError, execution_error
from baechi_jax.runtime.instructions import Argument, Program
from baechi_jax.runtime.layers import LeafSharding, Run, sharding_of
from baechi_jax.runtime.restack import joiner, restack
from baechi_jax.runtime.stacked import StackedArray

if TYPE_CHECKING:
    from jax.core import AbstractValue

#: What is looked at in every leaf in every call, as functions that ``map`` runs without Python.
_PLAIN = {compat.ARRAY_TYPE}
_STACKED = {compat.ARRAY_TYPE, StackedArray}
_AVAL = operator.attrgetter("aval")
_SHARDING = operator.attrgetter(compat.SHARDING_ATTRIBUTE)
_DELETED = compat.ARRAY_TYPE.is_deleted
_ANY_DELETED = operator.methodcaller("is_deleted")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the caller's as the plan wants it: whole on one device, or in runs of layers."""

    name: str
    donated: bool
    sharding: LeafSharding
    #: One for each piece; none for a leaf that is not in pieces.
    runs: tuple[Run, ...] = field(default=())


def leaves_of(
    arguments: Sequence[Argument], names: Sequence[str], devices: Sequence[jax.Device]
) -> list[Leaf]:
    """The caller's leaves, called ``names``, that ``arguments`` of ``@main`` are made of.

    ``devices[d]`` is device ``d`` of the plan.
    """
    found: list[Leaf] = []
    ranges = leaf_ranges([argument.piece for argument in arguments])
    for name, members in zip(names, ranges, strict=True):
        own = [arguments[index] for index in members]
        runs = runs_of([a.piece for a in own], [devices[a.device] for a in own])
        place = sharding_of(runs) if runs else SingleDeviceSharding(devices[own[0].device])
        found.append(Leaf(name, own[0].donated, place, runs))
    return found


def runs_of(pieces: Sequence[Piece | None], devices: Sequence[jax.Device]) -> tuple[Run, ...]:
    """The runs of one leaf; none for a leaf that is not in pieces."""
    return tuple(
        Run(piece.start, piece.stop, device)
        for piece, device in zip(pieces, devices, strict=True)
        if piece is not None
    )


class ArgumentPlacer:
    """Checks and moves the leaves of one call signature.

    ``leaves[i]`` says where leaf ``i`` belongs and ``avals[i]`` what it must be.
    """

    def __init__(self, leaves: Sequence[Leaf], avals: Sequence[AbstractValue]) -> None:
        self.leaves = tuple(leaves)
        self.avals = tuple(avals)
        self.shardings = tuple(leaf.sharding for leaf in self.leaves)
        #: What a leaf in its place looked like last: the references to compare with.
        self._seen_avals: list[Any] = list(self.avals)
        self._seen_shardings: list[Any] = list(self.shardings)
        self._donated = [index for index, leaf in enumerate(self.leaves) if leaf.donated]
        #: Those that go to the step in several arrays.
        self._in_pieces = [index for index, leaf in enumerate(self.leaves) if leaf.runs]
        self._types = _STACKED if self._in_pieces else _PLAIN

    def pending(self, leaves: Sequence[Any]) -> list[int] | None:
        """Indices of the leaves that must be moved; None when one is of another type.

        Cheap when all lie where they lay the last time: lists compare by reference first.
        """
        if self._types.issuperset(map(type, leaves)):
            avals, shardings = list(map(_AVAL, leaves)), list(map(_SHARDING, leaves))
            if avals == self._seen_avals and shardings == self._seen_shardings:
                # These very objects come again: they belong to the executables.
                self._seen_avals, self._seen_shardings = avals, shardings
                return []
        pending: list[int] = []
        plain = compat.ARRAY_TYPE
        for index, (leaf, aval, sharding) in enumerate(
            zip(leaves, self._seen_avals, self._seen_shardings)
        ):
            if type(leaf) is plain and leaf.aval is aval and leaf.sharding is sharding:
                continue
            placed = self._examine(index, leaf)
            if placed is None:
                return None
            if not placed:
                pending.append(index)
        return pending

    def _examine(self, index: int, leaf: Any) -> bool | None:
        """Whether leaf ``index`` lies in its place; None when its type is wrong."""
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise ArgumentError(
                f"argument {self.leaves[index].name} is a shape, not an array; shapes are for "
                "plan, trace and lower"
            )
        try:
            aval = abstract(leaf)
        except TypeError:
            return None
        if not same_type(aval, self.avals[index]):
            return None
        if not _lies_by(leaf, self.shardings[index]):
            return False
        if type(leaf) in _STACKED:
            self._seen_avals[index] = leaf.aval
            self._seen_shardings[index] = leaf.sharding
        return True

    def place(self, leaves: Sequence[Any], pending: Sequence[int]) -> tuple[list[Any], list[str]]:
        """The step's arguments, and the names of donated leaves whose sources were freed.

        Those in ``pending`` are moved, and leaves in pieces taken apart. Raises ArgumentError,
        before anything is freed, for a leaf that was deleted (given away in an earlier call), that
        is donated and passed twice, or that other processes hold a part of; ExecutionError where a
        leaf cannot be moved, before anything is freed, or a stacked leaf cannot be cut, after
        others were freed.
        """
        self.check(leaves)
        return self.bring(leaves, pending)

    def bring(self, leaves: Sequence[Any], pending: Sequence[int]) -> tuple[list[Any], list[str]]:
        """``place`` for leaves that ``check`` has passed."""
        placed = list(leaves)
        lost = self._move(placed, pending) if pending else []
        return self._take_apart(placed), lost

    def _take_apart(self, placed: list[Any]) -> list[Any]:
        """The step's arguments: leaves in pieces replaced by their pieces, without a copy."""
        if not self._in_pieces:
            return placed
        arguments: list[Any] = []
        done = 0
        for index in self._in_pieces:
            leaf = placed[index]
            arguments += placed[done:index]
            if type(leaf) is StackedArray:
                arguments += leaf.pieces
            else:
                arguments += leaf if type(leaf) is list else compat.device_arrays(leaf)
            done = index + 1
        arguments += placed[done:]
        return arguments

    # Moving -----------------------------------------------------------------------------------

    def _move(self, placed: list[Any], pending: Sequence[int]) -> list[str]:
        """Put what arrives (for a leaf in pieces a list) into ``placed``; names of freed leaves."""
        for index in pending:
            self._check_addressable(index, placed[index])
        stacked = [
            index
            for index in pending
            if self.leaves[index].runs or isinstance(placed[index], StackedArray)
        ]
        sources = {index: placed[index] for index in pending if index not in stacked}
        kept = self._move_whole(placed, list(sources))
        lost: list[str] = []
        for index in sorted(stacked, key=lambda index: self.leaves[index].donated):
            try:
                if self._cut(placed, index):
                    lost.append(self.leaves[index].name)
            except Exception as error:
                what = f"moving the layers of argument {self.leaves[index].name}"
                raise execution_error(what, error, lost, bool(self._donated)) from error
        for index, leaf in sources.items():
            if self.leaves[index].donated and isinstance(leaf, jax.Array):
                _release(leaf, kept.get(index))
                lost.append(self.leaves[index].name)
        return lost

    def _move_whole(self, placed: list[Any], whole: Sequence[int]) -> dict[int, jax.Array]:
        """Put copies of the leaves ``whole`` into ``placed``; those donated have arrived then.

        Returns what of a source is no copy but goes to the step itself.
        """
        places = [self.shardings[index] for index in whole]
        parts = [_single(placed[index], place) for index, place in zip(whole, places, strict=True)]
        try:
            moved: list[jax.Array] = jax.device_put(parts, places)
        except Exception:
            # One by one, to say which it was.
            moved = [
                self._named(index, functools.partial(jax.device_put, part, place))
                for index, part, place in zip(whole, parts, places, strict=True)
            ]
        for index, array in zip(whole, moved, strict=True):
            if self.leaves[index].donated and isinstance(placed[index], jax.Array):
                self._named(index, array.block_until_ready)
        kept = {
            index: part
            for index, part, place in zip(whole, parts, places, strict=True)
            if part is not placed[index] and _lies_by(part, place)
        }
        for index, array in zip(whole, moved, strict=True):
            placed[index] = array
        return kept

    def _named(self, index: int, move: Callable[[], jax.Array]) -> jax.Array:
        """``move()``; raises ExecutionError naming leaf ``index``."""
        try:
            return move()
        except Exception as error:
            what = f"moving argument {self.leaves[index].name}"
            raise execution_error(what, error, [], bool(self._donated)) from error

    def _cut(self, placed: list[Any], index: int) -> bool:
        """Replace leaf ``index`` by its pieces; whether its source was freed."""
        leaf, source = self.leaves[index], placed[index]
        place = self.shardings[index]
        if leaf.runs:
            runs = leaf.runs
        else:
            assert isinstance(place, SingleDeviceSharding)
            (device,) = place.device_set
            runs = (Run(0, len(source), device),)
        found = restack(source, runs)
        placed[index] = found.arrays if leaf.runs else found.arrays[0]
        if not leaf.donated or not isinstance(source, jax.Array | StackedArray):
            return False
        # One leaf at a time: what was cut off must have left before the next one takes its room.
        jax.block_until_ready(found.arrays)
        for array in found.unused:
            array.delete()
        return bool(found.unused)

    # Checks -----------------------------------------------------------------------------------

    def check(self, leaves: Sequence[Any]) -> None:
        """Raise ArgumentError for a leaf that was deleted, or is donated and passed twice."""
        # The common case in one C loop.
        types = set(map(type, leaves))
        if types == _PLAIN:
            deleted = any(map(_DELETED, leaves))
        else:
            deleted = types != _STACKED or any(map(_ANY_DELETED, leaves))
        if deleted:
            self._find_deleted(leaves)
        if not self._donated or len(set(map(id, leaves))) == len(leaves):
            return
        first: dict[int, int] = {}
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, jax.Array | StackedArray):
                continue
            other = first.setdefault(id(leaf), index)
            if other != index and (self.leaves[index].donated or self.leaves[other].donated):
                names = [self.leaves[other].name, self.leaves[index].name]
                raise ArgumentError(
                    f"arguments {names[0]} and {names[1]} are the same array, and it is to be "
                    "donated; copy one of them (jnp.copy) or do not donate it"
                )

    def _find_deleted(self, leaves: Sequence[Any]) -> None:
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array | StackedArray) and leaf.is_deleted():
                raise ArgumentError(
                    f"argument {self.leaves[index].name} was donated in an earlier call (or "
                    "deleted) and holds nothing any more; pass the value that the call returned in "
                    "its place, or do not donate it"
                )

    def _check_addressable(self, index: int, leaf: Any) -> None:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise ArgumentError(
                f"argument {self.leaves[index].name} lies partly on devices of other processes "
                f"({leaf.sharding}); bring it to a device of this process first"
            )


class ResultJoiner:
    """Makes the caller's leaves of a step's results: pieces of a leaf become one, uncopied.

    ``avals`` are those of the leaves.
    """

    def __init__(
        self, program: Program, avals: Sequence[AbstractValue], devices: Sequence[jax.Device]
    ) -> None:
        pieces = program.result_pieces or (None,) * len(program.results)
        places = [devices[program.devices[slot]] for slot in program.results]
        #: Where each leaf lies.
        self.shardings: list[LeafSharding] = []
        #: ``(first result, one after the last, what joins them)`` of those in pieces.
        self._joins: list[tuple[int, int, Any]] = []
        for members, aval in zip(leaf_ranges(pieces), avals, strict=True):
            first, end = members.start, members.stop
            runs = runs_of(pieces[first:end], places[first:end])
            self.shardings.append(
                sharding_of(runs) if runs else SingleDeviceSharding(places[first])
            )
            if runs:
                self._joins.append((first, end, joiner(runs, aval)))

    def join(self, results: list[Any]) -> list[Any]:
        """The leaves; ``results`` itself where none is in pieces."""
        if not self._joins:
            return results
        leaves: list[Any] = []
        done = 0
        for first, end, join in self._joins:
            leaves += results[done:first]
            leaves.append(join(results[first:end]))
            done = end
        leaves += results[done:]
        return leaves


def abstract(leaf: Any) -> Any:
    """The abstract value that tracing would give ``leaf``; that of the whole for a stack."""
    return leaf.aval if type(leaf) is StackedArray else jax.typeof(leaf)


def same_type(found: Any, wanted: Any) -> bool:
    """Whether shape, dtype and weak type agree; where a value lies is not compared."""
    return (
        getattr(found, "shape", None) == getattr(wanted, "shape", None)
        and getattr(found, "dtype", None) == getattr(wanted, "dtype", None)
        and getattr(found, "weak_type", False) == getattr(wanted, "weak_type", False)
    )


def _lies_by(leaf: Any, sharding: LeafSharding) -> bool:
    """Whether the arrays of ``leaf`` are those that ``sharding`` asks for, in its order."""
    if type(leaf) is StackedArray:
        return bool(leaf.sharding == sharding)
    if not isinstance(leaf, jax.Array) or not isinstance(sharding, jax.sharding.Sharding):
        return False
    return leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def _single(leaf: Any, place: LeafSharding) -> Any:
    """One device's copy of an array that each of its devices holds whole, that in place if any."""
    if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) == 1:
        return leaf
    if leaf.is_fully_replicated and type(leaf) is compat.ARRAY_TYPE:
        copies = compat.device_arrays(leaf)
        return next((copy for copy in copies if _lies_by(copy, place)), copies[0])
    return leaf


def _release(leaf: jax.Array, kept: jax.Array | None) -> None:
    """Free the buffers of ``leaf`` but that of ``kept``, which is one of its devices' copies."""
    if kept is None:
        leaf.delete()
        return
    for copy in compat.device_arrays(leaf):
        if copy is not kept:
            copy.delete()
