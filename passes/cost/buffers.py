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
from itertools import pairwise
from typing import TypeAlias

from baechi_jax.ir.core import Value
from baechi_jax.passes.cost.fusion import Kernels

#: Added to every prediction: the order within a level, and XLA's packing, are not predicted.
MARGIN = 0.06

#: Of the peak: as much of the largest buffer that lies where a result will lie is counted, since
#: XLA may find no place for one.
LOST = 0.25


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


def _peak(temporaries: Sequence[_Temporary]) -> int:
    """The most that lives at once."""
    events: list[tuple[float, int, int]] = []
    for each in temporaries:
        events.append((each.start, 0, each.size))
        events.append((each.end, 1, -each.size))
    events.sort()
    live = peak = 0
    for _, _, change in events:
        live += change
        peak = max(peak, live)
    return peak


def _contested(placed: Sequence[_Temporary]) -> int:
    """The largest size of two of ``placed``, which is in descending order, that live at once."""
    for first, second in pairwise(placed):
        if first.size == second.size and first.start <= second.end and second.start <= first.end:
            return first.size
    return 0


@dataclass(slots=True)
class _Times:
    """Per kernel its level; per buffer that of its last reader, of its maker if there is none (0
    for an unread input); and the kernels in the order of levels."""

    level: list[int]
    last: list[int]
    order: list[int]


#: The operands that a conditional passes on, and its branches.
Branches: TypeAlias = "tuple[list[int], list[Buffers]]"


