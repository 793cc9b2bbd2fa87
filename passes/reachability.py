"""Which nodes of a DAG lead to which, kept up to date while nodes are joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set


class Reachability:
    """One bit per node in Python integers: a test is one ``and``.

    Joining two of n nodes touches at most n integers, so all merges of a graph of some hundred
    tasks take milliseconds.
    """

    def __init__(self, successors: Sequence[Set[int]], order: Iterable[int]) -> None:
        """``order``: all nodes, each after those that lead to it."""
        size = len(successors)
        nodes = list(order)
        self._members = [1 << node for node in range(size)]
        self._after = [0] * size
        self._before = [0] * size
        for node in reversed(nodes):
            for reader in successors[node]:
                self._after[node] |= self._after[reader] | 1 << reader
        for node in nodes:
            for reader in successors[node]:
                self._before[reader] |= self._before[node] | 1 << node

    def may_join(self, left: int, right: int) -> bool:
        """Whether no path leads from one to the other through a third."""
        own = self._members[left] | self._members[right]
        between = self._after[left] & self._before[right] | self._after[right] & self._before[left]
        return not between & ~own

    def join(self, left: int, right: int) -> None:
        """Make ``left`` and ``right`` one; both indices then stand for it."""
        own = self._members[left] | self._members[right]
        after = (self._after[left] | self._after[right]) & ~own
        before = (self._before[left] | self._before[right]) & ~own
        for node in _bits(own):
            self._members[node], self._after[node], self._before[node] = own, after, before
        for node in _bits(before):
            self._after[node] |= own | after
        for node in _bits(after):
            self._before[node] |= own | before


def _bits(mask: int) -> list[int]:
    result: list[int] = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result
