"""Baechi's placers against the placements and the seconds of their authors' own program.

For each graph in ``DATA/baechi``: seconds of placing (CPU seconds of this process, the median of
several runs; the compilation of kernels apart) against the seconds recorded for the authors'
program, and the step that the simulator gives under the authors' communication model, ours against
theirs. ``auto`` has ``--budget`` seconds of search for each graph and is compared with the best of
the authors' three placers and of one device. Every placement of ours is simulated anew from its
assignment, and its peaks are checked against the limits.

- ``m_etf_speedup_min``, ``m_sct_speedup_min``: the least over the graphs of 10,000 operations;
  ``m_etf_100k_seconds``: a generated graph of 100,000; ``m_etf_100k_tight_seconds``: with limits
  that bind.
- ``makespan_ratio_max``, ``makespan_ratio_geomean``: m-etf and m-sct on every graph, our step
  divided by the authors' by the same placer.
- ``auto_over_best_max``, ``auto_over_best_geomean``: auto's step divided by the best of the
  authors' three and of one device.
- ``authors_reproduced``: in how many of the authors' placements the simulator gives their own
  simulator's makespan to the microsecond.
- ``gnmt_260mb_...``: the GNMT graph with 260 MB for each device.

Run: ``python benchmarks/placement.py --data ../shared/data``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from baechi_jax.passes.placement.auto import choose
from baechi_jax.passes.placement.baechi_graph import BaechiGraph, read_baechi_graph
from baechi_jax.passes.placement.bounds import makespan_bound, memory_gap
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.placement.improve import SearchBudget
from baechi_jax.passes.placement.m_etf import m_etf
from baechi_jax.passes.placement.m_sct import m_sct
from baechi_jax.passes.placement.machine import MICROSECOND, Machine
from baechi_jax.passes.placement.placement import Placement
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.synthetic import layered_problem
from baechi_jax.passes.simulate.simulator import simulate

PLACERS: dict[str, Callable[[PlacementProblem], Placement]] = {"m-etf": m_etf, "m-sct": m_sct}
LARGE_NODES = 10_000
SMALL_LIMIT_BYTES = 260_000_000
#: Steps of the search for the smallest limit.
LIMIT_STEPS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One placer on one graph; microseconds."""

    graph: str
    nodes: int
    placer: str
    seconds: float
    authors_seconds: float
    step_us: float
    authors_us: float
    bound_us: float
    note: str = ""

    @property
    def speedup(self) -> float:
        """How many times faster than the authors' program."""
        return self.authors_seconds / self.seconds

    @property
    def ratio(self) -> float:
        """Our step over theirs."""
        return self.step_us / self.authors_us


def cpu_seconds(
    place: Callable[[PlacementProblem], Placement], problem: PlacementProblem, runs: int
) -> tuple[float, Placement]:
    """The median of ``runs``, each on a problem of which nothing is derived yet."""
    seconds: list[float] = []
    placement: Placement | None = None
    for _ in range(runs):
        fresh = replace(problem)
        before = time.process_time()
        placement = place(fresh)
        seconds.append(time.process_time() - before)
    assert placement is not None
    return statistics.median(seconds), placement


def step_us(problem: PlacementProblem, assignment: Sequence[int]) -> float:
    """The simulated step; raises ValueError when it passes a limit or splits a group."""
    for members in problem.members:
        if len({assignment[node] for node in members}) != 1:
            raise ValueError("a group is on several devices")
    simulation = simulate(problem, assignment)
    if not simulation.fits(problem.machine.limit_bytes.tolist()):
        raise ValueError(f"peaks {simulation.peak_bytes} pass the limits")
    return simulation.makespan_seconds / MICROSECOND


def measure(graph: BaechiGraph, runs: int, budget_seconds: float) -> list[Row]:
    """All placers on one graph."""
    problem = graph.problem
    bound = makespan_bound(problem) / MICROSECOND
    rows: list[Row] = []
    for name, place in PLACERS.items():
        seconds, placement = cpu_seconds(place, problem, runs)
        authors = graph.authors[name]
        rows.append(
            Row(
                graph.name,
                problem.nodes,
                name,
                seconds,
                authors.placement_seconds,
                step_us(problem, placement.assignment),
                authors.makespan_us,
                bound,
            )
        )
    theirs = {name: float(each.makespan_us) for name, each in graph.authors.items()}
    theirs["one device"] = step_us(problem, (0,) * problem.nodes)
    best = min(theirs, key=theirs.__getitem__)
    before = time.process_time()
    choice = choose(replace(problem), "auto", budget=SearchBudget(budget_seconds))
    rows.append(
        Row(
            graph.name,
            problem.nodes,
            "auto",
            time.process_time() - before,
            sum(each.placement_seconds for each in graph.authors.values()),
            step_us(problem, choice.best.placement.assignment),
            theirs[best],
            bound,
            f"{choice.best.placement.placer}; theirs: {best}",
        )
    )
    return rows


def first_calls(graph: BaechiGraph) -> float:
    """CPU seconds of the first placements, in which kernels are compiled or read from disk."""
    before = time.process_time()
    for place in PLACERS.values():
        place(replace(graph.problem))
    return time.process_time() - before


def hundred_thousand(limit_bytes: int, runs: int) -> float:
    """CPU seconds of m-etf on a generated graph, under the project's links."""
    machine = Machine.uniform_of(
        4, limit_bytes, latency_seconds=134e-6, seconds_per_byte=0.0001754e-6
    )
    problem = layered_problem(100_000, 64, machine)
    return cpu_seconds(m_etf, problem, runs)[0]


