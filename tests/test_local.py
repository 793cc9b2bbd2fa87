"""Byte sizes as people write them, and the topology of the devices at hand."""

import logging
import types
from dataclasses import replace
from typing import Any

import jax
import pytest

import baechi_jax.local as local
from baechi_jax.ir.errors import TopologyError
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.local import devices_of, local_topology, speed_of
from baechi_jax.runtime.errors import DeviceError
from baechi_jax.units import format_bytes, format_count, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6GiB", 6 << 30),
        ("512 MB", 512_000_000),
        ("1.5GiB", 3 << 29),
        ("100", 100),
        (" 7 b ", 7),
        (".5KiB", 512),
        ("3kB", 3000),
        ("2tib", 2 << 40),
        (12345, 12345),
        (2e9, 2_000_000_000),
        ("9007199254740993B", 9007199254740993),
    ],
)
def test_parse_bytes(text: str | int | float, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("6G", "Did you mean '6GiB'?"),
        ("6 bananas", "unknown unit 'bananas'"),
        ("GiB", "write a number and a unit"),
        ("-1GiB", "write a number and a unit"),
        ("0", "must be positive"),
        (0, "must be positive"),
        (-5, "must be positive"),
        (2.5, "must be a whole number, found 2.5; with a unit it is text, such as '2.5GiB'"),
        (float("nan"), "must be positive and finite"),
        (float("inf"), "must be positive and finite"),
        (True, "must be a number or text"),
        (None, "must be a number or text"),
    ],
)
def test_parse_bytes_says_what_is_wrong(text: Any, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse_bytes(text)
    assert message in str(caught.value)


def test_formats() -> None:
    assert format_bytes(0) == "0 B"
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024) == "1.00 KiB"
    assert format_bytes(1023.9 * 1024) == "1.00 MiB"
    assert format_bytes(6 << 30) == "6.00 GiB"
    assert format_bytes(5000 << 40) == "5000 TiB"
    assert format_seconds(0) == "0 s"
    assert format_seconds(0.0015) == "1.50 ms"
    assert format_seconds(2.5e-5) == "25.0 us"
    assert format_seconds(3e-9) == "3.00 ns"
    assert format_seconds(0.9999) == "1.00 s"
    assert format_count(999) == "999"
    assert format_count(4_190_000) == "4.19 M"


def test_every_device_of_the_process() -> None:
    topology = local_topology("6GiB")
    assert topology.size == len(jax.local_devices())
    assert {device.usable_bytes for device in topology.devices} == {6 << 30}
    assert topology.kinds == ("cpu",)
    assert [device.name for device in topology.devices[:2]] == ["cpu:0", "cpu:1"]
    assert {device.hardware for device in topology.devices} == {0}
    assert Topology.from_json(topology.to_json()) == topology


def test_chosen_devices_memories_and_headroom() -> None:
    topology = local_topology(["1GiB", 2 << 30], jax.devices()[2:4], reserved_bytes="256MiB")
    assert [device.name for device in topology.devices] == ["cpu:2", "cpu:3"]
    assert [d.usable_bytes for d in topology.devices] == [768 << 20, (2 << 30) - (256 << 20)]


def test_the_default_is_a_share_of_the_host() -> None:
    topology = local_topology()
    total = sum(device.memory_bytes for device in topology.devices)
    assert total <= local.host_memory_bytes() // 2
    assert total >= local.host_memory_bytes() // 2 - topology.size


def test_virtual_devices_can_stand_in_for_separate_ones() -> None:
    assert {d.hardware for d in local_topology("1GiB", share_hardware=False).devices} == {-1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": ["1GiB"]}, "memory has 1 sizes for 8 devices"),
        ({"memory": "lots"}, "write a number and a unit"),
        ({"devices": []}, "at least one device"),
        ({"memory": "1MiB", "reserved_bytes": "2MiB"}, "leaves nothing to use"),
    ],
)
def test_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        local_topology(**arguments)
    assert message in str(caught.value)


def test_speeds_by_name() -> None:
    known = {
        "NVIDIA H200": 4.8e12,
        "NVIDIA H100 80GB HBM3": 3.35e12,
        "NVIDIA H100 PCIe": 2.0e12,
        "NVIDIA A100-SXM4-40GB": 1.55e12,
        "NVIDIA A100-SXM4-80GB": 2.0e12,
        "NVIDIA A100 80GB PCIe": 1.9e12,
        "Tesla V100-SXM2-16GB": 0.9e12,
        "Tesla T4": 0.32e12,
        "NVIDIA L4": 0.3e12,
        "NVIDIA L40S": 0.86e12,
        "NVIDIA A10G": 0.6e12,
        "TPU v5 lite": 0.82e12,
    }
    for kind, bandwidth in known.items():
        speed = speed_of(kind)
        assert speed is not None, kind
        assert speed.bytes_per_second == bandwidth, kind
    assert speed_of("Frobnicator 9000") is None


def _gpu(index: int, kind: str, pool: int) -> Any:
    return types.SimpleNamespace(
        platform="gpu",
        id=index,
        device_kind=kind,
        process_index=0,
        memory_stats=lambda: {"bytes_limit": pool, "bytes_in_use": 0},
    )


