"""Which layer of the user's program an op belongs to, and in which phase of training it runs.

Read from JAX's name stack: ``transpose(jvp(layer1))/attention`` is layer ``layer1`` in the backward
phase. Scopes that hold most of the program (a model's own name) are looked through, so that its
layers appear and not just the model. Ops without a scope are named by their source line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from baechi_jax.ir.location import Location

_TRANSFORM = re.compile(r"\b[A-Za-z_]\w*\(([^()]*)\)")

#: Scopes that JAX adds by itself; they name a mechanism, not a layer.
_MECHANISMS = frozenset({"checkpoint", "remat", "rematted_computation", "closed_call", "jit", ""})

#: A scope with more than this share of all seconds is looked through when it has inner scopes.
_LOOK_THROUGH_SHARE = 0.6

FORWARD, BACKWARD, UPDATE, COMPUTE = "forward", "backward", "update", "compute"

#: In the order in which a training step goes through them.
PHASES = (COMPUTE, FORWARD, BACKWARD, UPDATE)


def scopes(name_stack: str) -> tuple[str, ...]:
    """The scopes of a name stack, outermost first, without the transformations around them.

    A device pin (``baechi.device:1``) is not a scope of the program and is left out.
    """
    while (plain := _TRANSFORM.sub(r"\1", name_stack)) != name_stack:
        name_stack = plain
    return tuple(
        part
        for part in name_stack.split("/")
        if part not in _MECHANISMS and not part.startswith("baechi.")
    )


def phase_of(name_stack: str, differentiated: bool) -> str:
    """The phase of an op; ``differentiated`` says whether the program has a backward phase."""
    if not differentiated:
        return COMPUTE
    if "transpose(" in name_stack:
        return BACKWARD
    return FORWARD if "jvp(" in name_stack else UPDATE


def layer_names(weights: Mapping[Location, float]) -> dict[Location, str]:
    """The layer of each location; ``weights`` says how much each counts (seconds, or ops)."""
    stacks = {location: scopes(location.name) for location in weights}
    depth = dict.fromkeys(weights, 0)
    total = sum(weights.values()) or 1.0
    while True:
        groups: dict[tuple[str, ...], list[Location]] = {}
        for location, stack in stacks.items():
            if len(stack) > depth[location]:
                groups.setdefault(stack[: depth[location] + 1], []).append(location)
        heavy = [
            members
            for members in groups.values()
            if sum(weights[member] for member in members) > _LOOK_THROUGH_SHARE * total
            and _has_inner_scopes([stacks[member] for member in members], depth[members[0]] + 1)
        ]
        if not heavy:
            break
        for member in heavy[0]:
            depth[member] += 1
    return {location: _layer(location, stacks[location], depth[location]) for location in weights}


def _has_inner_scopes(stacks: Sequence[tuple[str, ...]], depth: int) -> bool:
    return len({stack[depth] for stack in stacks if len(stack) > depth}) > 1


def _layer(location: Location, stack: tuple[str, ...], depth: int) -> str:
    if stack:
        return stack[min(depth, len(stack) - 1)]
    return str(Location(location.file.rsplit("/", 1)[-1], location.line))
