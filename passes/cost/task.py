"""The cost of a sequence of operations compiled and run as one program."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.operation import devices_of
from baechi_jax.passes.cost.program import program_of


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
    devices = devices_of(topology)
    program = program_of(ops, inputs, outputs, devices)
    work = program.work
    return Cost(
        flops=work.flops,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
        seconds=tuple(each + device.launch_seconds for each, device in zip(work.seconds, devices)),
        temporary_bytes=program.temporary_bytes(inputs, outputs, donated),
        output_bytes=sum(nbytes(value.type) for value in outputs),
    )
