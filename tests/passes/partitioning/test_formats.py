"""Reading and writing workloads and splits."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baechi_jax.passes.placement.formats import (
    Machine,
    expert,
    read_split,
    read_workload,
    write_split,
    write_workload,
)
from baechi_jax.passes.placement.partitioning import Latency, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.workload import Workload, WorkloadError
from tests.passes.partitioning import workloads as naive


def dnn(**changes: Any) -> dict[str, Any]:
    nodes = [
        {
            "id": each,
            "name": f"op{each}",
            "supportedOnFpga": each != 7,
            "cpuLatency": 10.0,
            "fpgaLatency": 2,
            "isBackwardNode": 0,
            "size": 100.0,
            "colorClass": 4,
        }
        for each in (5, 7)
    ]
    edges = [{"sourceId": 5, "destId": 7, "cost": 3.0, "size": 3.0 * 2**31 / 1000}]
    content = {"maxSizePerFPGA": 1e3, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    return content | changes


def piper(**changes: Any) -> dict[str, Any]:
    way = {"id": "vanilla", "timePerSample": 0.5, "parameterSize": 8.0}
    way |= {"memoryUsageA": 10.0, "memoryUsageB": 20.0, "syncTimeFw": {}, "syncTimeBw": {}}
    nodes = [{"id": each, "name": f"op{each}", "TMPCs": {"1": [way]}} for each in (0, 1)]
    edges = [{"sourceId": 0, "destId": 1, "communicationCost": 50.0}]
    return {
        "maxDevices": 3,
        "maxMemoryPerDevice": 100.0,
        "bandwidth": 100.0,
        "mbsInBatch": 4,
        "nodes": nodes,
        "edges": edges,
    } | changes


GRAPH = """\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, \
activation_size=0.0, parameter_size=0.000
node4 -- LSTM(2, 2) -- forward_compute_time=1.5, backward_compute_time=2.5, \
activation_size=[6.0; 2.0; 2.0], parameter_size=40.0
\tnode1 -- node4
"""


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_dnn_partitioning(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path / "w.json", dnn()))
    accelerator, host = workload.classes
    assert (accelerator.count, host.count) == (2, 1)
    assert accelerator.memory_bytes == 1e3
    assert accelerator.transfers
    assert not host.transfers
    assert accelerator.seconds.tolist() == [2e-3, np.inf]
    assert host.seconds.tolist() == [1e-2, 1e-2]
    assert workload.transfer_seconds.tolist() == [3e-3, 0.0]
    assert workload.colour.tolist() == [4, 4]
    assert workload.ids == (5, 7)
    assert workload.names == ("op5", "op7")
    assert workload.edges.tolist() == [[0, 1]]
    assert workload.warnings == ()


def test_costs_in_seconds_are_warned_of_and_read_as_they_stand(tmp_path: Path) -> None:
    edges = [{"sourceId": 5, "destId": 7, "cost": 3e-3, "size": 3.0 * 2**31 / 1000}]
    workload = read_workload(write(tmp_path / "w.json", dnn(edges=edges)))
    assert workload.transfer_seconds[0] == pytest.approx(3e-6)
    assert "the costs are probably seconds" in workload.warnings[0]


def test_uneven_costs_are_warned_of(tmp_path: Path) -> None:
    content = dnn()
    content["nodes"].append({**content["nodes"][0], "id": 8})
    content["edges"].append({"sourceId": 5, "destId": 8, "cost": 4.0})
    workload = read_workload(write(tmp_path / "w.json", content))
    assert workload.transfer_seconds[0] == 4e-3
    assert "differs between the edges out of one node" in workload.warnings[0]


def test_piper(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path / "w.json", piper()))
    (kind,) = workload.classes
    assert (kind.count, kind.memory_bytes) == (3, 100.0)
    assert kind.seconds.tolist() == [0.5, 0.5]
    assert workload.bytes.tolist() == [30.0, 30.0]
    assert workload.transfer_seconds.tolist() == [0.5, 0.0]
    assert workload.parameter_bytes.tolist() == [8.0, 8.0]


def test_pipedream(tmp_path: Path) -> None:
    path = write(tmp_path / "graph.txt", GRAPH)
    workload = read_workload(path, Machine(4, 1e9, 100.0))
    (kind,) = workload.classes
    assert kind.count == 4
    assert kind.seconds.tolist() == [0.0, 4e-3]
    assert workload.bytes.tolist() == [0.0, 50.0]
    assert workload.transfer_seconds.tolist() == [0.0, 0.1]
    assert workload.parameter_bytes.tolist() == [0.0, 40.0]
    assert workload.ids == (1, 4)
    with pytest.raises(WorkloadError, match="does not say how many devices"):
        read_workload(path)
    assert read_workload(path, Machine(2)).transfer_seconds.tolist() == [0.0, 1e-9]
    assert read_workload(path, Machine(2)).classes[0].memory_bytes == np.inf


def test_a_machine_replaces_what_the_file_says(tmp_path: Path) -> None:
    path = write(tmp_path / "w.json", dnn())
    accelerator, host = read_workload(path, Machine(5, 7e9)).classes
    assert (accelerator.count, accelerator.memory_bytes) == (5, 7e9)
    assert (host.count, host.memory_bytes) == (1, np.inf)
    assert read_workload(path, Machine(memory_bytes=9.0)).classes[0].count == 2
    path = write(tmp_path / "p.json", piper())
    (kind,) = read_workload(path, Machine(devices=1)).classes
    assert (kind.count, kind.memory_bytes) == (1, 100.0)
    assert read_workload(path, Machine(bytes_per_second=5.0)).transfer_seconds.tolist() == [10, 0]


def test_a_machine_that_a_file_cannot_take(tmp_path: Path) -> None:
    path = write(tmp_path / "w.json", dnn())
    with pytest.raises(WorkloadError, match="a bandwidth cannot replace that"):
        read_workload(path, Machine(bytes_per_second=1e9))
    two = naive.workload([[1], [1]], [], counts=(1, 1))
    write_workload(path, two)
    with pytest.raises(WorkloadError, match=r"2 classes of accelerators \('class0', 'class1'\)"):
        read_workload(path, Machine(devices=2))
    assert [kind.memory_bytes for kind in read_workload(path, Machine(None, 5)).classes] == [5, 5]
    write_workload(path, naive.workload([[1]], [], counts=(1,), transfers=(False,)))
    with pytest.raises(WorkloadError, match="has no accelerators to change"):
        read_workload(path, Machine(devices=2))


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(gzip.compress(json.dumps(dnn()).encode()))
    assert read_workload(path).ids == (5, 7)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(WorkloadError, match="cannot be unpacked"):
        read_workload(path)


@given(naive.workloads())
@settings(max_examples=50, deadline=None)
def test_own_format_round_trip(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("own") / "w.json"
    write_workload(path, workload)
    again = read_workload(path)
    assert (again.names, again.ids) == (workload.names, workload.ids)
    for name in ("bytes", "transfer_seconds", "backward", "edges", "parameter_bytes"):
        assert np.array_equal(getattr(again, name), getattr(workload, name)), name
    assert np.array_equal(again.colour, workload.colour)
    for one, other in zip(again.classes, workload.classes):
        assert (one.name, one.count, one.memory_bytes, one.transfers) == (
            other.name,
            other.count,
            other.memory_bytes,
            other.transfers,
        )
        assert np.array_equal(one.seconds, other.seconds)


def _changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    at: Any = content
    for each in parents:
        at = at[int(each) if each.isdigit() else each]
    if value is None:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    return content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "neither a JSON object nor PipeDream's"),
        ("hello", "it begins with 'hello'"),
        ("{", "line 1, column 2: not JSON"),
        ("[1]", r"expected a JSON object, found \[1\]"),
        ({"a": 1}, "no field 'maxFPGAs'"),
        ({"compute_us": []}, "compute_us: a graph of Baechi's"),
        ({"format": "other"}, "format: expected 'baechi-workload', found 'other'"),
        (_changed(dnn(), "nodes.0.size", None), r"nodes\[0\]\.size: the field is missing"),
        (_changed(dnn(), "nodes.1.size", "big"), r"nodes\[1\]\.size: expected a number, found 'b"),
        (_changed(dnn(), "nodes.1.size", -1), r"nodes\[1\]\.size: expected at least 0, found -1"),
        (_changed(dnn(), "nodes.1.cpuLatency", float("nan")), "expected a finite number"),
        (_changed(dnn(), "nodes.1.id", 5), r"nodes\[1\]\.id: 5 is used already by nodes\[0\]"),
        (_changed(dnn(), "nodes.1.id", 1.5), r"nodes\[1\]\.id: expected a whole number"),
        (_changed(dnn(), "nodes.1.isBackwardNode", 2), "expected true, false, 1 or 0, found 2"),
        (_changed(dnn(), "edges.0.destId", 9), r"edges\[0\]\.destId: there is no node with id 9"),
        (_changed(dnn(), "edges.0.destId", 5), "joins node 5 to itself"),
        (_changed(dnn(), "edges", {}), "edges: expected a list"),
        (_changed(dnn(), "edges.0", 3), r"edges\[0\]: expected an object, found 3"),
        (_changed(dnn(), "maxFPGAs", -1), "maxFPGAs: expected at least 0, found -1"),
        (_changed(dnn(), "maxSizePerFPGA", True), "maxSizePerFPGA: expected a number, found True"),
        (dnn(nodes=[], edges=[]), "the workload has no nodes"),
        (dnn(maxFPGAs=0, maxCPUs=0), "the workload has no devices"),
        (
            dnn(edges=[*dnn()["edges"], {"sourceId": 7, "destId": 5, "cost": 0}]),
            "edges: the edges form a cycle through node 'op5'",
        ),
        (piper(bandwidth=0), "bandwidth: expected more than 0"),
        (_changed(piper(), "nodes.0.TMPCs.1", []), r"nodes\[0\]\.TMPCs\.1: expected at least one"),
        (_changed(piper(), "nodes.1.TMPCs", 4), r"nodes\[1\]\.TMPCs: expected an object"),
        ("node1 -- a -- forward_compute_time=1", "line 1: backward_compute_time: the field is"),
        (GRAPH.replace("=1.5", "=fast"), "line 2: forward_compute_time: expected a number, found"),
        (GRAPH.replace("=1.5", "=-1"), "line 2: forward_compute_time: expected at least 0"),
        (GRAPH + "\tnode4 -- node9", "line 4: there is no node9 above"),
        (GRAPH + "\tnode4 -- node4", "line 4: the edge joins node4 to itself"),
        (GRAPH + "words", "line 4: expected 'nodeK"),
        (GRAPH + GRAPH, "line 4: node1 is there already"),
    ],
)
def test_malformed_workloads(tmp_path: Path, content: Any, reason: str) -> None:
    path = write(tmp_path / "w.json", content)
    with pytest.raises(WorkloadError, match=reason) as caught:
        read_workload(path, Machine(2) if isinstance(content, str) else None)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read: No such file"):
        read_workload(tmp_path / "none.json")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="is not UTF-8"):
        read_workload(path)


WORKLOAD = naive.workload(
    [[1, 1, 1, 1], [2, 2, 2, 2]],
    [(0, 1), (1, 2), (2, 3)],
    counts=(3, 1),
    transfers=(True, False),
    colour=[0, 1, 1, 0],
    backward=[False, False, True, True],
)


def test_split_in_dnn_partitionings_form(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_split(path, WORKLOAD, Split(np.array([2, 3, 3, 2])))
    assert json.loads(path.read_text()) == {
        "cpus": [{"nodes": [11, 12]}],
        "fpgas": [{"nodes": []}, {"nodes": []}, {"nodes": [10, 13]}],
    }
    again = read_split(path, WORKLOAD)
    assert again.device_of.tolist() == [2, 3, 3, 2]
    assert again.subgraph_of is None
    assert again.replicas is None


def test_split_with_subgraphs_and_replicas(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    split = Split(np.array([0, 0, 2, 2]), np.array([0, 1, 0, 0]), np.array([2, 1, 1, 1]))
    write_split(path, WORKLOAD, split)
    assert json.loads(path.read_text())["fpgas"][0] == {
        "nodes": [10, 11],
        "subgraphs": [[10], [11]],
        "replicas": 2,
    }
    again = read_split(path, WORKLOAD)
    assert again.subgraph_of is not None
    assert again.subgraph_of.tolist() == [0, 1, 0, 0]
    assert again.replicas is not None
    assert again.replicas.tolist() == [2, 1, 1, 1]


@given(naive.workloads(), st.data())
@settings(max_examples=50, deadline=None)
def test_split_round_trip(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload, data: st.DataObject
) -> None:
    devices = st.integers(0, workload.devices - 1)
    chosen = data.draw(st.lists(devices, min_size=workload.size, max_size=workload.size))
    path = tmp_path_factory.mktemp("split") / "s.json"
    write_split(path, workload, Split(np.array(chosen)))
    assert read_split(path, workload).device_of.tolist() == chosen


def test_expert_is_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", {"fpgas": [{"nodes": [10]}, {"nodes": [11]}]})
    found = expert(path, WORKLOAD, Throughput())
    assert (found.placer, found.status, found.seconds) == ("expert", "by hand", 2.0)
    tight = read_workload(_written(tmp_path, nbytes=[3, 3, 3, 3], memory=[5, 9]))
    with pytest.raises(WorkloadError, match=r"not valid: device 0 holds 6 bytes of 5 \(and 1 more"):
        expert(path, tight, Throughput())


def _written(folder: Path, **changes: Any) -> Path:
    given = naive.workload(
        [[1, 1, 1, 1], [2, 2, 2, 2]],
        [(0, 1), (1, 2), (2, 3)],
        counts=(3, 1),
        transfers=(True, False),
        colour=[0, 1, 1, 0],
        backward=[False, False, True, True],
        **changes,
    )
    write_workload(folder / "w.json", given)
    return folder / "w.json"


def test_a_split_of_the_forward_nodes_serves_for_training(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", {"cpus": [], "fpgas": [{"nodes": [10]}, {"nodes": [11]}]})
    assert read_split(path, WORKLOAD, complete=True).device_of.tolist() == [0, 1, 1, 0]
    with pytest.raises(WorkloadError, match=r"2 nodes are on no device \(12, 13\)"):
        read_split(path, WORKLOAD)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"fpgas": [{"nodes": [10, 10]}]}, r"fpgas\[0\]\.nodes: node 10 is placed twice"),
        ({"fpgas": [{"nodes": [9]}]}, r"fpgas\[0\]\.nodes: the workload has no node with id 9"),
        ({"fpgas": [{"nodes": ["a"]}]}, r"fpgas\[0\]\.nodes\[0\]: expected a whole number"),
        ({"fpgas": [{}]}, r"fpgas\[0\]\.nodes: the field is missing"),
        ({"cpus": [{"nodes": []}, {"nodes": [10]}]}, r"cpus\[1\]\.nodes: the workload has 1 dev"),
        ({"fpgas": [{"nodes": [10], "subgraphs": [[11]]}]}, "a node is not on this device"),
        ({"fpgas": [{"nodes": [10], "subgraphs": [[]]}]}, "a node of the device is in no subgraph"),
        ({"fpgas": [{"nodes": [10], "subgraphs": 1}]}, "expected a list of lists"),
        ({"fpgas": []}, r"4 nodes are on no device \(10, 11, 12, 13\)"),
    ],
)
def test_malformed_splits(tmp_path: Path, content: Any, reason: str) -> None:
    path = write(tmp_path / "s.json", content)
    with pytest.raises(WorkloadError, match=reason) as caught:
        read_split(path, WORKLOAD)
    assert str(path) in str(caught.value)


def test_published_files(data_folder: Path) -> None:
    published = data_folder / "dnn-partitioning"
    sizes = []
    for path in sorted(published.glob("*-inputs/*/*.json")):
        workload = read_workload(path)
        slipped = "throughput-inputs/LayerGraphs" in str(path)
        assert bool(workload.warnings) == slipped, path
        sizes.append(workload.size)
    assert len(sizes) == 24
    assert max(sizes) == 2012
    for path in sorted((data_folder / "piper").glob("inputs/*.json")):
        assert read_workload(path).size > 30
    graphs = sorted((data_folder / "pipedream").glob("profiler/*/profiles/*/graph.txt"))
    assert len(graphs) == 14
    for path in graphs:
        assert read_workload(path, Machine(4)).size > 20


def test_published_splits_cost_what_their_authors_say(data_folder: Path) -> None:
    published = data_folder / "dnn-partitioning"
    with open(published / "measured.csv", encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["algorithm"].startswith("expert")]
    assert len(rows) == 12
    for row in rows:
        path = published / row["workload"]
        split = published / "human-experts" / f"{path.stem}_expert.json"
        if not split.exists():
            split = split.with_name(split.name.replace("training", "inference"))
        # The expert's BERT-24 has six stages; the latency file's machine five accelerators.
        six = "bert24" in path.stem and row["objective_kind"] == "latency"
        objective = Latency(64) if row["objective_kind"] == "latency" else Throughput()
        workload = read_workload(path, Machine(devices=6) if six else None)
        found = read_split(split, workload, complete=True)
        seconds, faults = objective.seconds(workload, found)
        assert seconds * 1e3 == pytest.approx(float(row["objective"]), rel=1e-5), row["workload"]
        assert bool(faults) == ("VIOLATES" in row["note"]), row["workload"]
