"""The command line: what it prints, what it writes, what it says when something is wrong."""

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from baechi_jax.cli import main
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.plan import Plan
from baechi_jax.targets import TargetError, load_target

STEP = """
    from functools import partial

    import jax
    import jax.numpy as jnp

    import baechi_jax as baechi


    def loss_fn(params, x):
        for i, w in enumerate(params):
            with jax.named_scope(f"layer{i}"):
                x = jnp.tanh(x @ w)
        return jnp.mean(x**2)


    def step(params, x):
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        return [w - 0.1 * g for w, g in zip(params, grads)], loss


    jitted = partial(jax.jit, donate_argnums=0)(step)
    placed = baechi.place(step, donate_argnums=0)


    @partial(jax.jit, static_argnums=1, donate_argnums=2)
    def power(x, n, y):
        return x**n + y


    def power_args():
        return jnp.ones(4), 3, jnp.ones(4)


    def double(x):
        return 2 * x


    def double_args():
        return (jnp.ones(4),)


    def wrong(x):
        return x


    def wrong_args():
        return jnp.ones(4)


    number = 3


    def example_args():
        weight = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        return [weight] * 4, jax.ShapeDtypeStruct((32, 128), jnp.float32)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of functions and a machine of three devices."""
    (tmp_path / "model.py").write_text(textwrap.dedent(STEP), encoding="utf-8")
    topology = Topology.uniform(3, Device(memory_bytes=400_000, name="dev"))
    (tmp_path / "machine.json").write_text(topology.to_json(), encoding="utf-8")
    return tmp_path


