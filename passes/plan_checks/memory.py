"""Frees, donations, and a recount of both memory peaks, from the rules of docs/plan.md alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from baechi_jax.ir.core import Value
from baechi_jax.ir.types import TensorType, nbytes, unplaced
from baechi_jax.passes.plan_checks.view import PlanView, Step, place_of
from baechi_jax.passes.plan_errors import (
    IllegalDonationError,
    IllegalFreeError,
    MemoryLimitError,
    MemoryRecordError,
    RunAheadLimitError,
    UseAfterDonationError,
    UseAfterFreeError,
)


def check_lifetimes(view: PlanView) -> None:
    """Nothing is used once it is freed or donated, and only what may be freed is."""
    gone: dict[Value, Step] = {}
    donated: set[Value] = set()
    for step in view.steps:
        for value in step.reads:
            if value not in gone:
                continue
            if value in donated:
                raise UseAfterDonationError(
                    f"{step} uses {view.name(value)}, whose buffer {gone[value]} gave to its "
                    "results"
                )
            raise UseAfterFreeError(f"{step} uses {view.name(value)}, which {gone[value]} freed")
        for value in step.frees:
            if view.maker(value) is None and "baechi.donated" not in view.arguments[value.index]:
                raise IllegalFreeError(
                    f"{step} frees {view.name(value)}, which the caller does not give away"
                )
            gone[value] = step
        for value in step.donates:
            gone[value] = step
            donated.add(value)


def check_donations(view: PlanView) -> None:
    """A donated buffer is the step's to give, fits a result, and no copy still reads it."""
    ended = _Ended(view)
    for step in view.steps:
        ended.pass_by(step)
        results = Counter(_buffer_kind(result) for result in step.gives)
        for value in step.donates:
            if view.maker(value) is None and "baechi.donated" not in view.arguments[value.index]:
                raise IllegalDonationError(
                    f"{step} donates {view.name(value)}, which the caller does not give away"
                )
            kind = _buffer_kind(value)
            if not isinstance(unplaced(value.type), TensorType) or results[kind] == 0:
                raise IllegalDonationError(
                    f"{step} donates {view.name(value)} of type {value.type}, but no result of "
                    "that type is left to take the buffer"
                )
            results[kind] -= 1
            for user in value.users:
                reader = view.step_of[user]
                if reader.kind == "send" and reader.index < step.index and not ended.has(reader):
                    raise IllegalDonationError(
                        f"{step} donates {view.name(value)}, which {reader} may still be copying; "
                        "a wait must prove that the copy has ended"
                    )


def _buffer_kind(value: Value) -> tuple[object, ...]:
    inner = unplaced(value.type)
    return (inner.shape, inner.element) if isinstance(inner, TensorType) else (inner,)


class _Ended:
    """Which steps are known to have ended, from the waits passed so far."""

    def __init__(self, view: PlanView) -> None:
        self._view = view
        self._known: set[int] = set()

    def pass_by(self, step: Step) -> None:
        """The host has come to ``step``."""
        if step.kind != "wait":
            return
        for value in step.reads:
            self._add(self._view.maker(value))

    def _add(self, step: Step | None) -> None:
        todo = [step]
        while todo:
            each = todo.pop()
            if each is None or each.index in self._known:
                continue
            self._known.add(each.index)
            todo.extend(self._view.maker(value) for value in each.reads)

    def has(self, step: Step) -> bool:
        """Whether ``step`` is known to have ended."""
        return step.index in self._known


@dataclass(slots=True)
class Recount:
    """Bytes per device."""

    resident: list[int]
    peak: list[int]
    ahead: list[int]
    peak_step: list[Step | None]


def recount(view: PlanView) -> Recount:
    """Count both peaks of each device anew."""
    devices = view.topology.size
    takes, gives_back = _changes(view)
    resident = [0] * devices
    for argument in view.main.body.arguments:
        resident[place_of(argument)] += nbytes(argument.type)
    count = Recount(resident, list(resident), list(resident), [None] * devices)
    ended = _Ended(view)
    live = list(resident)
    for step in view.steps:
        ended.pass_by(step)
        for device, taken in takes[step.index].items():
            now = live[device] + taken + step.temporary_bytes
            if now > count.peak[device]:
                count.peak[device], count.peak_step[device] = now, step
            live[device] += taken
            issued = sum(takes[i].get(device, 0) for i in range(step.index + 1))
            back = sum(
                gives_back[other.index].get(device, 0)
                for other in view.steps[: step.index]
                if ended.has(other)
            )
            running = max(
                other.temporary_bytes
                for other in view.steps[: step.index + 1]
                if other is step or (other.device == device and not ended.has(other))
            )
            ahead = resident[device] + issued - back + running
            count.ahead[device] = max(count.ahead[device], ahead)
        for device, freed in gives_back[step.index].items():
            live[device] -= freed
    return count


def _changes(view: PlanView) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """Per step and device: bytes taken when it is issued, bytes given back when it has ended."""
    takes: list[dict[int, int]] = [{} for _ in view.steps]
    back: list[dict[int, int]] = [{} for _ in view.steps]
    for step in view.steps:
        if step.kind == "task":
            taken = sum(nbytes(result.type) for result in step.gives)
            taken -= sum(nbytes(value.type) for value in step.donates)
            takes[step.index][step.device] = taken
        elif step.kind == "send":
            target = step.op.attributes["to"]
            assert isinstance(target, int)
            takes[step.index][target] = nbytes(step.reads[0].type)
        for value in step.frees:
            if value not in step.donates:
                _add(back[step.index], place_of(value), nbytes(value.type))
    last = view.steps[-1]
    seen: set[Value] = set()
    for value in view.returned:
        kept = view.maker(value) is None and "baechi.donated" not in view.arguments[value.index]
        if kept or value in seen:
            _add(takes[last.index], place_of(value), nbytes(value.type))
        seen.add(value)
    return takes, back


def _add(changes: dict[int, int], device: int, amount: int) -> None:
    changes[device] = changes.get(device, 0) + amount


def check_memory(view: PlanView) -> None:
    """The recount agrees with what the plan says, and stays within each limit."""
    count = recount(view)
    for device, (recorded, described) in enumerate(zip(view.memory, view.topology.devices)):
        limit = described.usable_bytes
        for what, said, found in (
            ("resident_bytes", recorded.resident_bytes, count.resident[device]),
            ("peak_bytes", recorded.peak_bytes, count.peak[device]),
            ("run_ahead_bytes", recorded.run_ahead_bytes, count.ahead[device]),
            ("limit_bytes", recorded.limit_bytes, limit),
        ):
            if said != found:
                raise MemoryRecordError(
                    f"the plan records {what} = {said} for device {device}, a recount gives {found}"
                )
        if count.peak[device] > limit:
            raise MemoryLimitError(
                f"device {device} needs {count.peak[device]:,} bytes at "
                f"{count.peak_step[device] or 'the start of the step'}, its limit is {limit:,}",
                device=device,
                peak_bytes=count.peak[device],
                limit_bytes=limit,
                needed_bytes=tuple(count.peak),
            )
        if count.ahead[device] > limit:
            raise RunAheadLimitError(
                f"device {device} may hold {count.ahead[device]:,} bytes when the host runs ahead, "
                f"its limit is {limit:,}; the plan needs a wait more"
            )
