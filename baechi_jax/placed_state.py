"""One function's placement for another: which leaves of two functions are the same thing.

Evaluation and sampling read the state that a training step placed; initialisation makes it. Their
leaves are matched to the step's arguments as results are matched to arguments
(``ir/match_state.py``), and what that leaves open by name: the longest common end of two paths of
equal shape and dtype. Where several arguments end alike (``params['w']`` and its moments), the
first one counts; they lie together anyway.

A stacked leaf may lie in pieces, by layers; the functions may hold it in different ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import (
    argument_attributes,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.match_state import Leaf, match_state
from baechi_jax.ir.pieces import Piece, argument_pieces, result_pieces
from baechi_jax.ir.pieces import leaves as leaf_ranges
from baechi_jax.passes.registry import Pass
from baechi_jax.passes.tasks import LITERAL

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlacedLayers:
    """Layers ``start`` to ``stop`` (None: all) of a leaf on one device."""

    start: int
    stop: int | None
    device: int


#: Where a leaf lies: its runs of layers, in order.
Layers: TypeAlias = tuple[PlacedLayers, ...]


@dataclass(frozen=True, slots=True)
class PlacedLeaf:
    """An argument of a planned function: its name, shape and dtype, and where it lies."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    layers: Layers


def placed_layers(function: Operation) -> tuple[Layers, ...]:
    """Where each argument of a placed ``@main`` lies, those in pieces as one.

    Raises PassError where one has no device.
    """
    runs: list[PlacedLayers] = []
    pieces = argument_pieces(function)
    for entry, piece in zip(argument_attributes(function), pieces, strict=True):
        place = entry.get("baechi.devices")
        if not isinstance(place, tuple) or len(place) != 1 or not isinstance(place[0], int):
            raise PassError("an argument of the plan has no device (baechi.devices)")
        start, stop = (0, None) if piece is None else (piece.start, piece.stop)
        runs.append(PlacedLayers(start, stop, place[0]))
    return tuple(tuple(runs[index] for index in members) for members in leaf_ranges(pieces))


def device_of_layers(layers: Layers, piece: Piece | None) -> int | None:
    """The device where all layers of ``piece`` (None: the whole leaf) lie; None if on several."""
    devices = {
        run.device
        for run in layers
        if piece is None or run.stop is None or (run.start < piece.stop and piece.start < run.stop)
    }
    return devices.pop() if len(devices) == 1 else None


def misplaced(
    leaves: Sequence[tuple[int, Layers]],
    pieces: Sequence[Piece | None],
    devices: Sequence[int],
) -> list[int]:
    """The leaves whose layers are not where they are wanted: ``(leaf, where its layers lie)``.

    ``pieces[i]`` on ``devices[i]`` is what the leaves consist of. A piece that is wanted on several
    devices may be on any.
    """
    ranges = leaf_ranges(pieces)
    return [
        leaf
        for leaf, layers in leaves
        if any(
            device_of_layers(layers, pieces[index]) not in (None, devices[index])
            for index in ranges[leaf]
        )
    ]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An argument or a result that asks for a place."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def leaves_like(wanted: Sequence[Wanted], known: Sequence[PlacedLeaf]) -> list[PlacedLeaf | None]:
    """For each of ``wanted`` the leaf of ``known`` that it is; None where none is.

    Wanted arguments and wanted results are matched alike: by their names' paths.
    """
    found = match_state(
        [Leaf(_steps(leaf.name), _type(leaf)) for leaf in known],
        [Leaf(_steps(leaf.name), _type(leaf)) for leaf in wanted],
    )
    leaves: list[PlacedLeaf | None] = [None] * len(wanted)
    for source, target in found.items():
        leaves[target] = known[source]
    by_type: dict[Any, list[PlacedLeaf]] = {}
    for placed in known:
        by_type.setdefault(_type(placed), []).append(placed)
    for index, leaf in enumerate(wanted):
        if leaves[index] is None:
            leaves[index] = _by_suffix(leaf, by_type.get(_type(leaf), ()))
    return leaves


def _by_suffix(wanted: Wanted, candidates: Sequence[PlacedLeaf]) -> PlacedLeaf | None:
    steps = _steps(wanted.name)
    best: PlacedLeaf | None = None
    length = 0
    for candidate in candidates:
        common = _common_end(steps, _steps(candidate.name))
        if common > length:
            best, length = candidate, common
    return best


