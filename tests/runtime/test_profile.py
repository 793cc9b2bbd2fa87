"""Measuring tasks and links, within a budget, and the cache on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.annotate_costs import AnnotateCosts
from baechi_jax.passes.fuse_tasks import FuseTasks
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.passes.tasks import tasks_of
from baechi_jax.runtime.profile import Budget, Subject, TaskSampler
from baechi_jax.runtime.profile_cache import (
    CostCache,
    CostCacheError,
    Costs,
    LinkEntry,
    TaskEntry,
    cache_files,
    environment_of,
)
from baechi_jax.runtime.profile_inputs import (
    is_measurable,
    is_told_by_fingerprint,
    make_inputs,
)
from baechi_jax.runtime.profile_links import fit_link, link_classes, measure_links


@dataclass
class _Clock:
    """Time that passes only when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _Fake:
    """An executable whose runs take the given seconds of ``clock``, one after another."""

    clock: _Clock
    takes: list[float]
    donated: tuple[bool, ...] = (False,)
    runs: int = 0
    fails: bool = False
    seen: list[Any] = field(default_factory=list)

    def call(self, *arrays: Any) -> list[Any]:
        if self.fails:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        self.clock.now += self.takes[min(self.runs, len(self.takes) - 1)]
        self.runs += 1
        self.seen.append(arrays)
        return []


def _subject(fake: _Fake, expected: float = 0.0) -> Subject:
    executable: Any = fake
    return Subject("t", executable, jax.devices()[0], (TensorType((2,), "f32"),), expected)


def test_the_first_run_does_not_count_and_the_median_does() -> None:
    clock = _Clock()
    fake = _Fake(clock, [9.0, 8.0, 9.0, 1.0, 9.0, 5.0, 9.0, 2.0])
    sampler = TaskSampler([_subject(fake)], Budget(100.0, clock))
    sampler.run(3)
    (found,) = sampler.measurements
    assert found is not None
    assert (found.seconds, found.samples) == (2.0, 3)
    assert found.spread == pytest.approx(1.0)
    assert fake.runs == 8


def test_short_tasks_run_in_batches_and_get_more_samples() -> None:
    clock = _Clock()
    fake = _Fake(clock, [1e-3])
    sampler = TaskSampler([_subject(fake)], Budget(100.0, clock))
    sampler.run(3)
    (found,) = sampler.measurements
    assert found is not None
    assert found.samples == 6
    assert found.seconds == pytest.approx(1e-3)
    assert fake.runs == 2 + 6 * (1 + 16)


def test_a_batch_does_not_pass_its_memory() -> None:
    clock = _Clock()
    fake = _Fake(clock, [1e-4])
    executable: Any = fake
    types = (TensorType((1024, 1024), "f32"),)
    subject = Subject("t", executable, jax.devices()[0], types, 0.0, 12 << 20, 48 << 20)
    TaskSampler([subject], Budget(100.0, clock)).run(1)
    assert fake.runs == 2 + 2 * (1 + 3)


def test_samples_go_round() -> None:
    clock = _Clock()
    order: list[str] = []

    class _Named(_Fake):
        def call(self, *arrays: Any) -> list[Any]:
            order.append("a" if self.takes == [1.0] else "b")
            return super().call(*arrays)

    fakes = [_Named(clock, [1.0]), _Named(clock, [2.0])]
    TaskSampler([_subject(fake) for fake in fakes], Budget(100.0, clock)).run(2)
    assert "".join(order) == "aaaa" + "bbbb" + "aa" + "bb"


def test_the_budget_holds_and_the_longest_come_first() -> None:
    clock = _Clock()
    fakes = [_Fake(clock, [0.5]), _Fake(clock, [1.0]), _Fake(clock, [3.0])]
    budget = Budget(7.0, clock)
    sampler = TaskSampler([_subject(fake, fake.takes[0]) for fake in fakes], budget)
    sampler.run(5)
    assert 6.0 <= clock.now <= 7.0
    assert budget.spent == clock.now
    # Two runs of the longest leave enough for two of the shortest.
    assert [found is not None for found in sampler.measurements] == [True, False, True]


