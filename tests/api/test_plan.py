"""Plans: made from shapes, for machines that are not there, saved, loaded, refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError, VerificationError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.eliminate_dead_code import EliminateDeadCode
from baechi_jax.passes.pipeline import default_pipeline
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.schedule import Schedule
from baechi_jax.plan import PlanFileError, PlanMismatchError
from baechi_jax.runtime.errors import DeviceError


def step(state: Any, batch: Any) -> Any:
    def loss(params: Any) -> Any:
        x, y = batch
        for layer in params:
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        return jnp.mean((x - y) ** 2)

    value, grads = jax.value_and_grad(loss)(state["params"])
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], moments)
    return {"params": params, "m": moments}, value


def shapes(layers: int = 4, width: int = 64, batch: int = 8) -> Any:
    spec: Callable[..., Any] = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    params = [{"w": spec(width, width), "b": spec(width)} for _ in range(layers)]
    return {"params": params, "m": params}, (spec(batch, width), spec(batch, width))


def arrays(specs: Any) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda s: jnp.asarray(rng.normal(0, 0.1, s.shape).astype(np.float32)), specs
    )


#: A limit that one device cannot meet.
LIMIT = 100_000
tight = functools.partial(
    baechi.place, topology=Topology.uniform(4, Device(memory_bytes=LIMIT)), placer="m-etf"
)


def test_plan_from_shapes() -> None:
    plan = tight(step, donate_argnums=0).plan(*shapes())
    assert len(plan.devices_used) > 1
    assert all(peak <= LIMIT for peak in plan.peak_bytes)
    assert 0 < plan.lower_bound_seconds <= plan.step_seconds
    text = str(plan)
    assert "Placement of step" in text
    assert "transfers" in text
    assert "step on" in repr(plan)


def test_a_call_runs_the_plan_that_was_made() -> None:
    placed = tight(step, donate_argnums=0)
    plan = placed.plan(*shapes())
    args = arrays(shapes())
    want = jax.jit(step)(*args)
    got = placed(*args)
    assert placed.plan(*shapes()) is plan
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), got, want)


def test_one_device_when_nothing_beats_it() -> None:
    roomy = Topology.uniform(4, bytes_per_second=1e6, latency_seconds=1.0)
    plan = baechi.place(step, topology=roomy, placer="m-etf", donate_argnums=0).plan(*shapes())
    assert len(plan.devices_used) == 1
    assert "All on device 0: it fits there" in " ".join(str(plan).split())


def test_nothing_fits() -> None:
    small = Topology.uniform(2, Device(memory_bytes=LIMIT // 4))
    with pytest.raises(InfeasiblePlacementError, match="KiB more than its limit"):
        baechi.place(step, topology=small, placer="m-etf", donate_argnums=0).plan(*shapes())


def test_more_devices_than_the_machine_has() -> None:
    many = Topology.uniform(64, Device(memory_bytes=LIMIT))
    plan = baechi.place(step, topology=many, placer="single").plan(*shapes(1, 16))
    assert plan.topology.size == 64

    def far(x: Any) -> Any:
        with baechi.on(63):
            return x + 1

    placed = baechi.place(far, topology=many, placer="expert")
    assert placed.plan(jax.ShapeDtypeStruct((3,), jnp.float32)).devices_used == (63,)
    with pytest.raises(DeviceError, match=r"runs on 64 devices, and this process has 8"):
        placed(jnp.ones(3))
    with pytest.raises(DeviceError, match="device 63"):
        placed.input_shardings(jnp.ones(3))


def test_dump_folder(tmp_path: Path) -> None:
    tight(step, dump_folder=tmp_path).plan(*shapes(2, 16))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "00_input.mlir"
    assert any(name.endswith("_verify-plan.mlir") for name in names)


# Files --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "deep" / "plan.mlir"
    tight(step, donate_argnums=0).plan(*shapes()).save(path)
    return path


def test_saved_plan_is_repeated(saved: Path) -> None:
    made = tight(step, donate_argnums=0).plan(*shapes())
    loaded = baechi.Plan.load(saved)
    assert loaded.name == "step"
    assert loaded.peak_bytes == made.peak_bytes
    assert loaded.step_seconds == made.step_seconds
    assert str(loaded) == str(made)
    # The placer is not asked again.
    again = baechi.place(step, plan=saved, donate_argnums=0)
    plan = again.plan(*shapes())
    assert plan.peak_bytes == made.peak_bytes
    assert plan.step_seconds == made.step_seconds
    assert "place" not in {timing.name for timing in plan.timings}
    args = arrays(shapes())
    want = jax.jit(step)(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), again(*args), want)


def test_costs_are_computed_anew(saved: Path, tmp_path: Path) -> None:
    text = saved.read_text()
    cheap = tmp_path / "cheap.mlir"
    cheap.write_text(text.replace("baechi.step_seconds = ", "baechi.step_seconds = 9"))
    assert baechi.Plan.load(cheap).step_seconds != baechi.Plan.load(saved).step_seconds
    again = baechi.place(step, plan=cheap, donate_argnums=0).plan(*shapes())
    assert again.step_seconds == baechi.Plan.load(saved).step_seconds


def test_saving_a_repeated_plan(saved: Path, tmp_path: Path) -> None:
    plan = baechi.place(step, plan=saved, donate_argnums=0).plan(*shapes())
    plan.save(tmp_path / "again.mlir")
    third = baechi.place(step, plan=tmp_path / "again.mlir", donate_argnums=0)
    assert third.plan(*shapes()).peak_bytes == plan.peak_bytes


def elsewhere(saved: Path) -> Any:
    """A placed function whose argument, like leaves of the step's, lies where the plan has none."""

    def first(state: Any) -> Any:
        with baechi.on(2):
            return state["m"][0]["w"] * 2

    placed = tight(first, placer="expert")
    placed.plan({"m": [{"w": jax.ShapeDtypeStruct((64, 64), jnp.float32)}]})
    assert 2 not in baechi.Plan.load(saved).devices_used
    return placed


