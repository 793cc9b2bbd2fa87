"""``make demo``: train a transformer on four devices, none of which can hold the step alone.

Four virtual CPU devices stand in for four small accelerators. The step of ``charlm.py`` is planned
under a memory limit, trained next to plain ``jax.jit`` of the same step, and measured. The report,
the trace, the plan and the IR after each pass are left in a folder.

Virtual devices run one after another on the same cores: this shows that the placed step fits and is
right, not that it is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import charlm
import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import baechi_jax as baechi
from baechi_jax.units import format_bytes, format_seconds

DEVICES = 4

#: Of each device. One jit of the step takes more than twice as much.
MEMORY = "32MiB"

#: The largest difference of the losses, relative, for which both runs count as the same training.
#: Rounding differs, and training amplifies it.
TOLERANCE = 2e-2

console = Console()


def main() -> None:
    """Plan, train, compare, measure."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=60, help="training steps of each kind")
    parser.add_argument("--memory", default=MEMORY, help="limit of each device")
    parser.add_argument("--placer", default="auto")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)

    console.rule("one device")
    jitted = jax.jit(charlm.train_step, donate_argnums=0)
    arguments = charlm.example_args()
    single = jitted.lower(*arguments).compile()
    needed = one_device_bytes(single)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(arguments[0].params))
    console.print(
        f"The step of a transformer with {parameters:,} parameters takes [b]{format_bytes(needed)}"
        f"[/b] under jax.jit on one device. Each of our {DEVICES} devices has "
        f"[b]{options.memory}[/b]."
    )

    console.rule("plan")
    topology = baechi.local_topology(memory=options.memory)
    for old in (options.output / "ir").glob("[0-9][0-9]_*.mlir"):
        old.unlink()
    step = baechi.place(
        charlm.train_step,
        topology=topology,
        placer=options.placer,
        donate_argnums=0,
        dump_folder=options.output / "ir",
    )
    started = time.perf_counter()
    plan = step.plan(*arguments)
    seconds = time.perf_counter() - started
    console.print(plan.summary())
    console.print(f"Traced, placed, scheduled, checked and dumped in {format_seconds(seconds)}.")
    write(plan, options.output)

    console.rule("train")
    text = charlm.standard_library_text()
    console.print(f"On {len(text):,} characters of the standard library's own source.")
    started = time.perf_counter()
    compiled = step.lower(*arguments).compile()
    state = baechi.place_init(charlm.init, like=step)(jax.random.key(0))
    state = jax.device_put(state, compiled.input_shardings[0][0])
    seconds = time.perf_counter() - started
    console.print(f"Compiled and initialised, piece by piece, in {format_seconds(seconds)}.")
    state, placed = train("placed ", compiled, state, text, options.steps)
    single_state = jax.jit(charlm.init)(jax.random.key(0))
    _, plain = train("jax.jit", single, single_state, text, options.steps)
    console.print(loss_table(placed, plain))

    console.rule("memory")
    _, measured = compiled.measure_memory(state, next(charlm.batches(text)))
    actual = measured.peak_bytes
    console.print(memory_table(plan, actual))
    console.print(f"Left in {options.output}: plan.html, plan.trace.json, plan.mlir, ir/.")

    difference = float(np.max(np.abs(placed - plain) / plain))
    if difference > TOLERANCE:
        raise SystemExit(f"the losses differ by {difference:.1%}, more than {TOLERANCE:.0%}")
    for device, (memory, found) in enumerate(zip(plan.memory, actual, strict=True)):
        if found > memory.limit_bytes:
            raise SystemExit(f"device {device} went above its limit")


def write(plan: baechi.Plan, folder: Path) -> None:
    """Leave the report, the trace and the plan in ``folder``."""
    plan.report(folder / "plan.html")
    plan.save(folder / "plan.mlir")


# Training ---------------------------------------------------------------------------------------


def train(
    name: str, step: Callable[..., Any], state: charlm.State, text: np.ndarray, steps: int
) -> tuple[charlm.State, np.ndarray]:
    """The state after ``steps`` steps, and their losses; every call sees the same batches."""
    columns = (
        TextColumn(f"[b]{name}[/b]"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
    )
    losses: list[float] = []
    data = charlm.batches(text)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=steps, loss=float("nan"))
        for _ in range(steps):
            state, loss = step(state, next(data))
            losses.append(float(loss))
            progress.update(bar, advance=1, loss=losses[-1])
    return state, np.array(losses)


def loss_table(placed: np.ndarray, single: np.ndarray) -> Table:
    """Both runs' losses at some steps, and how far apart they are."""
    table = Table(title="Loss, nats per character", box=box.SIMPLE_HEAD)
    for heading in ("step", "placed", "jax.jit", "relative difference"):
        table.add_column(heading, justify="right")
    count = len(placed)
    for number in sorted({1, *(max(1, count * part // 4) for part in (1, 2, 3, 4))}):
        ours, theirs = placed[number - 1], single[number - 1]
        difference = abs(ours - theirs) / theirs
        table.add_row(str(number), f"{ours:.4f}", f"{theirs:.4f}", f"{difference:.1e}")
    return table


# Memory -----------------------------------------------------------------------------------------


def one_device_bytes(compiled: jax.stages.Compiled) -> int:
    """What the step takes at once on one device: arguments, results, temporaries."""
    memory = compiled.memory_analysis()
    fresh = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(memory.argument_size_in_bytes + fresh + memory.temp_size_in_bytes)


def memory_table(plan: baechi.Plan, actual: Sequence[int]) -> Table:
    """The plan's prediction against what one step took."""
    table = Table(title="Peak memory of each device", box=box.SIMPLE_HEAD)
    for heading in ("device", "limit", "predicted", "actual", "actual / predicted"):
        table.add_column(heading, justify="right")
    for device, (memory, found) in enumerate(zip(plan.memory, actual, strict=True)):
        ratio = found / memory.peak_bytes if memory.peak_bytes else 0.0
        table.add_row(
            str(device),
            format_bytes(memory.limit_bytes),
            format_bytes(memory.peak_bytes),
            format_bytes(found),
            f"{ratio:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
