"""``baechi place --objective step``: Baechi's graphs, placed for the time of one step.

These are problems of ``PlacementProblem``: tensors go from device to device, by the communication
model of the graphs' authors, and the simulator judges.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from baechi_jax.passes.placement.auto import Choice
    from baechi_jax.passes.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class StepPlacement:
    """A placement of a graph."""

    problem: PlacementProblem
    choice: Choice

    @property
    def seconds(self) -> float:
        """The simulated step."""
        return self.choice.best.simulation.makespan_seconds

    @property
    def bound_seconds(self) -> float:
        """No placement's step is shorter."""
        return min(self.choice.bound_seconds, self.seconds)

    @property
    def gap(self) -> float:
        """How far the step may be above the optimum, as a share of the step."""
        return max(0.0, self.choice.gap)


def place_step(
    file: Path, placer: str, *, time_limit: float, steps: int | None, seed: int
) -> StepPlacement | None:
    """Place the graph of ``file``; None if Ctrl-C came before there was a placement.

    ``auto`` searches on for ``time_limit`` seconds, or for ``steps`` if given.
    """
    from baechi_jax.passes.placement.auto import choose
    from baechi_jax.passes.placement.baechi_graph import read_baechi_graph
    from baechi_jax.passes.placement.improve import SearchBudget

    problem = read_baechi_graph(file).problem
    budget = SearchBudget(time_limit, steps)
    try:
        choice = choose(problem, placer, time_limit=time_limit, seed=seed, budget=budget)
    except KeyboardInterrupt:
        return None
    return StepPlacement(problem, choice)


def write_step(path: Path, found: StepPlacement) -> None:
    """Write the devices' ops in the form of a split; ids are the ops' indices in the file."""
    from baechi_jax.ir.files import write_text_atomically

    write_text_atomically(path, json.dumps(_content(found), indent=1) + "\n")


def step_figures(found: StepPlacement) -> dict[str, Any]:
    """The placement as JSON's values."""
    best = found.choice.best
    return {
        "winner": best.placement.placer,
        "status": best.placement.status,
        "seconds": found.seconds,
        "bound_seconds": found.bound_seconds,
        "gap": found.gap,
        "notes": list(best.placement.notes),
        "history": [
            {
                "placer": each.placement.placer,
                "seconds": each.simulation.makespan_seconds,
                "fits": each.fits,
            }
            for each in found.choice.candidates
        ],
        "devices": [
            {
                "device": device,
                "ops": best.placement.assignment.count(device),
                "busy_seconds": best.simulation.busy_seconds[device],
                "peak_bytes": int(best.simulation.peak_bytes[device]),
                "memory_bytes": int(found.problem.machine.limit_bytes[device]),
            }
            for device in range(found.problem.devices)
        ],
        "split": _content(found),
    }


def step_tables(found: StepPlacement, title: str, elapsed_seconds: float) -> list[Table | str]:
    """The placement for the terminal: candidates, devices, figures."""
    from rich import box
    from rich.table import Table

    best = found.choice.best
    parts: list[Table | str] = []
    if len(found.choice.candidates) > 1:
        table = Table(title="Portfolio", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("placer", no_wrap=True)
        table.add_column("step", justify="right")
        table.add_column("fits")
        for each in found.choice.candidates:
            seconds = format_seconds(each.simulation.makespan_seconds)
            table.add_row(each.placement.placer, seconds, "yes" if each.fits else "no")
        parts.append(table)
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("device", no_wrap=True)
    for heading in ("ops", "busy", "of the step", "peak", "limit", "full"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in step_figures(found)["devices"]:
        table.add_row(
            str(each["device"]),
            str(each["ops"]),
            format_seconds(each["busy_seconds"]),
            f"{100 * each['busy_seconds'] / found.seconds:.0f}%" if found.seconds else "-",
            format_bytes(each["peak_bytes"]),
            format_bytes(each["memory_bytes"]),
            f"{100 * each['peak_bytes'] / each['memory_bytes']:.1f}%",
        )
    step = f"Simulated step {format_seconds(found.seconds)}"
    bound = f"lower bound {format_seconds(found.bound_seconds)}, gap {100 * found.gap:.2f}%"
    how = f"by {best.placement.placer} ({best.placement.status})"
    line = f"{step}; {bound}.\n{how} in {format_seconds(elapsed_seconds)}."
    return [*parts, table, line, *(f"note: {note}" for note in best.placement.notes)]


def _content(found: StepPlacement) -> dict[str, Any]:
    assignment = found.choice.best.placement.assignment
    devices: list[list[int]] = [[] for _ in range(found.problem.devices)]
    for op, device in enumerate(assignment):
        devices[device].append(op)
    return {"cpus": [], "fpgas": [{"nodes": nodes} for nodes in devices]}
