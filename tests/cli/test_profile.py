"""``baechi profile``: measure, show, clear."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from baechi_jax.cli import main
from baechi_jax.runtime.profile_cache import CostCache, Costs, LinkEntry, TaskEntry

_STEP = """
    import jax
    import jax.numpy as jnp


    def step(w, x):
        return jnp.tanh(x @ w) @ w


    def example_args():
        return (jax.ShapeDtypeStruct((32, 32), jnp.float32),) * 2
"""


def _profile(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["profile", *map(str, arguments)])


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(_STEP), encoding="utf-8")
    return f"{path}:step"


def _cache(folder: Path) -> CostCache:
    cache = CostCache(folder, {"device": "TPU v9", "jax": "0.99"})
    tasks = {
        f"{number:064d}": TaskEntry(1e-3 * number, 5, 0.02, {"matmul": 5e-4 * number}, f"t{number}")
        for number in range(1, 31)
    }
    cache.add(Costs(tasks, {"tpu/0 to tpu/1": LinkEntry(1e-5, 4 << 30)}))
    return cache


def test_fill_show_clear(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "costs"
    filled = _profile("fill", target, "--folder", folder, "--seconds", 5, "--json")
    assert filled.exit_code == 0, filled.output
    assert json.loads(filled.stdout)["step_seconds"] > 0
    assert str(folder) in filled.stderr
    shown = _profile("show", "--folder", folder)
    assert shown.exit_code == 0, shown.output
    assert "matmul" in shown.stdout
    assert "cores" in shown.stdout
    (data,) = json.loads(_profile("show", "--folder", folder, "--json").stdout)
    assert data["format"] == "baechi-measured-costs"
    (folder / "mine.json").write_text("{}", encoding="utf-8")
    cleared = _profile("clear", "--folder", folder, "--yes")
    assert cleared.exit_code == 0, cleared.output
    assert "deleted 1 files" in cleared.stderr
    assert "mine.json" in cleared.stderr
    assert [path.name for path in folder.iterdir()] == ["mine.json"]


def test_the_longest_are_shown_first_and_the_rest_on_request(tmp_path: Path) -> None:
    _cache(tmp_path)
    short = _profile("show", "--folder", tmp_path).stdout
    assert short.index("t30 ") < short.index("t11 ")
    assert "t10 " not in short
    assert "10 shorter ones are not shown (--all)" in short
    assert "tpu/0 to tpu/1" in short
    assert "4.00 GiB" in short
    assert "t1 " in _profile("show", "--folder", tmp_path, "--all").stdout


def test_clear_asks(tmp_path: Path) -> None:
    cache = _cache(tmp_path)
    answer = CliRunner().invoke(main, ["profile", "clear", "--folder", str(tmp_path)], input="n\n")
    assert answer.exit_code == 1
    assert "Delete 1 files" in answer.stdout
    assert cache.path.exists()


def test_a_file_that_was_cut_off_can_be_cleared(tmp_path: Path) -> None:
    cache = _cache(tmp_path)
    cache.path.write_text(cache.path.read_text(encoding="utf-8")[:300], encoding="utf-8")
    shown = _profile("show", "--folder", tmp_path)
    assert shown.exit_code == 1
    assert "cut off" in shown.output
    assert _profile("clear", "--folder", tmp_path, "--yes").exit_code == 0
    assert not cache.path.exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "--folder", "/nowhere/at/all"], 0, "nothing was measured yet"),
        (["clear", "--folder", "/nowhere/at/all"], 0, "nothing to delete"),
        (["fill"], 2, "Missing argument 'FILE.py:NAME'"),
        (["fill", "x.py:f", "--seconds", "-1"], 2, "-1.0 is not in the range"),
        (["fill", "x.py:f", "--seconds", "soon"], 2, "'soon' is not a valid float"),
        (["fill", "absent.py:f"], 1, "absent.py"),
        (["fly"], 2, "No such command 'fly'"),
    ],
)
def test_wrong_usage(arguments: list[str], status: int, message: str) -> None:
    result = _profile(*arguments)
    assert result.exit_code == status
    assert message in result.output
    assert "Traceback" not in result.output
