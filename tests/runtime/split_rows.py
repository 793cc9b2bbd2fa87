"""Passes that hold chosen leaves in pieces, whatever the function: what the runtime must bear.

``split-rows`` makes pieces of arguments and results by name and puts the whole together inside;
``pin-rows`` puts the pieces on the devices that they were given, and everything else on device 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import BlockArgument, Module, Operation, Value
from baechi_jax.ir.function import (
    argument_attributes,
    refresh_function_type,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.pieces import PIECE, Piece
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.tasks import build_tasks, set_task_cost, topology_of


@register_pass
@dataclass(frozen=True, slots=True)
class SplitRows(Pass):
    """Leaves whose name matches ``names`` lie by ``rows``: ``0:2@1`` is rows 0 to 2 on device 1."""

    name: ClassVar[str] = "split-rows"
    summary: ClassVar[str] = "hold leaves in pieces"

    names: str
    rows: tuple[str, ...]

    def run(self, module: Module) -> None:
        func = module.main
        block = func.body
        runs = [tuple(map(int, re.split("[:@]", text))) for text in self.rows]
        length = runs[-1][1]
        results = list(block.terminator.operands)
        numbers: dict[int, list[int]] = {}
        new_results: list[Value] = []
        result_entries: list[dict[str, Attribute]] = []
        tail: list[Operation] = []
        for leaf, (value, entry) in enumerate(zip(results, result_attributes(func))):
            first = len(new_results)
            if self._chosen(entry, value, length):
                for start, stop, device in runs:
                    tail.append(_slice(value, start, stop, device))
                    new_results.append(tail[-1].results[0])
                    result_entries.append(_entry(entry, leaf, start, stop, length, device))
            else:
                new_results.append(value)
                result_entries.append(entry)
            numbers[leaf] = list(range(first, len(new_results)))
        head: list[Operation] = []
        arguments: list[BlockArgument] = []
        entries: list[dict[str, Attribute]] = []
        for leaf, (value, entry) in enumerate(
            zip(list(block.arguments), argument_attributes(func), strict=True)
        ):
            state = entry.pop("baechi.state", None)
            targets = numbers[state] if isinstance(state, int) else []
            if not self._chosen(entry, value, length):
                arguments.append(value)
                entries.append(
                    entry if len(targets) != 1 else {**entry, "baechi.state": targets[0]}
                )
                continue
            pieces: list[Value] = []
            for index, (start, stop, device) in enumerate(runs):
                piece = block.add_argument(_rows(value, stop - start), value.name)
                pieces.append(piece)
                arguments.append(piece)
                entries.append(_entry(entry, leaf, start, stop, length, device))
                if len(targets) == len(runs):
                    entries[-1]["baechi.state"] = targets[index]
            joined = Operation("jax.concatenate", pieces, [value.type], {"dimension": 0})
            value.replace_all_uses_with(joined.results[0])
            new_results = [joined.results[0] if each is value else each for each in new_results]
            head.append(joined)
        block.arguments = arguments
        for index, argument in enumerate(arguments):
            argument.index = index
        block.set_ops([*head, *block.ops[:-1], *tail, block.terminator])
        block.terminator.set_operands(new_results)
        set_argument_attributes(func, entries)
        set_result_attributes(func, result_entries)
        refresh_function_type(func)

    def _chosen(self, entry: dict[str, Attribute], value: Value, length: int) -> bool:
        shape = value.type.shape if isinstance(value.type, TensorType) else ()
        name = str(entry.get("baechi.name", ""))
        return bool(re.search(self.names, name)) and shape[:1] == (length,)


@register_pass
@dataclass(frozen=True, slots=True)
class PinRows(Pass):
    name: ClassVar[str] = "pin-rows"
    summary: ClassVar[str] = "each piece, and what makes it, on its device; the rest on device 0"

    def run(self, module: Module) -> None:
        func = module.main
        ops = [op for op in func.body.ops[:-1] if op.name != "baechi.literal"]
        clusters = [[op for op in ops if "baechi.pin" not in op.attributes]]
        clusters += [[op] for op in ops if "baechi.pin" in op.attributes]
        names = [{"sym_name": f"t{number}"} for number in range(len(clusters))]
        for task, cluster in zip(build_tasks(func, clusters, names), clusters, strict=True):
            set_task_cost(task, topology_of(module))
            task.attributes["baechi.devices"] = cluster[0].attributes.get("baechi.pin", (0,))
        entries = argument_attributes(func)
        for entry in entries:
            entry["baechi.devices"] = entry.get("baechi.pin", (0,))
        set_argument_attributes(func, entries)


def in_pieces(names: str, *rows: str) -> str:
    """A pipeline that holds the leaves whose name matches ``names`` by ``rows``."""
    return (
        "inline-calls,eliminate-dead-code,"
        f'split-rows{{names="{names}" rows=[{",".join(rows)}]}},'
        "annotate-costs,pin-rows,insert-transfers,schedule,plan-memory,partition,verify-plan"
    )


def _entry(
    entry: dict[str, Attribute], leaf: int, start: int, stop: int, length: int, device: int
) -> dict[str, Attribute]:
    return {
        **entry,
        "baechi.name": f"{entry['baechi.name']}[{start}:{stop}]",
        PIECE: Piece(leaf, start, stop - start, length).attribute(),
        "baechi.pin": (device,),
        "baechi.devices": (device,),
    }


def _rows(value: Value, count: int) -> TensorType:
    type_ = value.type
    assert isinstance(type_, TensorType)
    return TensorType((count, *type_.shape[1:]), type_.element, type_.weak)


def _slice(value: Value, start: int, stop: int, device: int) -> Operation:
    type_ = value.type
    assert isinstance(type_, TensorType)
    rest = (0,) * (len(type_.shape) - 1)
    limits = (stop, *type_.shape[1:])
    return Operation(
        "jax.slice",
        [value],
        [_rows(value, stop - start)],
        {"start_indices": (start, *rest), "limit_indices": limits, "baechi.pin": (device,)},
    )
