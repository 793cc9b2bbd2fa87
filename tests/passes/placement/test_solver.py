"""Loading python-mip: quietly, and without its deadlock."""

import logging
import os
import subprocess
import sys

import mip.highs
import pytest

from baechi_jax.passes.placement import linear_program
from baechi_jax.passes.placement.favourite_children import favourite_children
from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.solver import add_row, highs_available, new_model
from baechi_jax.passes.placement.synthetic import layered_problem


@pytest.mark.parametrize("solver", ["auto", "highs", "cbc"])
def test_rows_say_what_they_say(solver: str) -> None:
    model = new_model("test", solver=solver)
    x, y = model.add_var(name="x", obj=1.0, ub=10.0), model.add_var(name="y", obj=2.0, ub=10.0)
    add_row(model, [x, y], [1.0, 1.0], ">", 4.0, "sum")
    add_row(model, [x], [2.0], "<", 6.0, "most")
    add_row(model, [y, x], [1.0, -1.0], "=", -1.0, "apart")
    assert model.optimize().name == "OPTIMAL"
    assert (x.x, y.x) == (pytest.approx(2.5), pytest.approx(1.5))
    assert [row.name for row in model.constrs] == ["sum", "most", "apart"]


def test_a_variable_may_come_twice_in_a_row() -> None:
    model = new_model("test")
    x = model.add_var(name="x", obj=1.0)
    add_row(model, [x, x], [1.0, 3.0], ">", 8.0, "twice")
    model.optimize()
    assert x.x == pytest.approx(2.0)


def test_highs_is_there() -> None:
    # The package asks for it; without it CBC takes over, several times slower on large programs.
    assert highs_available()


def test_without_highs_cbc_solves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine.uniform_of(3, 1 << 40, latency_seconds=2e-4, seconds_per_byte=1e-9)
    problem = layered_problem(60, 4, machine, seed=0)
    made: list[mip.Model] = []

    def note(*args: object, **options: object) -> mip.Model:
        made.append(new_model(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(linear_program, "new_model", note)
    wanted = favourite_children(problem, in_parts=False).makespan_seconds
    monkeypatch.setattr(mip.highs, "has_highs", False)
    with caplog.at_level(logging.INFO):
        found = favourite_children(problem, in_parts=False).makespan_seconds
    assert [model.solver_name.upper() for model in made] == ["HIGHS", "CBC"]
    assert found == pytest.approx(wanted, rel=1e-6)
    assert "HiGHS cannot be loaded; linear programs are solved by CBC" in caplog.messages


def test_where_highs_cannot_be_loaded_cbc_places() -> None:
    script = """
from baechi_jax.passes.placement.milp import milp
from baechi_jax.passes.placement.solver import highs_available, new_model
from baechi_jax.passes.placement.synthetic import random_problem
assert not highs_available()
assert type(new_model("test").solver).__name__ == "SolverCbc"
print(milp(random_problem(3, tasks=5, devices=2, limit_bytes=1 << 30), time_limit=60).status)
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PMIP_HIGHS_LIBRARY": "/nonexistent/libhighs.so"},
    )
    assert result.stdout.strip() == "optimal", result.stderr
    assert result.stderr == ""


def test_collecting_models_during_a_solve_does_not_hang() -> None:
    # python-mip's models are garbage in cycles; freeing the first one took a lock that cffi holds
    # while the next one is built.
    script = """
import gc, logging
from baechi_jax.passes.placement.solver import new_model
logging.basicConfig(level=logging.WARNING)
gc.set_threshold(1, 1, 1)
for solver in ("highs", "cbc", "highs", "cbc"):
    model = new_model("test", solver=solver)
    x = model.add_var(obj=1.0, lb=2.0, var_type="I")
    model.add_constr(x >= 3)
    model.optimize(max_seconds=10)
    assert model.objective_value == 3 and model.objective_bound == 3
print("done")
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout.strip().endswith("done"), result.stderr
    assert "HiGHS C API not accessible" not in result.stderr