class Buffers:
    """Lifetimes of the buffers of ``kernels``.

    The first ``input_count`` buffers are inputs; ``internal`` are kernels that allocate for
    themselves while they run; ``in_place`` those whose result takes over an operand, and which.
    ``carried`` maps the result of a loop to the operand that it starts from, and takes over too;
    ``filled`` are its results that start as zeros. ``loops`` are the kernels that become loops:
    what they read is part of what they carry, which no other kernel takes over. ``branches`` are
    the branches of kernels that are conditionals.
    """

    def __init__(
        self,
        kernels: Kernels,
        input_count: int,
        internal: Mapping[int, int],
        in_place: Mapping[int, int],
        carried: Mapping[int, int],
        filled: Collection[int],
        loops: Collection[int],
        branches: Mapping[int, Branches],
    ) -> None:
        self.kernels = kernels
        self.input_count = input_count
        self.internal = internal
        self.in_place = in_place
        self.carried = carried
        self.filled = filled
        self.loops = loops
        self.branches = branches
        buffers = len(kernels.sizes)
        self.maker = maker = [-1] * buffers
        for kernel, writes in enumerate(kernels.writes):
            for buffer in writes:
                maker[buffer] = kernel
        self.readers: list[list[int]] = [[] for _ in range(buffers)]
        for kernel, reads in enumerate(kernels.reads):
            for buffer in reads:
                self.readers[buffer].append(kernel)
        self._times = self._when(())
        self._before: list[int] | None = None

    def peak_bytes(self, outputs: Sequence[int], shared: Mapping[int, int]) -> int:
        """The most that lives at once, inputs and results aside, with what may go wrong.

        ``outputs`` are the buffers of the results, ``kernels.outputs`` in any order. ``shared``
        maps a result's buffer to the input's that it shares memory with. On top come ``MARGIN`` or
        ``LOST``, whichever is more.
        """
        copies_in, copies_out = self._copies(shared)
        times = self._when(set(copies_in)) if copies_in else self._times
        copied_at = {
            source: 1 + (place + 1) / (len(copies_in) + 2)
            for place, source in enumerate(sorted(copies_in))
        }
        temporaries, early = self._temporaries(times, outputs, shared, copied_at, copies_out)
        most = 0
        tried: list[list[_Temporary]] = []
        # XLA looks for places in another order where sizes are equal: the worse of two counts.
        for sign in (1, -1):
            order = sorted(temporaries, key=lambda each: (-each.size, sign * each.start))
            if order in tried:
                break
            tried.append(order)
            kept = self._outside_results(
                times, order, outputs, shared, copied_at, copies_out, early
            )
            peak = _peak(kept)
            outside = set(map(id, kept))
            placed = [each for each in order if id(each) not in outside]
            lost = placed[0].size if placed else 0
            lost = max(_contested(placed), min(lost, int(LOST * peak)))
            most = max(most, peak + max(int(MARGIN * peak), lost))
        return most

    def _when(self, copied: Collection[int]) -> _Times:
        """When kernels run if the inputs ``copied`` are copied first."""
        maker, kernels = self.maker, self.kernels
        levels = [1] * len(kernels.writes)
        for kernel, reads in enumerate(kernels.reads):
            level = 1
            for buffer in reads:
                source = maker[buffer]
                if source >= 0:
                    if levels[source] >= level:
                        level = levels[source] + 1
                elif buffer in copied and level < 2:
                    level = 2
            levels[kernel] = level
        last = [0] * len(kernels.sizes)
        for buffer, reading in enumerate(self.readers):
            if reading:
                last[buffer] = max(levels[kernel] for kernel in reading)
            elif maker[buffer] >= 0:
                last[buffer] = levels[maker[buffer]]
        return _Times(levels, last, sorted(range(len(levels)), key=levels.__getitem__))

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
            elif self._written_over(maker, result, source):
                continue
            elif maker in readers and not self.kernels.reads[maker].get(source, False):
                copies_out.add(result)
        return copies_in, copies_out

    def _written_over(self, kernel: int, result: int, source: int) -> bool:
        """Whether a loop, a conditional or a kernel that works in place writes over ``source``.

        A conditional does if all its branches can.
        """
        if self.carried.get(result) == source or self.in_place.get(kernel) == source:
            return True
        operands, bodies = self.branches.get(kernel, ([], []))
        if operands.count(source) != 1:
            return False
        index, place = self.kernels.writes[kernel].index(result), operands.index(source)
        return all(body._takes(index, place) for body in bodies)

    def _takes(self, index: int, source: int) -> bool:
        """Whether result ``index`` needs no copy where it shares memory with input ``source``."""
        found = self.kernels.outputs[index]
        if found < self.input_count:
            return found == source
        copies_in, copies_out = self._copies({found: source})
        return not copies_in and not copies_out

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
        self,
        times: _Times,
        outputs: Sequence[int],
        shared: Mapping[int, int],
        copied_at: Mapping[int, float],
        copies_out: Collection[int],
    ) -> tuple[list[_Temporary], dict[int, float]]:
        """The temporaries; and results that are written to before their last kernel, from when."""
        kernels, levels, last, sizes = self.kernels, times.level, times.last, self.kernels.sizes
        results = set(outputs)
        found: list[_Temporary] = []
        early: dict[int, float] = {}
        at: dict[int, _Temporary] = {}
        for kernel in times.order:
            now = levels[kernel]
            for buffer in kernels.writes[kernel]:
                size = sizes[buffer]
                if not size:
                    continue
                copied_out = buffer in copies_out
                taken = self._taken_over(times, kernel, buffer, at, shared)
                if buffer in results and not copied_out:
                    if taken is not None and (kernel in self.in_place or buffer in self.carried):
                        # Made in the result's memory from the start.
                        found.remove(taken)
                        early[buffer] = taken.start
                    elif buffer in self.filled:
                        early[buffer] = 1.0
                    elif taken is not None:
                        taken.ends_in = buffer
                    continue
                end = max(last[buffer], now + 1) if copied_out else last[buffer]
                if taken is None:
                    # Constants come first.
                    taken = _Temporary(1 if buffer in self.filled else now, end, size)
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

    def _taken_over(
        self,
        times: _Times,
        kernel: int,
        buffer: int,
        at: dict[int, _Temporary],
        shared: Mapping[int, int],
    ) -> _Temporary | None:
        """The temporary that dies in ``kernel`` and gives ``buffer`` its memory."""
        kernels = self.kernels
        place = self.carried.get(buffer, self.in_place.get(kernel, -1))
        if len(kernels.writes[kernel]) > 1 and place < 0:
            return None
        now = times.level[kernel]
        for operand, by_element in kernels.reads[kernel].items():
            if operand != place and (not by_element or self._in_tuple(operand)):
                continue
            found = at.get(operand)
            if found is None or found.end != now or found.size != kernels.sizes[buffer]:
                continue
            if found.ends_in >= 0:
                continue
            if all(
                reader == kernel
                or times.level[reader] < now
                or (operand != place and self._could_take(reader, operand, shared))
                for reader in self.readers[operand]
            ):
                del at[operand]
                return found
        return None

    def _could_take(self, kernel: int, operand: int, shared: Mapping[int, int]) -> bool:
        """Whether ``kernel`` takes over ``operand`` if it is the last of a level to read it: then
        it is the same for what lives which one does."""
        kernels = self.kernels
        writes = kernels.writes[kernel]
        return (
            len(writes) == 1
            and kernels.reads[kernel][operand]
            and kernels.sizes[writes[0]] == kernels.sizes[operand]
            and writes[0] not in shared
        )

    def _in_tuple(self, buffer: int) -> bool:
        """Whether ``buffer`` is one of several results or part of a loop's values for XLA, which
        nothing takes over."""
        if self.loops and any(reader in self.loops for reader in self.readers[buffer]):
            return True
        maker = self.maker[buffer]
        return maker >= 0 and (
            len(self.kernels.writes[maker]) > 1 or buffer in self.carried or buffer in self.filled
        )

    # Where results lie ----------------------------------------------------------------------------

    def _outside_results(
        self,
        times: _Times,
        temporaries: list[_Temporary],
        outputs: Sequence[int],
        shared: Mapping[int, int],
        copied_at: Mapping[int, float],
        copies_out: Collection[int],
        early: Mapping[int, float],
    ) -> list[_Temporary]:
        """What finds no place where a result will lie, or a donated input lay.

        ``temporaries`` are in the order in which they are tried.
        """
        sizes = self.kernels.sizes
        gaps: list[tuple[int, float, float, int]] = []
        for buffer in dict.fromkeys(outputs):
            maker = self.maker[buffer]
            if maker < 0:
                continue
            source = shared.get(buffer, -1)
            start = 0.0 if source < 0 else copied_at.get(source, float(times.last[source]))
            made = float(times.level[maker] + (1 if buffer in copies_out else 0))
            end = early.get(buffer, made)
            if end > start:
                gaps.append((sizes[buffer], start, end, buffer))
        if not gaps:
            return temporaries
        # XLA tries the smallest that is large enough, the last made of equal ones first.
        gaps.sort(key=lambda gap: (gap[0], -gap[2]))
        largest = max((each.size for each in temporaries), default=0)
        kept: list[_Temporary] = []
        for each in temporaries:
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
