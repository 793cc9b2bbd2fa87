"""Splits of workloads as tables for the terminal and as figures for JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from baechi_jax.passes.placement.partitioning import Latency, Partitioning, Throughput
    from baechi_jax.passes.placement.split import DeviceLoad, Split, SplitReport
    from baechi_jax.passes.placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a split, whoever made it."""

    report: SplitReport
    #: Time of one sample alone; infinite where subgraphs wait for one another in a cycle.
    latency_seconds: float
    #: ``[device]``: subgraphs that it runs one after another; zero for the host.
    subgraphs: tuple[int, ...]
    faults: tuple[str, ...]


def judge(
    workload: Workload, split: Split, objective: Throughput, subgraphs: int | None
) -> Judgement:
    """Judge ``split`` for both objectives; more ``subgraphs`` than that many are a fault."""
    from baechi_jax.passes.placement.latency.judge import latency_of
    from baechi_jax.passes.placement.partitioning import Latency
    from baechi_jax.passes.placement.split import evaluate

    report = evaluate(
        workload,
        split.device_of,
        overlap=objective.overlap,
        replicas=split.replicas,
        replica_bytes_per_second=objective.replica_bytes_per_second,
    )
    latency = latency_of(workload, split)
    _, faults = objective.seconds(workload, split)
    if subgraphs is not None:
        faults += Latency(subgraphs).seconds(workload, split)[1]
    return Judgement(report, latency.seconds, latency.subgraphs, tuple(dict.fromkeys(faults)))


def judgement_figures(workload: Workload, judgement: Judgement) -> dict[str, Any]:
    """The judgement as JSON's values; what is infinite is null."""
    report = judgement.report
    return {
        "max_load_seconds": _finite(report.max_load_seconds),
        "sum_of_maxima_seconds": _finite(report.sum_of_maxima_seconds),
        "latency_seconds": _finite(judgement.latency_seconds),
        "contiguous": report.contiguous,
        "split_colours": list(report.split_colours),
        "faults": list(judgement.faults),
        "devices": [
            _device_figures(load, judgement.subgraphs[load.device]) for load in report.devices
        ],
        "warnings": list(workload.warnings),
    }


def partitioning_figures(
    workload: Workload, objective: Throughput | Latency, found: Partitioning
) -> dict[str, Any]:
    """What a placer found, as JSON's values."""
    from baechi_jax.passes.placement.partitioning import Throughput

    terms = objective if isinstance(objective, Throughput) else Throughput()
    return {
        "winner": found.placer,
        "status": found.status,
        "seconds": found.seconds,
        "bound_seconds": found.bound_seconds,
        "gap": found.gap,
        "notes": list(found.notes),
        "history": [
            {"placer": name, "seconds": _finite(value), "took_seconds": took}
            for name, value, took in found.history
        ],
    } | judgement_figures(workload, judge(workload, found.split, terms, None))


def partitioning_tables(
    workload: Workload,
    objective: Throughput | Latency,
    found: Partitioning,
    title: str,
    elapsed_seconds: float,
    *,
    wide: bool = True,
) -> list[Table | str]:
    """What a placer found: its portfolio if it has one, the devices, the figures.

    Not ``wide``: within 80 columns.
    """
    from baechi_jax.passes.placement.partitioning import Throughput

    terms = objective if isinstance(objective, Throughput) else Throughput()
    judgement = judge(workload, found.split, terms, None)
    lines = [f"{_value_name(objective)} {format_seconds(found.seconds)}"]
    if found.bound_seconds > 0:
        lines[0] += (
            f"; lower bound {format_seconds(found.bound_seconds)}, gap {_percent(found.gap)}"
        )
    else:
        lines[0] += "; no lower bound"
    lines.append(f"by {found.placer} ({found.status}) in {format_seconds(elapsed_seconds)}")
    parts: list[Table | str] = []
    if len(found.history) > 1:
        parts.append(_history_table(found))
    parts.append(_device_table(workload, judgement, title, wide))
    return [*parts, ".\n".join(lines) + ".", *(f"note: {note}" for note in found.notes)]


