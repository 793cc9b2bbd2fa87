"""Which operations of a task XLA turns into one kernel.

XLA fuses elementwise work into the kernels that read it. A value is *written out* when the task
returns it, when a kernel of its own makes it (a matrix product), when a reader needs it in memory,
or when it is too expensive to compute in several kernels. All other values exist only inside
kernels: they cost no bytes, and what they are computed from lives until the last kernel that needs
it has run. A cheap value that several kernels read is computed in each; even where it is written
out for one reader, others compute it again if it depends on one large value only. The rules are
those of ``xla/service/instruction_fusion.cc`` and ``cpu/cpu_instruction_fusion.cc``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from baechi_jax.passes.cost.library import LibraryFusions
from baechi_jax.passes.cost.lowering import Lowered
from baechi_jax.passes.cost.primitives import BITCAST, BROADCAST, ELEMENTWISE, EXPENSIVE, MOVE

#: Kinds whose result may live inside the kernel that reads it, and that may hold what they read.
_FUSIBLE = frozenset({ELEMENTWISE, EXPENSIVE, BROADCAST, MOVE, BITCAST})

#: Cheap, but XLA emits them badly, and not twice...
_ONCE = frozenset({"jax.gather", "jax.pad", "jax.concatenate"})

#: ...unless a bitcast reads them: then once for every shape that a kernel needs in memory, and once
#: more if something else reads them, too.
_PER_SHAPE = frozenset({"jax.pad", "jax.concatenate"})


@dataclass(slots=True)
class Kernels:
    """The kernels of a task, in program order.

    Per kernel: ``nodes``, the nodes in it with the last one last (none for a constant that is
    written out); ``writes``, its buffers; ``reads``, the buffers that it reads, each with whether
    element i of the result needs only element i of the buffer (it may then be written in place).
    Buffers have the numbers of the values that they hold first; ``sizes`` are their bytes.
    ``outputs`` are the buffers of the task's results.
    """

    nodes: list[list[int]]
    writes: list[list[int]]
    reads: list[dict[int, bool]]
    sizes: list[int]
    outputs: list[int]


def find_kernels(lowered: Lowered) -> Kernels:
    """Decide what is fused; see the module docstring."""
    library = LibraryFusions(lowered)
    fusion = _Fusion(lowered, library)
    fusion.decide()
    return fusion.kernels()


class _Fusion:
    def __init__(self, lowered: Lowered, library: LibraryFusions) -> None:
        self.lowered = lowered
        self.library = library
        nodes = len(lowered.kinds)
        #: Whether a value is written out.
        self.written = [False] * len(lowered.sizes)
        #: Readers that compute a value inside: per value, None for all of them.
        self.inside: list[set[int] | None] = [set() for _ in lowered.sizes]
        #: In how many kernels each node is.
        self.copies = [1] * nodes
        self.kept = set(lowered.outputs)

    def decide(self) -> None:
        """Fill ``written`` and ``inside``, readers first."""
        lowered, library = self.lowered, self.library
        kinds, written = lowered.kinds, self.written
        for node in range(len(kinds) - 1, -1, -1):
            writes = lowered.writes[node]
            first = library.start[node]
            if first >= 0:
                if library.end[first] == node:
                    written[writes[0]] = True
                else:
                    self.inside[writes[0]] = None
            elif node in lowered.dead:
                self.inside[writes[0]] = None
            elif len(writes) == 1 and kinds[node] in _FUSIBLE:
                self._decide(node, writes[0])
            else:
                for value in writes:
                    written[value] = True

    def _decide(self, node: int, value: int) -> None:
        lowered, copies = self.lowered, self.copies
        kinds, start = lowered.kinds, self.library.start
        readers = lowered.readers[value]
        op = lowered.ops[node]
        per_shape = (
            op is not None
            and op.name in _PER_SHAPE
            and any(kinds[reader] is BITCAST for reader in readers)
        )
        once = kinds[node] is EXPENSIVE or (op is not None and op.name in _ONCE and not per_shape)
        several = once and sum(copies[reader] for reader in readers) > 1
        holding: list[int] = []
        needed = value in self.kept or not readers
        for reader in readers:
            kind = kinds[reader]
            apart = start[reader] >= 0 or kind not in _FUSIBLE
            if apart or (once and (several or kind is BROADCAST)):
                needed = True
            else:
                holding.append(reader)
        if not needed:
            self.inside[value] = None
            copies[node] = sum(copies[reader] for reader in holding)
            if per_shape:
                self.written[value] = self._shapes_and_others(readers)
            return
        self.written[value] = True
        if holding and not once and self._reads_one_large(node, value):
            self.inside[value] = set(holding)
            copies[node] = 1 + sum(copies[reader] for reader in holding)

    def _shapes_and_others(self, readers: list[int]) -> bool:
        """Whether some read a value under another shape from memory, and others inside a kernel."""
        lowered = self.lowered
        shapes = others = False
        for reader in readers:
            if lowered.kinds[reader] is not BITCAST:
                others = True
                continue
            shape = lowered.writes[reader][0]
            shapes = shapes or self.written[shape]
            others = others or any(
                lowered.kinds[r] in _FUSIBLE and self.library.start[r] < 0
                for r in lowered.readers[shape]
            )
        return shapes and others

    def _reads_one_large(self, node: int, value: int) -> bool:
        """Whether computing ``value`` again reads no more than reading it."""
        lowered = self.lowered
        kind = lowered.kinds[node]
        if lowered.ops[node] is None or kind is BITCAST or kind is BROADCAST:
            return True
        rank = lowered.ranks[value]
        large = total = 0
        for operand in lowered.reads[node]:
            if operand < 0:
                continue
            total += lowered.elements[operand]
            source = lowered.producer[operand]
            if source >= 0 and lowered.kinds[source] is BROADCAST:
                continue
            large += lowered.ranks[operand] >= rank
        return large <= 1 or total <= lowered.elements[value]

    # Kernels --------------------------------------------------------------------------------------

    def kernels(self) -> Kernels:
        """Collect the kernels, program order."""
        lowered = self.lowered
        kinds, readers = lowered.kinds, lowered.readers
        written, inside, start = self.written, self.inside, self.library.start
        sizes = list(lowered.sizes)
        kernels = Kernels([], [], [], sizes, [])
        #: Value -> the buffer that holds it, where that is another value's.
        alias: dict[int, int] = {}
        held_reads: dict[int, dict[int, bool]] = {}
        held_nodes: dict[int, list[int]] = {}
        constants = _Constants(lowered, self.library, kernels)
        for node, kind in enumerate(kinds):
            if node in lowered.dead:
                continue
            writes = lowered.writes[node]
            in_place = kind is ELEMENTWISE or kind is EXPENSIVE
            reads: dict[int, bool] = {}
            nodes: list[int] = []
            several = False
            in_library = start[node] >= 0
            if in_library and in_place:
                constants.read_by(node, reads)
            for value in lowered.reads[node]:
                if value < 0:
                    continue
                within = inside[value]
                held = held_reads.get(value)
                if held is not None and (within is None or node in within):
                    if not reads and not nodes and within is None and len(readers[value]) == 1:
                        # Nobody else needs what is in it: grow it.
                        reads, nodes = held, held_nodes[value]
                        if not in_place:
                            for buffer in reads:
                                reads[buffer] = False
                        continue
                    for buffer, flag in held.items():
                        reads[buffer] = flag and in_place and reads.get(buffer, True)
                    several = several or bool(nodes)
                    nodes += held_nodes[value]
                else:
                    # Through a bitcast, XLA does not see that the elements are the same.
                    buffer = alias.get(value, value)
                    same = in_place and buffer == value
                    reads[buffer] = same and reads.get(buffer, True)
            if kind is BITCAST and not nodes and not in_library:
                source = lowered.reads[node][0]
                alias[writes[0]] = alias.get(source, source)
                continue
            nodes.append(node)
            if several:
                nodes = list(dict.fromkeys(nodes))
            for value in writes:
                if inside[value] is None or inside[value]:
                    held_reads[value] = reads
                    held_nodes[value] = nodes
            if any(written[value] for value in writes):
                kernels.nodes.append(nodes)
                kernels.writes.append(writes)
                kernels.reads.append(reads)
        kernels.outputs = [alias.get(value, value) for value in lowered.outputs]
        return kernels


class _Constants:
    """Constants that XLA writes out as full arrays.

    A library fusion takes in the broadcast of a constant only if it is used once; else it reads it.
    """

    def __init__(self, lowered: Lowered, library: LibraryFusions, kernels: Kernels) -> None:
        self.lowered = lowered
        self.kernels = kernels
        self._buffers: dict[Hashable, int] = {}
        self._uses: dict[Hashable, int] = {}
        if not library.end:
            return
        for node, kind in enumerate(lowered.kinds):
            if kind is ELEMENTWISE or kind is EXPENSIVE:
                for key in self._keys(node):
                    self._uses[key] = self._uses.get(key, 0) + 1

    def _keys(self, node: int) -> list[Hashable]:
        """The constants that ``node`` reads, with the shape that they are broadcast to."""
        op = self.lowered.ops[node]
        reads = self.lowered.reads[node]
        if op is None:
            return []
        if op.name == "jax.logistic":
            # 1 / (1 + exp(-x))
            return [("one", op.results[0].type)] * 2
        return [(value, op.results[0].type) for value in reads if value < 0]

    def read_by(self, node: int, reads: dict[int, bool]) -> None:
        """Add the buffers of the constants that ``node``, in a library fusion, reads."""
        lowered = self.lowered
        written = lowered.writes[node][0]
        if lowered.elements[written] <= 1:
            return
        for key in self._keys(node):
            if self._uses[key] < 2:
                continue
            buffer = self._buffers.get(key)
            if buffer is None:
                kernels = self.kernels
                buffer = self._buffers[key] = len(kernels.sizes)
                kernels.sizes.append(lowered.sizes[written])
                kernels.nodes.append([])
                kernels.writes.append([buffer])
                kernels.reads.append({})
            reads[buffer] = False
