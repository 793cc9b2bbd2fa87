"""Topologies and costs: text, JSON, errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from baechi_jax.ir.attribute_printer import print_attribute
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.parser import parse_attribute
from baechi_jax.ir.topology import Device, Link, Topology

UNEQUAL = Topology(
    (
        Device("gpu", 80 << 30, 1e15, 3e12, 1e-6, 1 << 30, name="big"),
        Device("cpu", hardware=0, name='the "host"'),
    ),
    (Link(0, 1, 1e-5, 2.5e10, wire=3), Link(1, 0)),
)


@pytest.mark.parametrize(
    "value",
    [
        UNEQUAL,
        Topology.uniform(3),
        Topology((Device(),)),
        Cost(1.0, 2.0, 0.1, (1e-300, 1e300), 5, 6),
        DeviceMemory(1, 2, 3, 4),
    ],
)
def test_attributes_round_trip(value: Any) -> None:
    assert parse_attribute(print_attribute(value)) == value


def test_json_round_trips(tmp_path: Path) -> None:
    assert Topology.from_json(UNEQUAL.to_json()) == UNEQUAL
    path = tmp_path / "t.json"
    path.write_text(UNEQUAL.to_json(), encoding="utf-8")
    assert Topology.load(path) == UNEQUAL


def test_what_a_topology_says() -> None:
    assert UNEQUAL.size == 2
    assert UNEQUAL.kinds == ("gpu", "cpu")
    assert UNEQUAL.device_of_kind("cpu").hardware == 0
    assert UNEQUAL.devices[0].usable_bytes == 79 << 30
    assert UNEQUAL.link(0, 1).wire == 3
    assert UNEQUAL.transfer_seconds(0, 1, 2.5e10) == 1e-5 + 1.0
    assert UNEQUAL.transfer_seconds(1, 1, 1e12) == 0.0
    assert [d.memory_bytes for d in UNEQUAL.with_memory(1 << 31).devices] == [1 << 31] * 2
    with pytest.raises(TopologyError, match=r"no device of kind 'tpu'; the topology has \['gpu'"):
        UNEQUAL.device_of_kind("tpu")
    with pytest.raises(TopologyError, match="no link from device 1 to device 1"):
        UNEQUAL.link(1, 1)


def document(**changes: Any) -> str:
    entries: dict[str, Any] = {
        "format": "baechi-topology",
        "version": 1,
        "devices": [{"count": 2, "kind": "gpu"}],
        "all_links": {"latency_seconds": 1e-6},
    }
    entries.update(changes)
    return json.dumps({key: value for key, value in entries.items() if value is not None})


def test_short_forms_of_json() -> None:
    topology = Topology.from_json(document())
    assert topology.devices == (Device("gpu"),) * 2
    assert topology.links == (Link(0, 1, 1e-6), Link(1, 0, 1e-6))
    # An integer is a number too.
    assert (
        Topology.from_json(document(all_links={"latency_seconds": 0})).link(0, 1).latency_seconds
        == 0
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the topology is not JSON: "),
        ("[]", 'not a topology: expected "format": "baechi-topology"'),
        (document(format="other"), "not a topology"),
        (document(version=2), "topology version 2 is not known; this release reads 1"),
        (document(devices=None), "'devices' must be a list"),
        (document(devices={}), "'devices' must be a list"),
        (document(devices=[1]), r"devices\[0\] must be an object"),
        (document(devices=[{"count": 0}]), r"devices\[0\].count must be a positive integer"),
        (document(devices=[{"speed": 1}]), r"devices\[0\].speed is not known; fields: kind, mem"),
        (document(devices=[{"kind": 1}]), r"devices\[0\].kind must be str, found 1"),
        (document(devices=[{"memory_bytes": 1.5}]), "memory_bytes must be int, found 1.5"),
        (document(devices=[{"memory_bytes": True}]), "memory_bytes must be int, found True"),
        (document(devices=[]), "a topology needs at least one device"),
        (document(devices=[{"reserved_bytes": 1 << 30}]), "leaves nothing to use"),
        (document(devices=[{"hardware": -2}]), r"devices\[0\]: hardware must be -1"),
        (document(devices=[{"flops_per_second": 0}]), "speeds must be positive and finite"),
        (document(devices=[{}, {"launch_seconds": 1}]), "of kind 'cpu' differ in speed; give them"),
        (document(all_links=[]), "all_links must be an object"),
        (document(all_links=None), "'links' must be a list"),
        (document(all_links=None, links=[{"source": 0}]), r"links\[0\]: .*target"),
        (document(all_links=None, links=[]), r"no link \(0, 1\): every ordered pair"),
        (
            document(all_links=None, links=[{"source": 0, "target": 0}]),
            r"link \(0, 0\): ends must be two different devices",
        ),
        (
            document(all_links=None, links=[{"source": 0, "target": 1}] * 2),
            r"link \(0, 1\) is given twice",
        ),
        (document(all_links={"latency_seconds": -1}), "latency_seconds >= 0 and bytes_per_second"),
        (document(all_links={"bytes_per_second": 0}), "latency_seconds >= 0 and bytes_per_second"),
    ],
)
def test_json_errors(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology.from_json(text)
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError, match=r"bad\.json: "):
        Topology.load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"cannot read the topology .*nowhere\.json"):
        Topology.load(tmp_path / "nowhere.json")
    path = tmp_path / "bytes.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TopologyError, match=r"cannot read the topology .*bytes\.json"):
        Topology.load(path)


def test_numbers_that_are_not_finite_are_refused() -> None:
    # Python's json reads NaN and Infinity, which no other reader does.
    for field in ("latency_seconds", "bytes_per_second"):
        with pytest.raises(TopologyError):
            Topology.from_json(document(all_links={field: float("nan")}))
