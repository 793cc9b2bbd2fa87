"""Fidelity: is the predicted step time that of a real step?

The benchmarks' models and those of the zoo (``tests/zoo``) whose packages are installed, each under
``auto`` with ``costs="profile"``: on four virtual CPU devices that share a limit which one device
cannot meet, and on one device. Planning measures the tasks; then, round by round, each task of the
plan is measured once more and one step is run, so that a load on the machine falls on both alike,
and the plan's step is simulated with the medians. Tasks that are not run on made-up values, since
those would decide how often a loop turns, are taken from steps that are timed task by task
(``Compiled.measure_times``). An error is ``|predicted / measured - 1|``.

- ``median_error``, ``worst_error``: over all models and both numbers of devices.
- ``planned``: the same for the prediction that the plan came with, whose measurements are older.
  Only by the wall clock, which is the planner's.
- ``control``: what the machine itself does to the figure: the median step of the even rounds
  against that of the odd ones, in the median and at worst.

``--clock cpu`` judges by seconds of processor time, tasks and steps alike: on a machine that others
keep busy that is all one can say, and where all devices share the cores, tasks add up to the step
by that clock too. Ends with one JSON line, which names the steps of the zoo that were left out
(``skipped``) and those that did not run (``failed``). The exit status is 1 when one did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)
sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
from cases import Case, choose, own_models
from one_device import one_device_bytes

import baechi_jax as baechi
from baechi_jax.passes.simulate.timeline import Timeline
from baechi_jax.profiled import ProfileOptions, Profiler
from baechi_jax.runtime.profile import Budget
from baechi_jax.runtime.profile_inputs import is_measurable
from baechi_jax.units import format_bytes
from tests.zoo.examine import put

DEVICES = 4

#: Of the one-device peak, on each of four devices.
SHARE = 0.5

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def measure(case: Case, devices: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Plan, then tasks and steps in turn."""
    step, arguments = case.build()
    here = jax.devices()[:devices]
    if devices == 1:
        topology = baechi.local_topology(devices=here)
    else:
        limit = int(case.share * one_device_bytes(step, arguments))
        topology = baechi.local_topology(limit, here)
    placed = baechi.place(
        step,
        topology=topology,
        donate_argnums=0,
        costs="profile",
        profile_folder=folder,
        profile_seconds=options.seconds,
    )
    started = time.perf_counter()
    compiled = placed.lower(*arguments).compile()
    plan_seconds = time.perf_counter() - started
    plan = compiled.plan
    planned = plan.step_seconds
    clock = CLOCKS[options.clock]
    # Of its own: seconds of another clock are no news for the planner's cache.
    own = folder / options.clock
    profiler = Profiler(topology, here, ProfileOptions(1e9, folder=own), Budget(1e9, clock))
    profiler.measure_links()
    sampler = profiler.sampler(compiled.executor.tasks)
    state, *rest = put(arguments, compiled)
    for _ in range(2):
        state, *_ = jax.block_until_ready(compiled(state, *rest))
    loops = [each for each in compiled.executor.tasks if not is_measurable(each.operation)]
    steps: list[Timeline] = []
    seconds: list[float] = []
    for round_ in range(options.rounds):
        sampler.run(round_ + 1)
        if loops:
            (state, *_), timeline = compiled.measure_times(state, *rest)
            steps.append(timeline)
        started = clock()
        state, *_ = jax.block_until_ready(compiled(state, *rest))
        seconds.append(clock() - started)
    profiler.take(sampler)
    profiler.learn(loops, steps)
    profiler.refresh(plan.module)
    measured = statistics.median(seconds)
    halves = [statistics.median(seconds[start::2]) for start in range(2)]
    row = {
        "model": case.name,
        "devices": devices,
        "used": len(plan.devices_used),
        "limit": format_bytes(topology.devices[0].usable_bytes),
        "tasks": len(compiled.executor.tasks),
        "predicted": plan.step_seconds,
        "planned": planned,
        "measured": measured,
        "error": abs(plan.step_seconds / measured - 1),
        **({"planned_error": abs(planned / measured - 1)} if options.clock == "wall" else {}),
        "control": abs(halves[0] / halves[1] - 1),
        "plan_seconds": round(plan_seconds, 1),
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main() -> int:
    """Measure every model, print the JSON line, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", help="their names; by default all")
    parser.add_argument("--devices", type=int, nargs="*", default=[DEVICES, 1])
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring while planning")
    options = parser.parse_args()
    own = own_models(SHARE, layers=4, blocks=4, images=16)
    chosen, skipped = choose(own, options.models, parser)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            for devices in options.devices:
                try:
                    with case.settings():
                        rows.append(measure(case, devices, options, Path(folder)))
                except Exception as error:
                    failed[f"{case.name} on {devices}"] = f"{type(error).__name__}: {error}"[:300]
                    print(f"{case.name} on {devices}: {error}", file=sys.stderr, flush=True)
                jax.clear_caches()

    def spread(key: str) -> tuple[float | None, float | None]:
        values = [row[key] for row in rows]
        if not values:
            return None, None
        return round(statistics.median(values), 4), round(max(values), 4)

    median, worst = spread("error")
    result = {
        "benchmark": "fidelity",
        "clock": options.clock,
        "median_error": median,
        "worst_error": worst,
        **({"planned": spread("planned_error")} if options.clock == "wall" else {}),
        "control": spread("control"),
        "models": {
            f"{row['model']} on {row['devices']}": {
                key: round(row[key], 6)
                for key in ("predicted", "planned", "measured", "error", "control")
            }
            for row in rows
        },
        "skipped": skipped,
        "failed": failed,
    }
    print(json.dumps(result))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
