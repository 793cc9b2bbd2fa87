"""From a function to its first result: what placing adds to compiling.

The training step of a 12-layer transformer with Adam (thousands of equations), in one run:

- ``plan_seconds``: from trace to plan with ``m-sct`` over four devices, tracing included; of it
  ``trace_seconds`` for tracing and conversion to the IR, ``passes_seconds`` for the passes;
  ``jax_trace_seconds`` is what JAX alone takes to trace, in the process that runs ``jax.jit``;
- ``plan_over_xla``: that over the time of ``jax.jit(step).lower(...).compile()``;
- ``compile_over_jit``: all of ours to the first result over all of ``jax.jit``'s.

Each figure is the best of a few fresh processes, since the first one also pays for what the
operating system has not read yet. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any


def measure(what: str, layers: int) -> dict[str, float]:
    """Run one side in this process, which has done nothing else yet."""
    import jax
    import models

    step, shapes = models.transformer(layers=layers)
    arguments = models.materialise(shapes)
    jax.block_until_ready(arguments)
    # What both sides pay once per process, whatever they compile.
    jax.block_until_ready(jax.jit(lambda x: x + 1)(arguments[0]["count"]))
    return _jit(step, shapes, arguments) if what == "jit" else _placed(step, shapes, arguments)


def _jit(step: Any, shapes: Any, arguments: Any) -> dict[str, float]:
    import jax

    jitted = jax.jit(step, donate_argnums=0)
    start = time.perf_counter()
    traced = jitted.trace(*shapes)
    trace_seconds = time.perf_counter() - start
    compiled = traced.lower().compile()
    xla_seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(*arguments))
    return {
        "jax_trace_seconds": trace_seconds,
        "xla_seconds": xla_seconds,
        "first_result_seconds": time.perf_counter() - start,
    }


def _placed(step: Any, shapes: Any, arguments: Any) -> dict[str, float]:
    import jax
    import models

    import baechi_jax as baechi

    # So little that all four devices are needed, each with hardware of its own, as GPUs have: where
    # devices share it, nothing but memory speaks for using one more.
    topology = baechi.local_topology(memory="140MiB", share_hardware=False)
    # Compiled kernels and solver libraries are loaded once per machine and process.
    small, small_shapes = models.mlp(layers=3, width=32, batch=16)
    baechi.place(small, topology=topology, placer="m-sct", donate_argnums=0).plan(*small_shapes)
    placed = baechi.place(step, topology=topology, placer="m-sct", donate_argnums=0)
    start = time.perf_counter()
    traced = placed.trace(*shapes)
    trace_seconds = time.perf_counter() - start
    plan = traced.lower().plan
    plan_seconds = time.perf_counter() - start
    jax.block_until_ready(placed(*arguments))
    total = time.perf_counter() - start
    for timing in plan.timings:
        print(f"  {timing.name}: {timing.seconds:.3f} s", file=sys.stderr)
    return {
        "plan_seconds": plan_seconds,
        "trace_seconds": trace_seconds,
        "passes_seconds": sum(timing.seconds for timing in plan.timings),
        "first_result_seconds": total,
        "devices": len(plan.devices_used),
        "tasks": len(placed.lower(*shapes).program.tasks),
    }


def in_a_process(what: str, layers: int) -> dict[str, float]:
    """``measure`` in a process of its own."""
    environment = dict(os.environ)
    flags = environment.get("XLA_FLAGS", "")
    environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"
    command = [sys.executable, __file__, "--side", what, "--layers", str(layers)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(what, found, file=sys.stderr)
    return found


def main() -> None:
    """Run both sides in turn and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side", choices=("jit", "placed"))
    options = parser.parse_args()
    if options.side is not None:
        print(json.dumps(measure(options.side, options.layers)))
        return
    rounds = [
        (in_a_process("jit", options.layers), in_a_process("placed", options.layers))
        for _ in range(options.rounds)
    ]
    best = min((placed for _, placed in rounds), key=lambda placed: placed["plan_seconds"])
    plan_seconds = best["plan_seconds"]
    xla_seconds = min(jit["xla_seconds"] for jit, _ in rounds)
    ours = min(placed["first_result_seconds"] for _, placed in rounds)
    theirs = min(jit["first_result_seconds"] for jit, _ in rounds)
    print(
        json.dumps(
            {
                "benchmark": "compile",
                "plan_seconds": round(plan_seconds, 3),
                "trace_seconds": round(best["trace_seconds"], 3),
                "passes_seconds": round(best["passes_seconds"], 3),
                "jax_trace_seconds": round(min(j["jax_trace_seconds"] for j, _ in rounds), 3),
                "plan_over_xla": round(plan_seconds / xla_seconds, 4),
                "compile_over_jit": round(ours / theirs, 4),
                "xla_seconds": round(xla_seconds, 3),
                "devices": rounds[0][1]["devices"],
                "tasks": rounds[0][1]["tasks"],
            }
        )
    )


if __name__ == "__main__":
    main()
