"""Passes that spread a small function over devices for no good reason: what the runtime must bear.

``chop`` cuts ``@main`` into a few tasks of consecutive operations; ``scatter`` gives tasks and
arguments random devices. Tasks that share a chain of effects stay together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import (
    build_tasks,
    set_task_cost,
    tasks_of,
    topology_of,
)


@register_pass
@dataclass(frozen=True, slots=True)
class Chop(Pass):
    name: ClassVar[str] = "chop"
    summary: ClassVar[str] = "tasks of consecutive operations"

    pieces: int = 4

    def run(self, module: Module) -> None:
        func = module.main
        returned = set(func.body.terminator.operands)
        ops = [
            op
            for op in func.body.ops[:-1]
            if op.name != "baechi.literal" or op.results[0] in returned
        ]
        size = max(1, -(-len(ops) // self.pieces))
        clusters = [ops[start : start + size] for start in range(0, len(ops), size)]
        names = [{"sym_name": f"t{index}"} for index in range(len(clusters))]
        topology = topology_of(module)
        for task in build_tasks(func, clusters, names):
            set_task_cost(task, topology)


@register_pass
@dataclass(frozen=True, slots=True)
class Scatter(Pass):
    name: ClassVar[str] = "scatter"
    summary: ClassVar[str] = "random devices"

    devices: int = 1
    seed: int = 0

    def run(self, module: Module) -> None:
        func = module.main
        rng = random.Random(self.seed)
        for task in tasks_of(func):
            # Effects stay on one device.
            place = 0 if _has_tokens(task) else rng.randrange(self.devices)
            task.attributes["baechi.devices"] = (place,)
        entries = argument_attributes(func)
        results = func.body.terminator.operands
        for entry in entries:
            entry["baechi.devices"] = (rng.randrange(self.devices),)
            state = entry.get("baechi.state")
            task = results[state].defining_op if isinstance(state, int) else None
            if task is not None:
                # A state's next value is made where the state lies.
                entry["baechi.devices"] = task.attributes["baechi.devices"]
        set_argument_attributes(func, entries)


def _has_tokens(task: Operation) -> bool:
    return any(
        isinstance(value.type, TokenType)
        for op in task.walk()
        for value in (*op.operands, *op.results)
    )


def scattered(devices: int, seed: int = 0, pieces: int = 4) -> str:
    """A pipeline that spreads a function over ``devices`` at random."""
    return (
        f"inline-calls,eliminate-dead-code,annotate-costs,chop{{pieces={pieces}}},"
        f"scatter{{devices={devices} seed={seed}}},"
        "insert-transfers,schedule,plan-memory,partition,verify-plan"
    )