def judgement_tables(
    workload: Workload, judgement: Judgement, title: str, *, wide: bool = True
) -> list[Table | str]:
    """The judgement: devices, then the figures of the whole. Not ``wide``: within 80 columns."""
    report = judgement.report
    colours = len({colour for colour in workload.colour.tolist() if colour >= 0})
    several = len(report.split_colours)
    latency = "none: subgraphs wait for one another in a cycle"
    if math.isfinite(judgement.latency_seconds):
        most = max(judgement.subgraphs, default=0)
        latency = f"{format_seconds(judgement.latency_seconds)}, at most {most} subgraph"
        latency += ("" if most == 1 else "s") + " on an accelerator"
    lines = [
        f"largest load      {_seconds(report.max_load_seconds)}",
        f"sum of maxima     {_seconds(report.sum_of_maxima_seconds)}",
        f"latency           {latency}",
        f"contiguous        {'yes' if report.contiguous else 'no'}",
        f"colours           {colours - several} of {colours} on one device",
    ]
    if judgement.faults:
        lines.append("NOT VALID:")
        lines += [f"  {fault}" for fault in judgement.faults]
    else:
        lines.append("valid")
    return [_device_table(workload, judgement, title, wide), "\n".join(lines)]


def _device_table(workload: Workload, judgement: Judgement, title: str, wide: bool) -> Table:
    table = _empty_table(title)
    loads = judgement.report.devices
    copied = any(load.replicas > 1 for load in loads)
    parts = max(judgement.subgraphs, default=0) > 1
    training = wide and bool(workload.backward.any())
    table.add_column("device", no_wrap=True)
    headings = ["nodes", "compute", "transfers" if wide else "moves", "load"]
    headings += ["forward", "backward"] if training else []
    headings += ["memory", "limit", "full"] if wide else ["memory", "full"]
    headings += ["subgraphs" if wide else "parts"] if parts else []
    headings += ["replicas"] if copied else []
    for heading in [*headings, "contiguous" if wide else "contig."]:
        table.add_column(heading, justify="right", no_wrap=True)
    for load, last in _runs(loads):
        number = str(load.device) if last == load.device else f"{load.device}-{last}"
        row = [f"{number} {load.class_name}", str(load.nodes)]
        row += [_seconds(each) for each in (load.compute_seconds, load.transfer_seconds)]
        row.append(_seconds(load.seconds))
        if training:
            row += [_seconds(load.forward_seconds), _seconds(load.backward_seconds)]
        limited = math.isfinite(load.memory_bytes) and load.memory_bytes > 0
        row.append(format_bytes(load.bytes))
        row += [format_bytes(load.memory_bytes) if limited else "-"] if wide else []
        row.append(_percent(load.bytes / load.memory_bytes) if limited else "-")
        row += [str(judgement.subgraphs[load.device])] if parts else []
        row += [str(load.replicas)] if copied else []
        table.add_row(*row, "yes" if load.contiguous else "no")
    return table


def _runs(loads: tuple[DeviceLoad, ...]) -> list[tuple[DeviceLoad, int]]:
    """Rows of the table, with the last device of each: idle equal devices in a row are one."""
    rows: list[tuple[DeviceLoad, int]] = []
    for load in loads:
        before = rows[-1][0] if rows else None
        idle = before is not None and not (before.nodes or load.nodes)
        if idle and before is not None and before.class_name == load.class_name:
            rows[-1] = (before, load.device)
        else:
            rows.append((load, load.device))
    return rows


def _history_table(found: Partitioning) -> Table:
    table = _empty_table("Portfolio")
    table.add_column("placer", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("took", justify="right")
    for name, value, took in found.history:
        table.add_row(name, _seconds(value), format_seconds(took))
    return table


def _empty_table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=title, box=box.SIMPLE_HEAD, padding=0)


def _device_figures(load: DeviceLoad, subgraphs: int) -> dict[str, Any]:
    return {
        "device": load.device,
        "class": load.class_name,
        "nodes": load.nodes,
        "compute_seconds": _finite(load.compute_seconds),
        "transfer_seconds": load.transfer_seconds,
        "load_seconds": _finite(load.seconds),
        "forward_seconds": _finite(load.forward_seconds),
        "backward_seconds": _finite(load.backward_seconds),
        "bytes": load.bytes,
        "memory_bytes": _finite(load.memory_bytes),
        "contiguous": load.contiguous,
        "replicas": load.replicas,
        "subgraphs": subgraphs,
    }


def _value_name(objective: Throughput | Latency) -> str:
    from baechi_jax.passes.placement.partitioning import Throughput

    if not isinstance(objective, Throughput):
        return "Latency of one sample"
    if objective.sum_of_maxima:
        return "Largest forward load plus largest backward load"
    return "Largest load, the time per sample of a pipeline,"


def _seconds(value: float) -> str:
    return format_seconds(value) if math.isfinite(value) else "-"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%" if share >= 1e-5 else "0%"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
