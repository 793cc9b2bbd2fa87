"""What a placer gives back, and how groups become an assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Placement:
    """A device for each node.

    ``status`` says how it came about (``"heuristic"``, ``"optimal"``, ``"time limit"``, ...).
    ``bound_seconds`` is a lower bound on the makespan that the placer proved, or 0.
    ``objective_seconds`` is the placer's own estimate of the makespan, or 0 where it makes none.
    ``overflows`` counts the groups that it could place only above a limit.
    """

    placer: str
    assignment: tuple[int, ...]
    status: str = "heuristic"
    bound_seconds: float = 0.0
    objective_seconds: float = 0.0
    overflows: int = 0
    #: Sentences for the user.
    notes: tuple[str, ...] = ()


def expand(problem: PlacementProblem, device_of_group: Sequence[int]) -> tuple[int, ...]:
    """The assignment of nodes that a device per group gives."""
    return tuple(map(device_of_group.__getitem__, problem.group.tolist()))
