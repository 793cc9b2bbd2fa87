"""What ``benchmarks/partitioning.py`` counts, and the page it writes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

THROUGHPUT = "throughput-inputs/LayerGraphs/gnmt_training.json"
PROVED = "throughput-inputs/OperatorGraphs/bert_l-3_inference.json"
LATENCY = "latency-inputs/LayerGraphs/gnmt_inference.json"

MEASURED = f"""\
workload,algorithm,objective_kind,objective,lower_bound,seconds,wall_seconds,peak_mb,rc,note
{THROUGHPUT},dp,max_load,100,,15,15,500,0,
{THROUGHPUT},ip_noncontig_highs300,max_load,90,80,300,300,400,0,
{THROUGHPUT},ip_contig_highs300,max_load,100,99.5,300,300,400,0,
{THROUGHPUT},localsearch10,max_load,50,,1,1,9,0,VIOLATES MEMORY
{PROVED},dp,max_load,20,,0.5,0.5,30,0,
{PROVED},ip_noncontig_highs300,max_load,10,10,1,1,100,0,
{LATENCY},greedy,latency,40,,0.1,0.1,9,0,
{LATENCY},lip_q1_highs300,latency,inf,12,300,300,99,0,
{LATENCY},dp,max_load,7,,0.1,0.1,9,0,
"""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import partitioning

    return partitioning


@pytest.fixture
def published(benchmark: Any, tmp_path: Path) -> Any:
    path = tmp_path / "measured.csv"
    path.write_text(MEASURED, encoding="utf-8")
    return benchmark.read_published(path)


def result(benchmark: Any, kind: str, workload: str, value: float, **changes: Any) -> Any:
    made = benchmark.Result(
        kind=kind,
        workload=workload,
        placer="auto",
        winner="pairs",
        status="heuristic",
        value=value,
        bound=0.8 * value,
        cpu_seconds=2.0,
        wall_seconds=3.0,
        compile_seconds=1.0,
        peak_mb=200.0,
        faults=(),
        history=(),
        limit_seconds=60.0,
    )
    return replace(made, **changes)


def test_what_is_published(published: Any) -> None:
    entry = published[THROUGHPUT]
    assert entry.best == 90
    assert not entry.proved
    assert dict(entry.broken) == {"localsearch10": 50}
    assert published[PROVED].proved
    assert published[LATENCY].best == 40


def test_counts(benchmark: Any, published: Any) -> None:
    results = [
        result(benchmark, "contiguous", THROUGHPUT, 100.0),
        result(benchmark, "contiguous", PROVED, 20.5, cpu_seconds=0.1),
        result(benchmark, "noncontiguous", THROUGHPUT, 89.0),
        result(benchmark, "noncontiguous", PROVED, 9.0),
        result(benchmark, "latency", LATENCY, 30.0, bound=12.0),
    ]
    figures = benchmark.summary(results, published)
    assert figures["contiguous_optimal"] == 1
    # Only where theirs takes over a second.
    assert figures["dp_speedup_min"] == 7.5
    assert figures["dp_peak_mb_max"] == 200
    assert figures["inception_seconds"] is None
    assert (figures["noncontiguous_at_most"], figures["noncontiguous_better"]) == (2, 1)
    assert (figures["latency_at_most"], figures["latency_tenth_better"]) == (1, 1)
    assert figures["latency_gap_max"] == 0.6
    assert json.loads(json.dumps(figures)) == figures


def test_invalid_and_worse_splits_do_not_count(benchmark: Any, published: Any) -> None:
    results = [
        result(benchmark, "noncontiguous", THROUGHPUT, 89.0, faults=("device 0 holds too much",)),
        result(benchmark, "noncontiguous", PROVED, 10.1),
        result(benchmark, "latency", LATENCY, 40.0, faults=("cycle",)),
    ]
    figures = benchmark.summary(results, published)
    assert (figures["noncontiguous_at_most"], figures["noncontiguous_better"]) == (0, 0)
    assert (figures["latency_at_most"], figures["faults"]) == (0, 2)


def test_the_page(benchmark: Any, published: Any, tmp_path: Path) -> None:
    import partitioning_page

    results = [
        result(benchmark, "contiguous", THROUGHPUT, 100.0),
        result(benchmark, "noncontiguous", THROUGHPUT, 89.1),
        result(benchmark, "latency", LATENCY, 40.0),
    ]
    figures = benchmark.summary(results, published)
    path = tmp_path / "results.md"
    partitioning_page.write_page(path, results, published, figures)
    text = path.read_text(encoding="utf-8")
    assert "| layers gnmt training | 100.000 | 100.000 | 15 | 2 | 8 x | 500 | 200 |" in text
    row = "| layers gnmt training | 100.000 | 90.000 | 50.000* | - | - | **89.100** | -1.00% |"
    assert f"{row} 80.000 | 71.280 | 20.0% | pairs |" in text
    assert "looser than the one that HiGHS reaches in 300 s on: layers gnmt training." in text
    assert "| layers gnmt inference | - | **40.000** | none | - | - | **40.000** | equal |" in text
    assert "Baechi's graphs" not in text
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "placement.md").write_text("x", encoding="utf-8")
    partitioning_page.write_page(path, results, published, figures)
    assert "[results/placement.md](results/placement.md)" in path.read_text(encoding="utf-8")


def test_without_data_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "partitioning.py"), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"benchmark": "partitioning", "skipped": "no data"}
    assert "the published workloads are not there" in done.stderr


def test_a_run_is_taken_up(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = result(benchmark, "latency", LATENCY, 30.0)
    runs = []

    def run(command: list[str], **_: Any) -> Any:
        runs.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps(asdict(made)))

    monkeypatch.setattr(benchmark.subprocess, "run", run)
    options = argparse.Namespace(cache=tmp_path, keep=False, seconds=60.0, seed=0)
    arguments = ("latency", tmp_path / LATENCY, LATENCY, options)
    assert benchmark.run_one(*arguments) == made
    assert benchmark.run_one(*arguments) == made
    assert len(runs) == 1
    # Other code, another limit or another seed: measured anew.
    monkeypatch.setattr(benchmark, "code_fingerprint", lambda: "other")
    benchmark.run_one(*arguments)
    options.seconds = 30.0
    benchmark.run_one(*arguments)
    options.seed = 1
    benchmark.run_one(*arguments)
    assert len(runs) == 4
    options.seconds, options.seed, options.keep = 60.0, 1, True
    monkeypatch.setattr(benchmark, "code_fingerprint", lambda: "third")
    benchmark.run_one(*arguments)
    assert len(runs) == 4
