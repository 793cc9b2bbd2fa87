"""Fewer nodes for a list scheduler: nodes of one group that follow one another become one.

Baechi's fusion: nodes u and v of one group are joined when v reads u and v is all that follows u,
or u is all that comes before v. There is no other way from u to v then, so no cycle comes about.
What list schedulers gain, beyond time, is sight: a group's first node places the whole group, and
where that is a constant or a cast that is ready early, it says nothing of where the group should
be. A joined node is ready when everything that any of its nodes reads is there.

Memory is not looked at here: schedulers keep their books on the groups of the problem as it was,
so nothing that fusion hides can pass a limit unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Fused:
    """``problem`` has the groups of ``original``; its node ``i`` stands for ``members[i]``."""

    original: PlacementProblem
    problem: PlacementProblem
    members: tuple[tuple[int, ...], ...]


def fuse_groups(problem: PlacementProblem) -> Fused:
    """Join what can be joined; arguments stay as they are."""
    if problem.groups == problem.nodes:
        return Fused(problem, problem, tuple((node,) for node in range(problem.nodes)))
    return _rebuild(problem, _join(problem))


def _join(problem: PlacementProblem) -> list[int]:
    """The node that stands for each node."""
    lists = problem.lists
    nodes = problem.nodes
    after: list[dict[int, None]] = [{} for _ in range(nodes)]
    before: list[dict[int, None]] = [{} for _ in range(nodes)]
    for tensor, source in enumerate(lists.producer):
        for reader in lists.readers[tensor]:
            after[source][reader] = None
            before[reader][source] = None
    into = list(range(nodes))

    def find(node: int) -> int:
        while into[node] != node:
            into[node] = into[into[node]]
            node = into[node]
        return node

    todo = [node for node in reversed(problem.order) if not lists.is_argument[node]]
    while todo:
        node = find(todo.pop())
        for reader in after[node]:
            if lists.group[reader] != lists.group[node]:
                continue
            if len(after[node]) == 1 or len(before[reader]) == 1:
                _merge(node, reader, after, before, into)
                # Neighbours may have become alone with it.
                todo.extend(
                    each
                    for each in (*before[node], node)
                    if lists.group[each] == lists.group[node] and not lists.is_argument[each]
                )
                break
    return [find(node) for node in range(nodes)]


def _merge(
    node: int,
    reader: int,
    after: list[dict[int, None]],
    before: list[dict[int, None]],
    into: list[int],
) -> None:
    """``reader`` becomes part of ``node``."""
    into[reader] = node
    del after[node][reader]
    for each in before[reader]:
        if each != node:
            del after[each][reader]
            after[each][node] = None
            before[node][each] = None
    for each in after[reader]:
        del before[each][reader]
        before[each][node] = None
        after[node][each] = None
    before[reader].clear()
    after[reader].clear()


def _rebuild(problem: PlacementProblem, stands: list[int]) -> Fused:
    from baechi_jax.passes.placement.problem import PlacementProblem

    flat = problem.flat
    kept, index = np.unique(np.asarray(stands, dtype=np.int64), return_inverse=True)
    count = len(kept)
    seconds = np.zeros((count, problem.devices))
    np.add.at(seconds, index, problem.seconds)
    temporary = np.zeros(count, dtype=np.int64)
    np.maximum.at(temporary, index, problem.temporary_bytes)
    tensor = np.repeat(np.arange(problem.tensors), np.diff(flat.reader_starts))
    source, reader = index[problem.producer[tensor]], index[flat.readers]
    outside = source != reader
    pairs = np.unique(tensor[outside] * count + reader[outside])
    tensors, readers = np.divmod(pairs, max(1, count))
    starts = np.zeros(problem.tensors + 1, dtype=np.int64)
    np.cumsum(np.bincount(tensors, minlength=problem.tensors), out=starts[1:])
    members: list[list[int]] = [[] for _ in range(count)]
    for node, place in enumerate(index.tolist()):
        members[place].append(node)
    fused = PlacementProblem(
        machine=problem.machine,
        seconds=seconds,
        temporary_bytes=temporary,
        is_argument=problem.is_argument[kept],
        tensor_bytes=problem.tensor_bytes,
        producer=index[problem.producer],
        reader_starts=starts,
        readers=readers,
        persistent=problem.persistent,
        alias=problem.alias,
        group=problem.group[kept],
        pinned=problem.pinned,
        group_names=problem.group_names,
        node_names=tuple(problem.node_names[node] for node in kept.tolist()),
        node_sources=tuple(problem.node_sources[node] for node in kept.tolist()),
    )
    return Fused(problem, fused, tuple(map(tuple, members)))
