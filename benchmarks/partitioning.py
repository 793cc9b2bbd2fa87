"""Partitioning: the 24 workloads of Tarnawski et al. (NeurIPS 2020) beside what the authors reach.

- Contiguous throughput: ``ideals`` on the 16 throughput workloads against the authors' dynamic
  program (``contiguous_optimal``, ``dp_speedup_min`` in CPU seconds where theirs takes over one,
  ``dp_peak_mb_max``, ``inception_seconds``).
- Non-contiguous throughput: ``auto`` against the best value that any of the authors' programs, or
  HiGHS in 300 s, reached (``noncontiguous_at_most``, ``noncontiguous_better`` among those that are
  not proved optimal).
- Latency: ``auto`` on the 8 latency workloads against the best feasible value
  (``latency_at_most``, ``latency_tenth_better``, ``latency_gap_max``).

Each measurement is a process of its own, which first compiles its kernels on a tiny workload and
says apart what that took. Memory is the whole process's, interpreter and libraries included. Every
split is judged again by the judges of ``split.py`` and ``latency/judge.py``. With ``--cache`` what
is measured is kept, and a later run takes it up; after a change of the placers it is measured anew.

Values are in the files' milliseconds. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Relative difference that counts as equal; the authors print some values with six digits.
EQUAL = 2e-6
#: Seconds that a placer may take above its limit before its process is ended.
GRACE_SECONDS = 300.0

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("contiguous", "noncontiguous", "latency")


@dataclass(frozen=True, slots=True)
class Published:
    """What the authors' programs and HiGHS reach on a workload, from ``measured.csv``."""

    #: Value, or infinity, by algorithm; those that break the memory limit are left out.
    values: Mapping[str, float]
    #: The same for those that break it.
    broken: Mapping[str, float]
    bounds: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    peak_mb: Mapping[str, float]

    @property
    def best(self) -> float:
        """The best feasible value."""
        return min(self.values.values())

    @property
    def proved(self) -> bool:
        """Whether the best value is proved optimal."""
        return max(self.bounds.values(), default=0.0) >= self.best * (1 - EQUAL)


@dataclass(frozen=True, slots=True)
class Result:
    """One placer on one workload, in a process of its own; times of the workload in ms."""

    kind: str
    workload: str
    placer: str
    winner: str
    status: str
    value: float
    bound: float
    cpu_seconds: float
    wall_seconds: float
    compile_seconds: float
    peak_mb: float
    faults: tuple[str, ...]
    #: Name, value and seconds taken, in order, of each placer of a portfolio.
    history: tuple[tuple[str, float, float], ...]
    limit_seconds: float

    @property
    def gap(self) -> float:
        """How far the value may be above the optimum, as a share of the value."""
        return max(0.0, 1.0 - self.bound / self.value) if self.value > 0 else 0.0


def main() -> int:
    """Measure, print the tables and the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--workloads", nargs="*", default=[], help="only those with such a name")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each run of auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="folder of results, to take up a run")
    parser.add_argument("--keep", action="store_true", help="cached results of older code count")
    parser.add_argument("--write-results", type=Path, nargs="?", const=ROOT / "docs/results.md")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, file = options.one
        print(json.dumps(asdict(measure(kind, Path(file), options.seconds, options.seed))))
        return 0
    folder = options.data / "dnn-partitioning"
    if not folder.is_dir():
        print(f"{folder}: the published workloads are not there; see --data", file=sys.stderr)
        print(json.dumps({"benchmark": "partitioning", "skipped": "no data"}))
        return 0
    published = read_published(folder / "measured.csv")
    results = []
    for kind, name in jobs(folder, options.kinds, options.workloads):
        result = run_one(kind, folder / name, name, options)
        best = published[name].best if kind != "contiguous" else published[name].values["dp"]
        print(
            f"{kind:13} {short(name):32} {result.value:10.3f} (published {best:.3f}) "
            f"gap {result.gap:6.1%} {result.winner:16} {result.cpu_seconds:7.2f} s CPU "
            f"{result.peak_mb:5.0f} MB {' '.join(result.faults)}",
            file=sys.stderr,
            flush=True,
        )
        results.append(result)
    figures = summary(results, published)
    show(results, published)
    if options.write_results is not None:
        from partitioning_page import write_page

        write_page(options.write_results, results, published, figures)
    print(json.dumps({"benchmark": "partitioning", "seconds": options.seconds} | figures))
    return 0


# What there is to measure -----------------------------------------------------------------------


def jobs(folder: Path, kinds: Sequence[str], wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Kind and workload of each measurement."""
    found = []
    for kind in KINDS:
        inputs = "latency-inputs" if kind == "latency" else "throughput-inputs"
        for path in sorted(folder.glob(f"{inputs}/*/*.json"), key=lambda path: str(path).lower()):
            name = path.relative_to(folder).as_posix()
            if kind in kinds and (not wanted or any(each in name for each in wanted)):
                found.append((kind, name))
    return found


