"""Why a subject shares its device with others, in sentences: pins, colocation, fused tasks."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.explain.subject import Subject
from baechi_jax.explain.view import PlacedOp, PlacedView
from baechi_jax.passes.colocate import BACKWARD, STATE
from baechi_jax.passes.dataflow import is_backward
from baechi_jax.units import format_bytes

#: Most names in a sentence, most colocation groups that are told of one by one.
_NAMED, _GROUPS = 3, 3

_PIN_SCOPE = "baechi.device:"


def colocation_reasons(view: PlacedView, subject: Subject) -> list[str]:
    """Sentences; empty for something that stands alone."""
    found = _pins(view, subject)
    for index in subject.arguments[:_GROUPS]:
        found += _argument(view, index)
    for op in subject.ops[:_GROUPS] if not subject.parts else ():
        found += _operation(view, op)
    found += _groups(view, subject)
    return list(dict.fromkeys(found))


def pinned_device(view: PlacedView, subject: Subject) -> int | None:
    """The device that the user pinned the subject to, by itself or through its group."""
    pins = [int(view.problem.pinned[view.problem.group[node]]) for node in subject.nodes]
    return next((pin for pin in pins if pin >= 0), None)


def _pins(view: PlacedView, subject: Subject) -> list[str]:
    device = pinned_device(view, subject)
    if device is None:
        return []
    groups = {int(view.problem.group[node]) for node in subject.nodes}
    nodes = {node for group in groups for node in view.problem.members[group]}
    named = {each.op for each in subject.ops}
    by = [
        each
        for each in view.ops
        if each.node in nodes and f"{_PIN_SCOPE}{device}" in each.op.location.name
    ]
    by.sort(key=lambda each: each.op not in named)
    where = f"Pinned to device {view.device_name(device)}"
    if not by:
        return [f"{where} (baechi.pin)."]
    scope = f'jax.named_scope("{_PIN_SCOPE}{device}")'
    if by[0].op in named:
        return [f"{where}: it is in {scope}."]
    return [f"{where}: {by[0]}, which must share its device, is in {scope}."]


def _argument(view: PlacedView, index: int) -> list[str]:
    name, found = view.argument_name(index), []
    group = view.group_of_argument.get(index)
    if group is None:
        if not view.readers(index):
            return [f"No operation reads {name}."]
        return [f"No rule binds {name} to its readers ({_list(view.readers(index))})."]
    update = view.update(index)
    if update is not None and STATE in view.rules.get(group, ()):
        result, maker = update
        others = [
            view.argument_name(other)
            for other, where in view.group_of_argument.items()
            if where == group and other != index and view.update(other) is not None
        ]
        by = f", made by {maker}" if maker is not None else ""
        beside = f", beside the state updated with it: {_names(others)}" if others else ""
        found.append(f"State lies where its next value is made ({result}{by}){beside}.")
    readers = [each for each in view.readers(index) if view.group_name(each) == group]
    # Neither the backward pass nor the update makes a weight a tied one.
    forward = [each for each in readers if _is_model(each)]
    places = dict.fromkeys(each.place for each in forward if each.place)
    if len(places) > 1 and update is not None:
        found.append(f"Read in several places, which then share a device: {_list(forward)}.")
    elif readers:
        found.append(f"What reads it shares its device: {_list(readers)}.")
    return found


def _is_model(op: PlacedOp) -> bool:
    return "jvp(" in op.op.location.name and not is_backward(op.op)


def _operation(view: PlacedView, op: PlacedOp) -> list[str]:
    group = view.group_name(op)
    if group is None:
        return []
    found: list[str] = []
    arguments = view.main.body.arguments
    for index, where in view.group_of_argument.items():
        if where != group:
            continue
        if any(value is arguments[index] for value in op.op.operands):
            size = format_bytes(view.argument_bytes(index))
            found.append(
                f"{op.handle} reads {view.argument_name(index)} ({size}), which lies here."
            )
        update = view.update(index)
        if update is not None and update[1] is op:
            found.append(
                f"{op.handle} makes the next value of {view.argument_name(index)}, which lies here."
            )
    if BACKWARD in view.rules.get(group, ()):
        same = [each for each in view.ops if view.group_name(each) == group]
        forward = [each for each in same if not is_backward(each.op)]
        backward = [each for each in same if is_backward(each.op)]
        if is_backward(op.op) and forward:
            line = [each for each in forward if each.place == op.place]
            found.append(
                f"{op.handle} is of the backward pass, and goes with what it differentiates: "
                f"{_list((line or forward)[:1])}."
            )
        elif backward and not is_backward(op.op):
            found.append(f"Its backward pass goes with {op.handle}: {_list(backward)}.")
    return found


def _groups(view: PlacedView, subject: Subject) -> list[str]:
    """What the tasks of the subject are made of besides."""
    problem = view.problem
    chosen = {int(problem.group[node]) for node in subject.nodes}
    nodes = {node for group in chosen for node in problem.members[group]}
    ops = [each for each in view.ops if each.node in nodes]
    arguments = [index for index in range(view.source.arguments) if index in nodes]
    names = dict.fromkeys(name for each in ops if (name := view.group_name(each)) is not None)
    found: list[str] = []
    if len(subject.parts) > 1:
        found.append(
            f"It was merged from {len(subject.parts)} tasks, placed one by one and run one after "
            f"another here: {_names(subject.parts)}."
        )
    elif len(names) > 1:
        found.append(f"Neighbours in the program that are placed as one: {_names(list(names))}.")
    size = format_bytes(sum(map(view.argument_bytes, arguments)))
    parts = [_count(len(ops), "operation")]
    if arguments:
        parts.append(f"{_count(len(arguments), 'argument')} of {size}")
    found.append(f"Moving it moves {' and '.join(parts)}.")
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _list(ops: Sequence[PlacedOp]) -> str:
    return _names([str(each) for each in ops])


def _names(names: Sequence[str]) -> str:
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} more"