@pytest.mark.parametrize(
    ("seconds", "runs", "found"),
    [(1.0, 1, 2.0), (4.5, 2, 2.0), (5.0, 2, 2.0), (40.0, 16, 2.0)],
)
def test_a_task_that_takes_longer_than_expected_does_not_eat_the_budget(
    seconds: float, runs: int, found: float
) -> None:
    clock = _Clock()
    fake = _Fake(clock, [2.0])
    budget = Budget(seconds, clock)
    sampler = TaskSampler([_subject(fake, 0.1)], budget)
    sampler.run(7)
    (measurement,) = sampler.measurements
    assert measurement is not None
    assert measurement.seconds == found
    assert fake.runs == runs
    # No more than the one run that had started.
    assert clock.now == budget.spent <= max(seconds, 2.0)


def test_nothing_runs_without_a_budget() -> None:
    clock = _Clock()
    fake = _Fake(clock, [1.0])
    sampler = TaskSampler([_subject(fake)], Budget(0.0, clock))
    sampler.run(5)
    assert fake.runs == 0
    assert sampler.measurements == [None]


def test_a_task_that_finds_no_memory_stays_unmeasured() -> None:
    clock = _Clock()
    fakes = [_Fake(clock, [1.0], fails=True), _Fake(clock, [1.0])]
    sampler = TaskSampler([_subject(fake) for fake in fakes], Budget(100.0, clock))
    sampler.run(2)
    assert [found is not None for found in sampler.measurements] == [False, True]


def test_inputs_that_are_taken_are_made_again() -> None:
    clock = _Clock()
    kept, taken = _Fake(clock, [1.0]), _Fake(clock, [1.0], donated=(True,))
    TaskSampler([_subject(kept), _subject(taken)], Budget(100.0, clock)).run(2)
    assert len({id(arrays[0]) for arrays in kept.seen}) == 1
    assert len({id(arrays[0]) for arrays in taken.seen}) == 6


def test_inputs_have_the_types_and_lie_on_the_device() -> None:
    device = jax.devices()[2]
    types = [
        TensorType((3, 5), "bf16"),
        TensorType((), "i32"),
        TensorType((4,), "i1"),
        TensorType((2,), '!baechi.key<"fry">'),
        TensorType((0, 7), "f32"),
        TensorType((100_000,), "complex<f32>"),
    ]
    arrays = make_inputs(types, device)
    assert [(a.shape, str(a.dtype)) for a in arrays] == [
        ((3, 5), "bfloat16"),
        ((), "int32"),
        ((4,), "bool"),
        ((2,), "key<fry>"),
        ((0, 7), "float32"),
        ((100_000,), "complex64"),
    ]
    assert all(array.devices() == {device} for array in arrays)
    floats = np.asarray(make_inputs([TensorType((100_000,), "f32")], device)[0])
    assert np.isfinite(floats).all()
    assert np.abs(floats).min() >= 5e-4


def _task(fn: Any, *args: Any) -> Any:
    module = trace(fn, args).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    for each in (InlineCalls(), AnnotateCosts(), FuseTasks(max_tasks=1)):
        each.run(module)
    (task,) = tasks_of(module.main)
    return task


def test_what_is_not_run_on_made_up_values() -> None:
    x = jax.ShapeDtypeStruct((4,), jnp.float32)

    def calls_back(x: jax.Array) -> Any:
        return jax.pure_callback(lambda v: v, x, x)

    def loops(x: jax.Array) -> Any:
        return jax.lax.while_loop(lambda v: v[0] < 1, lambda v: v + 1, x)

    assert is_measurable(_task(lambda x: jnp.sin(x) * 2, x))
    assert not is_measurable(_task(calls_back, x))
    assert not is_measurable(_task(loops, x))
    assert is_told_by_fingerprint(_task(lambda x: jax.nn.relu(x) @ x, x))
    assert not is_told_by_fingerprint(_task(calls_back, x))


# Links --------------------------------------------------------------------------------------------


def test_the_fit_of_a_link() -> None:
    latency, speed = fit_link([(n, 2e-5 + n / 4e9) for n in (1 << 10, 1 << 16, 1 << 20, 1 << 23)])
    assert latency == pytest.approx(2e-5, rel=1e-6)
    assert speed == pytest.approx(4e9, rel=1e-6)


def test_a_fit_stays_within_reason() -> None:
    latency, speed = fit_link([(1 << 10, 1e-6), (1 << 20, 1e-2)])
    assert latency >= 0
    assert 0 < speed < 1e9
    latency, speed = fit_link([(1 << 10, 2e-5), (1 << 20, 1e-5)])
    assert latency > 0
    assert speed == pytest.approx(1e13)


