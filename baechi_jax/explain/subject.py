"""What a question is about: ``state.params['w']``, ``dot_general#3``, ``model.py:12``, ``t4``.

Tried in this order: a task of the plan, an argument by its path or the beginning of one, a source
line, an operation by its name (and number), a colocation group, a named scope. What is found must
lie on one device; otherwise the error lists what there is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from baechi_jax.explain.errors import ExplainError
from baechi_jax.explain.view import PlacedOp, PlacedView
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.dataflow import Scopes
from baechi_jax.units import format_bytes

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)$")
_OP = re.compile(r"(?:jax\.|baechi\.)?(?P<name>\w+)(?:#(?P<number>\d+))?$")

#: Most lines of a list in an error.
_LISTED = 12


@dataclass(frozen=True, slots=True)
class Subject:
    """Operations and arguments on one device; ``nodes`` of the placement problem."""

    title: str
    ops: tuple[PlacedOp, ...]
    arguments: tuple[int, ...]
    nodes: tuple[int, ...]
    #: Names of the placed tasks, when a task of the plan was asked for.
    parts: tuple[str, ...] = ()


def find_subject(view: PlacedView, text: str) -> Subject:
    """What ``text`` names in ``view``; raises ExplainError when that is nothing, or too much."""
    text = text.strip()
    for find in (_task, _arguments, _line, _operations, _group, _scope):
        found = find(view, text)
        if found is not None:
            _check_one_device(view, found, text)
            return found
    raise ExplainError(f"the plan has no '{text}'{_nearest(view, text)}")


def _task(view: PlacedView, text: str) -> Subject | None:
    parts = view.parts.get(text)
    if parts is None:
        return None
    nodes = {view.node_of_task[part] for part in parts}
    ops = [each for each in view.ops if each.node in nodes]
    return Subject(f"task {text}", tuple(ops), (), tuple(sorted(nodes)), parts)


def _arguments(view: PlacedView, text: str) -> Subject | None:
    names = [view.argument_name(index) for index in range(view.source.arguments)]
    found = [index for index, name in enumerate(names) if name == text]
    if not found:
        stem = text.rstrip(".")
        found = [i for i, name in enumerate(names) if _is_prefix(stem, name)]
    if not found:
        return None
    total = format_bytes(sum(map(view.argument_bytes, found)))
    if len(found) == 1:
        title = f"argument {names[found[0]]} ({_type(view, found[0])}{total})"
    else:
        title = f"{len(found)} arguments {text}... ({total})"
    return Subject(title, (), tuple(found), tuple(map(view.source.node_of_argument, found)))


def _type(view: PlacedView, argument: int) -> str:
    """``f32[128,64], ``; nothing for what is no array."""
    type_ = view.main.body.arguments[argument].type
    if not isinstance(type_, TensorType):
        return ""
    return f"{type_.element}[{','.join(map(str, type_.shape))}], "


def _is_prefix(stem: str, name: str) -> bool:
    return bool(stem) and name.startswith(stem) and name[len(stem) :][:1] in (".", "[")


def _line(view: PlacedView, text: str) -> Subject | None:
    match = _LINE.match(text)
    if match is None:
        return None
    file, line = match["file"].replace("\\", "/").removeprefix("./"), int(match["line"])
    ops = [
        each
        for each in view.ops
        if each.op.location.line == line and _is_file(each.op.location.file, file)
    ]
    return _of_ops(ops, f"at {text}") if ops else None


def _is_file(path: str, file: str) -> bool:
    path = path.replace("\\", "/")
    return path == file or path.endswith("/" + file)


def _operations(view: PlacedView, text: str) -> Subject | None:
    match = _OP.match(text)
    if match is None:
        return None
    ops = [each for each in view.ops if each.name == match["name"]]
    if match["number"] is None:
        return _of_ops(ops, f"{match['name']}") if ops else None
    number = int(match["number"])
    if ops and number >= len(ops):
        raise ExplainError(
            f"the plan has no '{text}': {match['name']} has the numbers 0 to {len(ops) - 1}"
        )
    return _of_ops(ops[number : number + 1], "") if ops else None


def _group(view: PlacedView, text: str) -> Subject | None:
    ops = [each for each in view.ops if view.group_name(each) == text]
    arguments = [index for index, name in view.group_of_argument.items() if name == text]
    if not ops and not arguments:
        return None
    nodes = {each.node for each in ops} | set(map(view.source.node_of_argument, arguments))
    return Subject(f"group {text}", tuple(ops), tuple(arguments), tuple(sorted(nodes)))


def _scope(view: PlacedView, text: str) -> Subject | None:
    scopes = Scopes()
    wanted = f"/{text.strip('/')}/"
    ops = [each for each in view.ops if wanted in f"/{scopes.scope(each.op.location.name)}/"]
    return _of_ops(ops, f"in the scope {text}") if ops and wanted != "//" else None


def _of_ops(ops: Sequence[PlacedOp], what: str) -> Subject:
    title = f"operation {ops[0]}" if len(ops) == 1 else f"{len(ops)} operations {what}"
    return Subject(title, tuple(ops), (), tuple(sorted({each.node for each in ops})))


# Errors -----------------------------------------------------------------------------------------


def _check_one_device(view: PlacedView, found: Subject, text: str) -> None:
    devices = sorted({view.assignment[node] for node in found.nodes})
    if len(devices) <= 1:
        return
    lines = [
        f"  {view.argument_name(index)}  on {_device(view, view.source.node_of_argument(index))}"
        for index in found.arguments
    ]
    scopes = Scopes()
    for each in found.ops:
        scope = scopes.scope(each.op.location.name)
        where = ", ".join(part for part in (scope, each.place) if part)
        lines.append(f"  {each.handle}  on {_device(view, each.node)}  {where}".rstrip())
    more = len(lines) - _LISTED
    if more > 0:
        lines = [*lines[:_LISTED], f"  ... and {more} more"]
    raise ExplainError(
        f"'{text}' is {found.title}, on {len(devices)} devices; ask for one of\n" + "\n".join(lines)
    )


def _device(view: PlacedView, node: int) -> str:
    return view.device_name(view.assignment[node])


def _nearest(view: PlacedView, text: str) -> str:
    scopes = Scopes()
    parts = [p for op in view.ops for p in scopes.scope(op.op.location.name).split("/") if p]
    known = dict.fromkeys(
        [
            *view.parts,
            *(view.argument_name(index) for index in range(view.source.arguments)),
            *(each.place for each in view.ops if each.place),
            *(each.name for each in view.ops),
            *parts,
        ]
    )
    match = _LINE.match(text)
    if match is not None:
        file = match["file"].replace("\\", "/").rpartition("/")[2]
        line = int(match["line"])
        there = sorted(
            {each.op.location.line for each in view.ops if each.place.rpartition(":")[0] == file},
            key=lambda other: (abs(other - line), other),
        )
        if there:
            lines = ", ".join(f"{file}:{each}" for each in sorted(there[:6]))
            return f"; the nearest lines with operations are {lines}"
    near = difflib.get_close_matches(text, list(known), n=6, cutoff=0.5)
    if near:
        return f"; the nearest are {', '.join(near)}"
    names = [view.argument_name(index) for index in range(view.source.arguments)]
    return (
        "; ask for an argument "
        + f"({', '.join(names[:3])}, ...), " * bool(names)
        + "a source line (model.py:12), an operation (dot_general#3), a scope or a task "
        f"({', '.join(list(view.parts)[:3])})"
    )
