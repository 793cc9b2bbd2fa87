"""``choose-residuals``: what the forward pass keeps for the backward pass.

JAX keeps what each derivative rule asks for. Inside one XLA program fusion drops most of it again;
where forward and backward operations are in different tasks, every kept value is a real buffer. So
of the values kept, those that cheap operations can compute again from fewer bytes are computed
again, next to their backward readers: a minimum cut, as in the partitioner of PyTorch's AOTAutograd
("min-cut rematerialization", H. He, 2022).

The network. A vertex for each value of the forward pass that a backward operation reads, and for
what cheap operations compute these from; its capacity is its bytes. Sources are the values that
only an operation that is not cheap can make; sinks those that the backward pass reads. The cut is
what is kept. Arguments, literals and results of the step live anyway: they cost nothing. So does
what a remat's barrier reads: that is the user's own choice of what to keep, and stays as it is.

Never computed again: random bits, operations with effects, whatever is not in ``cheap``, and where
a skip connection joins. To make the sum ``x + f(x)`` again one needs the ``x`` of this layer, which
is the sum of the layer before, and so on: the cut would find that chain cheap in bytes, but it
carries values of every layer to the backward pass of the last, which may sit on another device. A
join is an operation on values of its own size that are not equally many kernels deep.

Copies keep ``baechi.eqn``; their name stack says ``transpose(...)/rematted_computation``, as JAX's
own recomputation does, so later passes count them to the backward pass. Where forward and backward
end up in one task, XLA merges the copies with their originals and decides itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from baechi_jax.ir.core import Module, Operation, OpResult, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.location import Location
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.cost.min_cut import min_vertex_cut
from baechi_jax.passes.cost.primitives import ELEMENTWISE, EXPENSIVE, KERNEL, KINDS, REDUCE
from baechi_jax.passes.dataflow import BARRIER, LITERAL, has_effect, is_backward
from baechi_jax.passes.registry import Pass, register_pass

#: A copy serves readers at most this many operations later; further away a new one is made, so
#: that the copy does not become a long-lived value itself.
_REACH = 64

#: What each word of the option ``cheap`` allows, by primitive.
_CLASSES: dict[str, frozenset[str]] = {
    "convert": frozenset({"convert_element_type", "reduce_precision", "bitcast_convert_type"}),
    "reshape": frozenset({"reshape", "squeeze", "expand_dims"}),
    "broadcast": frozenset({"broadcast_in_dim", "iota"}),
    "transpose": frozenset({"transpose", "rev"}),
    "slice": frozenset({"slice", "pad", "concatenate", "split", "dynamic_slice"}),
    "reduce": frozenset(name for name, kind in KINDS.items() if kind is REDUCE),
}
_CLASSES["elementwise"] = (
    frozenset(name for name, kind in KINDS.items() if kind in (ELEMENTWISE, EXPENSIVE))
    - _CLASSES["convert"]
    - {"copy", "random_wrap", "random_unwrap"}
)

#: What may be computed again unless a pipeline says otherwise.
CHEAP = ("elementwise", "broadcast", "reshape", "convert")


def cheap_operations(name: str, words: Sequence[str]) -> frozenset[str]:
    """The operations that ``words`` allow; raises PassError, of pass ``name``, for others."""
    for word in words:
        if word not in _CLASSES:
            raise PassError(
                f"{name}: cheap={word} is not known; there are: " + ", ".join(sorted(_CLASSES))
            )
    return frozenset(f"jax.{primitive}" for word in words for primitive in _CLASSES[word])


def is_cheap(op: Operation, cheap: Collection[str]) -> bool:
    """Whether ``op`` is one of ``cheap`` and may run again."""
    return op.name in cheap and not op.regions and len(op.results) == 1 and not has_effect(op)


@register_pass
@dataclass(frozen=True, slots=True)
class ChooseResiduals(Pass):
    """See the module docstring.

    ``enabled = false`` leaves the module as it is. ``cheap``: what may be computed again, out of
    ``elementwise``, ``broadcast``, ``reshape``, ``convert``, ``transpose``, ``slice``, ``reduce``.
    """

    name: ClassVar[str] = "choose-residuals"
    summary: ClassVar[str] = "keep fewer bytes for the backward pass; compute cheap values again"

    enabled: bool = True
    cheap: tuple[str, ...] = CHEAP

    def run(self, module: Module) -> None:
        """Rewrite ``@main``; sets ``baechi.residual_bytes_before`` and ``..._after`` on it."""
        cheap = cheap_operations(self.name, self.cheap)
        if not self.enabled:
            return
        func = module.main
        residuals = _Residuals(func, cheap)
        before = residuals.kept_bytes()
        if residuals.choose():
            residuals.rewrite()
        func.attributes["baechi.residual_bytes_before"] = before
        func.attributes["baechi.residual_bytes_after"] = _Residuals(func, cheap).kept_bytes()


class _Residuals:
    """The values that go from the forward to the backward pass of ``func``."""

    def __init__(self, func: Operation, cheap: frozenset[str]) -> None:
        self.block = func.body
        self.position = {op: index for index, op in enumerate(self.block.ops)}
        self.cheap = cheap
        #: Whether an operation may run again, as far as asked; filled from ``choose`` on.
        self._known_cheap: dict[Operation, bool] = {}
        terminator = self.block.terminator
        #: Values that live anyway: results of the step, and what a barrier keeps.
        self.free: set[Value] = set(terminator.operands)
        #: Value of the forward pass -> its backward readers, in order.
        self.readers: dict[OpResult, list[Operation]] = {}
        for op in self.block.ops:
            if op is terminator or not is_backward(op):
                continue
            for value in dict.fromkeys(op.operands):
                if self._is_forward(value):
                    assert isinstance(value, OpResult)
                    self.readers.setdefault(value, []).append(op)
                    if op.name == BARRIER:
                        self.free.add(value)
        #: Values to compute again.
        self.again: set[Value] = set()

    def kept_bytes(self) -> int:
        """Bytes of the distinct values that backward operations read from forward ones."""
        return sum(nbytes(value.type) for value in self.readers)

    def _is_forward(self, value: Value) -> bool:
        op = value.defining_op
        return op is not None and op.name != LITERAL and not is_backward(op)

    def _is_cheap(self, op: Operation) -> bool:
        known = self._known_cheap.get(op)
        if known is None:
            known = self._known_cheap[op] = op in self.position and is_cheap(op, self.cheap)
        return known

    # Choosing -------------------------------------------------------------------------------------

    def choose(self) -> bool:
        """Fill ``again``; whether there is anything in it."""
        self._known_cheap = dict.fromkeys(_joins(self.block.ops), False)
        for vertices in self._components():
            self._cut(vertices)
        return bool(self.again)

    def _components(self) -> list[list[OpResult]]:
        """What the cut looks at, in parts that have nothing to do with one another."""
        part: dict[OpResult, int] = {}
        parent: list[int] = []

        def root(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        stack: list[OpResult] = []
        for value in self.readers:
            part[value] = len(parent)
            parent.append(len(parent))
            stack.append(value)
        while stack:
            value = stack.pop()
            for source in self._sources(value):
                if source not in part:
                    part[source] = len(parent)
                    parent.append(len(parent))
                    stack.append(source)
                left, right = root(part[value]), root(part[source])
                parent[max(left, right)] = min(left, right)
        components: dict[int, list[OpResult]] = {}
        for value, node in part.items():
            components.setdefault(root(node), []).append(value)
        return list(components.values())

    def _sources(self, value: OpResult) -> list[OpResult]:
        """What a cheap operation makes ``value`` from and would have to be kept or made again."""
        if value in self.free or not self._is_cheap(value.owner):
            return []
        return [
            operand
            for operand in value.owner.operands
            if isinstance(operand, OpResult)
            and operand.owner.name != LITERAL
            and operand not in self.free
        ]

    def _cut(self, vertices: Sequence[OpResult]) -> None:
        number = {value: index for index, value in enumerate(vertices)}
        # Every value costs a little, so that of equal cuts the one with fewer values is taken.
        capacity = [
            0 if value in self.free else 1 + 1024 * nbytes(value.type) for value in vertices
        ]
        edges = [
            (number[source], index)
            for index, value in enumerate(vertices)
            for source in self._sources(value)
        ]
        sources = [index for index, value in enumerate(vertices) if not self._is_cheap(value.owner)]
        sinks = [index for index, value in enumerate(vertices) if value in self.readers]
        _, behind = min_vertex_cut(capacity, edges, sources, sinks)
        self.again.update(value for value, again in zip(vertices, behind) if again)

    # Rewriting ------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """Put copies of what is computed again before their readers; drop what nobody reads."""
        before: dict[Operation, list[Operation]] = {}
        copies: dict[Value, tuple[int, Value]] = {}
        orphaned: list[Operation] = []
        plan: dict[Operation, list[OpResult]] = {}
        for value, readers in self.readers.items():
            if value in self.again:
                orphaned.append(value.owner)
                for reader in readers:
                    plan.setdefault(reader, []).append(value)
        for reader in sorted(plan, key=self.position.__getitem__):
            for value in plan[reader]:
                copy = self._copy(value, reader, copies, before)
                for index, operand in enumerate(reader.operands):
                    if operand is value:
                        reader.set_operand(index, copy)
        ops: list[Operation] = []
        for op in self.block.ops:
            ops += before.get(op, ())
            ops.append(op)
        self.block.set_ops(ops)
        self._drop(orphaned)

    def _copy(
        self,
        value: OpResult,
        reader: Operation,
        copies: dict[Value, tuple[int, Value]],
        before: dict[Operation, list[Operation]],
    ) -> Value:
        """``value`` computed again before ``reader``, or a copy that is near enough."""
        place = self.position[reader]
        todo: list[OpResult] = [value]
        while todo:
            each = todo[-1]
            found = copies.get(each)
            if found is not None and place - found[0] <= _REACH:
                todo.pop()
                continue
            missing = [
                operand
                for operand in each.owner.operands
                if operand in self.again
                and ((near := copies.get(operand)) is None or place - near[0] > _REACH)
            ]
            if missing:
                todo += [operand for operand in missing if isinstance(operand, OpResult)]
                continue
            todo.pop()
            mapping = {
                operand: copies[operand][1]
                for operand in each.owner.operands
                if operand in self.again
            }
            clone = each.owner.clone(mapping)
            clone.location = recomputed(each.owner.location)
            for key in ("baechi.group", "baechi.pin"):
                clone.attributes.pop(key, None)
                if key in reader.attributes:
                    clone.attributes[key] = reader.attributes[key]
            before.setdefault(reader, []).append(clone)
            copies[each] = (place, clone.results[each.index])
        return copies[value][1]

    def _drop(self, orphaned: Sequence[Operation]) -> None:
        """Erase operations that only the backward pass read, and what only they read."""
        dead: set[Operation] = set()
        stack = list(orphaned)
        while stack:
            op = stack.pop()
            if op in dead or op not in self.position or not self._erasable(op, dead):
                continue
            dead.add(op)
            stack += [operand.owner for operand in op.operands if isinstance(operand, OpResult)]
        if dead:
            self.block.retain(lambda op: op not in dead)

    def _erasable(self, op: Operation, dead: set[Operation]) -> bool:
        return (op.name in self.cheap or op.name == LITERAL) and all(
            user in dead for result in op.results for user, _ in result.uses
        )


def _joins(ops: Sequence[Operation]) -> set[Operation]:
    """Operations on two values of the result's size, one more kernels deep than the other."""
    depth: dict[Value, int] = {}
    joins: set[Operation] = set()
    for op in ops:
        depths = [depth.get(operand, 0) for operand in op.operands]
        deepest = max(depths, default=0)
        if len(depths) > 1 and len(op.results) == 1 and min(depths) < deepest:
            size = nbytes(op.results[0].type)
            full = [
                each
                for each, operand in zip(depths, op.operands)
                if isinstance(operand, OpResult)
                and operand.owner.name != LITERAL
                and nbytes(operand.type) >= size
            ]
            if full and min(full) < max(full):
                joins.add(op)
        if KINDS.get(op.name.removeprefix("jax."), KERNEL) is KERNEL:
            deepest += 1
        for result in op.results:
            depth[result] = deepest
    return joins


def recomputed(location: Location) -> Location:
    """``location`` marked as recomputation in the backward pass, in JAX's own words."""
    return replace(location, name=f"transpose({location.name})/rematted_computation")
