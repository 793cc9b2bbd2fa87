"""A scan over the axis itself: each iteration works on one position.

Three things a body may do, so that pieces of the loop can run apart: give a row of a result that
depends on its own position and on what all share (the result is split); pass a carry on as it is
(that carry is shared); gather, ``carry = carry + something of this position`` (the carry's last
value is a partial sum, or product, maximum, ... by the operation that gathers). A carry that is
read in any other way makes an iteration depend on those before it: what comes of it is mixed.

In the body a value is ``Full`` (shared), ``Each`` (of the position), ``Running`` (a carry, with
what this iteration added) or ``Neither``. Two values of a position cannot mix positions, so no
operation needs a rule of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.passes.axis.rule import At
from baechi_jax.passes.axis.states import (
    FULL,
    Each,
    Full,
    Neither,
    Partial,
    Running,
    Split,
    State,
    serves_as_partial,
)

_GATHERS = {
    "jax.add": "sum",
    "jax.add_any": "sum",
    "jax.sub": "sum",
    "jax.mul": "prod",
    "jax.max": "max",
    "jax.min": "min",
    "jax.and": "and",
    "jax.or": "or",
}

#: Operations that pass on what they are given.
_PASS_ON = frozenset({"jax.copy", "jax.name", "jax.optimization_barrier"})


def scan_over(at: At, set_state: Callable[[Value, State], None]) -> list[State]:
    """The states of the results of a ``jax.scan``, some of whose ``xs`` are split along 0.

    ``set_state`` takes the states of the values in the body. Raises Mixed where other operands
    depend on the axis in a way that the body cannot share.
    """
    consts = at.integer("num_consts")
    first = consts + at.integer("num_carry")
    body = at.op.body
    states: dict[Value, State] = {}

    def put(value: Value, state: State) -> None:
        states[value] = state
        set_state(value, state)

    for operand in range(first, len(at.states)):
        at.need_split(operand, 0, "another operand to scan over")
    yielded = body.terminator.operands
    for index, argument in enumerate(body.arguments):
        if index < consts:
            put(argument, _shared(at, index))
        elif index >= first:
            put(argument, Each())
        elif yielded[index - consts] is argument:
            put(argument, _shared(at, index))
        else:
            put(argument, Running(index - consts))
    for op in body.ops[:-1]:
        for result, state in zip(op.results, _step(op, states)):
            put(result, state)
        if op.regions and op.results:
            _fill_regions(op, states[op.results[0]], set_state)
    at.shrink("length", None)

    results: list[State] = []
    for index, value in enumerate(yielded):
        state = states[value]
        if index >= first - consts:
            results.append(_stacked(at, state))
        elif value is body.arguments[consts + index]:
            results.append(at.states[consts + index])
        else:
            results.append(_gathered(at, consts, index, state))
    return results


def _shared(at: At, operand: int) -> State:
    """The state, in the body, of an operand that every iteration sees."""
    state = at.states[operand]
    if isinstance(state, Full | Neither):
        return state
    return Neither(at.op, f"goes over the axis and reads an operand ({operand}) that is {state}")


def _step(op: Operation, states: dict[Value, State]) -> list[State]:
    operands = [states[value] for value in op.operands]
    count = len(op.results)
    for state in operands:
        if isinstance(state, Neither) and op.name not in _PASS_ON:
            return [state] * count
    if op.name in _PASS_ON:
        return operands
    running = [state for state in operands if isinstance(state, Running)]
    if running:
        return [_gather(op, operands, running)] * count
    if any(isinstance(state, Each) for state in operands):
        return [Each()] * count
    return [FULL] * count


def _fill_regions(op: Operation, inside: State, put: Callable[[Value, State], None]) -> None:
    """What is inside an operation of the body is of one position where its results are."""
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                put(argument, inside)
            for inner in block.ops:
                for result in inner.results:
                    put(result, inside)
                _fill_regions(inner, inside, put)


def _gather(op: Operation, operands: Sequence[State], running: Sequence[Running]) -> State:
    carry = running[0]
    kind = _GATHERS.get(op.name)
    if kind is None or len(running) > 1 or (op.name == "jax.sub" and operands[0] is not carry):
        return Neither(op, "reads a carry of a scan over the axis: iterations depend on another")
    if carry.kind not in ("", kind):
        return Neither(op, f"gathers a carry by {kind} and by {carry.kind}")
    return Running(carry.carry, kind)


def _stacked(at: At, state: State) -> State:
    if isinstance(state, Each):
        return Split(0)
    if isinstance(state, Full):
        # The same row again and again; there are as many as the piece has positions.
        return Split(0)
    if isinstance(state, Neither):
        return state
    return Neither(at.op, "gives what it has gathered at each position of the axis")


def _gathered(at: At, consts: int, index: int, state: State) -> State:
    """The state of a carry after the loop."""
    start = at.states[consts + index]
    if isinstance(state, Neither | Full):  # full: every iteration gives the same, the last one too
        return state
    if not isinstance(state, Running) or state.carry != index or not state.kind:
        return Neither(at.op, f"keeps in a carry ({index}) what its last iteration gave")
    if isinstance(start, Neither):
        return start
    if not serves_as_partial(start, state.kind):
        return Neither(
            at.op,
            f"gathers a {state.kind} over the axis, starting from a value that is no partial "
            f"{state.kind}: {start}",
        )
    return Partial(state.kind)