def _common_end(one: Sequence[object], other: Sequence[object]) -> int:
    count = 0
    named = 0
    for a, b in zip(reversed(one), reversed(other)):
        if a != b:
            break
        count += 1
        if isinstance(a, str):
            named = count
    # A bare position says nothing: f(x)[0] and g(y)[0] are not the same thing.
    return count if named else 0


def _steps(name: str) -> tuple[str | int, ...]:
    """``state.params['w'][0]`` as ``("state", "params", "w", 0)``; a result's root says nothing."""
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^\[\].'\"]+", name)]
    return tuple(steps[1:] if steps and steps[0] == "result" else steps)


def _type(leaf: PlacedLeaf | Wanted) -> tuple[tuple[int, ...], str]:
    return (leaf.shape, str(leaf.dtype))


# Pins --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PinArguments(Pass):
    """Pin arguments of ``@main``: ``(leaf, where its layers lie)``, closed-over constants counted.

    A leaf that is in pieces here is pinned piece by piece. One that is read whole here and lies on
    several devices stays free: each call brings it together.
    """

    name: ClassVar[str] = "pin-arguments"
    summary: ClassVar[str] = "keep arguments on given devices"

    leaves: tuple[tuple[int, Layers], ...]

    def run(self, module: Module) -> None:
        """Set ``baechi.pin`` in ``arg_attrs``."""
        func = module.main
        entries = argument_attributes(func)
        pieces = argument_pieces(func)
        ranges = leaf_ranges(pieces)
        scattered: list[str] = []
        for leaf, layers in self.leaves:
            for index in ranges[leaf]:
                device = device_of_layers(layers, pieces[index])
                if device is not None:
                    entries[index]["baechi.pin"] = (device,)
                else:
                    scattered.append(str(entries[index].get("baechi.name", index)))
        if scattered:
            _log.warning(
                "arguments that lie on several devices and are read whole here, so that each call "
                "brings their layers together on one: %s",
                ", ".join(scattered),
            )
        set_argument_attributes(func, entries)


@dataclass(frozen=True, slots=True)
class PinResults(Pass):
    """Make results where they are wanted: ``(result, where its layers lie)``.

    What computes one is pinned there, and what only such ops read: an initialiser's array is made
    where it will stay, from its first random bits on. An op that results on several devices need
    stays free; ``baechi.devices`` in ``res_attrs`` lets the runtime move what it gives.
    """

    name: ClassVar[str] = "pin-results"
    summary: ClassVar[str] = "make results on given devices"

    leaves: tuple[tuple[int, Layers], ...]

    def run(self, module: Module) -> None:
        """Set ``baechi.pin`` on ops of ``@main``, ``baechi.devices`` on its results."""
        func = module.main
        block = func.body
        wanted: dict[Operation, set[int]] = {}
        targets: dict[int, int] = {}
        pieces = result_pieces(func)
        ranges = leaf_ranges(pieces)
        for leaf, layers in self.leaves:
            for index in ranges[leaf]:
                device = device_of_layers(layers, pieces[index])
                if device is not None:
                    targets[index] = device
        entries = result_attributes(func)
        for index, device in targets.items():
            entries[index]["baechi.devices"] = (device,)
        set_result_attributes(func, entries)
        for index, value in enumerate(block.terminator.operands):
            owner = value.defining_op
            if owner is not None:
                # A result without a place counts as one on a device that is none.
                wanted.setdefault(owner, set()).add(targets.get(index, -1))
        for op in reversed(block.ops[:-1]):
            if op.name == LITERAL:
                # Literals belong to nobody: each task gets its own copy.
                continue
            if op.name == "baechi.literal":
                continue
            places = wanted.get(op, set())
            if len(places) == 1 and -1 not in places:
                op.attributes.setdefault("baechi.pin", tuple(places))
            pin = op.attributes.get("baechi.pin")
            place = pin[0] if isinstance(pin, tuple) and isinstance(pin[0], int) else -1
            for value in _all_operands(op):
                owner = value.defining_op
                if owner is not None and owner.parent is block:
                    wanted.setdefault(owner, set()).add(place)


def _all_operands(op: Operation) -> Iterator[Value]:
    for inner in op.walk():
        yield from inner.operands
