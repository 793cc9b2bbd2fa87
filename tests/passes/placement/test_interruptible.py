"""Ctrl-C during a solve: heard at once, by a process of its own that gets the signal."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.solver import new_model

# A knapsack in fifty dimensions: a first solution at once, the proof only after hours.
KNAPSACK = """
import random, sys, threading, time
import mip
from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.solver import new_model

random.seed(0)
model = new_model("knapsack", solver=sys.argv[1])
items = [model.add_var(var_type="B") for _ in range(100)]
for _ in range(50):
    weights = [random.randint(10, 100) for _ in items]
    model.add_constr(mip.xsum(w * x for w, x in zip(weights, items)) <= sum(weights) // 2)
model.objective = mip.minimize(mip.xsum(-random.randint(10, 100) * x for x in items))
"""
SOLVE = """
print("ready", flush=True)
optimize(model, 600.0)
"""
LOOK_AFTERWARDS = """
print("ready", flush=True)
assert optimize(model, 600.0, keep_best=True) == "INTERRUPTED"
value, bound = model.objective_value, model.objective_bound
taken = [x.x for x in items]
assert all(min(abs(x), abs(x - 1)) < 1e-6 for x in taken), taken
assert bound <= value < 0, (bound, value)
assert threading.active_count() == 1, threading.enumerate()
# And it may be solved again.
print(optimize(model, 0.2), model.num_solutions)
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended after Ctrl-C, and how long that took."""

    seconds: float
    status: int
    output: str
    errors: str


def interrupt(script: str, *arguments: str, after: float = 1.0) -> Ended:
    """Run ``script`` and press Ctrl-C ``after`` seconds after it prints "ready"."""
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        try:
            output, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Ended(time.monotonic() - start, process.returncode, output, errors)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_process_ends_at_once(solver: str) -> None:
    ended = interrupt(KNAPSACK + SOLVE, solver)
    # As Python ends after any KeyboardInterrupt; a crash on the way out would give another signal.
    assert ended.status == -signal.SIGINT, ended
    assert "KeyboardInterrupt" in ended.errors
    assert ended.seconds < 5, ended


def test_the_best_solution_so_far_is_there_and_no_thread_is_left() -> None:
    ended = interrupt(KNAPSACK + LOOK_AFTERWARDS, "highs")
    assert ended.status == 0, ended.errors
    assert ended.output == "FEASIBLE 1\n"
    assert ended.seconds < 5, ended


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_limits_and_relaxation(solver: str) -> None:
    model = new_model("small", solver=solver)
    x = model.add_var(name="x", obj=-1.0, var_type="I")
    model.add_constr(2 * x <= 5)
    assert optimize(model, float("inf"), relax=True) == "OPTIMAL"
    assert x.x == pytest.approx(2.5)
    assert optimize(model, 10.0, max_nodes=100) == "OPTIMAL"
    assert x.x == pytest.approx(2.0)


def test_what_the_solver_raises_is_raised() -> None:
    model = new_model("wrong", solver="highs")
    model.add_var(obj=1.0)
    with pytest.raises(TypeError, match="str"):
        optimize(model, "soon")  # type: ignore[arg-type]