def small_memory(graph: BaechiGraph) -> dict[str, object]:
    """What becomes of ``graph`` with ``SMALL_LIMIT_BYTES`` for each device."""
    problem = graph.problem

    def limited(nbytes: int) -> PlacementProblem:
        return problem.with_limits([nbytes] * problem.devices)

    def peaks(nbytes: int) -> list[int] | None:
        try:
            return choose(limited(nbytes), "auto").best.simulation.peak_bytes
        except InfeasiblePlacementError:
            return None

    result: dict[str, object] = {}
    found = peaks(SMALL_LIMIT_BYTES)
    result["gnmt_260mb_fits"] = found is not None
    if found is not None:
        result["gnmt_260mb_peak_bytes"] = max(found)
        return result
    gap = memory_gap(limited(SMALL_LIMIT_BYTES))
    result["gnmt_260mb_proven_infeasible"] = gap is not None
    least = SMALL_LIMIT_BYTES
    if gap is not None:
        least = gap.needed_bytes if gap.group >= 0 else -(-gap.needed_bytes // problem.devices)
        result["gnmt_260mb_reason"] = (
            f"while {problem.node_names[gap.node]} runs, its group alone takes "
            f"{gap.needed_bytes} bytes on one device"
            if gap.group >= 0
            else f"while {problem.node_names[gap.node]} runs, {gap.needed_bytes} bytes live on all "
            "devices together"
        )
    result["gnmt_smallest_limit_bound_bytes"] = least
    low, high = least, int(problem.machine.limit_bytes.max())
    for _ in range(LIMIT_STEPS):
        tried = peaks(low)
        if tried is not None:
            high = max(tried)
            break
        # Peaks of what fits below a limit are often far below it.
        middle = min((low + high) // 2, int(low * 1.25))
        tried = peaks(middle)
        if tried is None:
            low = middle
        else:
            high = max(tried)
        if high <= low * 1.01:
            break
    result["gnmt_smallest_limit_reached_bytes"] = high
    return result


def geomean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def table(rows: Sequence[Row]) -> str:
    """A markdown table."""
    head = (
        "| graph | placer | seconds | authors' seconds | times faster | step, us "
        "| authors' step, us | ratio | lower bound, us | note |"
    )
    lines = [
        head,
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {row.graph} | {row.placer} | {row.seconds:.3f} | {row.authors_seconds:.2f} "
        f"| {row.speedup:.0f} | {row.step_us:.0f} | {row.authors_us:.0f} | {row.ratio:.3f} "
        f"| {row.bound_us:.0f} | {row.note} |"
        for row in rows
    ]
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> dict[str, object]:
    """The figures of the table."""
    listed = [row for row in rows if row.placer != "auto"]
    large = [row for row in listed if row.nodes >= LARGE_NODES]
    autos = [row for row in rows if row.placer == "auto"]
    ratios = [row.ratio for row in listed]
    return {
        **{
            f"{name.replace('-', '_')}_speedup_min": round(
                min((row.speedup for row in large if row.placer == name), default=0.0), 1
            )
            for name in PLACERS
        },
        "makespan_ratio_max": round(max(ratios), 4),
        "makespan_ratio_geomean": round(geomean(ratios), 4),
        "auto_over_best_max": round(max(row.ratio for row in autos), 4),
        "auto_over_best_geomean": round(geomean([row.ratio for row in autos]), 4),
        "auto_over_bound_max": round(max(row.step_us / row.bound_us for row in autos), 4),
    }


def reproduced(graphs: Sequence[BaechiGraph]) -> tuple[int, int]:
    """How many of the authors' makespans the simulator gives, and of how many."""
    right = total = 0
    for graph in graphs:
        for each in graph.authors.values():
            seconds = simulate(graph.problem, each.assignment).makespan_seconds
            right += abs(seconds / MICROSECOND - each.makespan_us) < 1e-3
            total += 1
    return right, total


def main() -> None:
    """Measure everything, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of search for auto")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--graphs", nargs="*", default=[], help="parts of names; all by default")
    parser.add_argument("--write-results", type=Path, nargs="?", const=Path("docs/results"))
    options = parser.parse_args()
    graphs = [
        read_baechi_graph(path)
        for path in sorted((options.data / "baechi").glob("*.json.gz"))
        if not options.graphs or any(part in path.name for part in options.graphs)
    ]
    first_seconds = first_calls(max(graphs, key=lambda each: each.problem.nodes))
    rows: list[Row] = []
    for graph in graphs:
        rows += measure(graph, options.runs, options.budget)
        print(table(rows[-3:]).split("\n", 2)[2], flush=True)
    result: dict[str, object] = {"benchmark": "placement", **summary(rows)}
    result["m_etf_100k_seconds"] = round(hundred_thousand(1 << 50, options.runs), 3)
    result["m_etf_100k_tight_seconds"] = round(hundred_thousand(400 << 20, 1), 3)
    right, total = reproduced(graphs)
    result["authors_reproduced"] = f"{right}/{total}"
    gnmt = next((graph for graph in graphs if graph.name.startswith("gnmt")), None)
    if gnmt is not None:
        result.update(small_memory(gnmt))
    result["first_call_seconds"] = round(first_seconds, 2)
    text = table(rows)
    print(text)
    if options.write_results is not None:
        write_results(options.write_results / "placement.md", text, result)
    print(json.dumps(result))


def write_results(path: Path, text: str, result: dict[str, object]) -> None:
    """The tables as a page."""
    figures = "\n".join(f"| `{key}` | {value} |" for key, value in result.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "# Baechi's placers, measured\n\n"
        "Written by `benchmarks/placement.py`, whose docstring says what each figure is. Steps are "
        "simulated under the authors' communication model, theirs and ours by one simulator; "
        "seconds are CPU seconds, theirs as recorded.\n\n"
        f"{text}\n\n| figure | value |\n| --- | --- |\n{figures}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