def run(*arguments: str | Path) -> Result:
    """Run ``baechi`` with these arguments."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def plan(folder: Path, *arguments: str | Path, name: str = "step") -> Result:
    """``baechi plan`` for the machine of ``folder``."""
    target = f"{folder / 'model.py'}:{name}"
    machine = folder / "machine.json"
    return run("plan", target, "--topology", machine, "--placer", "m-etf", *arguments)


# plan -------------------------------------------------------------------------------------------


def test_plan_prints_a_table_and_writes_what_is_asked_for(folder: Path) -> None:
    result = plan(
        folder,
        "--donate-argnums",
        "0",
        "--report",
        folder / "plan.html",
        "--trace",
        folder / "plan.trace.json",
        "--save",
        folder / "plan.mlir",
        "--dump-ir",
        folder / "ir",
    )
    assert result.exit_code == 0, result.output
    assert "Placement of step" in result.stdout
    assert "<!doctype html>" in (folder / "plan.html").read_text(encoding="utf-8")
    assert json.loads((folder / "plan.trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert (folder / "plan.mlir").read_text(encoding="utf-8").startswith('"builtin.module"')
    assert (folder / "ir" / "00_input.mlir").exists()
    # What was written is said on the error stream, so that stdout holds the result alone.
    assert "plan.html" in result.stderr
    assert "plan.html" not in result.stdout


def test_a_report_has_its_trace_beside_it(folder: Path) -> None:
    saved = folder / "plan.mlir"
    made = plan(folder, "--report", folder / "plan.html", "--save", saved)
    assert made.exit_code == 0, made.output
    assert json.loads((folder / "plan.trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert "trace: " in made.stderr
    # Elsewhere when told so, and then nothing beside the report.
    (folder / "out").mkdir()
    page, chosen = folder / "out" / "page.html", folder / "chosen.json"
    shown = run("show", saved, "--report", page, "--trace", chosen)
    assert shown.exit_code == 0, shown.output
    assert chosen.read_bytes() == (folder / "plan.trace.json").read_bytes()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    # No report, no trace.
    bare = plan(folder)
    assert bare.exit_code == 0, bare.output
    assert "trace: " not in bare.stderr


def test_plan_as_json(folder: Path) -> None:
    result = plan(folder, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["step_seconds"] >= figures["lower_bound_seconds"] > 0
    assert len(figures["devices"]) == 3
    for device in figures["devices"]:
        assert device["peak_bytes"] <= device["limit_bytes"] == 400_000
    assert figures["placement"]["placer"] == "m-etf"


def _peak(result: Result) -> int:
    assert result.exit_code == 0, result.output
    return int(sum(device["peak_bytes"] for device in json.loads(result.stdout)["devices"]))


def test_donation_comes_from_the_option_from_jit_and_from_place(folder: Path) -> None:
    # On one device, since donation may change a placement, too.
    (folder / "machine.json").write_text(Topology.uniform(1).to_json(), encoding="utf-8")
    ample = ("--json", "--memory", "8MiB")
    kept = _peak(plan(folder, *ample))
    given = _peak(plan(folder, *ample, "--donate-argnums", "0"))
    assert given < kept
    assert _peak(plan(folder, *ample, name="jitted")) == given
    assert _peak(plan(folder, *ample, name="placed")) == given


def test_the_arguments_of_one_function_come_first(folder: Path) -> None:
    result = plan(folder, "--json", name="double")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["tasks"] == 1


def test_the_devices_at_hand_are_the_default(folder: Path) -> None:
    result = run("plan", f"{folder / 'model.py'}:step", "--placer", "m-etf", "--json")
    assert result.exit_code == 0, result.output
    names = [device["name"] for device in json.loads(result.stdout)["devices"]]
    assert names[:2] == ["cpu:0", "cpu:1"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("model.py", "is not FILE.py:NAME"),
        ("missing.py:step", "there is no file"),
        ("model.py:stepp", "did you mean 'step'"),
        ("model.py:number", "is a int, not a function"),
        ("model.py:wrong", "wrong_args() in"),
    ],
)
def test_a_target_that_cannot_be_used(folder: Path, target: str, message: str) -> None:
    result = run("plan", str(folder / target), "--topology", folder / "machine.json")
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_file_without_arguments_says_how_to_give_them(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("def f(x):\n    return x\n", encoding="utf-8")
    with pytest.raises(TargetError, match=r"add a function 'f_args\(\)' or 'example_args\(\)'"):
        load_target(f"{tmp_path / 'bare.py'}:f")


def test_an_error_in_the_file_itself_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        load_target(f"{tmp_path / 'broken.py'}:f")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--donate-argnums", "a"), "not a list of argument numbers"),
        (("--memory", "lots"), "write a number and a unit"),
        (("--pipeline", "fuse-tasks"), "not both"),
    ],
)
def test_options_that_are_wrong(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    result = plan(folder, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output


def test_a_machine_that_is_too_small(folder: Path) -> None:
    result = plan(folder, "--memory", "10KiB", "--report", folder / "plan.html")
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert not (folder / "plan.html").exists()


def test_a_topology_that_is_wrong(folder: Path) -> None:
    (folder / "machine.json").write_text("{}", encoding="utf-8")
    result = plan(folder)
    assert result.exit_code == 1
    assert "machine.json: not a topology" in result.output


# show and simulate ------------------------------------------------------------------------------


def test_what_jit_was_told_of_a_target_counts(folder: Path) -> None:
    result = plan(folder, "--save", folder / "plan.mlir", name="power")
    assert result.exit_code == 0, result.output
    module = Plan.load(folder / "plan.mlir").module
    # n is no argument, and y is donated.
    arguments = [
        (e["baechi.name"], "baechi.donated" in e) for e in argument_attributes(module.main)
    ]
    assert arguments == [("x", False), ("y", True)]


def test_show_and_simulate_a_saved_plan(folder: Path) -> None:
    planned = plan(folder, "--json", "--save", folder / "plan.mlir")
    assert planned.exit_code == 0, planned.output
    for command in ("show", "simulate"):
        result = run(command, folder / "plan.mlir", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == json.loads(planned.stdout)
    assert "Placement of step" in run("show", folder / "plan.mlir").stdout


def test_simulate_on_a_faster_machine(folder: Path) -> None:
    slow = plan(folder, "--json", "--save", folder / "plan.mlir")
    assert slow.exit_code == 0, slow.output
    device = Device("fast", 400_000, flops_per_second=5e12, bytes_per_second=1e12)
    text = Topology.uniform(3, device).to_json()
    (folder / "fast.json").write_text(text, encoding="utf-8")
    trace = folder / "fast.trace.json"
    result = run(
        "simulate", folder / "plan.mlir", "--topology", folder / "fast.json", "--json",
        "--trace", trace,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    before, after = json.loads(slow.stdout), json.loads(result.stdout)
    assert after["step_seconds"] < before["step_seconds"]
    assert [d["kind"] for d in after["devices"]] == ["fast"] * 3
    assert trace.exists()


def test_simulate_says_what_does_not_fit(folder: Path) -> None:
    assert plan(folder, "--save", folder / "plan.mlir").exit_code == 0
    tiny = Topology.uniform(3, Device("tiny", 1_000))
    (folder / "tiny.json").write_text(tiny.to_json(), encoding="utf-8")
    result = run("simulate", folder / "plan.mlir", "--topology", folder / "tiny.json", "--json")
    assert result.exit_code == 0, result.output
    assert "note: the plan does not fit there: device 0 needs" in result.stderr
    assert json.loads(result.stdout)["devices"][0]["limit_bytes"] == 1_000


def test_simulate_needs_as_many_devices(folder: Path) -> None:
    assert plan(folder, "--save", folder / "plan.mlir").exit_code == 0
    (folder / "two.json").write_text(Topology.uniform(2).to_json(), encoding="utf-8")
    result = run("simulate", folder / "plan.mlir", "--topology", folder / "two.json")
    assert result.exit_code == 1
    assert "the plan is for 3 devices and this topology has 2" in result.output


def test_files_that_are_no_plans(folder: Path) -> None:
    assert plan(folder, "--save", folder / "plan.mlir").exit_code == 0
    text = (folder / "plan.mlir").read_text(encoding="utf-8")
    for name, content in (("cut", text[: len(text) // 2]), ("empty", ""), ("other", "hello")):
        path = folder / f"{name}.mlir"
        path.write_text(content, encoding="utf-8")
        result = run("show", path)
        assert result.exit_code == 1, name
        assert str(path) in result.output
        assert "Traceback" not in result.output
    assert run("show", folder / "missing.mlir").exit_code == 2


# topology ---------------------------------------------------------------------------------------


def test_topology_prints_json_that_loads(tmp_path: Path) -> None:
    result = run("topology", "--memory", "6GiB", "--count", "3")
    assert result.exit_code == 0, result.output
    topology = Topology.from_json(result.stdout)
    assert [device.name for device in topology.devices] == ["cpu:0", "cpu:1", "cpu:2"]
    # Not at hand, so not on the same cores.
    assert {device.hardware for device in topology.devices} == {-1}
    assert run("topology", "-o", tmp_path / "t.json").exit_code == 0
    here = Topology.load(tmp_path / "t.json")
    assert here.size == 8
    assert {device.hardware for device in here.devices} == {0}
