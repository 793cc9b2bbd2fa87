"""``split-conds``: a conditional becomes as many as have nothing to do with one another.

A placer takes a ``cond`` as one thing. Optimizers that skip a step (a loss scale that overflowed,
gradients that are no numbers, an update every k-th step) put the whole update under one: then every
parameter and moment lies on one device. Yet what happens to one parameter in there has nothing to
do with the others, so the conditional is split by its results: results belong together where, in
some branch, they share an operation. Each part is a ``cond`` on the same index, with the operands
that it reads.

- Small things that parts share (a step's number, Adam's bias corrections: scalars made of scalars)
  are computed in each of them.
- A scalar made of large things (a global norm) is computed once: the part that it belongs to gives
  it as a result, and others read it. In the other branches, which have no such scalar, it is zero,
  and nobody reads it there. Parts that would need scalars of one another stay together.
- A result that is the same operand in every branch is that operand.

A conditional on a constant is its branch (``optax.MultiSteps`` traces one). Conditionals with
effects are not split, nor those that move fewer than ``min_bytes``: nothing is won there.

Only those of ``@main`` itself: what is inside a loop stays in it. Assumes inlined calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute, FloatAttr, IntegerAttr
from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.types import ScalarType, TensorType, nbytes
from baechi_jax.passes.dataflow import LITERAL, has_effect
from baechi_jax.passes.registry import Pass, register_pass

COND = "jax.cond"

#: Up to so many elements a value is small: made again rather than shared.
SMALL_ELEMENTS = 64


@register_pass
@dataclass(frozen=True, slots=True)
class SplitConds(Pass):
    """Inlines the branch of a constant conditional, splits others by what their results share.

    ``min_bytes``: a conditional whose operands and results are fewer bytes stays whole.
    """

    name: ClassVar[str] = "split-conds"
    summary: ClassVar[str] = "split conditionals into parts that share nothing"

    min_bytes: int = 65536

    def __post_init__(self) -> None:
        if self.min_bytes < 0:
            raise ValueError(f"min-bytes must not be negative, found {self.min_bytes}")

    def run(self, module: Module) -> None:
        """Keeps the order of what stays."""
        block = module.main.body
        if any(op.name == COND for op in block.ops):
            block.set_ops(self._replaced(block.ops))

    def _replaced(self, ops: Sequence[Operation]) -> list[Operation]:
        found: list[Operation] = []
        for op in ops:
            if op.name != COND:
                found.append(op)
            elif (branch := _chosen(op)) is not None:
                found += self._replaced(_open(op, branch))
            elif has_effect(op) or _bytes(op) < self.min_bytes:
                found.append(op)
            else:
                found += _Splitter(op).split()
        return found


def _bytes(op: Operation) -> int:
    return sum(nbytes(value.type) for value in (*op.operands, *op.results))


# Constant conditionals ----------------------------------------------------------------------------


def _chosen(cond: Operation) -> int | None:
    """The branch that is always taken, if there is one."""
    index = _constant(cond.operands[0])
    if index is None:
        return None
    last = len(cond.regions) - 1
    return index if 0 <= index <= last else last  # as XLA does


def _constant(value: Value) -> int | None:
    """The integer that ``value`` always is, through what JAX puts around an index."""
    op = value.defining_op
    if op is None:
        return None
    if op.name == LITERAL:
        number = op.attributes["value"]
        number = number.value if isinstance(number, IntegerAttr) else number
        return int(number) if isinstance(number, int) else None
    if op.name == "jax.convert_element_type":
        return _constant(op.operands[0])
    if op.name == "jax.clamp":
        least, wanted, most = (_constant(operand) for operand in op.operands)
        if least is not None and wanted is not None and most is not None:
            return min(max(wanted, least), most)
    return None


def _open(cond: Operation, branch: int) -> list[Operation]:
    """The operations of a branch, which take the place of ``cond``."""
    body = cond.regions[branch].blocks[0]
    for argument, operand in zip(body.arguments, cond.operands[1:], strict=True):
        argument.replace_all_uses_with(operand)
    terminator = body.terminator
    for result, value in zip(cond.results, terminator.operands, strict=True):
        result.replace_all_uses_with(value)
    ops = body.ops[:-1]
    body.set_ops([terminator])
    cond.drop_operands()
    prefix = cond.location.name
    for op in ops if prefix else ():
        inner = op.location.name
        op.location = replace(op.location, name=f"{prefix}/{inner}" if inner else prefix)
    return ops


# Splitting ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Part:
    """Results of the conditional that stay together, and what belongs to them."""

    results: list[int] = field(default_factory=list)
    #: By branch: operations of this part alone.
    own: list[list[Operation]] = field(default_factory=list)
    #: Scalars of this part that others read, with their branch.
    given: list[tuple[int, Value]] = field(default_factory=list)


class _Splitter:
    """One conditional on its way to several."""

    def __init__(self, cond: Operation) -> None:
        self._cond = cond
        self._blocks = [region.blocks[0] for region in cond.regions]
        self._position = {op: i for block in self._blocks for i, op in enumerate(block.ops)}
        #: Operations that each part may have for itself.
        self._copied: set[Operation] = set()
        #: The others' nodes in ``_parent``, a forest of what belongs together; results come first.
        self._node: dict[Operation, int] = {}
        self._parent = list(range(len(cond.results)))

    def split(self) -> list[Operation]:
        """What takes the place of the conditional: itself where there is nothing to split."""
        self._forward_operands()
        for block in self._blocks:
            self._classify(block)
        self._join()
        parts = self._ordered(self._parts())
        return [self._cond] if len(parts) == 1 else self._build(parts)

    # What belongs together ------------------------------------------------------------------------

    def _forward_operands(self) -> None:
        for index, result in enumerate(self._cond.results):
            yielded = {self._operand_of(block, index) for block in self._blocks}
            if len(yielded) == 1 and (same := yielded.pop()) is not None:
                result.replace_all_uses_with(self._cond.operands[same])

    def _operand_of(self, block: Block, result: int) -> int | None:
        """The operand of the conditional that ``block`` gives as ``result``, if it is one."""
        value = block.terminator.operands[result]
        return value.index + 1 if value.defining_op is None else None

    def _classify(self, block: Block) -> None:
        """Find the operations that every part may have for itself; number the others."""
        for op in block.ops[:-1]:
            if op.name == LITERAL or (
                not op.regions
                and all(_is_small(result) for result in op.results)
                and all(_is_small(value) and self._is_free(value) for value in op.operands)
            ):
                self._copied.add(op)
            else:
                self._node[op] = len(self._parent)
                self._parent.append(len(self._parent))

    def _is_free(self, value: Value) -> bool:
        """Whether reading ``value`` ties the reader to nothing."""
        op = value.defining_op
        return op is None or op in self._copied or _is_scalar(value)

    def _join(self) -> None:
        for op, node in self._node.items():
            for value in op.operands:
                if not self._is_free(value):
                    self._union(node, self._node[_owner(value)])
        for block in self._blocks:
            for index, value in enumerate(block.terminator.operands):
                source = value.defining_op
                if source is not None and source in self._node:
                    self._union(index, self._node[source])

    def _union(self, one: int, other: int) -> None:
        one, other = self._find(one), self._find(other)
        self._parent[max(one, other)] = min(one, other)

    def _find(self, node: int) -> int:
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    # Parts ----------------------------------------------------------------------------------------

    def _parts(self) -> list[_Part]:
        """By the first of what they hold; small results that need nothing large are one part."""
        held = {self._find(node) for node in self._node.values()}
        parts: dict[int, _Part] = {}

        def part(root: int) -> _Part:
            if root not in parts:
                parts[root] = _Part(own=[[] for _ in self._blocks])
            return parts[root]

        for index, result in enumerate(self._cond.results):
            if not result.uses:
                continue
            root = self._find(index)
            free = root not in held and _is_small(result) and self._needs_no_scalar(index)
            part(-1 if free else root).results.append(index)
        for number, block in enumerate(self._blocks):
            for op in block.ops[:-1]:
                if op in self._node:
                    part(self._find(self._node[op])).own[number].append(op)
        return [parts[root] for root in sorted(parts)]

    def _needs_no_scalar(self, result: int) -> bool:
        return not any(
            self._slice(number, (), [block.terminator.operands[result]])[1]
            for number, block in enumerate(self._blocks)
        )

    def _slice(
        self, branch: int, own: Sequence[Operation], roots: Iterable[Value]
    ) -> tuple[list[Operation], list[Value]]:
        """What a part computes in ``branch``, in order, and the scalars it reads from others."""
        wanted: dict[Operation, None] = dict.fromkeys(own)
        foreign: dict[Value, None] = {}
        stack = [*roots, *(value for op in own for value in op.operands)]
        while stack:
            value = stack.pop()
            op = value.defining_op
            if op is None or op in wanted:
                continue
            if op in self._copied:
                wanted[op] = None
                stack += op.operands
            else:
                foreign[value] = None
        return sorted(wanted, key=self._position.__getitem__), list(foreign)

    def _foreign(self, part: _Part, branch: int) -> list[Value]:
        return self._slice(branch, part.own[branch], self._yielded(part, branch))[1]

    def _yielded(self, part: _Part, branch: int) -> list[Value]:
        outputs = self._blocks[branch].terminator.operands
        return [outputs[index] for index in part.results]

    def _ordered(self, parts: list[_Part]) -> list[_Part]:
        """Parts in an order in which scalars are given before they are read."""
        import networkx as nx

        home = {op: i for i, part in enumerate(parts) for own in part.own for op in own}
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(parts)))
        for reader, part in enumerate(parts):
            for branch in range(len(self._blocks)):
                for value in self._foreign(part, branch):
                    giver = home[_owner(value)]
                    graph.add_edge(giver, reader)
        groups = nx.condensation(graph)
        members = nx.get_node_attributes(groups, "members")
        order = nx.lexicographical_topological_sort(groups, key=lambda node: min(members[node]))
        merged = [self._merged([parts[i] for i in sorted(members[node])]) for node in order]
        # Whatever only computes what nobody reads is left out.
        needed: set[Operation] = set()
        kept: list[_Part] = []
        for part in reversed(merged):
            if part.results or any(op in needed for own in part.own for op in own):
                kept.append(part)
                for branch in range(len(self._blocks)):
                    needed.update(_owner(value) for value in self._foreign(part, branch))
        kept.reverse()
        giver_of = {op: part for part in kept for own in part.own for op in own}
        for part in kept:
            for branch in range(len(self._blocks)):
                for value in self._foreign(part, branch):
                    given = giver_of[_owner(value)].given
                    if (branch, value) not in given:
                        given.append((branch, value))
        return kept

    def _merged(self, parts: list[_Part]) -> _Part:
        own = [
            sorted((op for part in parts for op in part.own[b]), key=self._position.__getitem__)
            for b in range(len(self._blocks))
        ]
        return _Part(sorted(index for part in parts for index in part.results), own)

    # New conditionals -----------------------------------------------------------------------------

    def _build(self, parts: list[_Part]) -> list[Operation]:
        cond = self._cond
        attributes = {k: v for k, v in cond.attributes.items() if k != "baechi.hoisted"}
        #: Scalars of the old branches -> results of the new conditionals.
        scalars: dict[Value, Value] = {}
        built: list[Operation] = []
        for part in parts:
            slices = [
                self._slice(
                    branch,
                    part.own[branch],
                    [
                        *self._yielded(part, branch),
                        *(value for home, value in part.given if home == branch),
                    ],
                )
                for branch in range(len(self._blocks))
            ]
            operands = self._operands(part, slices, scalars)
            regions = [
                self._branch(part, number, ops, operands, scalars)
                for number, (ops, _) in enumerate(slices)
            ]
            types = [cond.results[index].type for index in part.results]
            types += [value.type for _, value in part.given]
            new = Operation(
                COND, [cond.operands[0], *operands], types, attributes, regions, cond.location
            )
            built.append(new)
            scalars.update(
                (value, result)
                for (_, value), result in zip(part.given, new.results[len(part.results) :])
            )
            for index, result in zip(part.results, new.results):
                cond.results[index].replace_all_uses_with(result)
        cond.drop_operands()
        return built

    def _operands(
        self,
        part: _Part,
        slices: list[tuple[list[Operation], list[Value]]],
        scalars: dict[Value, Value],
    ) -> list[Value]:
        """What the new conditional reads, its index aside: operands of the old one, scalars."""
        old: set[int] = set()
        read: dict[Value, None] = {}
        for branch, (ops, foreign) in enumerate(slices):
            values = [value for op in ops for value in op.operands] + self._yielded(part, branch)
            old.update(value.index for value in values if value.defining_op is None)
            read.update((scalars[value], None) for value in foreign)
        operands = dict.fromkeys(self._cond.operands[1 + index] for index in sorted(old))
        return list(operands | read)

    def _branch(
        self,
        part: _Part,
        number: int,
        ops: list[Operation],
        operands: list[Value],
        scalars: dict[Value, Value],
    ) -> Region:
        block = Block([value.type for value in operands])
        inside = dict(zip(operands, block.arguments))
        mapping: dict[Value, Value] = {}
        for argument, operand in zip(self._blocks[number].arguments, self._cond.operands[1:]):
            if operand in inside:
                mapping[argument] = inside[operand]
        for old, result in scalars.items():
            if result in inside:
                mapping[old] = inside[result]
        for op in ops:
            block.append(op.clone(mapping))
        outputs = [mapping[value] for value in self._yielded(part, number)]
        for home, value in part.given:
            outputs.append(mapping[value] if home == number else _zero(block, value))
        block.append(Operation("baechi.yield", outputs))
        return Region([block])


def _owner(value: Value) -> Operation:
    op = value.defining_op
    assert op is not None
    return op


def _is_small(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.size <= SMALL_ELEMENTS


def _is_scalar(value: Value) -> bool:
    """Whether ``value`` is one real number, which has a zero to stand for it."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape:
        return False
    return not type_.element.startswith(("!", "complex"))


def _zero(block: Block, like: Value) -> Value:
    assert isinstance(like.type, TensorType)
    element = like.type.element
    plain: dict[str, Attribute] = {"i1": False, "i64": 0, "f64": 0.0}
    value = plain.get(element)
    if value is None:
        whole = element.startswith(("i", "ui"))
        kind = ScalarType(element)
        value = IntegerAttr(0, kind) if whole else FloatAttr(0.0, kind)
    return block.append(Operation(LITERAL, (), (like.type,), {"value": value})).results[0]
