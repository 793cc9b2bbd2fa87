"""Bringing a step's arguments to where its plan wants them.

In the steady state every argument is the result of the step before and lies in place: one pass that
compares two references per leaf finds that out. What lies elsewhere (a new batch, a checkpoint, a
NumPy array) is moved leaf by leaf, straight to its device, never over a third one. The source of a
donated leaf is freed once every leaf has arrived, so that an error on the way leaves all arguments
as they were.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import SingleDeviceSharding

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.runtime.errors import ArgumentError
from baechi_jax.runtime.instructions import Argument

if TYPE_CHECKING:
    from jax.core import AbstractValue

#: What is looked at in every leaf in every call, as functions that ``map`` runs without Python.
_PLAIN = {compat.ARRAY_TYPE}
_AVAL = operator.attrgetter("aval")
_SHARDING = operator.attrgetter(compat.SHARDING_ATTRIBUTE)
_DELETED = compat.ARRAY_TYPE.is_deleted


class ArgumentPlacer:
    """Checks and moves the leaves of one call signature.

    ``arguments[i]`` says where leaf ``i`` belongs and ``avals[i]`` what it must be.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        avals: Sequence[AbstractValue],
        devices: Sequence[jax.Device],
    ) -> None:
        self.arguments = tuple(arguments)
        self.avals = tuple(avals)
        self.shardings = tuple(SingleDeviceSharding(devices[a.device]) for a in self.arguments)
        #: What a leaf in its place looked like last: the references to compare with.
        self._seen_avals: list[Any] = list(self.avals)
        self._seen_shardings: list[Any] = list(self.shardings)
        self._donated = [index for index, a in enumerate(self.arguments) if a.donated]

    def pending(self, leaves: Sequence[Any]) -> list[int] | None:
        """Indices of the leaves that must be moved; None when one is of another type.

        Cheap when all lie where they lay the last time: lists compare by reference first.
        """
        if set(map(type, leaves)) == _PLAIN:
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
                f"argument {self.arguments[index].name} is a shape, not an array; shapes are for "
                "plan, trace and lower"
            )
        try:
            aval = abstract(leaf)
        except TypeError:
            return None
        if not same_type(aval, self.avals[index]):
            return None
        if not isinstance(leaf, jax.Array) or not _lies_on(leaf, self.shardings[index]):
            return False
        if type(leaf) is compat.ARRAY_TYPE:
            self._seen_avals[index] = leaf.aval
            self._seen_shardings[index] = leaf.sharding
        return True

    def place(self, leaves: Sequence[Any], pending: Sequence[int]) -> tuple[list[Any], list[str]]:
        """The leaves, those in ``pending`` moved, and the names of donated ones freed at home.

        Raises ArgumentError, before anything is freed, for a leaf that was deleted (given away in
        an earlier call), that is donated and passed twice, or that other processes hold a part of.
        """
        self._check_live(leaves)
        placed = list(leaves)
        if not pending:
            return placed, []
        for index in pending:
            self._check_addressable(index, leaves[index])
        sources = [_single(leaves[index]) for index in pending]
        targets = [self.shardings[index] for index in pending]
        moved = jax.device_put(sources, targets)
        lost: list[str] = []
        for index, array in zip(pending, moved, strict=True):
            placed[index] = array
        for index in pending:
            leaf = leaves[index]
            if self.arguments[index].donated and isinstance(leaf, jax.Array):
                leaf.delete()
                lost.append(self.arguments[index].name)
        return placed, lost

    # Checks -----------------------------------------------------------------------------------

    def _check_live(self, leaves: Sequence[Any]) -> None:
        # The common case in one C loop.
        if set(map(type, leaves)) != _PLAIN or any(map(_DELETED, leaves)):
            self._find_deleted(leaves)
        if not self._donated or len(set(map(id, leaves))) == len(leaves):
            return
        first: dict[int, int] = {}
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, jax.Array):
                continue
            other = first.setdefault(id(leaf), index)
            if other != index and (self.arguments[index].donated or self.arguments[other].donated):
                names = [self.arguments[other].name, self.arguments[index].name]
                raise ArgumentError(
                    f"arguments {names[0]} and {names[1]} are the same array, and it is to be "
                    "donated; copy one of them (jnp.copy) or do not donate it"
                )

    def _find_deleted(self, leaves: Sequence[Any]) -> None:
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array) and leaf.is_deleted():
                raise ArgumentError(
                    f"argument {self.arguments[index].name} was donated in an earlier call (or "
                    "deleted) and holds nothing any more; pass the value that the call returned in "
                    "its place, or do not donate it"
                )

    def _check_addressable(self, index: int, leaf: Any) -> None:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise ArgumentError(
                f"argument {self.arguments[index].name} lies partly on devices of other processes "
                f"({leaf.sharding}); bring it to a device of this process first"
            )


def abstract(leaf: Any) -> Any:
    """The abstract value that tracing would give ``leaf``."""
    return jax.typeof(leaf)


def same_type(found: Any, wanted: Any) -> bool:
    """Whether shape, dtype and weak type agree; where a value lies is not compared."""
    return (
        getattr(found, "shape", None) == getattr(wanted, "shape", None)
        and getattr(found, "dtype", None) == getattr(wanted, "dtype", None)
        and getattr(found, "weak_type", False) == getattr(wanted, "weak_type", False)
    )


def _lies_on(array: jax.Array, sharding: SingleDeviceSharding) -> bool:
    return array.sharding.is_equivalent_to(sharding, array.ndim)


def _single(leaf: Any) -> Any:
    """One device's copy of an array that every one of its devices holds whole."""
    if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) == 1:
        return leaf
    if leaf.is_fully_replicated and type(leaf) is compat.ARRAY_TYPE:
        return leaf.addressable_shards[0].data
    return leaf
