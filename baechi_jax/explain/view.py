"""A plan as questions see it: single operations and arguments, and the task that each is in.

Tasks are those that were placed, before merging: what can be moved. Operations are numbered among
those of their name, in the order of the placed program: ``dot_general#3``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from baechi_jax.ir.attributes import DictAttr
from baechi_jax.ir.core import Module, Operation, OpResult
from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.dataflow import LITERAL
from baechi_jax.passes.placed_form import placed_form
from baechi_jax.passes.placement.from_module import ModuleProblem, from_module, placed_devices
from baechi_jax.passes.tasks import dissolve_tasks, tasks_of


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """An operation; ``node`` is its task's in the placement problem."""

    op: Operation
    handle: str
    node: int

    @property
    def name(self) -> str:
        """``dot_general``."""
        return _short(self.op.name)

    @property
    def place(self) -> str:
        """``model.py:12``; empty where the source is not known."""
        location = self.op.location
        if not location.file:
            return ""
        return f"{_file(location.file)}:{location.line}"

    def __str__(self) -> str:
        return self.handle + (f" at {self.place}" if self.place else "")


class PlacedView:
    """The operations and arguments of a plan. Raises PassError for a plan that lacks decisions."""

    def __init__(self, plan: Module) -> None:
        form = placed_form(plan)
        self.plan = plan
        #: In the *Placed* form; not to be changed.
        self.module = form.module
        #: Names of the tasks that each task of the plan was made of.
        self.parts = form.parts
        self.source: ModuleProblem = from_module(form.module)
        self.problem = self.source.problem
        self.assignment: tuple[int, ...] = tuple(placed_devices(form.module, self.source))
        flat = form.module.clone()
        self.main = flat.main
        self.entries = argument_attributes(self.main)
        self.result_names = [
            str(entry.get("baechi.name", f"result {index}"))
            for index, entry in enumerate(result_attributes(self.main))
        ]
        counts: dict[str, int] = {}
        self.ops: list[PlacedOp] = []
        contents = dissolve_tasks(self.main, tasks_of(self.main))
        for index, ops in enumerate(contents):
            for op in ops:
                if op.name == LITERAL:
                    continue
                short = _short(op.name)
                number = counts.get(short, 0)
                counts[short] = number + 1
                self.ops.append(PlacedOp(op, f"{short}#{number}", self.source.node_of_task(index)))

    @cached_property
    def placed(self) -> dict[Operation, PlacedOp]:
        """The entry of each operation."""
        return {each.op: each for each in self.ops}

    @cached_property
    def node_of_task(self) -> dict[str, int]:
        """Node of each placed task, by name."""
        return {
            str(task.attributes["sym_name"]): self.source.node_of_task(index)
            for index, task in enumerate(self.source.tasks)
        }

    @cached_property
    def rules(self) -> dict[str, tuple[str, ...]]:
        """The rules of ``colocate`` that joined each colocation group."""
        return {group: rules for group, rules, _ in self._record}

    @cached_property
    def group_of_argument(self) -> dict[int, str]:
        """The colocation group of each argument that is in one."""
        return {argument: group for group, _, arguments in self._record for argument in arguments}

    @cached_property
    def _record(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
        listed = self.plan.attributes.get("baechi.colocation", ())
        found: list[tuple[str, tuple[str, ...], tuple[int, ...]]] = []
        for entry in listed if isinstance(listed, tuple) else ():
            if not isinstance(entry, DictAttr):
                continue
            fields = dict(entry.items_)
            rules, arguments = fields.get("rules", ()), fields.get("arguments", ())
            assert isinstance(rules, tuple)
            assert isinstance(arguments, tuple)
            found.append(
                (
                    str(fields.get("group")),
                    tuple(map(str, rules)),
                    tuple(each for each in arguments if isinstance(each, int)),
                )
            )
        return found

    def device_name(self, device: int) -> str:
        """``1 cpu:1``."""
        return f"{device} {self.problem.machine.names[device]}".strip()

    def argument_name(self, index: int) -> str:
        """The path of an argument."""
        return str(self.entries[index].get("baechi.name", f"argument {index}"))

    def argument_bytes(self, index: int) -> int:
        """Bytes of an argument."""
        return nbytes(self.main.body.arguments[index].type)

    def group_name(self, op: PlacedOp) -> str | None:
        """The colocation group of an operation, as ``colocate`` named it."""
        name = op.op.attributes.get("baechi.group")
        return name if isinstance(name, str) else None

    def readers(self, argument: int) -> list[PlacedOp]:
        """The operations that read an argument, in program order, each once."""
        users = {user for user, _ in self.main.body.arguments[argument].uses}
        return [each for each in self.ops if each.op in users]

    def update(self, argument: int) -> tuple[str, PlacedOp | None] | None:
        """The name of an argument's next value and what makes it; None when it has none."""
        state = self.entries[argument].get("baechi.state")
        results = self.main.body.terminator.operands
        if not isinstance(state, int) or not 0 <= state < len(results):
            return None
        value = results[state]
        maker = self.placed.get(value.owner) if isinstance(value, OpResult) else None
        return self.result_names[state], maker


def _short(name: str) -> str:
    return name.partition(".")[2]


def _file(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
