"""Who goes first on a free device.

Longest way to the end first makes short steps, but lets whatever is not urgent (updates) wait with
its operands in memory. Program order, which is that of the placer's simulation, frees memory soon.
What lies between them trades one for the other.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Shares of urgency, from the shortest step to the least memory.
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)


def blended(ranks: Sequence[float], position: Sequence[int], share: float) -> list[float]:
    """Priorities (less goes first): places by descending rank and by program, weighted.

    ``ranks``: seconds from the start of each node to the end of the step along its longest way.
    """
    if share == 1.0:
        return [-rank for rank in ranks]
    place = [0] * len(ranks)
    for index, node in enumerate(sorted(range(len(ranks)), key=lambda n: (-ranks[n], position[n]))):
        place[node] = index
    return [share * urgent + (1.0 - share) * early for urgent, early in zip(place, position)]
