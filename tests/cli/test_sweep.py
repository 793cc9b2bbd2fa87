"""``baechi plan --sweep``: the table, JSON, the picture, Ctrl-C, and wrong use."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import baechi_jax.sweep.run
from baechi_jax.cli import main
from baechi_jax.ir.topology import Device, Topology

MODEL = """
import jax
import jax.numpy as jnp

TRACED = []


def step(params, x):
    TRACED.append(1)
    return [w - 0.1 * jnp.tanh(x @ w).T @ x for w in params]


def example_args():
    weight = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    return [weight] * 2, weight
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "swept_model.py").write_text(MODEL, encoding="utf-8")
    machine = Topology.uniform(2, Device(memory_bytes=400_000, name="dev"))
    (tmp_path / "machine.json").write_text(machine.to_json(), encoding="utf-8")
    return tmp_path


def plan(folder: Path, *arguments: str | Path) -> Result:
    command = ["plan", f"{folder / 'swept_model.py'}:step"]
    command += ["--topology", str(folder / "machine.json"), "--donate-argnums", "0"]
    return CliRunner().invoke(main, [*command, *map(str, arguments)])


def test_a_table_and_a_picture(folder: Path) -> None:
    result = plan(
        folder, "--placer", "m-etf", "--sweep", "devices=1..3", "--sweep", "memory=200kB,2MB",
        "--plot", folder / "s.svg",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "step: what if" in result.stdout
    assert "no room" in result.stdout
    assert "3" in result.stdout
    assert "plot: " in result.stderr
    assert (folder / "s.svg").exists()


def test_as_json_with_one_trace(folder: Path) -> None:
    import sys

    result = plan(folder, "--sweep", "placer=m-etf,m-topo", "--sweep", "devices=2", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["axes"] == {"placer": ["m-etf", "m-topo"], "devices": [2]}
    assert [each["placer"] for each in found["points"]] == ["m-etf", "m-topo"]
    assert all(each["fits"] and each["step_seconds"] > 0 for each in found["points"])
    assert found["interrupted"] is False
    assert len(sys.modules["swept_model"].TRACED) == 1
    del sys.modules["swept_model"]


def test_ctrl_c_shows_what_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = baechi_jax.sweep.run.plan_module
    calls = []

    def interrupted(*arguments, **options):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(*arguments, **options)

    monkeypatch.setattr(baechi_jax.sweep.run, "plan_module", interrupted)
    result = plan(
        folder, "--placer", "m-etf", "--sweep", "devices=1..3", "--memory", "2MB", "--json"
    )
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert [each["devices"] for each in found["points"]] == [1]
    assert found["interrupted"] is True
    assert "interrupted; 1 of 3 are done" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sweep", "devices=0"), "Invalid value for --sweep: devices: '0' asks for no device"),
        (("--sweep", "memory=2G"), "Invalid value for --sweep: memory: the size '2G'"),
        (("--sweep", "devices=1", "--sweep", "devices=2"), "'devices' is varied twice"),
        (("--sweep", "memory=2GiB", "--memory", "1GiB"), "--memory and --sweep memory=... exclude"),
        (("--sweep", "placer=m-etf", "--placer", "m-sct"), "--placer and --sweep placer=..."),
        (("--sweep", "placer=m-etf", "--pipeline", "default"), "--pipeline and --sweep placer=..."),
        (("--sweep", "devices=1", "--save", "x.mlir"), "--save is about one plan"),
        (("--sweep", "devices=1", "--report", "x.html"), "--report is about one plan"),
        (("--sweep", "devices=1", "--plot", "x.png"), "Invalid value for --plot: the ending of"),
        (("--plot", "x.svg"), "--plot draws a sweep; give --sweep, too"),
    ],
)
def test_wrong_use(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    result = plan(folder, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_machine_that_cannot_be_extended(folder: Path) -> None:
    mixed = Topology((Device("a", 10**6), Device("b", 10**6)), Topology.uniform(2).links)
    (folder / "machine.json").write_text(mixed.to_json(), encoding="utf-8")
    result = plan(folder, "--sweep", "devices=1..3")
    assert result.exit_code == 1
    assert "devices: 3 are asked for, and the topology has 2" in result.output
