"""``baechi explain``: what it prints, and what it says when something is wrong."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner, Result

import baechi_jax as baechi
from baechi_jax.cli import main
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.plan import Plan


def _step(params: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    return [w - 0.1 * jnp.tanh(x @ w).T @ x for w in params]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    machine = Topology.uniform(2, Device(memory_bytes=400_000, name="dev"))
    weight = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    batch = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    plan = baechi.place(_step, topology=machine, placer="m-etf", donate_argnums=0).plan(
        [weight] * 2, batch
    )
    file = tmp_path_factory.mktemp("plan") / "plan.mlir"
    plan.save(file)
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)], env={"COLUMNS": "100"})


def test_sentences_and_a_table(plan_file: Path) -> None:
    result = run(plan_file, "params[0]")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Argument params[0] (f32[128,128], 64.0 KiB) on device ")
    assert "- State lies where its next value is made (result[0]" in result.stdout
    assert "as planned" in result.stdout
    assert "0 dev" in result.stdout
    assert "1 dev" in result.stdout


def test_as_json(plan_file: Path) -> None:
    result = run(plan_file, "params[1]", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["subject"].startswith("argument params[1]")
    assert {each["device"] for each in figures["alternatives"]} == {0, 1}
    (chosen,) = (each for each in figures["alternatives"] if each["chosen"])
    assert chosen["device"] == figures["device"]
    assert chosen["step_seconds"] == Plan.load(plan_file).step_seconds


@pytest.mark.parametrize(
    ("what", "message"),
    [("parms[0]", "the nearest are params[0]"), ("t99", "has no")],
)
def test_questions_without_an_answer(plan_file: Path, what: str, message: str) -> None:
    result = run(plan_file, what)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_file_that_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "no.mlir").write_text("hello", encoding="utf-8")
    result = run(tmp_path / "no.mlir", "x")
    assert result.exit_code == 1
    assert "is no plan" in result.output
    assert run(tmp_path / "missing.mlir", "x").exit_code == 2
    assert run(tmp_path / "no.mlir").exit_code == 2
