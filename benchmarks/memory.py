"""Memory: does a placed step keep the limit, and is the prediction right?

An MLP, a transformer with Adam and a residual convolutional net, then every step of the zoo
(``tests/zoo``) whose packages are installed, each on four virtual CPU devices whose memory is a
share of what ``jax.jit`` of the step takes on one device (arguments, results that take no
argument's buffer, XLA's temporaries): 40 %, or what the zoo says. Each is planned, compiled, and
run twice: instruction by instruction, and as users run it.

There are two predictions. Before compilation the plan rests on the model of ``passes/cost/``; when
its tasks are compiled, its peaks are derived again with XLA's own figures and the placement is made
again if they pass a limit (``docs/memory.md``). The second is what keeps the limit; where
the first is too low, a placement was made in vain.

- ``worst_actual_over_predicted``: of the plan that runs, as it is after compilation, the largest
  ratio of a device's real peak to the predicted one.
- ``worst_predicted_over_actual``: the same the other way round, for devices that hold at least a
  tenth of the limit (a device with a single scalar says nothing).
- ``model_actual_over_predicted``, ``model_predicted_over_actual``: the same of the first plan, as
  the model predicted it before anything was compiled. Of a first plan that did not stay, the real
  peaks are those that XLA's figures give. ``placed_again`` names the steps whose placement did not.
- ``values_match``: all results of both runs agree with ``jax.jit``'s, within the tolerance of the
  entry (``tests/zoo/examine.py``).
- ``skipped``: the steps of the zoo that were left out, and why; ``failed``: those that did not run,
  and their errors.

A line for each model goes to the standard error stream: the limit, the real peak of the fullest
device, and the ratios of the devices that are furthest off, of the plan that runs and of the model.
Ends with one JSON line; the exit status is 1 when a step did not run, passed its limit or gave
other values.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
from cases import choose, own_models

import baechi_jax as baechi
from baechi_jax.passes.memory_measured import note_of
from tests.zoo.examine import compare, jit_leaves, keep, put, shake

#: Of the one-device peak, on each of four devices.
SHARE = 0.4


def measure(
    name: str, step: Any, arguments: tuple[Any, ...], placer: str, share: float, tolerance: float
) -> dict[str, Any]:
    """One model: plan within the limit, compile, run."""
    jitted, whole = jit_leaves(step, arguments)
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
    near = keep(jitted(*shake(arguments)))
    wanted = keep(jitted(*_copy(arguments)))
    slow, memory = compiled.measure_memory(*put(_copy(arguments), compiled))
    ran = compiled(*put(_copy(arguments), compiled))
    problems = [
        f"{how}: {problem}"
        for how, found in (("instruction by instruction", slow), ("run", ran))
        for problem in compare(wanted, keep(found), near, tolerance).problems
    ]
    actual = memory.peak_bytes
    # Compiling has put XLA's figures into the first plan too. Where it passed a limit another one
    # runs: another placement, or the same with more waits.
    of_first = actual if lowered.plan is first else first.peak_bytes
    row = {
        "model": name,
        "one_device_bytes": whole,
        "limit_bytes": limit,
        "actual_bytes": list(actual),
        "predicted_bytes": list(predicted),
        "modelled_bytes": list(modelled),
        "modelled_actual_bytes": list(of_first),
        "placed_again": "Placed again" in note_of(lowered.plan.module),
        "problems": problems,
        "plan_seconds": round(plan_seconds, 2),
        "actual_over_predicted": _most(actual, predicted, 1),
        "predicted_over_actual": _most(predicted, actual, 0.1 * limit),
        "model_actual_over_predicted": _most(of_first, modelled, 1),
        "model_predicted_over_actual": _most(modelled, of_first, 0.1 * limit),
        "within_limit": max(actual) <= limit,
    }
    print(_line(row), file=sys.stderr)
    return row


def _copy(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments for one run, which takes the state's buffers."""
    return jax.tree.map(lambda array: array.copy(), arguments)


_RATIOS = ("actual_over_predicted", "predicted_over_actual")

#: The columns of what is printed while models are measured.
_HEADINGS = ("model", "limit", "actual", "act/pred", "pred/act", "act/model", "model/act", "")
_WIDTHS = (26, 10, 10, 9, 9, 9, 9, 0)


def _cells(cells: Any) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"{first.strip():<{_WIDTHS[0]}}" + " ".join(rest)


def _line(row: dict[str, Any]) -> str:
    """One model: the fullest device, and the ratios of the devices that are furthest off."""
    notes = [] if row["within_limit"] else ["over its limit"]
    if row["placed_again"]:
        notes.append("placed again")
    notes += row["problems"]
    shown = [f"{row[key + ratio]:.3f}" for key in ("", "model_") for ratio in _RATIOS]
    limit, actual = (
        f"{each / 2**20:.2f} MiB" for each in (row["limit_bytes"], max(row["actual_bytes"]))
    )
    return _cells([row["model"], limit, actual, *shown, ", ".join(notes)])


def _most(above: Any, below: Any, least: float) -> float:
    """The largest ratio of ``above`` to ``below``, of devices with at least ``least`` below."""
    return max((a / b for a, b in zip(above, below) if b >= least), default=0.0)


def result(
    rows: list[dict[str, Any]], skipped: dict[str, str], failed: dict[str, str]
) -> dict[str, Any]:
    """What the JSON line says of the steps that were measured and of the others."""
    found: dict[str, Any] = {
        "benchmark": "memory",
        "values_match": bool(rows) and not any(row["problems"] for row in rows),
        "within_limit": bool(rows) and all(row["within_limit"] for row in rows),
    }
    for key in ("", "model_"):
        for ratio in _RATIOS:
            worst = max((row[key + ratio] for row in rows), default=None)
            found[(key or "worst_") + ratio] = None if worst is None else round(worst, 4)
    found["placed_again"] = [row["model"] for row in rows if row["placed_again"]]
    shown = (
        "limit_bytes",
        "actual_bytes",
        "predicted_bytes",
        "modelled_bytes",
        "modelled_actual_bytes",
    )
    found["models"] = {row["model"]: {key: row[key] for key in shown} for row in rows}
    return {**found, "skipped": skipped, "failed": failed}


def main() -> int:
    """Measure every model, print the JSON line, and give the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--placer", default="auto")
    parser.add_argument("--layers", type=int, default=6, help="of the transformer")
    parser.add_argument("--blocks", type=int, default=6, help="of the residual net")
    parser.add_argument("--models", nargs="*", help="these only; by default all")
    options = parser.parse_args()
    own = own_models(SHARE, layers=options.layers, blocks=options.blocks, images=32)
    cases, skipped = choose(own, options.models, parser)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    print(_cells(_HEADINGS), file=sys.stderr)
    for case in cases:
        try:
            with case.settings():
                step, arguments = case.build()
                rows.append(
                    measure(case.name, step, arguments, options.placer, case.share, case.tolerance)
                )
        except Exception as error:
            failed[case.name] = f"{type(error).__name__}: {error}"[:300]
            print(f"{case.name}: {error}", file=sys.stderr)
    line = result(rows, skipped, failed)
    print(json.dumps(line))
    return 0 if line["values_match"] and line["within_limit"] and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
