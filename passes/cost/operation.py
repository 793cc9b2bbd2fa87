"""The cost of one operation, loops and branches included, and of the kernels of a program.

A loop costs its trip count times its body, whose elementwise work is fused as in any program. A
``while`` loop is taken to turn a given number of times; of a branch the dearest side counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.ir.core import Block, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.fusion import Kernels, find_kernels
from baechi_jax.passes.cost.internal import internal_bytes
from baechi_jax.passes.cost.lowering import Lowered, lower
from baechi_jax.passes.cost.primitives import CONTROL, KERNEL
from baechi_jax.passes.cost.roofline import count, kind_of, seconds

#: Turns of a ``while`` loop, whose number only the data knows.
WHILE_TRIPS = 10


@dataclass(slots=True)
class Work:
    """Flops, bytes read and written, and seconds per device kind."""

    flops: float
    read_bytes: float
    written_bytes: float
    seconds: list[float]

    def add(self, other: Work, factor: float = 1.0) -> None:
        """Add ``other``, ``factor`` times."""
        self.flops += factor * other.flops
        self.read_bytes += factor * other.read_bytes
        self.written_bytes += factor * other.written_bytes
        for position, each in enumerate(other.seconds):
            self.seconds[position] += factor * each


def devices_of(topology: Topology) -> list[Device]:
    """One device of each kind, in the order of ``Topology.kinds``."""
    return [topology.device_of_kind(kind) for kind in topology.kinds]


def op_cost(op: Operation, devices: Sequence[Device], while_trips: int = WHILE_TRIPS) -> Cost:
    """The cost of ``op`` as a kernel of its own on ``devices``, launch excluded."""
    output_bytes = 0
    for result in op.results:
        output_bytes += nbytes(result.type)
    kind = kind_of(op)
    if kind is CONTROL:
        work = _region_work(op, devices, while_trips)
        return Cost(
            work.flops,
            work.read_bytes,
            work.written_bytes,
            tuple(work.seconds),
            internal_bytes(op),
            output_bytes,
        )
    counted = count(op)
    flops = counted.work
    moved = counted.read_bytes + counted.written_bytes
    return Cost(
        flops,
        counted.read_bytes,
        counted.written_bytes,
        tuple(seconds(flops, moved, device) for device in devices),
        internal_bytes(op) if kind is KERNEL else 0,
        output_bytes,
    )


def _region_work(op: Operation, devices: Sequence[Device], while_trips: int) -> Work:
    bodies = [_block_work(block, devices, while_trips) for block in op.blocks]
    total = Work(0.0, 0.0, 0.0, [0.0] * len(devices))
    if op.name == "jax.cond":
        if bodies:
            total.add(max(bodies, key=lambda body: body.seconds))
        return total
    for body in bodies:
        total.add(body, trip_count(op, while_trips))
    return total


def trip_count(op: Operation, while_trips: int = WHILE_TRIPS) -> int:
    """How often the body of ``op`` runs; 1 for what is no loop."""
    if op.name == "jax.scan":
        length = op.attributes.get("length")
        return length if isinstance(length, int) else 1
    return while_trips if op.name == "jax.while" else 1


def _block_work(block: Block, devices: Sequence[Device], while_trips: int) -> Work:
    lowered = lower(block.ops[:-1], block.arguments, block.terminator.operands)
    return kernels_work(lowered, find_kernels(lowered), devices, while_trips)


def kernels_work(
    lowered: Lowered, kernels: Kernels, devices: Sequence[Device], while_trips: int = WHILE_TRIPS
) -> Work:
    """What all kernels of a program do. Operations that have ``baechi.cost`` are taken at it."""
    total = Work(0.0, 0.0, 0.0, [0.0] * len(devices))
    times = total.seconds
    sizes = kernels.sizes
    # Per node: its cost, and the seconds that the model expects of it alone.
    known: list[tuple[Cost, list[float]] | None] = [None] * len(lowered.ops)
    for nodes, writes, reads in zip(kernels.nodes, kernels.writes, kernels.reads):
        flops = 0.0
        alone = [0.0] * len(devices)
        guessed = [0.0] * len(devices)
        for node in nodes:
            found = known[node]
            if found is None:
                op = lowered.ops[node]
                if op is None:
                    continue
                cost = _cost_of(op, devices, while_trips)
                moved = cost.read_bytes + cost.written_bytes
                expected = [seconds(cost.flops, moved, device) for device in devices]
                found = known[node] = (cost, expected)
            cost, expected = found
            flops += cost.flops
            for position, each in enumerate(cost.seconds):
                alone[position] += each
                guessed[position] += expected[position]
        if len(nodes) == 1 and (found := known[nodes[0]]) is not None:
            # Alone: a slice reads less than its operand, a table of measured costs knows better.
            cost = found[0]
            total.flops += cost.flops
            total.read_bytes += cost.read_bytes
            total.written_bytes += cost.written_bytes
            for position, each in enumerate(cost.seconds):
                times[position] += each
            continue
        moved_in = moved_out = 0
        for buffer in reads:
            moved_in += sizes[buffer]
        for buffer in writes:
            moved_out += sizes[buffer]
        total.flops += flops
        total.read_bytes += moved_in
        total.written_bytes += moved_out
        for position, device in enumerate(devices):
            fused = seconds(flops, moved_in + moved_out, device)
            # Where its operations were measured, fusing saves the share that the model expects.
            if alone[position] != guessed[position] and guessed[position]:
                fused *= alone[position] / guessed[position]
            times[position] += fused
    return total


def _cost_of(op: Operation, devices: Sequence[Device], while_trips: int) -> Cost:
    found = op.attributes.get("baechi.cost")
    return found if isinstance(found, Cost) else op_cost(op, devices, while_trips)
