"""Which format a workload file is in, by its content, and what every workload must keep."""

from __future__ import annotations

from pathlib import Path

from baechi_jax.passes.placement.formats import dnn_partitioning, own, pipedream, piper
from baechi_jax.passes.placement.formats.fields import load_text, parse_object
from baechi_jax.passes.placement.formats.pipedream import Machine
from baechi_jax.passes.placement.workload import Workload, WorkloadError, topological_order


def read_workload(path: str | Path, machine: Machine | None = None) -> Workload:
    """Read a workload file of any known format.

    ``machine`` is for PipeDream's format, which says nothing about the devices.
    Raises WorkloadError naming the file, the field and the reason.
    """
    text = load_text(path)
    file = str(path)
    workload = _read(text, file, machine)
    if not workload.size:
        raise WorkloadError(f"{file}: nodes: the workload has no nodes")
    if not workload.devices:
        raise WorkloadError(f"{file}: the workload has no devices")
    try:
        topological_order(workload)
    except WorkloadError as error:
        raise WorkloadError(f"{file}: edges: {error}") from error
    return workload


def _read(text: str, file: str, machine: Machine | None) -> Workload:
    if not text.lstrip().startswith(("{", "[")):
        if text.lstrip().startswith("node"):
            if machine is None:
                raise WorkloadError(
                    f"{file}: PipeDream's graph.txt does not say how many devices there are; give "
                    "a Machine (on the command line: --devices, --memory, --bandwidth)"
                )
            return pipedream.read(text, file, machine)
        raise WorkloadError(
            f"{file}: neither a JSON object nor PipeDream's 'nodeK -- ...' lines; it begins with "
            f"{text.lstrip()[:20]!r}"
        )
    root = parse_object(text, file)
    if "format" in root:
        if root.text("format") != own.FORMAT:
            raise root.fault("format", f"expected '{own.FORMAT}', found {root.get('format')!r}")
        return own.read(root)
    if "maxFPGAs" in root.values:
        return dnn_partitioning.read(root)
    if "maxDevices" in root.values:
        return piper.read(root)
    raise WorkloadError(
        f"{file}: not a workload of a known format: no field 'maxFPGAs' (dnn-partitioning), "
        f"'maxDevices' (Piper) or 'format' ('{own.FORMAT}')"
    )
