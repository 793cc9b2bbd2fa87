"""The per-device programs: they say what ``@main`` says, and end when they run side by side."""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.attributes import SymbolRef
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.passes.plan_checks.view import PlanView, Step, place_of
from baechi_jax.passes.plan_errors import DeadlockError, ProgramMismatchError


def programs_of(view: PlanView) -> list[Operation]:
    """The program of each device; empty when the plan is not partitioned.

    Raises ProgramMismatchError when some devices have one and others have none.
    """
    found = {
        str(func.attributes["sym_name"]): func
        for func in view.module.functions
        if str(func.attributes.get("sym_name")).startswith("main_d")
    }
    if not found:
        return []
    names = [f"main_d{device}" for device in range(view.topology.size)]
    if sorted(found) != sorted(names):
        raise ProgramMismatchError(
            f"a plan for {view.topology.size} devices needs the programs {', '.join(names)}; found "
            f"{', '.join(sorted(found))}"
        )
    return [found[name] for name in names]


def check_deadlock(programs: list[Operation]) -> None:
    """Run all programs side by side: a receive blocks until its channel's send was issued."""
    at = [0] * len(programs)
    sent: set[object] = set()
    moved = True
    while moved:
        moved = False
        for device, program in enumerate(programs):
            ops = program.body.ops
            while at[device] < len(ops):
                op = ops[at[device]]
                if op.name == "baechi.recv" and op.attributes.get("channel") not in sent:
                    break
                if op.name == "baechi.send":
                    sent.add(op.attributes.get("channel"))
                at[device] += 1
                moved = True
    waiting = [
        (device, program.body.ops[at[device]])
        for device, program in enumerate(programs)
        if at[device] < len(program.body.ops)
    ]
    if waiting:
        raise DeadlockError(
            "the device programs wait for one another: "
            + "; ".join(
                f"device {device} waits at operation {at[device]} ({op.location}) for channel "
                f"{op.attributes.get('channel')} from device {op.attributes.get('from')}"
                for device, op in waiting
            )
        )


def check_programs(view: PlanView, programs: list[Operation]) -> None:
    """Each program does what its device does in ``@main``, in the same order."""
    for device, program in enumerate(programs):
        _Comparison(view, device, program).run()


@dataclass(slots=True)
class _Part:
    """What a device must do for one step of ``@main``."""

    step: Step
    name: str
    reads: list[Value]
    gives: list[Value]
    attributes: dict[str, object]


class _Comparison:
    def __init__(self, view: PlanView, device: int, program: Operation) -> None:
        self.view = view
        self.device = device
        self.program = program
        #: What each value of the program stands for in ``@main``.
        self.stands_for: dict[Value, Value] = {}

    def run(self) -> None:
        self._check_arguments()
        parts = [part for step in self.view.steps[:-1] if (part := self._part(step)) is not None]
        ops = self.program.body.ops
        for part, op in zip(parts, ops[:-1]):
            self._check_op(part, op)
        if len(parts) != len(ops) - 1:
            rest = parts[len(ops) - 1 :]
            what = f"misses {rest[0].step}" if rest else f"has {ops[len(parts)]!r} too many"
            raise self._mismatch(what)
        self._check_results(ops[-1])

    def _mismatch(self, what: str) -> ProgramMismatchError:
        return ProgramMismatchError(f"@{self.program.attributes.get('sym_name')} {what}")

    def _check_arguments(self) -> None:
        main = [v for v in self.view.main.body.arguments if place_of(v) == self.device]
        here = self.program.body.arguments
        entries = argument_attributes(self.program)
        if len(main) != len(here):
            raise self._mismatch(
                f"takes {len(here)} arguments; {len(main)} of @main lie on its device"
            )
        for value, argument, entry in zip(main, here, entries):
            if entry.get("baechi.argument") != value.index or argument.type != value.type:
                raise self._mismatch(
                    f"takes argument {entry.get('baechi.argument')} of type {argument.type} where "
                    f"{self.view.name(value)} of type {value.type} was expected"
                )
            self.stands_for[argument] = value

    def _part(self, step: Step) -> _Part | None:
        gives: list[Value] = []
        reads: list[Value] = []
        attributes: dict[str, object] = {}
        source = step.op.attributes
        name = step.op.name
        if step.kind == "wait":
            reads = [value for value in step.reads if place_of(value) == self.device]
            if not reads:
                return None
        elif step.device != self.device:
            return None
        elif step.kind == "task":
            name = "baechi.run"
            reads, gives = list(step.reads), list(step.gives)
            attributes["task"] = SymbolRef(("main", str(source["sym_name"])))
        elif step.kind == "send":
            reads = list(step.reads)
            attributes.update(channel=source["channel"], to=source["to"])
        else:
            gives = list(step.gives)
            sender = self.view.maker(step.reads[0])
            assert sender is not None
            attributes["channel"] = source["channel"]
            attributes["from"] = sender.device
        for key in ("baechi.frees", "baechi.donates"):
            if key in source:
                attributes[key] = source[key]
        return _Part(step, name, reads, gives, attributes)

    def _check_op(self, part: _Part, op: Operation) -> None:
        reads = [self.stands_for.get(value) for value in op.operands]
        if op.name != part.name:
            raise self._mismatch(f"does '{op.name}' ({op.location}) where {part.step} was expected")
        if reads != part.reads:
            raise self._mismatch(f"reads other values than {part.step} at '{op.name}'")
        if [value.type for value in op.results] != [value.type for value in part.gives]:
            raise self._mismatch(f"gives other types than {part.step} at '{op.name}'")
        if dict(op.attributes) != part.attributes:
            raise self._mismatch(
                f"differs from {part.step} in its attributes: {dict(op.attributes)}, expected "
                f"{part.attributes}"
            )
        self.stands_for.update(zip(op.results, part.gives))

    def _check_results(self, terminator: Operation) -> None:
        expected = [
            (position, value)
            for position, value in enumerate(self.view.returned)
            if place_of(value) == self.device
        ]
        found = [
            (entry.get("baechi.result"), self.stands_for.get(value))
            for entry, value in zip(result_attributes(self.program), terminator.operands)
        ]
        if found != expected:
            raise self._mismatch(
                f"returns results {[position for position, _ in found]} of @main, or other values, "
                f"where results {[position for position, _ in expected]} lie on its device"
            )
