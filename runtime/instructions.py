"""The flat program of one step, read from a module whose memory is planned.

Assumptions: ``@main`` has the form of "With memory planned" in docs/ir.md, and its order of ops is
the order of issue. Values become numbered slots: arguments first (slot ``i`` is argument ``i``),
then every result of a task and every copy. A transfer is one instruction, issued where its
``baechi.send`` stands (that is where the plan charges the copy); its ``baechi.recv`` only gives the
copy a name. Tokens have no slot: the order of issue and JAX's own runtime tokens keep effects in
order.

As with ``jax.jit``, every result has a buffer of its own: a value that is returned twice, and an
undonated argument that is returned, are copied at the end of the step; so is a result that
``res_attrs`` wants on another device (``baechi.devices``) than the one that computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from baechi_jax.ir.attributes import Attribute, as_tuple
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.ir.pieces import Piece, piece_of, result_pieces
from baechi_jax.ir.types import OnType, TokenType, Type, unplaced


@dataclass(frozen=True, slots=True)
class Run:
    """Launch task ``task`` (an index into ``Program.tasks``) on its device.

    ``donated`` are positions in ``inputs`` whose buffers the executable may take for its results.
    """

    task: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    donated: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Put:
    """Start copying slot ``inputs[i]`` to device ``targets[i]``, into slot ``outputs[i]``.

    Neighbouring sends are one instruction, since one call of the runtime starts them all.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    targets: tuple[int, ...]
    drops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Block the host until the values in ``inputs`` are computed."""

    inputs: tuple[int, ...]
    drops: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Give results their own buffers: copy ``inputs[i]`` to ``outputs[i]`` on ``targets[i]``."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    targets: tuple[int, ...]
    drops: tuple[int, ...] = ()


Instruction = Run | Put | Wait | Copy


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of ``@main``: where it lies when the step starts, and whose it is.

    ``piece`` says which layers of which leaf of the caller's it is; None where it is a whole one.
    """

    name: str
    type: Type
    device: int
    donated: bool
    constant: bool
    piece: Piece | None = None

    @property
    def leaf_name(self) -> str:
        """The name of the caller's leaf: for a piece without its layers."""
        if self.piece is None:
            return self.name
        return self.name.removesuffix(f"[{self.piece.start}:{self.piece.stop}]")


