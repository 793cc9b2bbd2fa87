"""Layers in a scan: do they spread over devices, and what does it cost to plan and compile them?

The training step of a 24-layer transformer with Adam whose layers are scanned over, on four virtual
CPU devices, each limited to 35 % of what ``jax.jit`` of that step takes on one device (arguments,
results that take no argument's buffer, XLA's temporaries). It is placed, its peaks are taken by
running it once instruction by instruction, and it trains a few steps beside ``jax.jit``.

- ``fits``: no device went over its limit, by its real peak.
- ``values_match``: all leaves of the state and all losses agree after each step (relative to each
  array's largest value).
- ``plan_compile_over_loop``: CPU seconds to trace, plan and compile it, over those of the same
  model written as a Python loop over its layers, with the same limit. Each is the smallest of a few
  fresh processes.
- ``step_over_loop``: predicted seconds of a step over those of the loop's plan.

Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

#: Of the one-device peak, on each of four devices.
SHARE = 0.35

DEVICES = 4

#: Largest difference, relative to the largest value of an array, that counts as equal: sums in
#: another order, through many layers of float32, and Adam's division by small numbers.
TOLERANCE = 1e-3


def compile_side(side: str, limit: int, sizes: dict[str, int], placer: str) -> dict[str, Any]:
    """Trace, plan and compile one of the two models in this process."""
    import models

    import baechi_jax as baechi

    step, shapes = models.transformer(scanned=side == "scan", **sizes)
    topology = baechi.local_topology(memory=limit)
    # Compiled kernels and solver libraries are loaded once per process.
    small, small_shapes = models.mlp(layers=3, width=32, batch=16)
    baechi.place(small, topology=topology, placer=placer, donate_argnums=0).plan(*small_shapes)
    placed = baechi.place(step, topology=topology, placer=placer, donate_argnums=0)
    wall, start = time.perf_counter(), time.process_time()
    lowered = placed.lower(*shapes)
    planned = time.process_time()
    lowered.compile()
    done = time.process_time()
    plan = lowered.plan
    for timing in plan.timings:
        print(f"  {side} {timing.name}: {timing.seconds:.3f} s", file=sys.stderr)
    return {
        "plan_seconds": planned - start,
        "compile_seconds": done - planned,
        "seconds": done - start,
        "wall_seconds": time.perf_counter() - wall,
        "step_seconds": plan.step_seconds,
        "devices": len(plan.devices_used),
        "tasks": len(lowered.program.tasks),
    }


def train(limit: int, sizes: dict[str, int], placer: str, steps: int) -> dict[str, Any]:
    """Place the scanned model, take its peaks, and train it beside ``jax.jit``."""
    import jax
    import models

    import baechi_jax as baechi
    from tests.zoo.examine import compare, keep

    step, shapes = models.transformer(scanned=True, **sizes)
    topology = baechi.local_topology(memory=limit)
    placed = baechi.place(step, topology=topology, placer=placer, donate_argnums=0)
    compiled = placed.lower(*shapes).compile()
    wanted_state, batch = models.materialise(shapes)
    jitted = jax.jit(step)
    state, _ = models.materialise(shapes)
    (state, loss), taken = compiled.measure_memory(state, batch)
    difference, problems = 0.0, []
    for index in range(steps):
        if index:
            state, loss = compiled(state, batch)
        wanted_state, wanted_loss = jitted(wanted_state, batch)
        wanted = keep((wanted_state, wanted_loss))
        compared = compare(wanted, keep((baechi.gather(state), loss)), wanted, TOLERANCE)
        difference = max(difference, compared.difference)
        problems += compared.problems
    stack = state["params"]["layers"]["up"]["w"]
    return {
        "peak_bytes": list(taken.peak_bytes),
        "predicted_bytes": list(placed.plan(*shapes).peak_bytes),
        "difference": difference,
        "problems": problems,
        "leaf": type(stack).__name__,
        "sharding": str(stack.sharding),
    }


def whole_bytes(sizes: dict[str, int]) -> int:
    """What ``jax.jit`` of the scanned model takes on one device."""
    import models
    from one_device import one_device_bytes

    return one_device_bytes(*models.transformer(scanned=True, **sizes))


def in_a_process(side: str, *arguments: str) -> Any:
    """One part of the measurement in a process of its own."""
    environment = dict(os.environ)
    flags = environment.get("XLA_FLAGS", "")
    environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES}"
    command = [sys.executable, __file__, "--side", side, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(side, found, file=sys.stderr)
    return found


def main() -> None:
    """Run all parts and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--placer", default="auto")
    parser.add_argument("--side", choices=("size", "scan", "loop", "train"))
    parser.add_argument("--limit", type=int, help="bytes of each device, for one side")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("layers", "width", "length", "batch")}
    if options.side == "size":
        print(json.dumps(whole_bytes(sizes)))
    elif options.side == "train":
        print(json.dumps(train(options.limit, sizes, options.placer, options.steps)))
    elif options.side is not None:
        print(json.dumps(compile_side(options.side, options.limit, sizes, options.placer)))
    else:
        print(json.dumps(compare(options, sizes)))


def compare(options: argparse.Namespace, sizes: dict[str, int]) -> dict[str, Any]:
    """Every part in a process of its own; what the JSON line says."""
    given = [f"--{name}={value}" for name, value in sizes.items()]
    given += [f"--placer={options.placer}", f"--steps={options.steps}"]
    whole = in_a_process("size", *given)
    limit = int(SHARE * whole)
    given.append(f"--limit={limit}")
    trained = in_a_process("train", *given)
    rounds = [
        (in_a_process("scan", *given), in_a_process("loop", *given)) for _ in range(options.rounds)
    ]
    scan = min((one for one, _ in rounds), key=lambda side: side["seconds"])
    loop = min((other for _, other in rounds), key=lambda side: side["seconds"])
    return {
        "benchmark": "scanned",
        "fits": max(trained["peak_bytes"]) <= limit,
        "values_match": not trained["problems"],
        "plan_compile_over_loop": round(scan["seconds"] / loop["seconds"], 4),
        "plan_over_loop": round(scan["plan_seconds"] / loop["plan_seconds"], 4),
        "compile_over_loop": round(scan["compile_seconds"] / loop["compile_seconds"], 4),
        "step_over_loop": round(scan["step_seconds"] / loop["step_seconds"], 4),
        "difference": trained["difference"],
        "one_device_bytes": whole,
        "limit_bytes": limit,
        "peak_bytes": trained["peak_bytes"],
        "predicted_bytes": trained["predicted_bytes"],
        "leaf": trained["leaf"],
        "scan": scan,
        "loop": loop,
    }


if __name__ == "__main__":
    main()
