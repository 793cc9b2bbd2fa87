"""Running a program: one pass over a flat list, no dictionary and no tracing.

Every instruction is linked to a function of arrays once; a step is then a loop that reads slots,
calls, writes slots and drops what died. Nothing blocks but the plan's waits, and tasks that call
back into Python: these are waited for, so that an error in a callback is raised where the task is
known.

Steps of one executor may come from several threads: each has its own slots, and their memory adds
up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax

from baechi_jax.ir._jax_compat import Executable
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.types import TensorType
from baechi_jax.runtime.compile import CompiledTask
from baechi_jax.runtime.errors import ExecutionError, execution_error
from baechi_jax.runtime.instructions import (
    Copy,
    Instruction,
    Program,
    Put,
    Run,
    Wait,
    task_device,
)
from baechi_jax.runtime.pacing import (
    EarlierStepError,
    End,
    Pacer,
    last_runs,
    steps_in_flight,
)
from baechi_jax.runtime.transport import copier, mover

#: What the loop of a step reads: function, reader of its inputs, first output slot and the one
#: after the last, slots to clear, slots to delete, instruction.
Step = tuple[
    Callable[..., Sequence[Any]],
    Callable[[Sequence[Any]], Sequence[Any]],
    int,
    int,
    tuple[int, ...],
    tuple[int, ...],
    Instruction,
]

#: ``(function, input slots, output slots, slots to clear, slots to delete, instruction)``.
Linked = tuple[
    Callable[..., Sequence[Any]],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, ...],
    Instruction,
]


class Executor:
    """A program with its compiled tasks, ready to run on ``devices``."""

    def __init__(
        self, program: Program, tasks: Sequence[CompiledTask], devices: Sequence[jax.Device]
    ) -> None:
        self.program = program
        self.tasks = tuple(tasks)
        self.devices = tuple(devices)
        self._ends: list[End] = []
        self._blank: list[Any] = [None] * (program.slot_count - len(program.arguments))
        self._linked = [self._link(item) for item in program.instructions]
        steps = steps_in_flight(program)
        self._pacer = None if steps is None else Pacer(steps)
        self._alone = steps == 1
        if self._pacer is not None:
            self._mark_ends()
        self._steps = [
            _step(linked, is_last=position == len(self._linked) - 1)
            for position, linked in enumerate(self._linked)
        ]
        self._gather_results = _gather(program.results)
        #: Donated arguments that are results as they are.
        self._given_back = [slot for slot in program.results if slot < len(program.arguments)]

    @property
    def linked(self) -> list[Linked]:
        """The instructions with their functions, for those who run them one by one."""
        return self._linked

    def pace(self, leaves: Sequence[Any], names: Sequence[str]) -> None:
        """Wait for an earlier step where two would not fit, or eight are under way.

        Before anything is moved or given away for a step that is to be called with ``leaves``.
        Raises ExecutionError when the earlier step failed, with the ``names`` of the leaves that
        came from it.
        """
        if self._pacer is None:
            return
        try:
            self._pacer.wait()
            if self._alone:
                # What an earlier step left may still be in the making.
                jax.block_until_ready(leaves)
        except EarlierStepError as failed:
            what = f"an earlier step, in {self.tasks[failed.task]} or in what it needs,"
            raise self._earlier(what, failed.error, leaves, names) from failed.error
        except Exception as error:
            raise self._earlier("an earlier step", error, leaves, names) from error

    def run(self, arguments: Sequence[jax.Array], lost: Sequence[str] = ()) -> list[jax.Array]:
        """Launch one step on ``arguments``, which lie where the program wants them.

        Returns the results without waiting for them. Raises ExecutionError naming the task that
        failed and which donated arguments are lost: those that this step gave away, and ``lost``,
        whose sources the caller has freed.
        """
        slots = self.slots(arguments)
        if self._pacer is not None:
            self._ends = self._pacer.start()
        for function, gather, first, end, drops, deletes, item in self._steps:
            try:
                slots[first:end] = function(*gather(slots))
            except Exception as error:
                raise self.error(item, error, arguments, lost) from error
            for slot in deletes:
                slots[slot].delete()
            for slot in drops:
                slots[slot] = None
        return self.results(slots)

    def slots(self, arguments: Sequence[jax.Array]) -> list[Any]:
        """The slots of a step that starts with ``arguments``."""
        return [*arguments, *self._blank]

    def results(self, slots: list[Any]) -> list[jax.Array]:
        """The results of a step that has left its values in ``slots``."""
        for slot in self._given_back:
            slots[slot] = _committed(slots[slot])
        return list(self._gather_results(slots))

    def error(
        self,
        item: Instruction,
        error: Exception,
        arguments: Sequence[jax.Array],
        lost: Sequence[str] = (),
    ) -> ExecutionError:
        """The error for instruction ``item`` of a step that was called with ``arguments``."""
        described = list(zip(self.program.arguments, arguments, strict=True))
        gone = dict.fromkeys(
            entry.leaf_name
            for entry, array in described
            if entry.donated and (entry.leaf_name in lost or array.is_deleted())
        )
        donated = any(entry.donated for entry, _ in described)
        planned = self._planned(item)
        return execution_error(self._describe(item), error, list(gone), donated, planned)

    def _earlier(
        self, what: str, error: Exception, leaves: Sequence[Any], names: Sequence[str]
    ) -> ExecutionError:
        """The error for a step that cannot start, since ``what`` failed before."""
        donated = any(entry.donated for entry in self.program.arguments)
        broken = [name for name, leaf in zip(names, leaves, strict=True) if _failed(leaf)]
        return execution_error(what, error, [], donated, broken=broken)

    def _planned(self, item: Instruction) -> str:
        """What the plan says of the memory of the devices that ``item`` takes memory on."""
        memory = self.program.memory
        if not memory:
            return ""
        sentences: list[str] = []
        for device in self._devices_of(item):
            entry = memory[device]
            sentences.append(
                f"The plan predicts a peak of {entry.peak_bytes:,} bytes on {self.devices[device]} "
                f"(at most {entry.run_ahead_bytes:,} while the host runs ahead, limit "
                f"{entry.limit_bytes:,}). "
            )
        if isinstance(item, Run):
            cost = self.tasks[item.task].operation.attributes.get("baechi.cost")
            if isinstance(cost, Cost):
                sentences.append(f"The task itself takes {cost.temporary_bytes:,} on top. ")
        return "".join(sentences)

    def _devices_of(self, item: Instruction) -> list[int]:
        """Where ``item`` takes memory; of a wait, where what it waits for is made."""
        match item:
            case Run():
                return [task_device(self.tasks[item.task].operation)]
            case Put() | Copy():
                return sorted(set(item.targets))
            case Wait():
                return sorted({self.program.devices[slot] for slot in item.inputs})

    # Pacing -----------------------------------------------------------------------------------

    def _mark_ends(self) -> None:
        """Let the last task of each device leave a token with the pacer."""
        for position in last_runs(self.program):
            _, inputs, outputs, drops, deletes, _ = self._linked[position]
            item = self.program.instructions[position]
            assert isinstance(item, Run)
            executable = self.tasks[item.task].executable
            if not executable.has_effects:
                call = self._with_token(executable, item.task)
                self._linked[position] = (call, inputs, outputs, drops, deletes, item)

    def _with_token(self, executable: Executable, task: int) -> Callable[..., Sequence[Any]]:
        def run(*arrays: jax.Array) -> Sequence[Any]:
            results, token = executable.call_with_token(*arrays)
            self._ends.append(End(token, task))
            return results

        return run

    # Linking ----------------------------------------------------------------------------------

    def _link(self, item: Instruction) -> Linked:
        arguments = self.program.arguments
        # XLA deletes what it takes; a donated argument that merely dies must be deleted here, since
        # the caller still holds the array. What this step made itself dies with its slot.
        taken: set[int] = set()
        if isinstance(item, Run):
            taken = {item.inputs[position] for position in self.tasks[item.task].taken}
        deletes = tuple(
            slot
            for slot in item.drops
            if slot < len(arguments) and arguments[slot].donated and slot not in taken
        )
        outputs = () if isinstance(item, Wait) else item.outputs
        return (self._function(item), item.inputs, outputs, item.drops, deletes, item)

    def _function(self, item: Instruction) -> Callable[..., Sequence[Any]]:
        match item:
            case Run():
                executable = self.tasks[item.task].executable
                return _blocking(executable.call) if executable.has_effects else executable.call
            case Put():
                return mover(
                    [self.devices[self.program.devices[slot]] for slot in item.inputs],
                    [self.devices[target] for target in item.targets],
                    [_is_plain(self.program.types[slot]) for slot in item.inputs],
                )
            case Copy():
                return copier([self.devices[target] for target in item.targets])
            case Wait():
                return _wait

    def _describe(self, item: Instruction) -> str:
        match item:
            case Run():
                return str(self.tasks[item.task])
            case Put() | Copy():
                ends = [
                    f"{self.devices[self.program.devices[slot]]} to {self.devices[target]}"
                    for slot, target in zip(item.inputs, item.targets, strict=True)
                ]
                return f"a transfer from {', '.join(dict.fromkeys(ends))}"
            case Wait():
                makers = self._makers(item)
                return f"waiting for {makers}" if makers else "a wait"

    def _makers(self, item: Wait) -> str:
        wanted = set(item.inputs)
        names = [
            str(self.tasks[other.task])
            for other in self.program.instructions
            if isinstance(other, Run) and wanted & set(other.outputs)
        ]
        return ", ".join(names)


def _step(linked: Linked, *, is_last: bool) -> Step:
    """``linked`` for the loop of a step: slots are read and written without a loop of Python's."""
    function, inputs, outputs, drops, deletes, item = linked
    first = outputs[0] if outputs else 0
    end = first + len(outputs)
    assert outputs == tuple(range(first, end)), "an instruction's results have neighbouring slots"
    # What is left at the end goes with the list itself.
    return function, _gather(inputs), first, end, () if is_last else drops, deletes, item