@dataclass(frozen=True, slots=True)
class Program:
    """One step as instructions over ``slot_count`` slots.

    ``tasks`` are the ``baechi.task`` ops in order of issue; ``types[slot]`` is what a slot holds,
    without its place, and ``devices[slot]`` where. ``results`` are the slots that the step returns.
    """

    arguments: tuple[Argument, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    tasks: tuple[Operation, ...]
    types: tuple[Type, ...]
    devices: tuple[int, ...]
    #: The plan's memory, per device; empty where the module does not say.
    memory: tuple[DeviceMemory, ...] = ()
    #: For each result which layers of which of the caller's it is; None for a whole one.
    result_pieces: tuple[Piece | None, ...] = ()

    @property
    def slot_count(self) -> int:
        """Number of slots, arguments included."""
        return len(self.types)

    @property
    def device_count(self) -> int:
        """One more than the highest device that the program uses."""
        return max(self.devices, default=0) + 1

    def __str__(self) -> str:
        """One instruction a line, as ``%4, %5 = run t3 on 1 (%0, %2)``."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The lines of ``str(self)``."""
        for item in self.instructions:
            yield self._line(item)
        yield f"return {_slots(self.results)}"

    def _line(self, item: Instruction) -> str:
        drops = f" drop {_slots(item.drops)}" if item.drops else ""
        match item:
            case Run():
                task = self.tasks[item.task]
                donated = tuple(item.inputs[position] for position in item.donated)
                given = f" donate {_slots(donated)}" if donated else ""
                results = f"{_slots(item.outputs)} = " if item.outputs else ""
                name = f"{task.attributes.get('sym_name')} on {task_device(task)}"
                return f"{results}run {name} ({_slots(item.inputs)}){given}{drops}"
            case Put():
                targets = ", ".join(map(str, item.targets))
                return f"{_slots(item.outputs)} = put {_slots(item.inputs)} to {targets}{drops}"
            case Copy():
                return f"{_slots(item.outputs)} = copy {_slots(item.inputs)}{drops}"
            case Wait():
                return f"wait {_slots(item.inputs)}{drops}"


def task_device(task: Operation) -> int:
    """The device of a placed task; raises IRError when it has none, or several."""
    devices = task.attributes.get("baechi.devices")
    if isinstance(devices, tuple) and len(devices) == 1 and isinstance(devices[0], int):
        return devices[0]
    raise IRError(
        f"task '{task.attributes.get('sym_name')}' ({task.location}) must lie on one device, found "
        f"baechi.devices = {devices!r}; run 'place' first"
    )


def program_of(module: Module) -> Program:
    """The program of ``module``'s ``@main``.

    Raises IRError for an op that has no meaning at run time (a module that has not gone through
    the whole pipeline), naming it and its source line.
    """
    return _Reader(module.main).read()


@dataclass(slots=True)
class _Reader:
    main: Operation
    slots: dict[Value, int] = field(default_factory=dict)
    types: list[Type] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    tasks: list[Operation] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def read(self) -> Program:
        arguments = self._arguments()
        for op in self.main.body.ops[:-1]:
            match op.name:
                case "baechi.task":
                    self._run(op)
                case "baechi.send":
                    self._put(op)
                case "baechi.recv":
                    self.slots[op.result] = self.slots[op.operands[0]]
                case "baechi.wait":
                    inputs = self._read(op.operands)
                    self.instructions.append(Wait(inputs, self._freed(op)))
                case _:
                    raise IRError(
                        f"'{op.name}' ({op.location}) cannot be run: @main may hold baechi.task, "
                        "send, recv and wait; put the module through the whole pipeline first"
                    )
        results = self._results(arguments)
        return Program(
            tuple(arguments),
            tuple(self.instructions),
            results,
            tuple(self.tasks),
            tuple(self.types),
            tuple(self.devices),
            self._memory(),
            tuple(result_pieces(self.main)),
        )

    def _memory(self) -> tuple[DeviceMemory, ...]:
        entries = as_tuple(self.main.attributes.get("baechi.memory", ()))
        return tuple(entry for entry in entries if isinstance(entry, DeviceMemory))

    def _arguments(self) -> list[Argument]:
        arguments: list[Argument] = []
        for value, entry in zip(
            self.main.body.arguments, argument_attributes(self.main), strict=True
        ):
            argument = Argument(
                name=str(entry.get("baechi.name", f"argument {value.index}")),
                type=unplaced(value.type),
                device=_place(value, entry.get("baechi.devices")),
                donated="baechi.donated" in entry,
                constant="baechi.constant" in entry,
                piece=piece_of(entry),
            )
            arguments.append(argument)
            self._new_slot(value, argument.device)
        return arguments

    def _run(self, op: Operation) -> None:
        device = task_device(op)
        kept = [value for value in op.operands if not _is_token(value)]
        donates = _indices(op, "baechi.donates")
        given = {op.operands[index] for index in donates}
        donated = tuple(position for position, value in enumerate(kept) if value in given)
        inputs = self._read(kept)
        outputs = tuple(
            self._new_slot(value, device) for value in op.results if not _is_token(value)
        )
        # A result that nothing reads is dropped at once, so that it never outlives its task.
        unread = tuple(
            self.slots[value] for value in op.results if not _is_token(value) and not value.uses
        )
        freed = self._freed(op, also=donates)
        self.instructions.append(Run(len(self.tasks), inputs, outputs, donated, freed + unread))
        self.tasks.append(op)

    def _put(self, op: Operation) -> None:
        target = op.attributes.get("to")
        if not isinstance(target, int):
            raise IRError(f"'baechi.send' ({op.location}) needs the device it sends 'to'")
        inputs = self._read(op.operands)
        outputs = (self._new_slot(op.result, target),)
        put = Put(inputs, outputs, (target,), self._freed(op))
        last = self.instructions[-1] if self.instructions else None
        if isinstance(last, Put) and not set(put.inputs) & set(last.outputs + last.drops):
            put = Put(
                last.inputs + put.inputs,
                last.outputs + put.outputs,
                last.targets + put.targets,
                last.drops + put.drops,
            )
            self.instructions[-1] = put
        else:
            self.instructions.append(put)

    def _results(self, arguments: list[Argument]) -> tuple[int, ...]:
        returned: list[int] = []
        seen: set[int] = set()
        copied: list[tuple[int, int]] = []
        entries = result_attributes(self.main)
        for value, entry in zip(self.main.body.terminator.operands, entries, strict=True):
            slot = self.slots[value]
            target = entry.get("baechi.devices", (self.devices[slot],))
            assert isinstance(target, tuple)
            assert isinstance(target[0], int)
            is_kept_argument = slot < len(arguments) and not arguments[slot].donated
            elsewhere = target[0] != self.devices[slot]
            if slot in seen or is_kept_argument or elsewhere:
                fresh = self._new_slot(None, target[0], self.types[slot])
                copied.append((slot, fresh))
                returned.append(fresh)
            else:
                returned.append(slot)
            seen.add(slot)
        if copied:
            sources, fresh_slots = zip(*copied, strict=True)
            targets = tuple(self.devices[slot] for slot in fresh_slots)
            self.instructions.append(Copy(sources, fresh_slots, targets))
        return tuple(returned)

    # Helpers ----------------------------------------------------------------------------------

    def _new_slot(self, value: Value | None, device: int, type_: Type | None = None) -> int:
        slot = len(self.types)
        if value is not None:
            self.slots[value] = slot
            type_ = unplaced(value.type)
        assert type_ is not None
        self.types.append(type_)
        self.devices.append(device)
        return slot

    def _read(self, values: Iterable[Value]) -> tuple[int, ...]:
        return tuple(self.slots[value] for value in values)

    def _freed(self, op: Operation, also: Iterable[int] = ()) -> tuple[int, ...]:
        indices = dict.fromkeys((*_indices(op, "baechi.frees"), *also))
        values = (op.operands[index] for index in indices)
        return tuple(self.slots[value] for value in values if not _is_token(value))


def _is_token(value: Value) -> bool:
    return isinstance(unplaced(value.type), TokenType)


def _place(value: Value, attribute: Attribute | None) -> int:
    if isinstance(value.type, OnType):
        return value.type.devices[0]
    if isinstance(attribute, tuple) and attribute and isinstance(attribute[0], int):
        return attribute[0]
    raise IRError(f"argument {value.index} of @main has no place; run 'insert-transfers' first")


def _indices(op: Operation, key: str) -> tuple[int, ...]:
    indices: list[int] = []
    for index in as_tuple(op.attributes.get(key, ())):
        if not isinstance(index, int) or not 0 <= index < len(op.operands):
            raise IRError(f"'{key}' of '{op.name}' ({op.location}) has no operand {index!r}")
        indices.append(index)
    return tuple(indices)


def _slots(slots: Iterable[int]) -> str:
    return ", ".join(f"%{slot}" for slot in slots)
