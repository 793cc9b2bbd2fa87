"""How a plan holds the stacks of a scan's layers: whole, in even pieces, or layer by layer.

Layer by layer gives a placer the most freedom. But a stack with one piece on each device, all of
one size, is an ordinary array over a mesh between steps, its layers stay a loop, and there is less
to compile; a stack that ends whole on one device needs no pieces at all. So the plan that was made
layer by layer is made again in these forms, and the simpler one is kept where it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from baechi_jax.ir.core import Module
from baechi_jax.ir.pieces import argument_pieces
from baechi_jax.passes.pipeline import parse_pipeline, print_pipeline
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.plan_figures import step_seconds, used_devices
from baechi_jax.passes.unroll_scans import UnrollScans
from baechi_jax.placed_state import Layers, placed_layers

#: How much longer the predicted step may be when stacks become ordinary arrays by it: no more than
#: predictions are off.
LONGER = 1.05


class HasModule(Protocol):
    """What was planned."""

    @property
    def module(self) -> Module:
        """The plan."""
        ...


_Planned = TypeVar("_Planned", bound=HasModule)


def plan_stacks(
    attempt: Callable[[str], _Planned], pipeline: str, devices: int, pinned: Sequence[Layers]
) -> _Planned:
    """The plan with the simplest stacks; ``attempt`` plans by a pipeline's text.

    ``pinned``: where the layers of arguments lie already; they stay in the pieces that they are in.
    Raises what ``attempt`` raises for ``pipeline`` itself.
    """
    spread = [layers for layers in pinned if len(layers) > 1]
    if spread:
        found = _in_pieces(attempt, pipeline, _pieces_of(spread))
        return attempt(pipeline) if found is None else found
    planned = attempt(pipeline)
    if not any(argument_pieces(planned.module.main)):
        return planned
    if len(used_devices(planned.module)) == 1:
        whole = _try(attempt, _without_unrolling(pipeline))
        return planned if whole is None or len(used_devices(whole.module)) > 1 else whole
    limit, uneven = LONGER * step_seconds(planned.module), _uneven(planned.module)
    if not uneven:
        return planned
    for count in _piece_counts(planned.module, devices):
        found = _in_pieces(attempt, pipeline, count)
        if (
            found is not None
            and _uneven(found.module) < uneven
            and step_seconds(found.module) <= limit
        ):
            return found
    return planned


def _in_pieces(attempt: Callable[[str], _Planned], pipeline: str, count: int) -> _Planned | None:
    """The plan with stacks in ``count`` even pieces; None where there is none.

    Each piece is a loop over its layers; where that does not fit, layers one by one, whose
    gradients need not all live at once.
    """
    if not count:
        return None
    found = _try(attempt, _with_pieces(pipeline, count, inline=False))
    return _try(attempt, _with_pieces(pipeline, count, inline=True)) if found is None else found


def _try(attempt: Callable[[str], _Planned], pipeline: str | None) -> _Planned | None:
    """The plan by ``pipeline``; None where there is none, or nothing fits."""
    if pipeline is None:
        return None
    try:
        return attempt(pipeline)
    except InfeasiblePlacementError:
        return None


# Pipelines ---------------------------------------------------------------------------------------


def _without_unrolling(pipeline: str) -> str | None:
    """The pipeline without ``unroll-scans``; None where it has none, or was told what to take."""
    passes = parse_pipeline(pipeline)
    kept = [
        each
        for each in passes
        if not (isinstance(each, UnrollScans) and each.when == "auto" and not each.arguments)
    ]
    return print_pipeline(kept) if len(kept) < len(passes) else None


def _with_pieces(pipeline: str, count: int, *, inline: bool) -> str | None:
    """The pipeline with scans in ``count`` pieces; None where it says already how to cut them."""
    passes = list(parse_pipeline(pipeline))
    cut = [
        replace(each, pieces=count, inline=inline)
        if isinstance(each, UnrollScans) and _undecided(each)
        else each
        for each in passes
    ]
    return print_pipeline(cut) if cut != passes else None


def _undecided(unroll: UnrollScans) -> bool:
    return (unroll.iterations, unroll.pieces, unroll.inline) == (1, 0, False)


# Stacks ------------------------------------------------------------------------------------------


def _piece_counts(module: Module, devices: int) -> Iterator[int]:
    """Counts of even pieces that are worth a try: one for each device, or for each that is used."""
    lengths = {piece.length for piece in argument_pieces(module.main) if piece is not None}
    for count in dict.fromkeys((devices, len(used_devices(module)))):
        if count > 1 and any(length > count and length % count == 0 for length in lengths):
            yield count


def _uneven(module: Module) -> int:
    """How many arguments lie on devices as no array over a mesh can."""
    return sum(not _is_even(each) for each in placed_layers(module.main) if len(each) > 1)


def _is_even(layers: Layers) -> bool:
    """Whether runs are of one size, each on a device of its own."""
    sizes = {0 if run.stop is None else run.stop - run.start for run in layers}
    return len(sizes) == 1 and len({run.device for run in layers}) == len(layers)


def _pieces_of(spread: Sequence[Layers]) -> int:
    """The count of even pieces that ``spread`` stacks are in; 0 where they are in others."""
    counts = {len(layers) for layers in spread if _is_even(layers)}
    if len(counts) != 1:
        return 0
    (count,) = counts
    others = [layers for layers in spread if not _is_even(layers)]
    return 0 if any(_rows(layers) % count == 0 for layers in others) else count


def _rows(layers: Layers) -> int:
    stop = layers[-1].stop
    return 0 if stop is None else stop
