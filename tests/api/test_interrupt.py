"""Ctrl-C while a placed function plans, compiles or measures: the function can be called again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baechi_jax.runtime.profile_cache import read_costs

#: What all scripts start with: a step that is interrupted is run once more.
WATCH = """
import sys, threading, time
from pathlib import Path
import jax, jax.numpy as jnp
import baechi_jax as baechi

def watch(step, x, weights, wanted):
    try:
        step(x, weights)
    except KeyboardInterrupt:
        left = [each.name for each in threading.enumerate() if each.name.startswith("baechi")]
        print("interrupted", x.is_deleted(), left, flush=True)
        got, _ = step(x, weights)
        print(bool(jnp.allclose(got, wanted, rtol=1e-4)), flush=True)
        raise
"""

SOLVE = """
from baechi_jax.passes.placement import milp_solve

solve, limits = milp_solve.optimize, [600.0]

def limited(model, seconds, **options):
    print("ready", flush=True)
    return solve(model, limits.pop() if limits else 0.2, **options)

milp_solve.optimize = limited

# As if each device had cores of its own: else the first answer is the best.
apart = baechi.local_topology(share_hardware=False)

@baechi.place(placer="milp", topology=apart, donate_argnums=0)
def step(x, weights):
    parts = [jnp.tanh(x @ w @ w.T) for w in weights]
    pairs = [a @ b for a, b in zip(parts, parts[1:])]
    return sum(jnp.sum(part) for part in parts + pairs), x + 1

keys = jax.random.split(jax.random.key(0), 14)
weights = [jax.random.normal(key, (64, 32 * (i + 3))) / 100 for i, key in enumerate(keys)]
x = jnp.ones((64, 64))
wanted, _ = step.__wrapped__(x, weights)
watch(step, x, weights, wanted)
"""

#: ``step`` in several tasks, for what stands before ``interrupted()``.
STEP = """
folder = Path(sys.argv[1])
topology = baechi.local_topology("1MiB", share_hardware=False)

def layers(x, weights):
    with baechi.on(0):
        y, new = jnp.cos(x), x + 1
    for index, w in enumerate(weights):
        with baechi.on(index % 4):
            y = jnp.tanh(y @ w)
    return y, new

def interrupted(**options):
    step = baechi.place(layers, placer="expert", topology=topology, donate_argnums=0, **options)
    x, weights = jnp.ones((8, 32)), [jnp.full((32 + i, 33 + i), 0.01) for i in range(6)]
    wanted, _ = layers(x, weights)
    watch(step, x, weights, wanted)
"""

COMPILE = """
from baechi_jax.ir import _jax_compat as compat

compile_ = compat.LoweredJaxpr.compile

def slow(*args):
    print("ready", flush=True)
    time.sleep(0.3)
    return compile_(*args)

compat.LoweredJaxpr.compile = slow
interrupted(compile_threads=1)
"""

PROFILE = """
from baechi_jax.runtime.profile import TaskSampler

run = TaskSampler._run

def slow(self, state, **options):
    print("ready", flush=True)
    time.sleep(0.1)
    return run(self, state, **options)

TaskSampler._run = slow
interrupted(costs="profile", profile_folder=folder, profile_seconds=3)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", WATCH + script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **flags},
    )


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def test_ctrl_c_during_a_solve() -> None:
    with start(SOLVE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        heard = process.stdout.readline()
        seconds = time.monotonic() - begun
        output, errors = rest_of(process)
    assert heard == "interrupted False []\n", errors
    # Long before the solver's own limit.
    assert seconds < 300
    # How often the second plan solves depends on how busy the machine is.
    assert output.endswith("True\n"), errors


@pytest.mark.slow
@pytest.mark.parametrize("script", [COMPILE, PROFILE], ids=["compile", "profile"])
def test_ctrl_c_during_a(script: str, tmp_path: Path) -> None:
    with start(STEP + script, str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        process.send_signal(signal.SIGINT)
        output, errors = rest_of(process)
    lines = [line for line in output.splitlines() if line != "ready"]
    assert lines == ["interrupted False []", "True"], errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    # What measuring keeps is whole; compiling keeps nothing.
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert bool(files) == (script is PROFILE)
    for path in files:
        if path.suffix == ".json":
            read_costs(path)
        else:
            assert path.suffix == ".lock"
