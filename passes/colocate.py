"""``colocate``: which operations and arguments must share a device.

Sets are joined (union-find) by four rules, in this order:

1. *State.* An argument with a next value joins the operation that makes it, the elementwise update
   operations of its shape behind that, the other state that these read (its moments), and the last
   operation of its gradient: where the elementwise chain ends.
2. *Readers.* Operations that read a large argument join it, also through casts and transposes of
   it, and wherever it is read (tied weights). A small argument that one operation reads joins that;
   one that many read (a step counter, a learning rate) binds none of them. An argument that is no
   state and that many operations read (a mask) binds none either, nor one that is read on several
   devices by the user's pins: sending it once is cheaper.
3. *Forward and backward.* A backward operation joins the forward operation that it differentiates
   (``passes/match_backward.py``).
4. *Pins.* ``jax.named_scope("baechi.device:1")`` pins what is traced in it, backward included; the
   innermost scope counts. A ``baechi.pin`` that an argument or an operation came with holds, too.
   That an argument which is not donated is state is a guess: where the pins of its readers and of
   its update differ, it is none, and loses its ``baechi.state``.

A set of several gets a name: the path of its largest argument, or else its source position. Which
rules made it is left on the module, ``baechi.colocation = [{group = ..., rules = ["state",
"readers"], arguments = [0, 3]}, ...]``, for whoever asks why something sits where it sits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import BlockArgument, Module, Operation, OpResult, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, set_argument_attributes
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import TensorType, nbytes
from baechi_jax.passes.cost.primitives import BROADCAST, ELEMENTWISE, EXPENSIVE
from baechi_jax.passes.cost.roofline import kind_of
from baechi_jax.passes.dataflow import BARRIER, LITERAL, Scopes, is_backward
from baechi_jax.passes.match_backward import match_backward
from baechi_jax.passes.registry import Pass, register_pass

_ELEMENTWISE = frozenset({ELEMENTWISE, EXPENSIVE})

#: What leaves a value the same data: a parameter read through these is still that parameter.
_VIEWS = frozenset(
    f"jax.{name}"
    for name in ("convert_element_type", "transpose", "reshape", "squeeze", "copy", "stop_gradient")
)

#: Names of the rules that join sets, in the order in which they are applied.
STATE, READERS, BACKWARD = RULES = ("state", "readers", "backward")

_PIN = re.compile(r"baechi\.device:([^/()]*)")


@register_pass
@dataclass(frozen=True, slots=True)
class Colocate(Pass):
    """See the module docstring.

    An argument is large when it has at least ``large`` times the mean argument's bytes. One that is
    no state binds at most ``max_readers`` forward readers.
    """

    name: ClassVar[str] = "colocate"
    summary: ClassVar[str] = "group what must share a device: state, readers, forward and backward"

    large: float = 0.25
    max_readers: int = 4

    def run(self, module: Module) -> None:
        """Set ``baechi.group`` and ``baechi.pin`` on operations and arguments of ``@main``."""
        topology = module.attributes.get("baechi.topology")
        grouping = _Grouping(module.main, topology if isinstance(topology, Topology) else None)
        grouping.drop_contradicted_state(self.large)
        grouping.join_state()
        grouping.join_readers(self.large, self.max_readers)
        grouping.join_backward()
        module.attributes["baechi.colocation"] = grouping.write()


class _Grouping:
    """Union-find over the arguments of a function (first) and its operations."""

    def __init__(self, func: Operation, topology: Topology | None) -> None:
        self.func = func
        self.arguments = func.body.arguments
        self.entries = argument_attributes(func)
        self.terminator = func.body.terminator
        self.ops = [op for op in func.body.ops if op is not self.terminator and op.name != LITERAL]
        first = len(self.arguments)
        self.node: dict[Operation, int] = {op: first + i for i, op in enumerate(self.ops)}
        self.parent = list(range(first + len(self.ops)))
        #: A member of each set that a rule has joined, and the rule.
        self.joined: list[tuple[int, str]] = []
        self.backward = [is_backward(op) for op in self.ops]
        self.state = {
            index: target
            for index, entry in enumerate(self.entries)
            if isinstance(target := entry.get("baechi.state"), int)
        }
        #: Node -> the device that the user pinned it to.
        self.pins = self._find_pins(topology)

    # Sets -----------------------------------------------------------------------------------------

    def root(self, node: int) -> int:
        parent = self.parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, left: int, right: int, rule: str) -> None:
        left, right = self.root(left), self.root(right)
        if left != right:
            self.joined.append((left, rule))
            # The smaller index is the root, so arguments name sets and the result is the same
            # whatever the order of the rules.
            self.parent[max(left, right)] = min(left, right)

    def is_backward(self, op: Operation) -> bool:
        return self.backward[self.node[op] - len(self.arguments)]

    # Rule 1 ---------------------------------------------------------------------------------------

    def join_state(self) -> None:
        """Join each state argument with its update, its moments and its gradient's last op."""
        for index, target in self.state.items():
            value = self.terminator.operands[target]
            if not isinstance(value, OpResult) or value.owner not in self.node:
                continue
            for node in self._update(value):
                self.join(index, node, STATE)

    def _update(self, value: OpResult) -> list[int]:
        """The operations that make the next value ``value``, and the other state they read."""
        last = value.owner
        nodes = [self.node[last]]
        if not isinstance(value.type, TensorType) or not value.type.shape:
            return nodes
        shape = value.type.shape
        seen = {last}
        stack = [last]
        while stack:
            op = stack.pop()
            if kind_of(op) not in _ELEMENTWISE or self.is_backward(op):
                # The gradient's last operation: it belongs to the set, what it reads does not. In
                # a layer out of a scan its result was then given dimension 0 back.
                row = op.operands[0] if _gives_back_dimension(op) else None
                if isinstance(row, OpResult) and row.owner in self.node:
                    nodes.append(self.node[row.owner])
                continue
            for operand in op.operands:
                type_ = operand.type
                if not isinstance(type_, TensorType) or type_.shape != shape:
                    continue
                if isinstance(operand, BlockArgument):
                    if operand.index in self.state:
                        nodes.append(operand.index)
                    continue
                assert isinstance(operand, OpResult)
                source = operand.owner
                if source in seen or source not in self.node:
                    continue
                seen.add(source)
                # A broadcast scalar has the shape, but belongs to everyone.
                if kind_of(source) is BROADCAST:
                    continue
                nodes.append(self.node[source])
                stack.append(source)
        return nodes

    def drop_contradicted_state(self, large: float) -> None:
        """Forget state that is not donated and that the pins would tear apart."""
        if not self.pins:
            return
        threshold = self._threshold(large)
        for index, target in list(self.state.items()):
            if "baechi.donated" in self.entries[index]:
                continue
            argument, value = self.arguments[index], self.terminator.operands[target]
            nodes = [index]
            if isinstance(value, OpResult) and value.owner in self.node:
                nodes += self._update(value)
            readers = self._readers(argument)
            if nbytes(argument.type) < threshold:
                # As in rule 2: a small argument binds its reader only if that is the only one.
                update = set(nodes)
                forward = [op for op in readers if not self.is_backward(op)]
                if sum(self.node[op] not in update for op in forward) != 1:
                    readers = []
            nodes += [self.node[op] for op in readers]
            if len({self.pins[node] for node in nodes if node in self.pins}) > 1:
                del self.state[index]
                del self.entries[index]["baechi.state"]

    # Rule 2 ---------------------------------------------------------------------------------------

    def join_readers(self, large: float, max_readers: int) -> None:
        """Join arguments with the operations that read them, where they bind them."""
        sizes = [nbytes(argument.type) for argument in self.arguments]
        threshold = self._threshold(large)
        for index, argument in enumerate(self.arguments):
            readers = self._readers(argument)
            forward = [op for op in readers if not self.is_backward(op)]
            if sizes[index] >= threshold and sizes[index] > 0:
                binds = index in self.state or len(forward) <= max_readers
            else:
                update = self.root(index)
                forward = [op for op in forward if self.root(self.node[op]) != update]
                binds = index in self.state and len(forward) == 1
            if binds and index not in self.state and self.pins:
                # The user reads it in several places; it is sent there.
                places = {self.pins[node] for op in readers if (node := self.node[op]) in self.pins}
                binds = len(places) <= 1
            if binds:
                for op in readers:
                    self.join(index, self.node[op], READERS)

    def _threshold(self, large: float) -> float:
        """Bytes from which on an argument is large."""
        sizes = [nbytes(argument.type) for argument in self.arguments]
        return large * sum(sizes) / max(1, len(sizes))

    def _readers(self, argument: Value) -> list[Operation]:
        """Operations that read ``argument``, also through views of it; the views included."""
        readers: dict[Operation, None] = {}
        stack: list[Value] = [argument]
        while stack:
            for op, operand in stack.pop().uses:
                if op not in self.node:
                    continue
                if op.name == BARRIER:
                    # The barrier of remat holds back many values; it is no reader of any.
                    stack.append(op.results[operand])
                elif op not in readers:
                    readers[op] = None
                    if op.name in _VIEWS:
                        stack.append(op.results[0])
        return list(readers)

    # Rule 3 ---------------------------------------------------------------------------------------

    def join_backward(self) -> None:
        """Join each backward operation with the forward operation that it differentiates."""
        for op, forward in match_backward(self.ops, self.backward):
            self.join(self.node[op], self.node[forward], BACKWARD)

    # Rule 4 and the result ------------------------------------------------------------------------

    def write(self) -> Attribute:
        """Write groups and pins as attributes; give what ``baechi.colocation`` says of them."""
        first = len(self.arguments)
        members: dict[int, list[int]] = {}
        for node in range(len(self.parent)):
            members.setdefault(self.root(node), []).append(node)
        rules: dict[int, set[str]] = {}
        for node, rule in self.joined:
            rules.setdefault(self.root(node), set()).add(rule)
        names: dict[str, int] = {}
        record: list[Attribute] = []
        for root, nodes in members.items():
            pin = self._pin_of(nodes)
            attributes: dict[str, Attribute] = {}
            if len(nodes) > 1:
                name = attributes["baechi.group"] = _unique(self._name(nodes), names)
                record.append(
                    DictAttr.of(
                        {
                            "group": name,
                            "rules": tuple(rule for rule in RULES if rule in rules[root]),
                            "arguments": tuple(node for node in nodes if node < first),
                        }
                    )
                )
            if pin is not None:
                attributes["baechi.pin"] = (pin,)
            for node in nodes:
                target = self.entries[node] if node < first else self.ops[node - first].attributes
                for key in ("baechi.group", "baechi.pin"):
                    target.pop(key, None)
                target.update(attributes)
        set_argument_attributes(self.func, self.entries)
        return tuple(record)

    def _find_pins(self, topology: Topology | None) -> dict[int, int]:
        """Node -> the device that the user pinned it to: by a scope, or as the module came in."""
        first = len(self.arguments)
        pins: dict[int, int] = {}
        for node in range(len(self.parent)):
            holder = self.entries[node] if node < first else self.ops[node - first].attributes
            given = holder.get("baechi.pin")
            if isinstance(given, tuple) and len(given) == 1 and isinstance(given[0], int):
                pins[node] = given[0]
        device_of: dict[str, int | None] = {}
        for op in self.ops:
            stack = op.location.name
            if "baechi.device" not in stack:
                continue
            if stack not in device_of:
                device_of[stack] = _device_in(stack, op, topology)
            device = device_of[stack]
            if device is not None:
                pins[self.node[op]] = device
        return pins

    def _pin_of(self, nodes: Sequence[int]) -> int | None:
        pins = self.pins
        if not pins:
            return None
        pinned = [node for node in nodes if node in pins]
        if not pinned:
            return None
        device = pins[pinned[0]]
        for node in pinned:
            if pins[node] != device:
                raise PassError(
                    f"{self._node_name(pinned[0])} is pinned to device {device} and "
                    f"{self._node_name(node)} to device {pins[node]}, but they must "
                    f"share one, together with {self._describe(nodes)}; pin both to the same "
                    "device, or one of them to none"
                )
        return device

    def _node_name(self, node: int) -> str:
        if node < len(self.arguments):
            return f"argument '{self._argument_name(node)}'"
        op = self.ops[node - len(self.arguments)]
        return f"'{op.name}' at {op.location}"

    def _describe(self, nodes: Sequence[int]) -> str:
        arguments = [n for n in nodes if n < len(self.arguments)]
        if not arguments:
            return f"{len(nodes)} operations of one forward and backward pass"
        return f"argument '{self._argument_name(self._largest(arguments))}'"

    def _largest(self, arguments: Sequence[int]) -> int:
        # Parameters are what forward operations read; their moments are not, and sort after.
        return max(
            arguments,
            key=lambda n: (
                n in self.state,
                any(self._is_model(op) for op, _ in self.arguments[n].uses),
                nbytes(self.arguments[n].type),
                -n,
            ),
        )

    def _is_model(self, op: Operation) -> bool:
        return op in self.node and "jvp(" in op.location.name

    def _argument_name(self, index: int) -> str:
        name = self.entries[index].get("baechi.name")
        return name if isinstance(name, str) and name else f"arg{index}"

    def _name(self, nodes: Sequence[int]) -> str:
        arguments = [n for n in nodes if n < len(self.arguments)]
        if arguments:
            return self._argument_name(self._largest(arguments))
        op = self.ops[nodes[0] - len(self.arguments)]
        scope = Scopes().scope(op.location.name)
        short = op.name.partition(".")[2]
        if op.location.file:
            file = op.location.file.replace("\\", "/").rpartition("/")[2]
            place = f"{file}:{op.location.line}"
            return f"{scope}/{short}@{place}" if scope else f"{short}@{place}"
        return f"{scope}/{short}" if scope else short


def _unique(name: str, names: dict[str, int]) -> str:
    count = names.get(name, 0)
    names[name] = count + 1
    return f"{name}#{count}" if count else name


def _gives_back_dimension(op: Operation) -> bool:
    """Whether ``op`` makes a piece of a stack of one row of it (``unroll-scans``)."""
    if op.name != "jax.reshape":
        return False
    row, piece = op.operands[0].type, op.results[0].type
    return (
        isinstance(row, TensorType)
        and isinstance(piece, TensorType)
        and piece.shape == (1, *row.shape)
    )


def _device_in(stack: str, op: Operation, topology: Topology | None) -> int | None:
    """The device that the innermost ``baechi.device:N`` in ``stack`` names."""
    found = _PIN.findall(stack)
    if not found:
        return None
    text = found[-1]
    size = topology.size if topology is not None else None
    if not text.isdecimal() or (size is not None and int(text) >= size):
        devices = f"0 to {size - 1}" if size is not None else "numbers from 0"
        raise PassError(
            f"'{op.name}' at {op.location} is pinned to 'baechi.device:{text}', but the devices of "
            f"the topology are {devices}"
        )
    return int(text)
