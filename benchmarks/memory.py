"""Memory: does a placed step keep the limit, and is the prediction right?

An MLP, a transformer with Adam and a residual convolutional net, then every step of the zoo
(``tests/zoo``) whose packages are installed, each on four virtual CPU devices whose memory is a
share of what ``jax.jit`` of the step takes on one device (arguments, results that take no
argument's buffer, XLA's temporaries): 40 %, or what the zoo says. Each is planned, compiled, and
run once instruction by instruction.

There are two predictions. Before compilation the plan rests on the model of ``passes/cost/``; when
its tasks are compiled, its peaks are derived again with XLA's own figures and the placement is made
again if they pass a limit (``docs/memory.md``). The second is what keeps the limit, so it is what
is judged; the first is printed beside it.

- ``worst_actual_over_predicted``: the largest ratio of a device's real peak to the judged one.
- ``worst_predicted_over_actual``: the same the other way round, for devices that hold at least a
  tenth of the limit (a device with a single scalar says nothing).
- ``model_actual_over_predicted``, ``model_predicted_over_actual``: the same of the first one, for
  steps that were not placed again. ``placed_again`` names the others.
- ``values_match``: all results of the first three agree with ``jax.jit``'s (relative to each
  array's largest value). Those of the zoo are compared in ``tests/zoo``.

A line for each model goes to the standard error stream: the limit, the real peak of the fullest
device, and the ratios of the devices that are furthest off, judged and modelled. Ends with one JSON
line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
import models
import numpy as np
from one_device import one_device_bytes

import baechi_jax as baechi
from tests.zoo.examine import put
from tests.zoo.registry import available

#: Of the one-device peak, on each of four devices.
SHARE = 0.4

#: Largest difference, relative to the largest value of an array, that counts as equal: sums in
#: another order, through a few layers of float32.
TOLERANCE = 2e-4


def difference(wanted: Any, found: Any) -> float:
    """The largest difference of any leaf, relative to its largest value."""
    worst = 0.0
    for left, right in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        scale = max(float(np.abs(left).max(initial=0.0)), 1e-12)
        worst = max(worst, float(np.abs(left - right).max(initial=0.0)) / scale)
    return worst


def measure(
    name: str, step: Any, arguments: Any, placer: str, share: float, *, compare: bool
) -> dict[str, Any]:
    """One model: plan within the limit, compile, run."""
    whole = one_device_bytes(step, arguments)
    limit = int(share * whole)
    topology = baechi.local_topology(memory=limit)
    start = time.perf_counter()
    placed = baechi.place(step, topology=topology, placer=placer, donate_argnums=0)
    lowered = placed.lower(*arguments)
    plan_seconds = time.perf_counter() - start
    first = lowered.plan
    modelled = first.peak_bytes
    compiled = lowered.compile()
    predicted = lowered.plan.peak_bytes
    wanted = jax.jit(step)(*arguments) if compare else None
    found, memory = compiled.measure_memory(*put(arguments, compiled))
    actual = memory.peak_bytes
    again = lowered.plan is not first
    row = {
        "model": name,
        "one_device_bytes": whole,
        "limit_bytes": limit,
        "actual_bytes": list(actual),
        "predicted_bytes": list(predicted),
        "modelled_bytes": list(modelled),
        "placed_again": again,
        "difference": difference(wanted, found) if compare else 0.0,
        "plan_seconds": round(plan_seconds, 2),
        "actual_over_predicted": _most(actual, predicted, 1),
        "predicted_over_actual": _most(predicted, actual, 0.1 * limit),
        "model_actual_over_predicted": 0.0 if again else _most(actual, modelled, 1),
        "model_predicted_over_actual": 0.0 if again else _most(modelled, actual, 0.1 * limit),
        "within_limit": max(actual) <= limit,
    }
    print(_line(row), file=sys.stderr)
    return row


#: The columns of what is printed while models are measured.
_HEADINGS = ("model", "limit", "actual", "act/pred", "pred/act", "act/model", "model/act", "")
_WIDTHS = (26, 10, 10, 9, 9, 9, 9, 0)


def _cells(cells: Any) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"{first.strip():<{_WIDTHS[0]}}" + " ".join(rest)


def _line(row: dict[str, Any]) -> str:
    """One model: the fullest device, and the ratios of the devices that are furthest off."""
    notes = [] if row["within_limit"] else ["over its limit"]
    ratios = [row["actual_over_predicted"], row["predicted_over_actual"]]
    modelled = [row["model_actual_over_predicted"], row["model_predicted_over_actual"]]
    if row["placed_again"]:
        notes.append("placed again")
    shown = [f"{each:.3f}" for each in ratios]
    shown += ["-" if row["placed_again"] else f"{each:.3f}" for each in modelled]
    limit, actual = (
        f"{each / 2**20:.2f} MiB" for each in (row["limit_bytes"], max(row["actual_bytes"]))
    )
    return _cells([row["model"], limit, actual, *shown, ", ".join(notes)])


def _most(above: Any, below: Any, least: float) -> float:
    """The largest ratio of ``above`` to ``below``, of devices with at least ``least`` below."""
    return max((a / b for a, b in zip(above, below) if b >= least), default=0.0)


#: A step, the arguments of its first call, or shapes of them.
Built = tuple[Any, tuple[Any, ...]]


def own_models(layers: int, blocks: int) -> dict[str, Callable[[], Built]]:
    """The models of ``benchmarks/models.py``."""
    return {
        "mlp": models.mlp,
        "transformer": lambda: models.transformer(layers=layers),
        "resnet": lambda: models.resnet(blocks=blocks),
    }


def main() -> None:
    """Measure every model and print the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--placer", default="auto")
    parser.add_argument("--layers", type=int, default=6, help="of the transformer")
    parser.add_argument("--blocks", type=int, default=6, help="of the residual net")
    parser.add_argument("--models", nargs="*", help="these only; by default all")
    options = parser.parse_args()
    known = {*own_models(options.layers, options.blocks), *(entry.name for entry in available())}
    if unknown := [name for name in options.models or () if name not in known]:
        parser.error(
            f"no such model, or its packages are missing: {', '.join(unknown)}; "
            f"there are {', '.join(sorted(known))}"
        )
    rows: list[dict[str, Any]] = []
    print(_cells(_HEADINGS), file=sys.stderr)
    for name, build in own_models(options.layers, options.blocks).items():
        if options.models is None or name in options.models:
            step, shapes = build()
            arguments = models.materialise(shapes)
            rows.append(measure(name, step, arguments, options.placer, SHARE, compare=True))
    for entry in available():
        if entry.one_device or (options.models is not None and entry.name not in options.models):
            continue
        with entry.settings():
            step, arguments = entry.build()
            rows.append(
                measure(entry.name, step, arguments, options.placer, entry.share, compare=False)
            )
    result: dict[str, Any] = {
        "benchmark": "memory",
        "values_match": all(row["difference"] <= TOLERANCE for row in rows),
        "within_limit": all(row["within_limit"] for row in rows),
    }
    for key in ("", "model_"):
        for ratio in ("actual_over_predicted", "predicted_over_actual"):
            worst = max(row[key + ratio] for row in rows)
            result[(key or "worst_") + ratio] = round(worst, 4)
    result["placed_again"] = [row["model"] for row in rows if row["placed_again"]]
    shown = ("limit_bytes", "actual_bytes", "predicted_bytes", "modelled_bytes")
    result["models"] = {row["model"]: {key: row[key] for key in shown} for row in rows}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