def test_links_that_are_alike_are_one_class() -> None:
    shared = Topology.uniform(3, Device(hardware=0))
    assert list(link_classes(shared)) == ["cpu/shared to cpu/shared"]
    apart = Topology.uniform(3, Device())
    assert len(link_classes(apart)) == 6
    mixed = Topology((Device(hardware=0), Device(kind="gpu")), (Link(0, 1), Link(1, 0)))
    assert list(link_classes(mixed)) == ["cpu/shared to gpu/1", "gpu/1 to cpu/shared"]


def test_links_are_measured_within_the_budget() -> None:
    devices = jax.devices()[:2]
    (found,) = measure_links([(0, 1)], devices, 1 << 20, Budget(30.0))
    assert found is not None
    latency, speed = found
    assert 0 <= latency < 1
    assert speed > 1e5
    assert measure_links([(0, 1)], devices, 1 << 20, Budget(0.0)) == [None]


# The cache ----------------------------------------------------------------------------------------

_ENVIRONMENT = {"device": "Test Device", "jax": "1"}


def _costs(number: int = 0) -> Costs:
    return Costs(
        {f"task{number}": TaskEntry(0.5 + number, 5, 0.1, {"matmul": 0.25}, "t0")},
        {"a to b": LinkEntry(1e-5, 1e9)},
    )


def test_the_cache_keeps_what_was_measured(tmp_path: Path) -> None:
    cache = CostCache(tmp_path / "new", _ENVIRONMENT)
    assert cache.load() == Costs()
    cache.add(_costs(0))
    cache.add(_costs(1))
    again = CostCache(tmp_path / "new", _ENVIRONMENT).load()
    assert again.tasks == _costs(0).tasks | _costs(1).tasks
    assert again.links == _costs().links
    assert cache_files(tmp_path / "new") == [cache.path]
    assert CostCache(tmp_path / "new", {**_ENVIRONMENT, "jax": "2"}).load() == Costs()


_ADDING = """
import sys
from pathlib import Path
from baechi_jax.runtime.profile_cache import CostCache, Costs, TaskEntry
cache = CostCache(Path(sys.argv[1]), {"device": "Test Device", "jax": "1"})
for number in range(20):
    cache.add(Costs({f"{sys.argv[2]} {number}": TaskEntry(1.0, 1, 0.0, {})}))
"""


def test_processes_share_a_cache(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _ADDING, str(tmp_path), name]) for name in "ab"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(CostCache(tmp_path, _ENVIRONMENT).load().tasks) == 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "no file of measured costs, or was cut off"),
        (lambda text: "", "cut off"),
        (lambda text: '{"format": "something"}', 'lacks "format": "baechi-measured-costs"'),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version 2, this release rea"),
        (lambda text: text.replace('"jax": "1"', '"jax": "3"'), "another environment"),
        (lambda text: text.replace("0.5", "-0.5"), "seconds must be finite and not negative"),
        (lambda text: text.replace("0.5", "NaN"), "seconds must be finite and not negative"),
        (lambda text: text.replace("0.5", '"x"'), "seconds must be a number, found 'x'"),
        (lambda text: text.replace("1000000000.0", "0"), "bytes_per_second must be positive"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    tmp_path: Path, change: Any, message: str
) -> None:
    cache = CostCache(tmp_path, _ENVIRONMENT)
    cache.add(_costs())
    text = cache.path.read_text(encoding="utf-8")
    cache.path.write_text(change(text), encoding="utf-8")
    changed = cache.path.read_text(encoding="utf-8")
    with pytest.raises(CostCacheError, match=message) as caught:
        cache.load()
    assert str(cache.path) in str(caught.value)
    with pytest.raises(CostCacheError, match=message):
        cache.add(_costs(1))
    assert cache.path.read_text(encoding="utf-8") == changed


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(CostCacheError, match=r"cannot write measured costs.*give another folder"):
        CostCache(tmp_path / "file", _ENVIRONMENT).add(_costs())


def test_the_environment_is_what_times_depend_on() -> None:
    device = jax.devices()[0]
    found = environment_of(device, (("xla_cpu_enable_fast_math", True),))
    assert found["device"] == device.device_kind
    assert "fast_math" in found["compiler_options"]
    assert "device_count" not in found["xla_flags"]
    assert found != environment_of(device)
    assert "cores" in found["processor"]
    json.dumps(found)
