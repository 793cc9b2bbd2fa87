"""``inline-calls``: the bodies of calls take the place of the calls.

JAX traces ``jax.jit`` inside ``jax.jit``, functions with custom derivatives and closed calls as ops
with a region. What they compute does not depend on the border, and a placer wants to see the ops.
Custom derivatives have done their work when ``grad`` was traced, so their rules can go.

``jax.checkpoint`` (remat) is inlined too. Where JAX itself lowers it with an optimization barrier
(it was differentiated, and ``prevent_cse`` is set; ``jax/_src/ad_checkpoint.py``,
``_remat_lowering``) its operands go through ``jax.optimization_barrier``: otherwise XLA would find
the recomputation equal to the forward pass, merge the two, and keep the values that remat drops.
With one ``prevent_cse`` per operand, only those operands go through it. In the body of a scan
``prevent_cse=False`` is what JAX's users are told to write, since the loop keeps the passes apart;
once the scan is unrolled nothing does, and the recomputation would begin whenever a device is idle.
So there all operands go through a barrier, whatever the flag says.

The name stack of an inlined op is prefixed with the call's, as JAX does when it lowers. Ops are
moved, not copied. Loops and branches stay ops; the calls in their regions are inlined.

Assumes what ``ir/from_jaxpr.py`` promises: a call has one region of one block, closed by
``baechi.yield``, whose arguments stand for the operands one to one: hoisted constants
(``baechi.hoisted`` of them), the operands proper, a token for each effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from baechi_jax.ir.core import Block, Module, Operation, Value
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.registry import Pass, register_pass

#: Ops that are their body.
CALLS = frozenset(
    {
        "jax.jit",
        "jax.custom_jvp_call",
        "jax.custom_vjp_call",
        "jax.closed_call",
        "jax.remat",
    }
)


@register_pass
@dataclass(frozen=True)
class InlineCalls(Pass):
    """Inlines calls at any nesting; a differentiated remat leaves its barrier."""

    name = "inline-calls"
    summary = "inline jit, custom derivatives, closed calls, and remat with its barrier"

    def run(self, module: Module) -> None:
        """Leaves no op of ``CALLS``; raises IRError for a call whose body does not fit it."""
        inliner = _Inliner()
        for function in module.functions:
            inliner.inline_regions(function, in_scan=False)


class _Inliner:
    def __init__(self) -> None:
        # Many ops share a location and a prefix: the ops of a jitted helper called in a loop.
        self._inside: dict[tuple[Location, Location], Location] = {}

    def inline_regions(self, op: Operation, *, in_scan: bool) -> None:
        """Inline the calls in every region of ``op``, which are in a scan's body or not."""
        for region in op.regions:
            for block in region.blocks:
                if any(inner.regions or inner.name in CALLS for inner in block.ops):
                    flat: list[Operation] = []
                    self._flatten(block.ops, UNKNOWN, flat, in_scan)
                    block.set_ops(flat)

    def _flatten(
        self, ops: list[Operation], call: Location, into: list[Operation], in_scan: bool
    ) -> None:
        """Append ``ops`` to ``into`` with calls opened; ``call`` is the location of the call in
        which they are: its name stack goes before theirs, and its source line is that of operations
        without one, those of the libraries' own functions."""
        for op in ops:
            if call.known:
                op.location = self._location(call, op.location)
            if op.name in CALLS:
                self._open(op, into, in_scan)
                continue
            if op.regions:
                self.inline_regions(op, in_scan=in_scan or op.name == "jax.scan")
            into.append(op)

    def _open(self, call: Operation, into: list[Operation], in_scan: bool) -> None:
        body = _checked_body(call)
        operands: Sequence[Value] = call.operands
        if call.name == "jax.remat":
            operands = _behind_barrier(call, into, in_scan)
        for argument, operand in zip(body.arguments, operands):
            argument.replace_all_uses_with(operand)
        terminator = body.terminator
        # The ops of the body belong to the enclosing block once its caller sets its ops.
        self._flatten(body.ops[:-1], call.location, into, in_scan)
        for result, value in zip(call.results, terminator.operands):
            result.replace_all_uses_with(value)
        body.set_ops([terminator])
        call.drop_operands()

    def _location(self, call: Location, location: Location) -> Location:
        key = (call, location)
        found = self._inside.get(key)
        if found is None:
            names = [name for name in (call.name, location.name) if name]
            source = location if location.file else call
            found = self._inside[key] = replace(source, name="/".join(names))
        return found


def _behind_barrier(remat: Operation, into: list[Operation], in_scan: bool) -> list[Value]:
    """The operands that the body of ``remat`` reads; appends the barrier where there is one."""
    operands = list(remat.operands)
    behind = _prevent_cse(remat, in_scan)
    if remat.attributes.get("differentiated") is not True or not any(behind):
        return operands
    chosen = [index for index, through in enumerate(behind) if through]
    barrier = Operation(
        "jax.optimization_barrier",
        [operands[index] for index in chosen],
        [operands[index].type for index in chosen],
        location=remat.location,
    )
    into.append(barrier)
    for index, result in zip(chosen, barrier.results):
        operands[index] = result
    return operands


def _prevent_cse(remat: Operation, in_scan: bool) -> list[bool]:
    """For each operand, whether it goes through the barrier: what JAX has as operands may."""
    hoisted = remat.attributes.get("baechi.hoisted", 0)
    tokens = sum(isinstance(operand.type, TokenType) for operand in remat.operands)
    assert isinstance(hoisted, int)
    proper = len(remat.operands) - hoisted - tokens
    flag = remat.attributes.get("prevent_cse")
    if isinstance(flag, bool):
        flags = [flag or in_scan] * proper
    elif isinstance(flag, tuple) and len(flag) == proper:
        flags = [entry is True or in_scan for entry in flag]
    else:
        raise IRError(
            f"{remat.location}: 'jax.remat' needs 'prevent_cse', a bool or one for each of its "
            f"{proper} operands; found {flag!r}"
        )
    return [False] * hoisted + flags + [False] * tokens


def _checked_body(call: Operation) -> Block:
    if len(call.regions) != 1 or len(call.regions[0].blocks) != 1:
        raise IRError(
            f"{call.location}: '{call.name}' must have one region of one block, "
            f"found {len(call.regions)} regions"
        )
    body = call.body
    if not body.ops or body.terminator.name != "baechi.yield":
        raise IRError(f"{call.location}: the body of '{call.name}' must end in 'baechi.yield'")
    given, taken = len(call.operands), len(body.arguments)
    if given != taken:
        raise IRError(
            f"{call.location}: '{call.name}' has {given} operands, but its body takes {taken}"
        )
    wanted, yielded = len(call.results), len(body.terminator.operands)
    if wanted != yielded:
        raise IRError(
            f"{call.location}: '{call.name}' has {wanted} results, but its body yields {yielded}"
        )
    return body
