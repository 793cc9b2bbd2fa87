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

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Value
from baechi_jax.passes.cost.fusion import Kernels

_IN_PLACE_KERNELS = ("jax.scatter", "jax.dynamic_update_slice", "jax.sort")


@dataclass(slots=True)
class _Temporary:
    """One buffer that is neither input nor result: alive from ``start`` to ``end``, inclusive."""

    start: float
    end: float
    size: int
    #: Results of the task that may be written in its place when it dies.
    ends_in: int = -1


def donated_pairs(
    inputs: Sequence[Value], outputs: Sequence[Value], donated: Collection[int] | None
) -> dict[int, int]:
    """Position of a result -> position of the donated input whose buffer it gets.

    JAX pairs them by type, in order (``jax/_src/interpreters/mlir.py``, ``_set_up_aliases``).
    ``donated`` of None stands for all inputs.
    """
    free: dict[object, list[int]] = {}
    for position, value in enumerate(inputs):
        if donated is None or position in donated:
            free.setdefault(value.type, []).append(position)
    pairs: dict[int, int] = {}
    for position, value in enumerate(outputs):
        waiting = free.get(value.type)
        if waiting:
            pairs[position] = waiting.pop(0)
    return pairs


class Buffers:
    """Lifetimes of the buffers of ``kernels``.

    ``input_count`` buffers are inputs; ``shared`` maps a result's buffer to the input's that it
    shares memory with; ``internal`` gives kernels that allocate for themselves while they run;
    ``in_place`` those whose result takes over their first operand, and that operand.
    """

    def __init__(
        self,
        kernels: Kernels,
        input_count: int,
        shared: dict[int, int],
        internal: dict[int, int],
        in_place: dict[int, int],
    ) -> None:
        self.kernels = kernels
        self.input_count = input_count
        self.shared = shared
        self.internal = internal
        self.in_place = in_place
        count = len(kernels.writes)
        self.maker = [-1] * len(kernels.sizes)
        for kernel, writes in enumerate(kernels.writes):
            for buffer in writes:
                self.maker[buffer] = kernel
        self.readers: list[list[int]] = [[] for _ in kernels.sizes]
        self.level = [1] * count
        #: Result buffers that are computed elsewhere and copied into their place.
        self.copied_out: set[int] = set()
        #: Input -> size: copied before anything reads it.
        self.copied_in: list[int] = []
        for kernel, reads in enumerate(kernels.reads):
            level = 1
            for buffer in reads:
                self.readers[buffer].append(kernel)
                maker = self.maker[buffer]
                if maker >= 0 and maker != kernel and self.level[maker] >= level:
                    level = self.level[maker] + 1
            self.level[kernel] = level
        if shared:
            self._insert_copies()
        self.end = float(max(self.level, default=1) + 1)

    def peak_bytes(self) -> int:
        """The most that lives at once, inputs and results aside."""
        temporaries = self._temporaries()
        kept = self._outside_results(temporaries)
        events: list[tuple[float, int, int]] = []
        for each in kept:
            events.append((each.start, 0, each.size))
            events.append((each.end, 1, -each.size))
        events.sort()
        live = peak = 0
        for _, _, change in events:
            live += change
            peak = max(peak, live)
        return peak

    # Copies of donated inputs ---------------------------------------------------------------------

    def _insert_copies(self) -> None:
        before = self._predecessors()
        for result, source in self.shared.items():
            maker = self.maker[result]
            readers = self.readers[source]
            if maker < 0 or not readers:
                continue
            ordered = [r for r in readers if r == maker or before[maker] >> r & 1]
            if len(ordered) == len(readers):
                if maker in readers and not self.kernels.reads[maker].get(source, False):
                    self.copied_out.add(result)
                continue
            self.copied_in.append(source)
            if not ordered:
                self.copied_out.add(result)

    def _predecessors(self) -> list[int]:
        """Per kernel, a bit for each kernel that must run before it."""
        before: list[int] = []
        for kernel, reads in enumerate(self.kernels.reads):
            bits = 0
            for buffer in reads:
                maker = self.maker[buffer]
                if maker >= 0 and maker != kernel:
                    bits |= before[maker] | 1 << maker
            before.append(bits)
        return before

    # Lifetimes ------------------------------------------------------------------------------------

    def _temporaries(self) -> list[_Temporary]:
        kernels, level, sizes = self.kernels, self.level, self.kernels.sizes
        results = set(kernels.outputs)
        found: list[_Temporary] = []
        at: dict[int, _Temporary] = {}
        for kernel in sorted(range(len(level)), key=level.__getitem__):
            now = float(level[kernel])
            for buffer in kernels.writes[kernel]:
                size = sizes[buffer]
                if not size:
                    continue
                if buffer in results and buffer not in self.copied_out:
                    taken = self._taken_over(kernel, buffer, at)
                    if taken is not None:
                        taken.ends_in = buffer
                    continue
                end = max((float(level[r]) for r in self.readers[buffer]), default=now)
                if buffer in self.copied_out:
                    end = max(end, now + 1)
                taken = self._taken_over(kernel, buffer, at)
                if taken is not None:
                    taken.end = max(end, now)
                    at[buffer] = taken
                else:
                    at[buffer] = _Temporary(now, max(end, now), size)
                    found.append(at[buffer])
            if kernel in self.internal:
                found.append(_Temporary(now, now, self.internal[kernel]))
        # Copies of inputs come first, in the order of the inputs.
        for place, source in enumerate(sorted(self.copied_in)):
            start = 1 + (place + 1) / (len(self.copied_in) + 2)
            end = max(float(level[r]) for r in self.readers[source])
            found.append(_Temporary(start, max(start, end), sizes[source]))
        return found

    def _taken_over(
        self, kernel: int, buffer: int, at: dict[int, _Temporary]
    ) -> _Temporary | None:
        """The temporary that dies in ``kernel`` and gives ``buffer`` its memory."""
        kernels = self.kernels
        if len(kernels.writes[kernel]) > 1 and kernel not in self.in_place:
            return None
        now = self.level[kernel]
        for operand, by_element in kernels.reads[kernel].items():
            if operand < self.input_count or operand not in at:
                continue
            if not by_element and self.in_place.get(kernel) != operand:
                continue
            if kernels.sizes[operand] != kernels.sizes[buffer] or at[operand].end != now:
                continue
            last = [r for r in self.readers[operand] if self.level[r] == now]
            if last == [kernel] and at[operand].ends_in < 0:
                return at.pop(operand)
        return None

    # Where results lie ----------------------------------------------------------------------------

    def _outside_results(self, temporaries: list[_Temporary]) -> list[_Temporary]:
        """What finds no place where a result will lie, or a donated input lay."""
        sizes, level = self.kernels.sizes, self.level
        gaps: list[tuple[int, float, float, int]] = []
        for buffer in dict.fromkeys(self.kernels.outputs):
            maker = self.maker[buffer]
            if maker < 0:
                continue
            start = 0.0
            if buffer in self.shared:
                source = self.shared[buffer]
                start = max((float(level[r]) for r in self.readers[source]), default=0.0)
                if source in self.copied_in:
                    place = sorted(self.copied_in).index(source)
                    start = 1 + (place + 1) / (len(self.copied_in) + 2)
            end = float(level[maker]) + (1 if buffer in self.copied_out else 0)
            if end > start:
                gaps.append((sizes[buffer], start, end, buffer))
        if not gaps:
            return temporaries
        # XLA tries the smallest that is large enough, the last made of equal ones first.
        gaps.sort(key=lambda gap: (gap[0], -gap[2]))
        kept: list[_Temporary] = []
        for each in sorted(temporaries, key=lambda t: (-t.size, t.start)):
            for index, (size, start, end, buffer) in enumerate(gaps):
                if size < each.size or start >= each.start:
                    continue
                if each.end < end or (each.end == end and each.ends_in == buffer):
                    gaps[index : index + 1] = [
                        (size, start, each.start, buffer),
                        (size, each.end, end, buffer),
                    ]
                    break
            else:
                kept.append(each)
        return kept

