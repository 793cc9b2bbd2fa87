"""The cost of a sequence of operations compiled and run as one program."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.fusion import Kernels, find_kernels
from baechi_jax.passes.cost.liveness import peak_of
from baechi_jax.passes.cost.lowering import Lowered, lower
from baechi_jax.passes.cost.roofline import op_cost, seconds


def task_cost(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    topology: Topology,
    donated: Collection[int] | None = None,
) -> Cost:
    """What ``ops`` cost as one program.

    ``ops`` are in def-before-use order, without the terminator; ``inputs`` are the values that come
    from outside, ``outputs`` those that leave; ``donated`` the positions of the inputs whose memory
    outputs may take (None: not known yet). Flops are the sum over the kernels; bytes what the
    kernels read and write; seconds the sum over kernels, and one launch; ``temporary_bytes`` the
    peak on top of ``inputs`` and ``outputs``.
    """
    lowered = lower(ops, inputs, outputs)
    kernels = find_kernels(lowered)
    flops, read, written, times = _work(lowered, kernels, topology)
    return Cost(
        flops=flops,
        read_bytes=read,
        written_bytes=written,
        seconds=times,
        temporary_bytes=peak_of(lowered, kernels, inputs, outputs, donated),
        output_bytes=sum(nbytes(value.type) for value in outputs),
    )


def _work(
    lowered: Lowered, kernels: Kernels, topology: Topology
) -> tuple[float, float, float, tuple[float, ...]]:
    """Flops, bytes read and written, and seconds per device kind, over all kernels."""
    devices = [topology.device_of_kind(kind) for kind in topology.kinds]
    times = [device.launch_seconds for device in devices]
    costs: dict[int, Cost] = {}
    sizes = kernels.sizes
    flops = read = written = 0.0
    for nodes, writes, reads in zip(kernels.nodes, kernels.writes, kernels.reads):
        work = 0.0
        for node in nodes:
            op = lowered.ops[node]
            if op is None:
                continue
            cost = costs.get(node)
            if cost is None:
                found = op.attributes.get("baechi.cost")
                cost = costs[node] = found if isinstance(found, Cost) else op_cost(op, topology)
            work += cost.flops
        op = lowered.ops[nodes[-1]] if nodes else None
        if len(nodes) == 1 and op is not None:
            # A kernel of its own: a slice reads less than its operand, a table may know better.
            cost = costs[nodes[0]]
            flops += cost.flops
            read += cost.read_bytes
            written += cost.written_bytes
            for position, each in enumerate(cost.seconds):
                times[position] += each
            continue
        moved_in = float(sum(sizes[buffer] for buffer in reads))
        moved_out = float(sum(sizes[buffer] for buffer in writes))
        flops += work
        read += moved_in
        written += moved_out
        for position, device in enumerate(devices):
            times[position] += seconds(work, moved_in + moved_out, device)
    return flops, read, written, tuple(times)
