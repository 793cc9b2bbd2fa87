"""Which nodes XLA's CPU compiler gives to its kernel library (YNNPACK) as one fusion.

A large sum or maximum of floats starts a fusion. It takes in what it reads, where nobody else reads
that, and what reads it, as long as that is the only reader; both again and again. The rules are
those of ``xla/backends/cpu/transforms/library_rewriter.cc`` and ``ynn_matcher.h``.

For memory it matters twice: what is inside is never written out, and what such a fusion reads from
outside must be, since it computes nothing again that others read too.
"""

from __future__ import annotations

from collections import deque

from baechi_jax.passes.cost.lowering import Lowered
from baechi_jax.passes.cost.primitives import BITCAST, BROADCAST, REDUCE

#: Elementwise operations that the library has, for floats.
_ELEMENTWISE = frozenset(
    f"jax.{name}"
    for name in (
        "abs add add_any ceil convert_element_type cos div erf exp expm1 floor integer_pow log "
        "log1p logistic max min mul neg pow round rsqrt sign sin sqrt square sub tan tanh"
    ).split()
)

_REDUCTIONS = frozenset({"jax.reduce_sum", "jax.reduce_max", "jax.reduce_min"})

_WINDOWS = frozenset({"jax.reduce_window_max", "jax.reduce_window_min", "jax.reduce_window_sum"})

#: The library is asked only for operations that touch this many elements.
_ELEMENTS = 4096


class LibraryFusions:
    """``start[n]``: the node that started the fusion in which node n is, or -1; ``end``: its last.

    ``end`` maps the starting node to the node whose result the fusion gives.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.start = [-1] * len(lowered.kinds)
        self.end: dict[int, int] = {}
        self._kept = set(lowered.outputs)
        for node in range(len(lowered.kinds) - 1, -1, -1):
            if self.start[node] < 0 and self._is_reduction(node) and self._supported(node):
                self._grow(node)

    def _is_reduction(self, node: int) -> bool:
        op = self.lowered.ops[node]
        if op is None:
            return False
        if op.name in _WINDOWS:
            # Windows that do not overlap.
            sizes, strides = (op.attributes.get(k) for k in ("window_dimensions", "window_strides"))
            return sizes == strides
        return self.lowered.kinds[node] is REDUCE and op.name in _REDUCTIONS

    def _supported(self, node: int) -> bool:
        lowered = self.lowered
        writes = lowered.writes[node]
        if len(writes) != 1 or not lowered.floats[writes[0]]:
            return False
        kind = lowered.kinds[node]
        if kind is BITCAST:
            return True
        if kind is BROADCAST:
            return len(lowered.reads[node]) == 1
        op = lowered.ops[node]
        if op is None:
            return False
        elements, floats = lowered.elements, lowered.floats
        large = elements[writes[0]] >= _ELEMENTS
        for value in lowered.reads[node]:
            if value >= 0:
                if not floats[value]:
                    return False
                large = large or elements[value] >= _ELEMENTS
        return large and (
            op.name in _ELEMENTWISE or node in lowered.plain_dots or self._is_reduction(node)
        )

    def _grow(self, first: int) -> None:
        lowered, start = self.lowered, self.start
        start[first] = first
        root = first
        members = [first]
        grown = True
        # Taking in a reader may make the fusion the only reader of something: look again.
        while grown:
            grown = False
            seen: set[int] = set()
            frontier: deque[tuple[int, bool]] = deque()
            for member in members:
                self._above(member, first, seen, frontier)
            self._below(root, seen, frontier)
            while frontier:
                node, above = frontier.popleft()
                if start[node] >= 0 or not self._supported(node):
                    continue
                start[node] = first
                members.append(node)
                grown = True
                if above:
                    self._above(node, first, seen, frontier)
                else:
                    root = node
                    self._below(node, seen, frontier)
        self.end[first] = root
        assert lowered.writes[root]

    def _above(
        self, node: int, first: int, seen: set[int], frontier: deque[tuple[int, bool]]
    ) -> None:
        """What ``node`` reads and nobody outside the fusion does."""
        lowered, start = self.lowered, self.start
        for value in lowered.reads[node]:
            if value < 0 or value in self._kept:
                continue
            source = lowered.producer[value]
            if source < 0 or start[source] >= 0 or source in seen:
                continue
            if all(start[reader] == first for reader in lowered.readers[value]):
                seen.add(source)
                frontier.append((source, True))

    def _below(self, node: int, seen: set[int], frontier: deque[tuple[int, bool]]) -> None:
        """The only reader of ``node``."""
        value = self.lowered.writes[node][0]
        readers = self.lowered.readers[value]
        if value in self._kept or len(readers) != 1:
            return
        reader = readers[0]
        if self.start[reader] < 0 and reader not in seen:
            seen.add(reader)
            frontier.append((reader, False))
