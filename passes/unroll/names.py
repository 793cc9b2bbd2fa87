"""Names for what comes of a scan: of its layers in name stacks, of the pieces of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from baechi_jax.ir.core import Operation
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.unroll.stacks import Rows

#: One step of a path: ``['w']``, ``[3]``, ``.w``, ``w``.
_STEP = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.?([A-Za-z_]\w*)")

_DEFAULT = "scan"


def piece_name(name: str, rows: Rows) -> str:
    """``state['w'][3:4]``."""
    return f"{name}[{rows.text}]"


def layer_name(scan: str, rows: Rows) -> str:
    """``layers[3]``, or ``layers[2:4]`` for several iterations."""
    return f"{scan}[{rows.start if rows.size == 1 else rows.text}]"


def scan_names(
    scans: Sequence[Operation], seeds: Mapping[Operation, Sequence[int]], names: Sequence[str]
) -> dict[Operation, str]:
    """A name for each scan: forward and backward scans of the same layers have the same.

    It is the last step of the path that the stacks have in common: ``layers`` for
    ``params['layers']['w']`` and ``params['layers']['b']``; two groups that would have the same
    name get one more step each. ``names`` are those of the arguments.
    """
    groups = _groups(scans, seeds)
    paths = [_common([_steps(names[index]) for index in sorted(found)]) for _, found in groups]
    result: dict[Operation, str] = {}
    for (members, _), name in zip(groups, _distinct(paths)):
        result.update(dict.fromkeys(members, name))
    return result


def _groups(
    scans: Sequence[Operation], seeds: Mapping[Operation, Sequence[int]]
) -> list[tuple[list[Operation], set[int]]]:
    """Scans that share stacks, arguments or one another's results; with their arguments."""
    groups: list[tuple[list[Operation], set[int], set[Operation]]] = []
    for scan in scans:
        arguments = set(seeds.get(scan, ()))
        rows = ScanForm.of(scan).rows
        makers = {scan.operands[index].defining_op for index in rows} & set(scans)
        joined = [each for each in groups if each[1] & arguments or each[2] & makers]
        members = [op for each in joined for op in each[0]] + [scan]
        for each in joined:
            arguments |= each[1]
        groups = [each for each in groups if each not in joined]
        groups.append((members, arguments, set(members)))
    return [(members, arguments) for members, arguments, _ in groups]


def _steps(name: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match), "0") for match in _STEP.findall(name))


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The steps that all paths begin with; positions at the end left out."""
    common = list(paths[0]) if paths else []
    for path in paths[1:]:
        count = 0
        while count < min(len(common), len(path)) and common[count] == path[count]:
            count += 1
        del common[count:]
    while common and common[-1].isdigit():
        common.pop()
    return tuple(common)


def _distinct(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """As few last steps of each path as make a difference, then numbers."""
    longest = max((len(path) for path in paths), default=0)
    for steps in range(1, longest + 1):
        names = [".".join(path[-steps:]) or _DEFAULT for path in paths]
        if len(set(names)) == len(names):
            return names
    if len(paths) == 1:
        return [_DEFAULT]
    names = [".".join(path[-1:]) or _DEFAULT for path in paths]
    return [f"{name}.{index}" for index, name in enumerate(names)]
