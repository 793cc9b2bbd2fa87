"""How much work a placer may do, and where it starts.

Two limits, either of which ends the work. ``steps`` counts units that a placer defines (rounds of a
search, solves of a portfolio): with the same input, seed and steps, and no limit in seconds, the
output is the same on any machine. ``seconds`` is wall-clock time: how far a search gets within it
depends on the machine and on what else runs there, so two runs may differ, though each is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.clock import now

if TYPE_CHECKING:
    from baechi_jax.passes.placement.split import Split


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """Limits, seed and start of one run of a placer."""

    #: Wall-clock seconds from the call of the placer on; infinite for none.
    seconds: float = float("inf")
    seed: int = 0
    #: Units of work; None for the placer's own number.
    steps: int | None = None
    #: A valid split that the placer may improve, and never returns anything worse than.
    start: Split | None = None

    def deadline(self) -> float:
        """The reading of ``clock.now`` at which the seconds are over, if they begin now."""
        return now() + self.seconds

    def until(self, deadline: float, start: Split | None = None) -> Budget:
        """What is left of the budget before ``deadline``; ``start`` replaces the start if given."""
        left = max(0.0, deadline - now())
        return replace(self, seconds=left, start=self.start if start is None else start)
