"""Where to cut the forward operations, in program order, into segments.

Segments should weigh about the same, be cut where little data passes from one to the next, keep
together what must share a device, and repeat where the program repeats: layers cut at the same
places give tasks of the same structure, which are lowered once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` times the same ``period`` operations, from position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The position after the last repetition."""
        return self.start + self.period * self.count


def find_repeat(keys: Sequence[Hashable]) -> Repeat | None:
    """The repetition that covers most of ``keys``, shortest period first; None without one.

    Periods are guessed from the distances between equal keys, most frequent first.
    """
    last: dict[Hashable, int] = {}
    distances: Counter[int] = Counter()
    for position, key in enumerate(keys):
        if key in last:
            distances[position - last[key]] += 1
        last[key] = position
    # Every repeated period shows as often as it has operations; small distances are noise.
    guesses = sorted(distances.items(), key=lambda item: (-item[0] * item[1], item[0]))[:8]
    best: Repeat | None = None
    for period, _ in sorted(guesses):
        start = run = 0
        for position in range(len(keys) - period + 1):
            if position < len(keys) - period and keys[position] == keys[position + period]:
                run += 1
                continue
            if run >= period:
                found = Repeat(start, period, run // period + 1)
                if best is None or found.end - found.start > best.end - best.start:
                    best = found
            start, run = position + 1, 0
    return best


class Cutter:
    """Cuts of one sequence, for any number of segments.

    ``weights[p]``: of operation p. ``resistance[p]``: how bad a cut before operation p is, from 0
    (nothing passes) upwards.
    """

    def __init__(
        self, weights: Sequence[float], resistance: Sequence[float], repeat: Repeat | None
    ) -> None:
        self.before = [0.0, *accumulate(weights)]
        self.resistance = resistance
        self.repeat = repeat
        self.size = len(weights)

    def cuts(self, segments: int) -> list[int]:
        """Ascending positions at which a segment starts, the first one (0) left out."""
        total = self.before[-1]
        if segments < 2 or self.size < 2 or total <= 0:
            return []
        repeat = self.repeat
        if repeat is None:
            return self._between(0, self.size, segments)
        # Shift the repetition so that it starts where a cut resists least.
        last = repeat.count - 1
        starts = range(repeat.start, repeat.start + repeat.period)
        start = min(starts, key=lambda p: (self._mean(p, repeat, last), p))
        count = repeat.count if start == repeat.start else last
        end = start + count * repeat.period
        share = segments * (self.before[end] - self.before[start]) / total / count
        cuts = self._part(0, start, segments)
        if share < 0.75:
            each = max(1, round(1 / share))
            inner = [start + j * repeat.period for j in range(each, count, each)]
        else:
            inside = self._between(start, start + repeat.period, max(1, round(share)))
            inner = []
            for j in range(count):
                if j:
                    inner.append(start + j * repeat.period)
                inner += [p + j * repeat.period for p in inside]
        weight = total / segments
        if start and self.before[start] >= 0.5 * weight:
            cuts.append(start)
        cuts += inner
        if end < self.size and total - self.before[end] >= 0.5 * weight:
            cuts.append(end)
        return cuts + self._part(end, self.size, segments)

    def _mean(self, position: int, repeat: Repeat, times: int) -> float:
        places = [position + j * repeat.period for j in range(times + 1)]
        return sum(self.resistance[p] for p in places if 0 < p < self.size) / (times + 1)

    def _part(self, start: int, end: int, segments: int) -> list[int]:
        share = segments * (self.before[end] - self.before[start]) / self.before[-1]
        return self._between(start, end, round(share))

    def _between(self, start: int, end: int, segments: int) -> list[int]:
        """Cut ``start .. end`` into at most ``segments`` parts, one after another: each at the
        least resistance where the part weighs 0.6 to 1.4 of a share.

        A share is an equal part, also where an operation that weighs more leaves less for others:
        smaller parts would be cut from what XLA fuses.
        """
        cuts: list[int] = []
        before = self.before
        equal = (before[end] - before[start]) / max(1, segments)
        while segments > 1:
            share = max(equal, (before[end] - before[start]) / segments)
            wanted = before[start] + share
            best: tuple[float, int] | None = None
            first = 0
            for position in range(start + 1, end):
                weight = before[position] - before[start]
                if weight < 0.6 * share:
                    continue
                first = first or position
                if weight > 1.4 * share and best is not None:
                    break
                away = abs(before[position] - wanted) / share
                rank = (self.resistance[position] + 0.5 * away, position)
                if best is None or rank < best:
                    best = rank
                if weight > 1.4 * share:
                    break
            if best is None or before[end] - before[best[1]] < 0.4 * share:
                break
            cuts.append(best[1])
            start = best[1]
            segments -= 1
        return cuts