def _gather(slots: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that reads ``slots`` of a list."""
    if len(slots) > 1:
        return operator.itemgetter(*slots)
    # itemgetter gives no tuple for one slot, and takes no fewer.
    return lambda values: [values[slot] for slot in slots]


def free(slots: list[Any], drops: Sequence[int], deletes: Sequence[int]) -> None:
    """What the loop of a step does after an instruction, for those who run them one by one."""
    for slot in deletes:
        slots[slot].delete()
    for slot in drops:
        slots[slot] = None


def _committed(array: jax.Array) -> jax.Array:
    """The same buffer as an array that stays on its device."""
    if array.committed:
        return array
    held: jax.Array = jax.device_put(array, array.sharding)
    return held


def _failed(leaf: Any) -> bool:
    """Whether what was to compute ``leaf`` failed; waits for it."""
    try:
        jax.block_until_ready(leaf)
    except Exception:
        return True
    return False


def _is_plain(type_: object) -> bool:
    return isinstance(type_, TensorType) and not type_.element.startswith("!")


def _wait(*arrays: jax.Array) -> Sequence[Any]:
    jax.block_until_ready(arrays)
    return ()


def _blocking(call: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    def run(*arrays: jax.Array) -> Sequence[Any]:
        results = call(*arrays)
        if results:
            jax.block_until_ready(results)
        else:
            jax.effects_barrier()
        return results

    return run