def test_gpus_report_their_pool_and_keep_headroom() -> None:
    gpus = [_gpu(0, "NVIDIA H200", 100 << 30), _gpu(1, "NVIDIA H200", 8 << 30)]
    topology = local_topology(devices=[*gpus, jax.devices()[0]], memory=None)
    first, second, cpu = topology.devices
    assert first.usable_bytes == (100 << 30) - (1 << 30)
    assert second.usable_bytes == (8 << 30) - (8 << 30) // 16
    assert (first.kind, cpu.kind) == ("nvidia-h200", "cpu")
    assert first.name == "gpu:0"
    assert topology.link(0, 1).bytes_per_second == 450e9
    assert topology.link(0, 2).bytes_per_second == 48e9
    assert local_topology(devices=gpus, reserved_bytes=0).devices[0].usable_bytes == 100 << 30


def test_more_memory_than_a_gpu_has_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"gpu:0 \(Tesla T4\) has 15\.0 GiB"):
        local_topology("16GiB", devices=[_gpu(0, "Tesla T4", 15 << 30)])


def test_an_unknown_gpu_is_a_visible_choice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        topology = local_topology(devices=[_gpu(0, "Frobnicator 9000", 1 << 30)])
    assert topology.devices[0].kind == "frobnicator-9000"
    assert "speed of 'Frobnicator 9000' is not in the table" in caplog.text


# The devices of a topology ------------------------------------------------------------------------


def _machine(monkeypatch: pytest.MonkeyPatch, gpus: int, cpus: int) -> None:
    """A process with CUDA devices (where there are any, JAX's default) and CPU devices."""
    cpu = [types.SimpleNamespace(platform="cpu", id=index) for index in range(cpus)]
    gpu = [_gpu(index, "Tesla T4", 15 << 30) for index in range(gpus)]
    pools = {"cpu": cpu, "gpu": gpu, "cuda": gpu, None: gpu or cpu}

    def local_devices(*, backend: str | None = None) -> list[Any]:
        if not pools.get(backend):
            raise RuntimeError(f"Unknown backend {backend}")
        return list(pools[backend])

    monkeypatch.setattr(jax, "local_devices", local_devices)


def _named(*names: str) -> Topology:
    return replace(Topology.uniform(len(names)), devices=tuple(Device(name=name) for name in names))


@pytest.mark.parametrize(
    ("gpus", "cpus", "names", "found"),
    [
        (4, 1, ["cuda:3", "cuda:1"], ["gpu:3", "gpu:1"]),
        (4, 1, ["gpu:3", "cuda:1"], ["gpu:3", "gpu:1"]),
        (2, 1, ["cuda:0", "cpu:0"], ["gpu:0", "cpu:0"]),
        (2, 1, ["cpu:0", "gpu:1"], ["cpu:0", "gpu:1"]),
        # For people, or none.
        (2, 1, ["left", "right"], ["gpu:0", "gpu:1"]),
        (0, 2, ["", ""], ["cpu:0", "cpu:1"]),
        # None of these is here, or they say nothing: the devices of their platform in order.
        (2, 1, ["cuda:6", "cuda:7"], ["gpu:0", "gpu:1"]),
        (2, 2, ["cpu:8", "cpu:9"], ["cpu:0", "cpu:1"]),
        (2, 2, ["cpu:1", "cpu:1"], ["cpu:0", "cpu:1"]),
        # Fewer than the topology has: compiling says so where the plan needs more.
        (0, 2, ["cpu:0", "cpu:1", "cpu:2"], ["cpu:0", "cpu:1"]),
        (2, 1, ["", "", ""], ["gpu:0", "gpu:1"]),
    ],
)
def test_names_say_which_devices_to_run_on(
    monkeypatch: pytest.MonkeyPatch, gpus: int, cpus: int, names: list[str], found: list[str]
) -> None:
    _machine(monkeypatch, gpus, cpus)
    assert [f"{d.platform}:{d.id}" for d in devices_of(_named(*names))] == found


@pytest.mark.parametrize(
    ("gpus", "names", "missing"),
    [
        (2, ["cuda:0", "cuda:3"], r"1 \(cuda:3\)"),
        (0, ["cuda:0", "cpu:0"], r"0 \(cuda:0\)"),
        (0, ["cpu:0", "cuda:0"], r"1 \(cuda:0\)"),
        (2, ["cuda:0", "rocm:1"], r"1 \(rocm:1\)"),
        (2, ["cuda:0", ""], r"1 \(no name\)"),
        (0, ["gpu:0", "gpu:1"], r"0 \(gpu:0\), 1 \(gpu:1\)"),
    ],
)
def test_other_devices_never_stand_in_for_those_that_are_named(
    monkeypatch: pytest.MonkeyPatch, gpus: int, names: list[str], missing: str
) -> None:
    _machine(monkeypatch, gpus, cpus=1)
    with pytest.raises(DeviceError, match=f"no device for {missing} of the topology; it has"):
        devices_of(_named(*names))
