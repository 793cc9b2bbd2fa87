"""Placements that need no search: one device, and the user's pins (``expert``)."""

from __future__ import annotations

from heapq import heappop, heappush

from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.placement import Placement, expand
from baechi_jax.passes.placement.problem import PlacementProblem


def single(problem: PlacementProblem, device: int) -> Placement:
    """Everything on ``device``, but for groups that are pinned elsewhere or cannot run there."""
    chosen = [device if device in allowed else allowed[0] for allowed in problem.allowed]
    elsewhere = sum(each != device for each in chosen)
    notes = (f"{elsewhere} groups must be on other devices",) if elsewhere else ()
    return Placement(f"single:{device}", expand(problem, chosen), status="one device", notes=notes)


def expert(problem: PlacementProblem) -> Placement:
    """The user's pins; a group without one follows the neighbour it shares most bytes with.

    Neighbours of pinned groups come first, then their neighbours, so that every group ends with the
    pin that it hangs on by the thickest path. Groups that hang on no pin go to the first device
    that they may go to. Raises PlacerError when nothing is pinned.
    """
    if problem.groups and not (problem.pinned >= 0).any():
        raise PlacerError(
            "placer 'expert' places by the user's pins, and nothing is pinned; pin parts of the "
            'function with jax.named_scope("baechi.device:1"), or use another placer'
        )
    neighbours = group_edges(problem)
    device = problem.pinned.tolist()
    # Thickest edge first; ties by group index.
    heap: list[tuple[int, int, int]] = []
    for group, pin in enumerate(device):
        if pin >= 0:
            for other, nbytes in neighbours[group].items():
                heappush(heap, (-nbytes, other, pin))
    followed = 0
    while heap:
        _, group, pin = heappop(heap)
        if device[group] >= 0 or pin not in problem.allowed[group]:
            continue
        device[group] = pin
        followed += 1
        for other, nbytes in neighbours[group].items():
            if device[other] < 0:
                heappush(heap, (-nbytes, other, pin))
    alone = [group for group in range(problem.groups) if device[group] < 0]
    for group in alone:
        device[group] = problem.allowed[group][0]
    notes: list[str] = []
    if followed:
        notes.append(f"{followed} groups without a pin follow the group they share most bytes with")
    if alone:
        notes.append(
            f"{len(alone)} groups hang on no pin, among them {problem.describe_group(alone[0])}; "
            "they are on the first device that they may go to"
        )
    return Placement("expert", expand(problem, device), status="pins", notes=tuple(notes))


def group_edges(problem: PlacementProblem) -> list[dict[int, int]]:
    """For each group, bytes that flow between it and each neighbour, both ways."""
    lists = problem.lists
    edges: list[dict[int, int]] = [{} for _ in range(problem.groups)]
    for tensor, node in enumerate(lists.producer):
        own = lists.group[node]
        for other in dict.fromkeys(lists.group[reader] for reader in lists.readers[tensor]):
            if other != own:
                nbytes = lists.tensor_bytes[tensor]
                edges[own][other] = edges[own].get(other, 0) + nbytes
                edges[other][own] = edges[other].get(own, 0) + nbytes
    return edges
