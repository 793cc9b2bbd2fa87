"""Loading python-mip: quietly, and without its deadlock."""

import subprocess
import sys

import pytest

from baechi_jax.passes.placement.solver import add_row, highs_available, new_model


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
