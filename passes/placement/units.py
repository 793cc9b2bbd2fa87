"""Which groups are placed together with a group.

The device of an argument matters to those that read it, so a group of arguments that nobody has
placed yet goes along with the first group that reads one of them, wherever it is free to.
"""

from __future__ import annotations

from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.problem import PlacementProblem


class Units:
    """Closures of groups under 'its arguments come along', for the state of one ledger."""

    def __init__(self, problem: PlacementProblem, profiles: Profiles, ledger: Ledger) -> None:
        self.problem = problem
        self.profiles = profiles
        self.ledger = ledger
        is_argument = problem.lists.is_argument
        #: Groups of arguments only that some task reads.
        self.only_arguments = [
            all(is_argument[node] for node in members)
            and bool(profiles.outgoing[group])
            and problem.pinned[group] < 0
            for group, members in enumerate(problem.members)
        ]

    def waits(self, group: int) -> bool:
        """Whether ``group`` is placed along with its first reader, not by itself."""
        return self.only_arguments[group]

    def of(self, group: int) -> list[int]:
        """``group``, and the unplaced groups that own its arguments and may go where it may."""
        device = self.ledger.device
        allowed = self.problem.allowed
        own = set(allowed[group])
        return [
            group,
            *(
                other
                for other in self.profiles.argument_groups[group]
                if device[other] < 0 and own.issubset(allowed[other])
            ),
        ]

    def place_rest(self) -> int:
        """Place what nobody has asked for where the most memory is free; how many overflow it."""
        ledger = self.ledger
        overflows = 0
        for group in range(self.problem.groups):
            if ledger.device[group] < 0:
                best = min(
                    self.problem.allowed[group], key=lambda d: (ledger.excess([group], d), d)
                )
                overflows += ledger.excess([group], best) > 0
                ledger.place(group, best)
        return overflows
