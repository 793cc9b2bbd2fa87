"""What ``benchmarks/memory.py`` says of the model's prediction, and of steps that it leaves out."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baechi_jax.passes.cost.program import Program
from baechi_jax.stages import Compiled
from tests.zoo.registry import ENTRIES

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

WIDTH, ROWS, LAYERS = 128, 160, 4


def arguments() -> Any:
    params = np.random.default_rng(0).normal(0, 0.1, (LAYERS, WIDTH, WIDTH)).astype(np.float32)
    return [jnp.asarray(each) for each in params], jnp.ones((ROWS, WIDTH))


def step(params: Any, x: Any) -> Any:
    """The scores take more than the parameters."""
    for w in params:
        x = jnp.tanh(jax.nn.softmax(x @ x.T) @ x @ w)
    return [0.9 * w for w in params], jnp.mean(x)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    # It asks for four devices when it is imported; the tests' processes have theirs.
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import memory

    return memory


def test_the_model_answers_for_a_plan_that_did_not_stay(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "temporary_bytes", lambda *args, **kwargs: 0)
    row = memory.measure("scores", step, arguments(), "m-etf", 0.6, 1e-4)
    assert row["placed_again"]
    assert max(row["modelled_bytes"]) <= row["limit_bytes"] < max(row["modelled_actual_bytes"])
    assert row["model_actual_over_predicted"] > 1.1
    assert row["actual_over_predicted"] == 1.0
    assert row["within_limit"]
    assert row["problems"] == []
    found = memory.result([row], {}, {})
    assert found["model_actual_over_predicted"] > 1.1
    assert found["placed_again"] == ["scores"]
    assert found["values_match"]


def test_the_executors_own_run_is_compared(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Compiled.__call__

    def wrong(self: Any, *args: Any) -> Any:
        params, mean = plain(self, *args)
        return params, mean + 1

    monkeypatch.setattr(Compiled, "__call__", wrong)
    row = memory.measure("scores", step, arguments(), "m-etf", 0.6, 1e-4)
    (problem,) = row["problems"]
    assert problem.startswith("run: [1] float32[] differs")
    assert not memory.result([row], {}, {})["values_match"]


def test_what_is_left_out_and_what_fails_is_named(
    memory: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cases import Case

    def build() -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr(memory, "own_models", lambda *_, **__: [Case("broken", build)])
    monkeypatch.setattr(type(ENTRIES[0]), "missing", lambda self: ("flax",))
    monkeypatch.setattr(sys, "argv", ["memory.py"])
    assert memory.main() == 1
    line = json.loads(capsys.readouterr().out)
    assert line["failed"] == {"broken": "ValueError: no such thing"}
    assert line["skipped"] == {entry.name: "needs flax" for entry in ENTRIES}
    assert not line["values_match"]
