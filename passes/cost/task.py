"""The cost of a sequence of operations compiled and run as one program."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.fusion import find_kernels
from baechi_jax.passes.cost.liveness import peak_temporary_bytes
from baechi_jax.passes.cost.roofline import op_cost, seconds


def task_cost(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    topology: Topology,
) -> Cost:
    """What ``ops`` cost as one program.

    ``ops`` are in def-before-use order, without the terminator; ``inputs`` are the values that come
    from outside, ``outputs`` those that leave. Flops are the sum; bytes what the kernels read and
    write once fused; seconds the sum over kernels, and one launch; ``temporary_bytes`` the peak on
    top of ``inputs`` and ``outputs``.
    """
    kernels = find_kernels(ops, outputs)
    flops = [0.0] * len(ops)
    alone: list[Cost] = []
    for index, op in enumerate(ops):
        cost = op.attributes.get("baechi.cost")
        if not isinstance(cost, Cost):
            cost = op_cost(op, topology)
        alone.append(cost)
        flops[index] = cost.flops
    devices = [topology.device_of_kind(kind) for kind in topology.kinds]
    times = [device.launch_seconds for device in devices]
    work_sum = read_sum = written_sum = 0.0
    for root, members, reads in zip(kernels.roots, kernels.members, kernels.reads):
        if len(members) == 1:
            # A kernel of its own: a slice reads less than its operand, a table may know better.
            cost = alone[root]
            work_sum += cost.flops
            read_sum += cost.read_bytes
            written_sum += cost.written_bytes
            for position, each in enumerate(cost.seconds):
                times[position] += each
            continue
        work = sum(flops[index] for index in members)
        read = float(sum(nbytes(value.type) for value in reads))
        written = float(sum(nbytes(result.type) for result in ops[root].results))
        work_sum += work
        read_sum += read
        written_sum += written
        for position, device in enumerate(devices):
            times[position] += seconds(work, read + written, device)
    return Cost(
        flops=work_sum,
        read_bytes=read_sum,
        written_bytes=written_sum,
        seconds=tuple(times),
        temporary_bytes=peak_temporary_bytes(ops, inputs, outputs, kernels),
        output_bytes=sum(nbytes(value.type) for value in outputs),
    )