def test_a_plan_and_like_must_agree(saved: Path) -> None:
    made = tight(step, donate_argnums=0)
    made.plan(*shapes())
    again = baechi.place(step, plan=saved, like=made, donate_argnums=0)
    assert again.plan(*shapes()).peak_bytes == made.plan(*shapes()).peak_bytes
    wrong = baechi.place(step, plan=saved, like=elsewhere(saved), donate_argnums=0)
    message = (
        r"\(plan=\) has argument state\['m'\]\[0\]\['w'\].* on another device than "
        r"<placed first> \(like=\)"
    )
    with pytest.raises(PlanMismatchError, match=message):
        wrong.plan(*shapes())


def test_a_plan_of_an_initialiser_must_agree_with_like(saved: Path, tmp_path: Path) -> None:
    def init(seed: Any) -> Any:
        return jax.tree.map(lambda s: jnp.zeros(s.shape) + seed, shapes()[0])

    seed = jax.ShapeDtypeStruct((), jnp.float32)
    made = tight(step, donate_argnums=0)
    made.plan(*shapes())
    plan = baechi.place_init(init, like=made).plan(seed)
    plan.save(tmp_path / "init.mlir")
    again = baechi.place_init(init, like=made, plan=tmp_path / "init.mlir")
    assert again.plan(seed).peak_bytes == plan.peak_bytes
    wrong = baechi.place_init(init, like=elsewhere(saved), plan=tmp_path / "init.mlir")
    with pytest.raises(
        PlanMismatchError, match=r"has result\['m'\]\[0\]\['w'\].* on another device"
    ):
        wrong.plan(seed)


def test_another_function_is_refused(saved: Path) -> None:
    other = baechi.place(lambda s, b: (s, jnp.sum(b[0])), plan=saved, donate_argnums=0)
    with pytest.raises(PlanMismatchError, match="made for another program"):
        other.plan(*shapes())