def read_published(path: Path) -> dict[str, Published]:
    """The authors' figures by workload."""
    found: dict[str, Published] = {}
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            wanted = "latency" if row["workload"].startswith("latency") else "max_load"
            if row["objective_kind"] != wanted or not row["objective"]:
                continue
            name, algorithm = row["workload"], row["algorithm"]
            entry = found.setdefault(name, Published({}, {}, {}, {}, {}))
            value = float(row["objective"])
            broken = "VIOLATES" in row["note"]
            target = entry.broken if broken else entry.values
            assert isinstance(target, dict)
            target[algorithm] = value
            for column, values in (
                ("seconds", entry.cpu_seconds),
                ("peak_mb", entry.peak_mb),
                ("lower_bound", entry.bounds),
            ):
                # A contiguous program's bound says nothing about other splits.
                if row[column] and not (column == "lower_bound" and "_contig" in algorithm):
                    assert isinstance(values, dict)
                    values[algorithm] = float(row[column])
    return found


def short(name: str) -> str:
    """``layers gnmt training`` for ``throughput-inputs/LayerGraphs/gnmt_training.json``."""
    _, level, file = name.split("/")
    graph, _, mode = file.removesuffix(".json").rpartition("_")
    level = "layers" if level == "LayerGraphs" else "ops"
    return f"{level} {graph.lower()} {mode}"


# Measuring --------------------------------------------------------------------------------------


def run_one(kind: str, path: Path, name: str, options: argparse.Namespace) -> Result:
    """The result of one measurement: from the cache, or from a new process."""
    code = "any" if options.keep else code_fingerprint()
    label = f"{kind}-{short(name).replace(' ', '-')}"
    cached = None if options.cache is None else options.cache / f"{label}.json"
    if cached is not None and cached.exists():
        entry = json.loads(cached.read_text(encoding="utf-8"))
        same_limit = kind == "contiguous" or entry["result"]["limit_seconds"] == options.seconds
        if same_limit and entry["seed"] == options.seed and code in ("any", entry["code"]):
            return as_result(entry["result"])
    command = [sys.executable, __file__, "--one", kind, str(path)]
    command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=options.seconds + GRACE_SECONDS,
    )
    values = json.loads(done.stdout.splitlines()[-1]) | {"workload": name}
    if cached is not None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        entry = {"code": code_fingerprint(), "seed": options.seed, "result": values}
        temporary = cached.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
        temporary.replace(cached)
    return as_result(values)


def as_result(values: dict[str, Any]) -> Result:
    """A result from JSON's values."""
    history = tuple((str(name), value, took) for name, value, took in values["history"])
    return Result(**(values | {"faults": tuple(values["faults"]), "history": history}))


def code_fingerprint() -> str:
    """Changes when the source of the partitioners does."""
    placement = ROOT / "passes" / "placement"
    files = [*placement.glob("*.py")]
    files += [
        each for part in ("throughput", "latency") for each in (placement / part).glob("*.py")
    ]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def measure(kind: str, path: Path, seconds: float, seed: int) -> Result:
    """Run the placer of ``kind`` on the workload in ``path``, here and now."""
    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.formats import read_workload
    from baechi_jax.passes.placement.latency.placers import PLACERS as LATENCY
    from baechi_jax.passes.placement.partitioning import Latency, Partitioning, Throughput
    from baechi_jax.passes.placement.throughput.placers import PLACERS as THROUGHPUT
    from baechi_jax.passes.placement.workload import Workload

    objective: Throughput | Latency
    objective = Latency() if kind == "latency" else Throughput(contiguous=kind == "contiguous")
    placer = "ideals" if kind == "contiguous" else "auto"

    def solve(workload: Workload, limit: float) -> Partitioning:
        if isinstance(objective, Latency):
            return LATENCY[placer](workload, objective, Budget(limit, seed))
        return THROUGHPUT[placer](workload, objective, Budget(limit, seed))

    workload = read_workload(path)
    before = time.process_time()
    solve(tiny_workload(), 1.0)
    compile_seconds = time.process_time() - before
    before, began = time.process_time(), time.monotonic()
    # The exact program has no limit: it is measured to its end.
    found = solve(workload, math.inf if kind == "contiguous" else seconds)
    wall, cpu = time.monotonic() - began, time.process_time() - before
    value, faults = objective.seconds(workload, found.split)
    return Result(
        kind=kind,
        workload=str(path),
        placer=placer,
        winner=found.placer,
        status=found.status,
        value=value * 1e3,
        bound=found.bound_seconds * 1e3,
        cpu_seconds=cpu,
        wall_seconds=wall,
        compile_seconds=compile_seconds,
        peak_mb=peak_mb(),
        faults=faults,
        history=tuple((name, each * 1e3, took) for name, each, took in found.history),
        limit_seconds=seconds,
    )


