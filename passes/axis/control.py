"""Operations with regions: calls, branches, loops.

A call is its body. Of branches and loops every piece must take the same way, so what decides must
be full. A carry is a fixed point: its state before the loop, joined with its state after an
iteration until nothing changes; each step goes up the lattice, so a few do. Where the joined state
asks for a part of a full value (zeros before the loop, split rows in it), the operand, or the
operand of the region's ``baechi.yield``, is noted as one to be read in parts.

Assumes what ``ir/from_jaxpr.py`` promises: closed regions, whose arguments stand for the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from baechi_jax.ir.core import Block, Operation, Value
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.axis.over import scan_over
from baechi_jax.passes.axis.rule import At, Mixed
from baechi_jax.passes.axis.states import Full, Neither, Split, State, join
from baechi_jax.passes.inline_calls import CALLS

#: Analyses a block for the states of its arguments; the states of what it yields.
AnalyseBlock: TypeAlias = Callable[[Block, Sequence[State]], list[State]]


@dataclass(frozen=True, slots=True)
class Regions:
    """What the rules of this module need of the interpreter.

    ``block`` analyses a region's block; ``note(op, operand, dimension)`` notes that a piece reads
    its part of an operand; ``set_state`` sets the state of a value that was found by other means.
    """

    block: AnalyseBlock
    note: Callable[[Operation, int, int], None]
    set_state: Callable[[Value, State], None]


def has_rule(op: Operation) -> bool:
    """Whether this module has a rule for ``op``."""
    return op.name in _RULES


def analyse(at: At, regions: Regions) -> Sequence[State]:
    """The states of the results of an operation for which ``has_rule`` holds.

    Raises Mixed where no result has a state other than Neither.
    """
    return _RULES[at.op.name](at, regions)


def is_call(op: Operation) -> bool:
    """Whether ``op`` runs its one region once."""
    return op.name in CALLS or op.name == "baechi.task"


def _call(at: At, regions: Regions) -> Sequence[State]:
    return regions.block(at.op.body, at.states)


def _refuse_effects(at: At) -> None:
    if any(isinstance(operand.type, TokenType) for operand in at.op.operands):
        raise Mixed("has an effect, which every piece would have")


def _cond(at: At, regions: Regions) -> Sequence[State]:
    _refuse_effects(at)
    if isinstance(at.states[0], Neither):
        return [at.states[0]] * len(at.op.results)
    at.need_full([0], "an index of the branch")
    blocks = [region.blocks[0] for region in at.op.regions]
    outcomes = [regions.block(block, at.states[1:]) for block in blocks]
    joined = list(outcomes[0])
    for outcome in outcomes[1:]:
        joined = _join_all(joined, outcome, at.op, "a result")
    for block, outcome in zip(blocks, outcomes):
        _note_yield(block, outcome, joined, regions)
    return joined


def _while(at: At, regions: Regions) -> Sequence[State]:
    _refuse_effects(at)
    condition, body = (region.blocks[0] for region in at.op.regions)
    condition_consts = at.states[: at.integer("cond_nconsts")]
    first = len(condition_consts) + at.integer("body_nconsts")
    body_consts = at.states[len(condition_consts) : first]

    def iterate(carry: Sequence[State]) -> list[State]:
        return regions.block(body, (*body_consts, *carry))

    carry, after = _fixed_point(at.states[first:], iterate, at.op)
    (decides,) = regions.block(condition, (*condition_consts, *carry))
    if isinstance(decides, Neither):
        raise Mixed(f"ends when something says so that is neither ({decides.message})")
    if not isinstance(decides, Full):
        raise Mixed(f"ends when something says so that is {decides}, not full")
    _note_operands(at, first, carry)
    _note_yield(body, after, carry, regions)
    return carry


def _scan(at: At, regions: Regions) -> Sequence[State]:
    _refuse_effects(at)
    consts = at.integer("num_consts")
    first = consts + at.integer("num_carry")
    if any(state == Split(0) for state in at.states[first:]):
        return scan_over(at, regions.set_state)
    body = at.op.body
    xs = [_row(state) for state in at.states[first:]]

    def iterate(carry: Sequence[State]) -> list[State]:
        return regions.block(body, (*at.states[:consts], *carry, *xs))

    count = first - consts
    carry, after = _fixed_point(at.states[consts:first], iterate, at.op)
    _note_operands(at, consts, carry)
    _note_yield(body, after[:count], carry, regions)
    return [*carry, *(_stacked(state) for state in after[count:])]


def _linear_solve(at: At, regions: Regions) -> Sequence[State]:
    """``custom_linear_solve``: the region that solves is what runs; the others must agree with it.

    Operands are the constants of each region, in the order of the regions, then the right-hand
    sides. Every region maps vectors to vectors of the same states.
    """
    _refuse_effects(at)
    lengths = at.dictionary("const_lengths")
    names = [str(name).removeprefix("jaxprs.") for name in _region_names(at)]
    consts: dict[str, tuple[State, ...]] = {}
    first = 0
    for name in lengths:
        count = lengths[name]
        assert isinstance(count, int), "lengths are numbers"
        consts[name] = at.states[first : first + count]
        first += count
    blocks = {name: region.blocks[0] for name, region in zip(names, at.op.regions)}
    if "solve" not in blocks:
        raise Mixed("has no region that solves")

    def through(name: str, vectors: Sequence[State]) -> list[State]:
        return regions.block(blocks[name], (*consts.get(name, ()), *vectors))

    vectors, after = _fixed_point(at.states[first:], lambda states: through("solve", states), at.op)
    _note_operands(at, first, vectors)
    _note_yield(blocks["solve"], after, vectors, regions)
    for name in names:
        if name != "solve":
            found = through(name, vectors)
            if _join_all(vectors, found, at.op, "a vector") != vectors:
                raise Mixed(f"has a region '{name}' that does not keep the states of its vectors")
            _note_yield(blocks[name], found, vectors, regions)
    return vectors


def _region_names(at: At) -> tuple[object, ...]:
    names = at.op.attributes.get("baechi.regions")
    return names if isinstance(names, tuple) else ()


def _row(state: State) -> State:
    return Split(state.dimension - 1) if isinstance(state, Split) else state


def _stacked(state: State) -> State:
    return Split(state.dimension + 1) if isinstance(state, Split) else state


def _fixed_point(
    start: Sequence[State], iterate: Callable[[Sequence[State]], list[State]], op: Operation
) -> tuple[list[State], list[State]]:
    """The states of the carries throughout, and what the body yields for them."""
    carry = list(start)
    while True:
        after = iterate(carry)
        joined = _join_all(carry, after, op, "a carry")
        if joined == carry:
            return carry, after
        carry = joined


def _join_all(
    left: Sequence[State], right: Sequence[State], op: Operation, what: str
) -> list[State]:
    """The joined states, as many as ``left`` has."""
    return [
        join(one, other, op, f"{what} ({index})")
        for index, (one, other) in enumerate(zip(left, right))
    ]


def _note_operands(at: At, first: int, wanted: Sequence[State]) -> None:
    for operand, state in enumerate(wanted, start=first):
        if isinstance(state, Split) and isinstance(at.states[operand], Full):
            at.need_split(operand, state.dimension, "a start value")


def _note_yield(
    block: Block, found: Sequence[State], wanted: Sequence[State], regions: Regions
) -> None:
    for operand, (state, need) in enumerate(zip(found, wanted)):
        if isinstance(need, Split) and isinstance(state, Full):
            regions.note(block.terminator, operand, need.dimension)


_RULES: dict[str, Callable[[At, Regions], Sequence[State]]] = {
    **dict.fromkeys(sorted(CALLS), _call),
    "baechi.task": _call,
    "jax.cond": _cond,
    "jax.custom_linear_solve": _linear_solve,
    "jax.while": _while,
    "jax.scan": _scan,
}
