"""The examples run, and what README and quickstart show is true."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from baechi_jax.cli import main

ROOT = Path(__file__).resolve().parents[1]


def _blocks(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def _run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_is_true(tmp_path: Path) -> None:
    output = _run(_blocks("README.md"), tmp_path)
    # The weights are spread, as the text says.
    assert len(set(re.findall(r"CpuDevice\(id=(\d)\)", output))) > 1, output
    assert (tmp_path / "plan.html").exists()
    assert (tmp_path / "plan.mlir").exists()


def test_the_quickstart_is_true(tmp_path: Path) -> None:
    output = _run(_blocks("docs/quickstart.md"), tmp_path)
    assert "Placement of train_step" in output
    assert (tmp_path / "plan.html").exists()


def test_the_page_on_stacked_state_is_true(tmp_path: Path) -> None:
    output = _run(_blocks("docs/stacked-state.md"), tmp_path)
    assert "layers 0 on cpu:" in output or "NamedSharding" in output


@pytest.mark.parametrize("machine", ["two-kinds", "four-small"])
def test_the_example_machines(machine: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main,
        [
            "plan",
            f"{ROOT / 'examples' / 'charlm.py'}:train_step",
            "--topology",
            str(ROOT / "examples" / "machines" / f"{machine}.json"),
            "--placer",
            "m-etf",
            "--donate-argnums",
            "0",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    used = [device for device in figures["devices"] if device["tasks"]]
    if machine == "two-kinds":
        # The step is small: one fast device does it.
        assert {device["kind"] for device in used} == {"a100"}
    else:
        assert len(used) > 1


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "examples" / "demo.py"),
            "--steps",
            "4",
            "--output",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {"plan.html", "plan.trace.json", "plan.mlir", "ir"} <= names
    assert len(list((tmp_path / "ir").glob("*.mlir"))) > 10