def tiny_workload() -> Any:
    """Four nodes on two accelerators and a host: what compiles the kernels."""
    import numpy as np

    from baechi_jax.passes.placement.workload import DeviceClass, Workload

    ones = np.ones(4)
    return Workload(
        names=("a", "b", "c", "d"),
        ids=(0, 1, 2, 3),
        bytes=ones,
        transfer_seconds=ones / 4,
        backward=np.zeros(4, bool),
        colour=np.full(4, -1, np.int64),
        edges=np.array([[0, 1], [0, 2], [1, 3], [2, 3]], np.int64),
        classes=(
            DeviceClass("accelerator", 2, 3.0, ones),
            DeviceClass("host", 1, math.inf, 10 * ones, transfers=False),
        ),
        parameter_bytes=np.zeros(4),
    )


def peak_mb() -> float:
    """Most memory that this process has held, in MB (10^6 bytes)."""
    try:
        # Unlike getrusage's figure, this one is not inherited from the parent process.
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


# Judging ----------------------------------------------------------------------------------------


def summary(results: Sequence[Result], published: Mapping[str, Published]) -> dict[str, Any]:
    """The keys of the JSON line; a count with nothing measured is null."""
    by_kind = {kind: [each for each in results if each.kind == kind] for kind in KINDS}
    contiguous, others, latency = (by_kind[kind] for kind in KINDS)
    speedups = {
        each.workload: published[each.workload].cpu_seconds["dp"] / max(each.cpu_seconds, 1e-9)
        for each in contiguous
        if published[each.workload].cpu_seconds["dp"] > 1
    }
    inception = [each.cpu_seconds for each in contiguous if "inception" in each.workload]
    return {
        "measured": {kind: len(found) for kind, found in by_kind.items()},
        "contiguous_optimal": sum(
            abs(each.value / published[each.workload].values["dp"] - 1) <= EQUAL
            for each in contiguous
            if not each.faults
        ),
        "dp_speedup_min": rounded(min(speedups.values(), default=None)),
        "dp_peak_mb_max": rounded(max((each.peak_mb for each in contiguous), default=None)),
        "inception_seconds": rounded(max(inception, default=None)),
        "compile_seconds_max": rounded(max((each.compile_seconds for each in results), default=0)),
        "noncontiguous_at_most": sum(at_most(each, published) for each in others),
        "noncontiguous_better": sum(
            better(each, published) and not published[each.workload].proved for each in others
        ),
        "noncontiguous_gap_max": rounded(max((each.gap for each in others), default=None), 4),
        "latency_at_most": sum(at_most(each, published) for each in latency),
        "latency_tenth_better": sum(
            not each.faults and each.value <= 0.9 * published[each.workload].best
            for each in latency
        ),
        "latency_gap_max": rounded(max((each.gap for each in latency), default=None), 4),
        "faults": sum(bool(each.faults) for each in results),
        "workloads": {
            f"{each.kind} {short(each.workload)}": {
                "value": rounded(each.value, 4),
                "bound": rounded(each.bound, 4),
                "published": rounded(
                    published[each.workload].values["dp"]
                    if each.kind == "contiguous"
                    else published[each.workload].best,
                    4,
                ),
                "winner": each.winner,
                "cpu_seconds": rounded(each.cpu_seconds, 3),
            }
            for each in results
        },
    }


def at_most(result: Result, published: Mapping[str, Published]) -> bool:
    """Whether a valid split is as good as the best published one."""
    return not result.faults and result.value <= published[result.workload].best * (1 + EQUAL)


def better(result: Result, published: Mapping[str, Published]) -> bool:
    """Whether a valid split is better than the best published one."""
    return not result.faults and result.value < published[result.workload].best * (1 - EQUAL)


def rounded(value: float | None, digits: int = 2) -> float | None:
    """``value`` with so many digits after the point; infinite and missing ones are null."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def show(results: Sequence[Result], published: Mapping[str, Published]) -> None:
    """The table on the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    for kind in KINDS:
        found = [each for each in results if each.kind == kind]
        if not found:
            continue
        table = Table(title=f"{kind}, ms per sample", box=box.SIMPLE_HEAD)
        table.add_column("workload", no_wrap=True)
        for heading in ("published", "here", "ratio", "bound", "gap", "CPU s", "MB"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("winner", no_wrap=True)
        for each in found:
            entry = published[each.workload]
            best = entry.values["dp"] if kind == "contiguous" else entry.best
            table.add_row(
                short(each.workload),
                f"{best:.3f}",
                f"{each.value:.3f}",
                f"{each.value / best:.4f}",
                f"{each.bound:.3f}",
                f"{each.gap:.1%}",
                f"{each.cpu_seconds:.2f}",
                f"{each.peak_mb:.0f}",
                each.winner,
            )
        Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    sys.exit(main())
