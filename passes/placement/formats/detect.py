"""Which format a workload file is in, by its content, and what every workload must keep."""

from __future__ import annotations

from pathlib import Path

from baechi_jax.passes.placement.formats import dnn_partitioning, own, pipedream, piper
from baechi_jax.passes.placement.formats.fields import load_text, parse_object
from baechi_jax.passes.placement.formats.machine import Machine, on_machine
from baechi_jax.passes.placement.workload import Workload, WorkloadError, topological_order


def read_workload(path: str | Path, machine: Machine | None = None) -> Workload:
    """Read a workload file of any known format; it may be compressed by gzip.

    What ``machine`` says replaces what the file says about the devices; PipeDream's format says
    nothing, so that it needs the number of devices. Raises WorkloadError naming the file, the field
    and the reason.
    """
    text = load_text(path)
    file = str(path)
    workload = _read(text, file, machine if machine is not None else Machine())
    if not workload.size:
        raise WorkloadError(f"{file}: nodes: the workload has no nodes")
    if not workload.devices:
        raise WorkloadError(f"{file}: the workload has no devices")
    try:
        topological_order(workload)
    except WorkloadError as error:
        raise WorkloadError(f"{file}: edges: {error}") from error
    return workload


def _read(text: str, file: str, machine: Machine) -> Workload:
    if not text.lstrip().startswith(("{", "[")):
        if text.lstrip().startswith("node"):
            return pipedream.read(text, file, machine)
        raise WorkloadError(
            f"{file}: neither a JSON object nor PipeDream's 'nodeK -- ...' lines; it begins with "
            f"{text.lstrip()[:20]!r}"
        )
    root = parse_object(text, file)
    if "maxDevices" in root.values:
        return on_machine(piper.read(root, machine.bytes_per_second), machine, file)
    if "format" in root:
        if root.text("format") != own.FORMAT:
            raise root.fault("format", f"expected '{own.FORMAT}', found {root.get('format')!r}")
        found = own.read(root)
    elif "maxFPGAs" in root.values:
        found = dnn_partitioning.read(root)
    elif "compute_us" in root.values:
        raise root.fault(
            "compute_us",
            "a graph of Baechi's, whose problem is the time of one step with tensors sent from "
            "device to device; place it with --objective step. Throughput and latency are asked of "
            "dnn-partitioning's, Piper's, PipeDream's and our own files",
        )
    else:
        raise WorkloadError(
            f"{file}: not a workload of a known format: no field 'maxFPGAs' (dnn-partitioning), "
            f"'maxDevices' (Piper) or 'format' ('{own.FORMAT}')"
        )
    if machine.bytes_per_second is not None:
        raise WorkloadError(
            f"{file}: the file says how long transfers take, not how many bytes they move, so a "
            "bandwidth cannot replace that; leave it out"
        )
    return on_machine(found, machine, file)