def test_other_shapes_are_refused(saved: Path) -> None:
    with pytest.raises(PlanMismatchError, match="shapes or dtypes"):
        baechi.place(step, plan=saved, donate_argnums=0).plan(*shapes(batch=16))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (Topology.uniform(3, Device(memory_bytes=LIMIT)), "it has 4 devices, this one 3"),
        (Topology.uniform(4, Device(memory_bytes=LIMIT + 1)), "its device 0 is"),
        (
            Topology.uniform(4, Device(memory_bytes=LIMIT), latency_seconds=1.0),
            "their links differ",
        ),
    ],
)
def test_another_machine_is_refused(saved: Path, topology: Topology, message: str) -> None:
    placed = baechi.place(step, plan=saved, topology=topology, donate_argnums=0)
    with pytest.raises(PlanMismatchError, match=message):
        placed.plan(*shapes())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "is empty"),
        (lambda text: text[: len(text) // 2], "is no plan, or was cut off"),
        (lambda text: text[: text.rindex("}")], "is no plan, or was cut off"),
        (lambda text: "\x00binary", "is no plan"),
        (lambda text: '"builtin.module"() ({\n}) : () -> ()\n', "is IR, but no plan"),
        (
            lambda text: text.replace("baechi.plan_format = 1", "baechi.plan_format = 2"),
            "has plan format 2, this release reads up to 1",
        ),
        (
            lambda text: text.replace("baechi.plan_format = 1", "baechi.plan_format = 12, a = ?!"),
            "has plan format 12, this release reads up to 1",
        ),
        (
            lambda text: text.replace("baechi.fingerprint", "baechi.fingerprnt"),
            "incomplete plan: baechi.fingerprint",
        ),
    ],
)
def test_bad_files(saved: Path, tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(change(saved.read_text()))
    with pytest.raises(PlanFileError, match=message):
        baechi.Plan.load(path)


def test_a_crash_while_planning_leaves_a_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Schedule, module: Module) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Schedule, "run", crash)
    with pytest.raises(PassError, match="pass 'schedule' failed: ZeroDivisionError") as caught:
        baechi.place(step).plan(*shapes())
    (file,) = tmp_path.glob("baechi-*/schedule-*.mlir")
    assert f"baechi-opt --pass-pipeline=schedule {file}" in caught.value.__notes__[-1]
    monkeypatch.undo()
    # It is the module before the pass, so that the pass can do its work on it.
    Schedule().run(parse_module(file.read_text()))


def test_each_pass_is_verified_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = EliminateDeadCode.run

    def breaking(self: EliminateDeadCode, module: Module) -> None:
        plain(self, module)
        module.main.body.ops[0].attributes["baechi.pin"] = ("nowhere",)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(EliminateDeadCode, "run", breaking)
    with pytest.raises(VerificationError, match=r"baechi\.pin") as caught:
        baechi.place(step, verify_each=True).plan(*shapes())
    assert "pass 'eliminate-dead-code' left the module invalid" in caught.value.__notes__
    # Else it goes unseen: no later pass reads it.
    baechi.place(step).plan(*shapes())


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot read the plan"):
        baechi.Plan.load(tmp_path / "nothing.mlir")


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_text()
    plan = baechi.Plan.load(saved)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(KeyboardInterrupt):
        plan.save(saved)
    assert saved.read_text() == before
    assert [path.name for path in saved.parent.iterdir()] == ["plan.mlir"]


@pytest.mark.parametrize(("batch", "devices"), [(8, 1), (512, 1)])
def test_auto_is_no_longer_than_one_device(batch: int, devices: int) -> None:
    """Before tasks are merged, launches make two devices look better than one."""
    gpu = Device(
        kind="gpu",
        memory_bytes=1 << 34,
        flops_per_second=2e13,
        bytes_per_second=1.5e12,
        launch_seconds=5e-6,
    )
    topology = Topology.uniform(2, gpu, latency_seconds=1e-5, bytes_per_second=2.5e10)

    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            h = x
            for w in params:
                h = jnp.tanh(h @ w)
            return jnp.mean(h**2)

        value, grads = jax.value_and_grad(loss)(params)
        return [w - 0.1 * g for w, g in zip(params, grads, strict=True)], value

    shape = jax.ShapeDtypeStruct
    arguments = ([shape((256, 256), "float32")] * 8, shape((batch, 256), "float32"))
    auto = baechi.place(step, topology=topology, donate_argnums=0).plan(*arguments)
    passes = [each for each in default_pipeline("single:0") if each.name != "refine-placement"]
    alone = baechi.place(step, topology=topology, pipeline=passes, donate_argnums=0)
    assert auto.step_seconds <= alone.plan(*arguments).step_seconds
    assert len(auto.devices_used) == devices


def test_a_bar_while_limits_that_fit_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("baechi_jax.runtime.progress.SHOWN_AFTER_SECONDS", 0.0)
    for shown in (False, True):
        topology = Topology.uniform(2, Device(memory_bytes=1000))
        with pytest.raises(InfeasiblePlacementError):
            baechi.place(step, topology=topology, progress=shown).plan(*shapes())
        assert ("looking for limits" in capsys.readouterr().err) == shown
