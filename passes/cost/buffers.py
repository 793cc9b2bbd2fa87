"""How much memory the buffers between the kernels of a task take at once.

The model of XLA's CPU buffer assignment:

- *Order.* Kernels run breadth first (``BFScheduler``): level by level, the level of a kernel being
  the longest way to it. Within a level the order is not predicted: whatever lives at some moment of
  a level lives at once.
- *Donated inputs.* Input and result that share a buffer need a copy when the input is read by
  kernels that need not come before the result is written (``CopyInsertion``).
- *In place.* A result takes over the buffer of an operand of its size that dies there, if it is
  read element by element.
- *Reuse.* A buffer may lie where a result of the task will lie later, or a donated input lay.

Best-fit packing leaves no gaps worth modelling: measured, it took what lives at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Value
from baechi_jax.passes.cost.fusion import Kernels

#: Added to every prediction: the order within a level, and XLA's packing, are not predicted.
MARGIN = 0.06

#: A buffer this many times smaller than the largest is not worth a search for a place.
_NEGLIGIBLE = 256


def donated_pairs(
    inputs: Sequence[Value], outputs: Sequence[Value], donated: Collection[int] | None
) -> dict[int, int]:
    """Position of a result -> position of the donated input whose buffer it gets.

    JAX pairs them by type, in order (``jax/_src/interpreters/mlir.py``, ``_set_up_aliases``).
    ``donated`` of None stands for all inputs.
    """
    free: dict[object, list[int]] = {}
    for position in range(len(inputs) - 1, -1, -1):
        if donated is None or position in donated:
            free.setdefault(inputs[position].type, []).append(position)
    pairs: dict[int, int] = {}
    for position, value in enumerate(outputs):
        waiting = free.get(value.type)
        if waiting:
            pairs[position] = waiting.pop()
    return pairs


@dataclass(slots=True, eq=False)
class _Temporary:
    """One buffer that is neither input nor result: alive from ``start`` to ``end``, inclusive."""

    start: float
    end: float
    size: int
    #: A result of the task that may be written in its place when it dies; -1 for none.
    ends_in: int = -1


class Buffers:
    """Lifetimes of the buffers of ``kernels``.

    The first ``input_count`` buffers are inputs; ``internal`` are kernels that allocate for
    themselves while they run; ``in_place`` those whose result takes over an operand, and which.
    ``carried`` maps the result of a loop to the operand that it starts from, and takes over too.
    """

    def __init__(
        self,
        kernels: Kernels,
        input_count: int,
        internal: Mapping[int, int],
        in_place: Mapping[int, int],
        carried: Mapping[int, int],
    ) -> None:
        self.kernels = kernels
        self.input_count = input_count
        self.internal = internal
        self.in_place = in_place
        self.carried = carried
        buffers, count = len(kernels.sizes), len(kernels.writes)
        self.maker = maker = [-1] * buffers
        for kernel, writes in enumerate(kernels.writes):
            for buffer in writes:
                maker[buffer] = kernel
        self.readers: list[list[int]] = [[] for _ in range(buffers)]
        self.level = levels = [1] * count
        for kernel, reads in enumerate(kernels.reads):
            level = 1
            for buffer in reads:
                self.readers[buffer].append(kernel)
                source = maker[buffer]
                if source >= 0 and levels[source] >= level:
                    level = levels[source] + 1
            levels[kernel] = level
        #: Level of the last reader of each buffer; its maker's if there is none; 0 for an unread
        #: input.
        self.last = [0] * buffers
        for buffer, reading in enumerate(self.readers):
            if reading:
                self.last[buffer] = max(levels[kernel] for kernel in reading)
            elif maker[buffer] >= 0:
                self.last[buffer] = levels[maker[buffer]]
        self._order = sorted(range(count), key=levels.__getitem__)
        self._before: list[int] | None = None

    def peak_bytes(self, outputs: Sequence[int], shared: Mapping[int, int]) -> int:
        """The most that lives at once, inputs and results aside, with what may go wrong.

        ``outputs`` are the buffers of the results, ``kernels.outputs`` in any order. ``shared``
        maps a result's buffer to the input's that it shares memory with. Of the buffers that lie
        where a result will lie, XLA may find no place for one, since it looks for places in another
        order: the largest is counted, or ``MARGIN`` if that is more.
        """
        copies_in, copies_out = self._copies(shared)
        copied_at = {
            source: 1 + (place + 1) / (len(copies_in) + 2)
            for place, source in enumerate(sorted(copies_in))
        }
        temporaries, early = self._temporaries(outputs, copied_at, copies_out)
        kept = self._outside_results(temporaries, outputs, shared, copied_at, copies_out, early)
        events: list[tuple[float, int, int]] = []
        for each in kept:
            events.append((each.start, 0, each.size))
            events.append((each.end, 1, -each.size))
        events.sort()
        live = peak = 0
        for _, _, change in events:
            live += change
            peak = max(peak, live)
        placed = set(map(id, temporaries)) - set(map(id, kept))
        lost = max((each.size for each in temporaries if id(each) in placed), default=0)
        return peak + max(lost, int(MARGIN * peak))

    # Copies of donated inputs ---------------------------------------------------------------------

    def _copies(self, shared: Mapping[int, int]) -> tuple[list[int], set[int]]:
        """Inputs that are copied before anything reads them; results copied into their place."""
        copies_in: list[int] = []
        copies_out: set[int] = set()
        if not shared:
            return copies_in, copies_out
        before = self._predecessors()
        for result, source in shared.items():
            maker = self.maker[result]
            readers = self.readers[source]
            if maker < 0 or not readers:
                continue
            earlier = before[maker]
            ordered = [r for r in readers if r == maker or earlier >> r & 1]
            if len(ordered) < len(readers):
                copies_in.append(source)
                if not ordered:
                    copies_out.add(result)
            elif self.carried.get(result) == source:
                continue
            elif maker in readers and not self.kernels.reads[maker].get(source, False):
                copies_out.add(result)
        return copies_in, copies_out

    def _predecessors(self) -> list[int]:
        """Per kernel, a bit for each kernel that must run before it."""
        if self._before is None:
            before: list[int] = []
            self._before = before
            for reads in self.kernels.reads:
                bits = 0
                for buffer in reads:
                    maker = self.maker[buffer]
                    if maker >= 0:
                        bits |= before[maker] | 1 << maker
                before.append(bits)
        return self._before

    # Lifetimes ------------------------------------------------------------------------------------

    def _temporaries(
        self, outputs: Sequence[int], copied_at: Mapping[int, float], copies_out: Collection[int]
    ) -> tuple[list[_Temporary], dict[int, float]]:
        """The temporaries; and results that are written to before their last kernel, from when."""
        kernels, levels, sizes, last = self.kernels, self.level, self.kernels.sizes, self.last
        results = set(outputs)
        found: list[_Temporary] = []
        early: dict[int, float] = {}
        at: dict[int, _Temporary] = {}
        for kernel in self._order:
            now = levels[kernel]
            for buffer in kernels.writes[kernel]:
                size = sizes[buffer]
                if not size:
                    continue
                copied_out = buffer in copies_out
                taken = self._taken_over(kernel, buffer, at)
                if buffer in results and not copied_out:
                    if taken is not None and kernel in self.in_place:
                        # Made in the result's memory from the start.
                        found.remove(taken)
                        early[buffer] = taken.start
                    elif taken is not None:
                        taken.ends_in = buffer
                    continue
                end = max(last[buffer], now + 1) if copied_out else last[buffer]
                if taken is None:
                    taken = _Temporary(now, end, size)
                    found.append(taken)
                taken.end = end
                at[buffer] = taken
            if kernel in self.internal:
                found.append(_Temporary(now, now, self.internal[kernel]))
        # Copies of inputs come first, in the order of the inputs.
        found += [
            _Temporary(start, max(start, last[source]), sizes[source])
            for source, start in copied_at.items()
        ]
        return found, early

    def _taken_over(self, kernel: int, buffer: int, at: dict[int, _Temporary]) -> _Temporary | None:
        """The temporary that dies in ``kernel`` and gives ``buffer`` its memory."""
        kernels = self.kernels
        place = self.in_place.get(kernel, -1)
        if len(kernels.writes[kernel]) > 1 and place < 0:
            return None
        now = self.level[kernel]
        for operand, by_element in kernels.reads[kernel].items():
            if not by_element and operand != place:
                continue
            found = at.get(operand)
            if found is None or found.end != now or found.size != kernels.sizes[buffer]:
                continue
            if found.ends_in >= 0:
                continue
            reading = self.readers[operand]
            if len(reading) == 1 or all(
                reader == kernel or self.level[reader] < now for reader in reading
            ):
                del at[operand]
                return found
        return None

    # Where results lie ----------------------------------------------------------------------------

    def _outside_results(
        self,
        temporaries: list[_Temporary],
        outputs: Sequence[int],
        shared: Mapping[int, int],
        copied_at: Mapping[int, float],
        copies_out: Collection[int],
        early: Mapping[int, float],
    ) -> list[_Temporary]:
        """What finds no place where a result will lie, or a donated input lay."""
        sizes = self.kernels.sizes
        gaps: list[tuple[int, float, float, int]] = []
        for buffer in dict.fromkeys(outputs):
            maker = self.maker[buffer]
            if maker < 0:
                continue
            source = shared.get(buffer, -1)
            start = 0.0 if source < 0 else copied_at.get(source, float(self.last[source]))
            made = float(self.level[maker] + (1 if buffer in copies_out else 0))
            end = early.get(buffer, made)
            if end > start:
                gaps.append((sizes[buffer], start, end, buffer))
        if not gaps:
            return temporaries
        # XLA tries the smallest that is large enough, the last made of equal ones first.
        gaps.sort(key=lambda gap: (gap[0], -gap[2]))
        largest = max((each.size for each in temporaries), default=0)
        kept: list[_Temporary] = []
        for each in sorted(temporaries, key=lambda t: (-t.size, t.start)):
            need, first, last, into = each.size, each.start, each.end, each.ends_in
            if need * _NEGLIGIBLE < largest:
                kept.append(each)
                continue
            for index in range(bisect_left(gaps, (need,)), len(gaps)):
                size, start, end, buffer = gaps[index]
                if start >= first or last > end:
                    continue
                if last < end or into == buffer:
                    gaps[index : index + 1] = [
                        (size, start, first, buffer),
                        (size, last, end, buffer),
                    ]
                    break
            else:
                kept.append(each)
        return kept
