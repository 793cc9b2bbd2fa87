"""What a placed step costs beyond its work.

- The training step of a 6-layer transformer placed on one device against ``jax.jit`` of it, the
  median over rounds that run both in turn, and the same for ``jax.jit`` against itself.
- A chain of 100 small tasks over 4 devices against the loop that one would write by hand: compiled
  calls with ``jax.device_put`` between them.

Ends with one JSON line. Times are wall time until the results are ready.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)

import jax
import jax.numpy as jnp
import models
from jax.sharding import SingleDeviceSharding

import baechi_jax as baechi

CHAIN = 100


def seconds(run: Callable[[], Any]) -> float:
    """Wall seconds until what ``run`` gives is ready."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def median_ratios(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Each run's time over the first one's, the median over ``rounds`` rounds.

    Within a round they follow one another; who begins changes from round to round.
    """
    ratios: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        taken = [0.0] * len(runs)
        for offset in range(len(runs)):
            index = (number + offset) % len(runs)
            taken[index] = seconds(runs[index])
        for index, each in enumerate(taken):
            ratios[index].append(each / taken[0])
    return [statistics.median(each) for each in ratios]


class Stepper:
    """A training step called again and again on its own state, which it donates."""

    def __init__(self, step: Callable[..., Any], state: Any, batch: Any) -> None:
        self.step = step
        self.state = state
        self.batch = batch

    def __call__(self) -> Any:
        """One step; the loss."""
        self.state, loss = self.step(self.state, self.batch)
        return self.state, loss


def one_device(rounds: int, layers: int) -> tuple[float, float]:
    """``(placed over jit, jit over jit)`` for the transformer's step."""
    step, shapes = models.transformer(layers=layers, batch=2)
    state, batch = models.materialise(shapes)
    device = jax.devices()[0]
    placed = baechi.place(step, topology=baechi.local_topology(devices=[device]), donate_argnums=0)

    def stepper(fn: Callable[..., Any]) -> Stepper:
        return Stepper(fn, jax.tree.map(jnp.copy, state), batch)

    ours = stepper(placed)
    theirs = stepper(jax.jit(step, donate_argnums=0))
    again = stepper(jax.jit(lambda state, batch: step(state, batch), donate_argnums=0))
    for each in (theirs, ours, again) * 3:
        jax.block_until_ready(each())
    _, placed_ratio, control_ratio = median_ratios([theirs, ours, again], rounds)
    return placed_ratio, control_ratio


def chain(rounds: int, width: int = 16) -> tuple[float, int]:
    """``(placed over the hand-written loop, tasks)`` for a chain that changes device each time."""
    devices = jax.devices()[:4]

    def link(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    def whole(x: jax.Array, ws: list[jax.Array]) -> jax.Array:
        for index, w in enumerate(ws):
            with baechi.on(index % len(devices)):
                x = link(x, w)
        return x

    x = jax.device_put(jnp.ones((width, width)), devices[0])
    ws = [
        jax.device_put(jnp.eye(width) * (1 + index / 1000), devices[index % len(devices)])
        for index in range(CHAIN)
    ]
    placed = baechi.place(whole, topology=baechi.local_topology(devices=devices), placer="expert")
    tasks = placed.trace(x, ws).lower().compile().program.tasks

    compiled: list[Callable[..., jax.Array]] = []
    for device in devices:
        spec = jax.ShapeDtypeStruct(
            (width, width), jnp.float32, sharding=SingleDeviceSharding(device)
        )
        compiled.append(jax.jit(link).lower(spec, spec).compile())

    def by_hand() -> jax.Array:
        y = x
        for index, w in enumerate(ws):
            at = index % len(devices)
            y = compiled[at](jax.device_put(y, devices[at]), w)
        return y

    def ours() -> jax.Array:
        result: jax.Array = placed(x, ws)
        return result

    assert jnp.allclose(by_hand(), jax.device_put(ours(), by_hand().sharding), rtol=1e-5)
    for _ in range(20):
        seconds(by_hand)
        seconds(ours)
    return median_ratios([by_hand, ours], rounds)[1], len(tasks)


def main() -> None:
    """Run both and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of steps to time")
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()
    chain_ratio, tasks = chain(5 * options.rounds)
    print(f"chain of {tasks} tasks: {chain_ratio:.3f} x the hand-written loop")
    one_device_ratio, control_ratio = one_device(options.rounds, options.layers)
    print(f"one device: {one_device_ratio:.3f} x jit; jit against itself: {control_ratio:.3f}")
    print(
        json.dumps(
            {
                "benchmark": "overhead",
                "one_device_ratio": round(one_device_ratio, 4),
                "control_ratio": round(control_ratio, 4),
                "chain_ratio": round(chain_ratio, 4),
                "chain_tasks": tasks,
            }
        )
    )


if __name__ == "__main__":
    main()
