"""``baechi place`` and ``baechi evaluate``: what they print, write and refuse."""

import gzip
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from baechi_jax.cli import main
from baechi_jax.passes.placement.budget import Budget
from baechi_jax.passes.placement.formats import read_split, read_workload, write_workload
from baechi_jax.passes.placement.latency import placers as latency_placers
from baechi_jax.passes.placement.partitioning import Latency, Partitioning, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput import placers as throughput_placers
from baechi_jax.passes.placement.workload import DeviceClass, Workload
from baechi_jax.workload_report import judge, judgement_tables

#: The worked example of docs/placers.md.
SIX = Path(__file__).resolve().parents[2] / "docs" / "placers" / "six-nodes.json"


def run(*arguments: str | Path | float) -> Result:
    """Run ``baechi`` with these arguments."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def place(*arguments: str | Path | float, objective: str = "throughput") -> Result:
    return run("place", "--workload", SIX, "--objective", objective, *arguments)


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def fixed(placer: Any) -> Any:
    """A registry with one placer more."""
    return {"fixed": placer}


# Placing ----------------------------------------------------------------------------------------


def test_place_writes_a_split_and_a_table(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "split.json"
    result = place("--placer", "milp-throughput", "--out", out)
    assert result.exit_code == 0, result.output
    split = json.loads(out.read_text())
    # Several are as good as one another; the table says how good.
    assert split["cpus"] == [{"nodes": []}]
    assert sorted(node for each in split["fpgas"] for node in each["nodes"]) == list(range(6))
    text = " ".join(result.stdout.split())
    assert "Largest load, the time per sample of a pipeline, 12.0 ms" in text
    assert "lower bound 12.0 ms, gap" in text
    assert "by milp-throughput (optimal)" in text
    assert f"split: {out}" in result.stderr
    assert [path.name for path in out.parent.iterdir()] == ["split.json"]


def test_place_as_json() -> None:
    # Long enough for a machine that still has to compile the kernels.
    result = place("--placer", "auto", "--time-limit", 100, "--json", objective="latency")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert (figures["objective"], figures["placer"]) == ("latency", "auto")
    assert figures["status"] == "optimal"
    assert figures["seconds"] == pytest.approx(0.022)
    assert figures["bound_seconds"] == pytest.approx(0.022, rel=1e-4)
    assert figures["latency_seconds"] == figures["seconds"]
    assert figures["gap"] < 1e-4
    assert figures["winner"] != "auto"
    assert {each["placer"] for each in figures["history"]} >= {"greedy", "series"}
    assert figures["out"] is None
    assert not figures["interrupted"]
    assert [each["class"] for each in figures["devices"]] == ["accelerator", "accelerator", "host"]
    assert figures["devices"][2]["memory_bytes"] is None
    assert sorted(node for nodes in figures["split"]["fpgas"] for node in nodes["nodes"])


@pytest.mark.parametrize(
    ("options", "objective"),
    [
        (["--contiguous"], Throughput(contiguous=True)),
        (["--overlap", "--sum-of-maxima"], Throughput(overlap=True, sum_of_maxima=True)),
        (
            ["--replicas", 2, "--replica-bandwidth", "1kB"],
            Throughput(replicas=2, replica_bytes_per_second=1e3),
        ),
    ],
)
def test_options_reach_the_placer(
    monkeypatch: pytest.MonkeyPatch, options: list[str], objective: Throughput
) -> None:
    seen = []

    def placer(workload: Workload, asked: Throughput, budget: Budget) -> Partitioning:
        seen.append((asked, budget))
        return Partitioning("fixed", Split(np.array([0, 0, 1, 1, 1, 0])), 1.0)

    monkeypatch.setattr(throughput_placers, "PLACERS", fixed(placer))
    limits = ["--time-limit", 7, "--seed", 3, "--steps", 5]
    result = place("--placer", "fixed", *options, *limits)
    assert result.exit_code == 0, result.output
    ((asked, budget),) = seen
    assert asked == objective
    assert (budget.seconds, budget.seed, budget.steps, budget.start) == (7, 3, 5, None)
    assert "no lower bound" in result.stdout


def test_subgraphs_start_and_machine_reach_the_placer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[Workload, Latency, Budget]] = []

    def placer(workload: Workload, asked: Latency, budget: Budget) -> Partitioning:
        seen.append((workload, asked, budget))
        return Partitioning("fixed", Split(np.array([0, 0, 1, 1, 1, 0])), 1.0)

    monkeypatch.setattr(latency_placers, "PLACERS", fixed(placer))
    start = write(tmp_path / "s.json", {"fpgas": [{"nodes": [0, 1, 2]}, {"nodes": [3, 4, 5]}]})
    machine = ["--devices", 3, "--memory", "9GB"]
    result = place(
        "--placer", "fixed", "--subgraphs", 2, "--split", start, *machine, objective="latency"
    )
    assert result.exit_code == 0, result.output
    ((workload, asked, budget),) = seen
    assert asked == Latency(2)
    assert budget.start is not None
    assert budget.start.device_of.tolist() == [0, 0, 0, 1, 1, 1]
    assert (workload.classes[0].count, workload.classes[0].memory_bytes) == (3, 9e9)


def test_pipedreams_file_takes_its_machine_from_the_command_line(tmp_path: Path) -> None:
    times = "forward_compute_time=1.0, backward_compute_time=2.0"
    sizes = "activation_size=1000000.0, parameter_size=40.0"
    lines = [f"node{each} -- Linear -- {times}, {sizes}" for each in (1, 2)]
    graph = write(tmp_path / "graph.txt", "\n".join([*lines, "\tnode1 -- node2"]))
    common = ["place", "--workload", graph, "--objective", "throughput", "--placer", "ideals"]
    refused = run(*common)
    assert refused.exit_code == 1
    assert "does not say how many devices there are" in refused.stderr
    assert "--devices" in refused.stderr
    result = run(*common, "--devices", 2, "--memory", "1GB", "--bandwidth", "10GB", "--json")
    assert result.exit_code == 0, result.output
    # 3 ms on each, and 0.1 ms for the activations.
    assert json.loads(result.stdout)["seconds"] == pytest.approx(3.1e-3)


def test_expert_judges_a_split_made_by_hand(tmp_path: Path) -> None:
    split = write(tmp_path / "s.json", {"fpgas": [{"nodes": [0, 1, 3, 5]}, {"nodes": [2, 4]}]})
    result = place("--placer", "expert", "--split", split, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert (figures["winner"], figures["status"]) == ("expert", "by hand")
    assert figures["seconds"] == pytest.approx(0.012)
    contiguous = place("--placer", "expert", "--split", split, "--contiguous")
    assert contiguous.exit_code == 1
    assert "the split is not valid: a device is not contiguous" in contiguous.stderr


def test_nothing_fits() -> None:
    for objective, placer in (("throughput", "ideals"), ("latency", "greedy")):
        result = place("--memory", "1B", "--devices", 1, "--placer", placer, objective=objective)
        # The host holds everything.
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--placer", "best"],
            1,
            "unknown placer 'best'; for the objective throughput there are: auto, expert, ideals",
        ),
        (["--placer", "greedy"], 1, "unknown placer 'greedy'; for the objective throughput"),
        (["--placer", "expert"], 2, "--placer expert needs --split FILE"),
        (["--subgraphs", "2"], 2, "--subgraphs is for --objective latency, not throughput"),
        (["--time-limit", "0"], 2, "0.0 is not in the range x>0"),
        (["--replicas", "0"], 2, "0 is not in the range x>=1"),
        (["--memory", "9 potatoes"], 1, "unknown unit 'potatoes'"),
        (["--bandwidth", "1GB"], 1, "a bandwidth cannot replace that"),
        (["--placer", "local-search", "--contiguous"], 1, "these can: auto, ideals"),
    ],
)
def test_wrong_use_of_place(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    out = tmp_path / "s.json"
    result = place(*arguments, "--out", out)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
    assert not out.exists()


def test_options_of_throughput_are_refused_for_latency() -> None:
    result = place("--sum-of-maxima", objective="latency")
    assert result.exit_code == 2
    assert "--sum-of-maxima is for --objective throughput, not latency" in result.stderr


def test_malformed_workloads_are_told(tmp_path: Path) -> None:
    content = json.loads(SIX.read_text())
    content["nodes"][3]["bytes"] = "many"
    bad = write(tmp_path / "w.json", content)
    result = run("place", "--workload", bad, "--objective", "latency")
    assert result.exit_code == 1
    assert f"Error: {bad}: nodes[3].bytes: expected a number, found 'many'" in result.stderr
    assert "Traceback" not in result.stderr


def test_warnings_are_told(tmp_path: Path) -> None:
    nodes = [
        {
            "id": each,
            "supportedOnFpga": 1,
            "cpuLatency": 10,
            "fpgaLatency": 2,
            "isBackwardNode": 0,
            "size": 1,
        }
        for each in (0, 1, 2)
    ]
    edges = [{"sourceId": 0, "destId": each, "cost": each} for each in (1, 2)]
    content = {"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 9, "nodes": nodes, "edges": edges}
    path = write(tmp_path / "w.json", content)
    common = ["place", "--workload", path, "--objective", "throughput", "--placer", "ideals"]
    result = run(*common, "--json")
    assert result.exit_code == 0, result.output
    assert "warning: " in result.stderr
    assert "edges[].cost: differs" in json.loads(result.stdout)["warnings"][0]


# One step ---------------------------------------------------------------------------------------


def baechi_graph(folder: Path) -> Path:
    """The chain 0 -> 1 and, beside it, 2; two devices."""
    content = {
        "devices": 2,
        "memory_bytes": 1e6,
        "alpha_us": 5,
        "beta_us_per_byte": 0.1,
        "compute_us": [10, 20, 25],
        "output_bytes": [100, 0, 0],
        "temporary_bytes": [0, 7, 0],
        "persistent_bytes": [0, 0, 0],
        "colocation": ["a", "b", "c"],
        "tensors": [{"source": 0, "bytes": 100, "consumers": [1]}],
        "authors": {},
    }
    path = folder / "g.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_a_graph_of_baechis_is_placed_for_one_step(tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    common = ["place", "--workload", baechi_graph(tmp_path), "--objective", "step"]
    result = run(*common, "--placer", "m-etf", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["seconds"] == pytest.approx(30e-6)
    assert figures["bound_seconds"] == pytest.approx(30e-6)
    assert sorted(each["ops"] for each in figures["devices"]) == [1, 2]
    busy = sorted(each["busy_seconds"] for each in figures["devices"])
    assert busy == pytest.approx([25e-6, 30e-6])
    assert max(each["peak_bytes"] for each in figures["devices"]) == 107
    nodes = [each["nodes"] for each in json.loads(out.read_text())["fpgas"]]
    assert sorted(nodes) == [[0, 1], [2]]
    table = run(*common, "--placer", "auto")
    text = " ".join(table.stdout.split())
    assert "Portfolio" in text
    assert "Simulated step 30.0 us; lower bound 30.0 us, gap" in text


def test_wrong_use_of_the_objective_step(tmp_path: Path) -> None:
    common = ["place", "--workload", baechi_graph(tmp_path), "--objective"]
    unknown = run(*common, "step", "--placer", "ideals")
    assert unknown.exit_code == 1
    assert "unknown placer 'ideals'; there are: auto, single" in unknown.stderr
    machine = run(*common, "step", "--memory", "5GB")
    assert machine.exit_code == 2
    assert "--memory is for --objective throughput or latency, not step" in machine.stderr
    other = run(*common, "latency")
    assert other.exit_code == 1
    assert "a graph of Baechi's" in other.stderr
    assert "--objective step" in other.stderr
    six = place(objective="step")
    assert six.exit_code == 1
    assert "there is no field 'compute_us'" in six.stderr


# Interrupting -----------------------------------------------------------------------------------


def test_ctrl_c_writes_the_best_so_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def placer(workload: Workload, asked: Throughput, budget: Budget) -> Partitioning:
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            return Partitioning("fixed", Split(np.array([0, 0, 1, 0, 1, 0])), 1.0)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(throughput_placers, "PLACERS", fixed(placer))
    out = tmp_path / "s.json"
    before = signal.getsignal(signal.SIGINT)
    result = place("--placer", "fixed", "--out", out)
    assert result.exit_code == 130
    assert "interrupted; this is the best split so far" in result.stderr
    assert read_split(out, read_workload(SIX)).device_of.tolist() == [0, 0, 1, 0, 1, 0]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_there_is_a_split(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def placer(workload: Workload, asked: Throughput, budget: Budget) -> Partitioning:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(throughput_placers, "PLACERS", fixed(placer))
    out = tmp_path / "s.json"
    result = place("--placer", "fixed", "--out", out)
    assert result.exit_code == 130
    assert "interrupted before there was a valid split; nothing is written" in result.stderr
    assert not list(tmp_path.iterdir())


def test_ctrl_c_in_numba_waits_for_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "numba.core.test", "signal": signal}
    exec("def inside():\n    signal.raise_signal(signal.SIGINT)\n    return 'whole'", namespace)
    seen = []

    def placer(workload: Workload, asked: Throughput, budget: Budget) -> Partitioning:
        try:
            seen.append(namespace["inside"]())
            time.sleep(60)
        except KeyboardInterrupt:
            return Partitioning("fixed", Split(np.array([0, 0, 1, 0, 1, 0])), 1.0)
        raise AssertionError("not interrupted")

    monkeypatch.setattr(throughput_placers, "PLACERS", fixed(placer))
    assert place("--placer", "fixed").exit_code == 130
    assert seen == ["whole"]


def test_ctrl_c_from_the_keyboard(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    size = 120
    pairs = [(u, v) for u in range(size) for v in range(u + 1, size) if random.random() < 0.04]
    seconds = random.uniform(1, 9, size)
    workload = Workload(
        names=tuple(f"n{each}" for each in range(size)),
        ids=tuple(range(size)),
        bytes=np.ones(size),
        transfer_seconds=random.uniform(0, 3, size),
        backward=np.zeros(size, bool),
        colour=np.full(size, -1, np.int64),
        edges=np.array(pairs, np.int64),
        classes=(
            DeviceClass("accelerator", 6, 30.0, seconds),
            DeviceClass("host", 1, np.inf, seconds * 10, transfers=False),
        ),
        parameter_bytes=np.zeros(size),
    )
    path, out = tmp_path / "w.json", tmp_path / "s.json"
    write_workload(path, workload)
    command = [sys.executable, "-m", "baechi_jax.cli", "place", "--workload", str(path)]
    command += ["--objective", "throughput", "--time-limit", "300", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        # Said when Ctrl-C means to end the search.
        assert "up to 300 s" in process.stderr.readline()
        time.sleep(6)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    if "nothing is written" in errors:
        # A machine so busy that there was no split yet.
        assert not out.exists()
        return
    assert "this is the best split so far" in errors
    assert Throughput().seconds(workload, read_split(out, workload))[1] == ()


# Judging ----------------------------------------------------------------------------------------


def judged(tmp_path: Path, content: Any, *arguments: str | Path) -> Result:
    split = write(tmp_path / "s.json", content)
    return run("evaluate", "--workload", SIX, "--split", split, *arguments)


#: {a, b, d, f} and {c, e}: not contiguous.
AROUND = {"fpgas": [{"nodes": [0, 1, 3, 5]}, {"nodes": [2, 4]}]}


def test_evaluate_against_figures_found_by_hand(tmp_path: Path) -> None:
    result = judged(tmp_path, AROUND, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    first, second, host = figures["devices"]
    # a, b, d and f take 4 + 1 + 1 + 3; a goes out once, e comes in.
    assert first["compute_seconds"] == pytest.approx(9e-3)
    assert first["transfer_seconds"] == pytest.approx(3e-3)
    assert first["load_seconds"] == pytest.approx(12e-3)
    assert not first["contiguous"]
    assert first["subgraphs"] == 2
    assert (first["bytes"], first["memory_bytes"], first["nodes"]) == (5e9, 5e9, 4)
    # c and e take 5 + 2; a comes in, e goes out.
    assert second["load_seconds"] == pytest.approx(10e-3)
    assert (second["contiguous"], second["subgraphs"]) == (True, 1)
    assert (host["nodes"], host["load_seconds"]) == (0, 0)
    assert figures["max_load_seconds"] == pytest.approx(12e-3)
    assert not figures["contiguous"]
    # {a, b, d} with a and d out: 11; then {c, e} with a in, e out: 10; then f with d and e in: 7.
    assert figures["latency_seconds"] == pytest.approx(28e-3)
    assert figures["faults"] == []
    overlapped = json.loads(judged(tmp_path, AROUND, "--json", "--overlap").stdout)
    assert overlapped["max_load_seconds"] == pytest.approx(9e-3)


def test_evaluate_prints_a_table(tmp_path: Path) -> None:
    result = judged(tmp_path, AROUND)
    text = " ".join(result.stdout.split())
    assert "0 accelerator 4 9.00 ms 3.00 ms 12.0 ms 4.66 GiB 4.66 GiB 100% 2 no" in text
    assert "largest load 12.0 ms" in text
    assert "latency 28.0 ms, at most 2 subgraphs on an accelerator" in text
    assert "contiguous no" in text
    assert text.endswith("valid")


@pytest.mark.parametrize(("wide", "columns"), [(True, 120), (False, 80)])
def test_tables_keep_to_their_width(wide: bool, columns: int) -> None:
    size = 4
    workload = Workload(
        names=("a", "b", "c", "d"),
        ids=tuple(range(size)),
        bytes=np.full(size, 1.5e9),
        transfer_seconds=np.full(size, 1.25e-3),
        backward=np.array([False, False, True, True]),
        colour=np.full(size, -1, np.int64),
        edges=np.array([[0, 1], [1, 2], [2, 3]], np.int64),
        classes=(DeviceClass("accelerator", 12, 16e9, np.full(size, 0.1234)),),
        parameter_bytes=np.zeros(size),
    )
    judgement = judge(workload, Split(np.array([0, 10, 0, 10])), Throughput(), None)
    console = Console(width=columns, record=True, file=io.StringIO())
    for part in judgement_tables(workload, judgement, "s.json", wide=wide):
        console.print(part)
    text = console.export_text()
    assert "…" not in text
    assert "2-9 accelerator" not in text
    assert "1-9 accelerator" in text
    assert ("limit" in text) == wide


def test_evaluate_names_faults_and_fails(tmp_path: Path) -> None:
    wanted = judged(tmp_path, AROUND, "--contiguous", "--subgraphs", "1")
    assert wanted.exit_code == 1
    assert "NOT VALID:" in wanted.stdout
    assert "a device is not contiguous" in wanted.stdout
    assert "a device has 2 subgraphs" in wanted.stdout
    full = judged(tmp_path, {"fpgas": [{"nodes": [0, 1, 2, 3, 4]}, {"nodes": [5]}]}, "--json")
    assert full.exit_code == 1
    assert json.loads(full.stdout)["faults"] == ["device 0 holds 6000000000 bytes of 5000000000"]
    assert judged(tmp_path, AROUND, "--memory", "4GB").exit_code == 1


def test_evaluate_counts_colours(tmp_path: Path) -> None:
    content = json.loads(SIX.read_text())
    for node in (1, 2):
        content["nodes"][node]["colour"] = 7
    content["nodes"][3]["colour"] = 8
    path = write(tmp_path / "w.json", content)
    split = write(tmp_path / "s.json", AROUND)
    result = run("evaluate", "--workload", path, "--split", split)
    assert result.exit_code == 1
    assert "1 of 2 on one device" in " ".join(result.stdout.split())
    assert "colour 7 is split over devices" in result.stdout


def test_malformed_splits_are_told(tmp_path: Path) -> None:
    result = judged(tmp_path, {"fpgas": [{"nodes": [0, 99]}]})
    assert result.exit_code == 1
    assert "fpgas[0].nodes: the workload has no node with id 99" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_split_of_subgraphs_that_wait_for_one_another(tmp_path: Path) -> None:
    split = {"fpgas": [{"nodes": [0, 3], "subgraphs": [[0, 3]]}, {"nodes": [1, 2, 4, 5]}]}
    result = judged(tmp_path, split)
    assert "none: subgraphs wait for one another in a cycle" in " ".join(result.stdout.split())
    assert json.loads(judged(tmp_path, split, "--json").stdout)["latency_seconds"] is None
