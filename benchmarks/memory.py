"""Memory: does a placed step keep the limit, and is the prediction right?

An MLP, a transformer with Adam and a residual convolutional net, each on four virtual CPU devices
whose memory is 40 % of what ``jax.jit`` of the step takes on one device (arguments, results that
take no argument's buffer, XLA's temporaries). Each is planned, run once instruction by instruction,
and its results compared with ``jax.jit``'s.

- ``values_match``: all results of all models agree (relative to each array's largest value).
- ``worst_actual_over_predicted``: the largest ratio of a device's real peak to the predicted one.
- ``worst_predicted_over_actual``: the same the other way round, for devices that hold at least a
  tenth of the limit (a device with a single scalar says nothing).

The prediction is made before anything is compiled. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)

import jax
import models
import numpy as np

import baechi_jax as baechi

#: Of the one-device peak, on each of four devices.
SHARE = 0.4

#: Largest difference, relative to the largest value of an array, that counts as equal: sums in
#: another order, through a few layers of float32.
TOLERANCE = 2e-4


def one_device_bytes(step: Any, shapes: Any) -> int:
    """What ``jax.jit`` of ``step`` takes on one device."""
    stats = jax.jit(step, donate_argnums=0).lower(*shapes).compile().memory_analysis()
    return int(
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
    )


def difference(wanted: Any, found: Any) -> float:
    """The largest difference of any leaf, relative to its largest value."""
    worst = 0.0
    for left, right in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        scale = max(float(np.abs(left).max(initial=0.0)), 1e-12)
        worst = max(worst, float(np.abs(left - right).max(initial=0.0)) / scale)
    return worst


def measure(name: str, step: Any, shapes: Any, placer: str) -> dict[str, Any]:
    """One model: plan within the limit, run, compare."""
    whole = one_device_bytes(step, shapes)
    limit = int(SHARE * whole)
    topology = baechi.local_topology(memory=limit)
    start = time.perf_counter()
    placed = baechi.place(step, topology=topology, placer=placer, donate_argnums=0)
    lowered = placed.lower(*shapes)
    plan_seconds = time.perf_counter() - start
    compiled = lowered.compile()
    arguments = models.materialise(shapes)
    wanted = jax.jit(step)(*arguments)
    arguments = jax.device_put(arguments, compiled.input_shardings[0])
    found, memory = compiled.measure_memory(*arguments)
    actual, predicted = memory.peak_bytes, lowered.plan.peak_bytes
    row = {
        "model": name,
        "one_device_bytes": whole,
        "limit_bytes": limit,
        "actual_bytes": list(actual),
        "predicted_bytes": list(predicted),
        "difference": difference(wanted, found),
        "plan_seconds": round(plan_seconds, 2),
        "actual_over_predicted": max((a / p for a, p in zip(actual, predicted) if p), default=0.0),
        "predicted_over_actual": max(
            (p / a for a, p in zip(actual, predicted) if a >= 0.1 * limit), default=0.0
        ),
        "within_limit": max(actual) <= limit,
    }
    print(json.dumps(row), file=sys.stderr)
    return row


def main() -> None:
    """Measure every model and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--placer", default="auto")
    parser.add_argument("--layers", type=int, default=6, help="of the transformer")
    parser.add_argument("--blocks", type=int, default=6, help="of the residual net")
    parser.add_argument("--models", nargs="*", default=["mlp", "transformer", "resnet"])
    options = parser.parse_args()
    zoo = {
        "mlp": lambda: models.mlp(),
        "transformer": lambda: models.transformer(layers=options.layers),
        "resnet": lambda: models.resnet(blocks=options.blocks),
    }
    rows = [measure(name, *zoo[name](), options.placer) for name in options.models]
    result = {
        "benchmark": "memory",
        "values_match": all(row["difference"] <= TOLERANCE for row in rows),
        "within_limit": all(row["within_limit"] for row in rows),
        "worst_actual_over_predicted": round(max(r["actual_over_predicted"] for r in rows), 4),
        "worst_predicted_over_actual": round(max(r["predicted_over_actual"] for r in rows), 4),
        "models": {
            row["model"]: {
                key: row[key]
                for key in ("limit_bytes", "actual_bytes", "predicted_bytes", "difference")
            }
            for row in rows
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
