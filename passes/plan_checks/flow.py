"""Data flow and place: convexity, order, devices, boundary, pins and groups."""

from __future__ import annotations

from baechi_jax.ir.attributes import as_tuple
from baechi_jax.ir.core import Operation
from baechi_jax.ir.types import OnType, unplaced
from baechi_jax.passes.plan_checks.view import PlanView, Step, place_of
from baechi_jax.passes.plan_errors import (
    BoundaryError,
    ColocationError,
    ConvexityError,
    OrderError,
    PinError,
    WrongDeviceError,
)


def check_convexity(view: PlanView) -> None:
    """No step may depend on itself: peel off steps that depend on nothing, until none is left."""
    waiting = {step.index: 0 for step in view.steps}
    readers: dict[int, list[Step]] = {step.index: [] for step in view.steps}
    for step in view.steps:
        for value in step.reads:
            maker = view.maker(value)
            if maker is not None:
                waiting[step.index] += 1
                readers[maker.index].append(step)
    free = [step.index for step in view.steps if waiting[step.index] == 0]
    while free:
        for reader in readers[free.pop()]:
            waiting[reader.index] -= 1
            if waiting[reader.index] == 0:
                free.append(reader.index)
    stuck = [step for step in view.steps if waiting[step.index] > 0]
    if not stuck:
        return
    # Walk backwards inside what is stuck until a step comes up again: that is a circle.
    left = {step.index for step in stuck}
    path: list[Step] = [stuck[0]]
    while True:
        makers = (view.maker(value) for value in path[-1].reads)
        before = next(maker for maker in makers if maker is not None and maker.index in left)
        if before in path:
            circle = [*path[path.index(before) :], before]
            break
        path.append(before)
    tasks = [step for step in circle if step.kind == "task"]
    raise ConvexityError(
        f"{tasks[0] if tasks else circle[0]} needs what depends on it, by the way "
        + " <- ".join(str(step) for step in circle)
        + "; a task must be a convex part of the step"
    )


def check_order(view: PlanView) -> None:
    """Everything is issued after what it reads."""
    for step in view.steps:
        for value in step.reads:
            maker = view.maker(value)
            if maker is not None and maker.index >= step.index:
                raise OrderError(
                    f"{step} is operation {step.index} of @main and reads {view.name(value)}, "
                    f"which comes as operation {maker.index}"
                )


def check_devices(view: PlanView) -> None:
    """What an operation reads and gives lies where the operation is."""
    for step in view.steps:
        if step.kind == "task":
            for value in step.reads:
                if place_of(value) != step.device:
                    raise WrongDeviceError(
                        f"{step} reads {view.name(value)} of type {value.type}, which does not lie "
                        f"on device {step.device}; it needs a transfer"
                    )
            for result, inner in zip(step.gives, step.op.body.ops[-1].operands):
                if result.type != OnType((step.device,), inner.type):  # type: ignore[arg-type]
                    raise WrongDeviceError(
                        f"{view.name(result)} must have type "
                        f"!baechi.on<[{step.device}], {inner.type}>, found {result.type}"
                    )
            for argument, value in zip(step.op.body.arguments, step.reads):
                if argument.type != unplaced(value.type):
                    raise WrongDeviceError(
                        f"{step} takes {argument.type} inside for {view.name(value)} of type "
                        f"{value.type}"
                    )
        elif step.kind == "send" and place_of(step.reads[0]) != step.device:
            raise WrongDeviceError(
                f"{step} sends {view.name(step.reads[0])} of type {step.reads[0].type}, which does "
                f"not lie on device {step.device}"
            )


def check_boundary(view: PlanView) -> None:
    """Arguments lie where they are declared, results somewhere, state where it started."""
    returned = view.returned
    for argument, entry in zip(view.main.body.arguments, view.arguments):
        devices = entry.get("baechi.devices")
        if devices != (place_of(argument),):
            raise BoundaryError(
                f"{view.name(argument)} is declared on devices {devices!r}, but its type is "
                f"{argument.type}"
            )
        if place_of(argument) >= view.topology.size:
            raise BoundaryError(
                f"{view.name(argument)} lies on device {place_of(argument)}; the topology has "
                f"{view.topology.size}"
            )
        state = entry.get("baechi.state")
        if not isinstance(state, int):
            continue
        if not 0 <= state < len(returned):
            raise BoundaryError(
                f"the next value of {view.name(argument)} is result {state}, but the step has "
                f"{len(returned)} results"
            )
        if place_of(returned[state]) != place_of(argument):
            raise BoundaryError(
                f"{view.name(argument)} lies on device {place_of(argument)}, but its next value, "
                f"{view.name(returned[state])}, on device {place_of(returned[state])}; the next "
                "step would not find it"
            )
    for position, value in enumerate(returned):
        if place_of(value) < 0:
            raise BoundaryError(f"result {position} of the step has type {value.type}, no place")


def check_wishes(view: PlanView) -> None:
    """Pins and colocation groups hold, for tasks and for every operation in them."""
    groups: dict[str, tuple[int, str]] = {}
    for argument, entry in zip(view.main.body.arguments, view.arguments):
        what = view.name(argument)
        _check_wish(entry, place_of(argument), what, groups)
    for step in view.steps:
        if step.kind == "task":
            _check_wish(dict(step.op.attributes), step.device, str(step), groups)
            for op in step.op.body.ops:
                if "baechi.group" in op.attributes or "baechi.pin" in op.attributes:
                    _check_wish(dict(op.attributes), step.device, _inside(op, step), groups)


def _inside(op: Operation, step: Step) -> str:
    return f"'{op.name}' ({op.location}) in {step}"


def _check_wish(
    entry: dict[str, object], device: int, what: str, groups: dict[str, tuple[int, str]]
) -> None:
    pin = entry.get("baechi.pin")
    if isinstance(pin, tuple) and pin and device not in as_tuple(pin):
        raise PinError(f"{what} is pinned to devices {list(pin)} and lies on device {device}")
    group = entry.get("baechi.group")
    if isinstance(group, str):
        other, first = groups.setdefault(group, (device, what))
        if other != device:
            raise ColocationError(
                f"{what} is in group '{group}' and lies on device {device}; {first} is in it too "
                f"and lies on device {other}"
            )
