"""JAX's ahead-of-time stages for a placed function: ``trace -> lower -> compile``.

``placed.trace(*args)`` gives a ``Traced``, its ``lower()`` a ``Lowered`` (that is: a plan), whose
``compile()`` gives a ``Compiled``, which runs. Tracing and lowering work on shapes alone, also for
a machine that is not there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

from baechi_jax.compiled_memory import compile_to_fit
from baechi_jax.ir.trace import Trace
from baechi_jax.passes.simulate.timeline import Timeline
from baechi_jax.plan import Plan
from baechi_jax.planner import Known
from baechi_jax.runtime.compile import (
    CompiledTask,
    CompileOptions,
    ExecutableCache,
    check_devices,
    compile_program,
)
from baechi_jax.runtime.errors import ArgumentError
from baechi_jax.runtime.execute import Executor
from baechi_jax.runtime.instructions import Program, program_of
from baechi_jax.runtime.layers import LeafSharding, StackedSharding
from baechi_jax.runtime.memory import StepMemory, measure_step
from baechi_jax.runtime.restack import restack
from baechi_jax.runtime.stacked import StackedArray
from baechi_jax.runtime.state import ArgumentPlacer, ResultJoiner, abstract, leaves_of, same_type
from baechi_jax.runtime.timing import measure_times

if TYPE_CHECKING:
    from baechi_jax.ir.core import Module


@dataclass(frozen=True, slots=True)
class Split:
    """How a call's traced arguments are flattened; see ``Signature.split``."""

    split: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Any]]
    restore: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    static: Any
    positional: tuple[Any, ...]


class Traced:
    """A traced function: its jaxpr, and the types of what goes in and out."""

    def __init__(
        self,
        trace: Trace,
        split: Split,
        name: str,
        module: Callable[[], Module],
        lower: Callable[[], Lowered],
    ) -> None:
        self._trace = trace
        self._split = split
        self._module = module
        self._lower = lower
        self.name = name

    @property
    def jaxpr(self) -> Any:
        """The ClosedJaxpr, as ``jax.jit(fn).trace(...).jaxpr``."""
        return self._trace.jaxpr

    @property
    def module(self) -> Module:
        """A traced module (form *Traced* of docs/ir.md), another one each time."""
        return self._module()

    @property
    def in_avals(self) -> Any:
        """Types of the arguments, as ``(args, kwargs)``."""
        return jax.tree.unflatten(self._trace.in_tree, self._trace.in_avals)

    @property
    def out_info(self) -> Any:
        """Types of the results, as a tree of ``jax.ShapeDtypeStruct``."""
        structs = [
            jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
            for a in self._trace.out_avals
        ]
        return jax.tree.unflatten(self._trace.out_tree, structs)

    def lower(self) -> Lowered:
        """Plan it. Raises InfeasiblePlacementError when nothing fits."""
        return self._lower()


#: Takes what a real step tells of its tasks.
Learn: TypeAlias = Callable[[Sequence[CompiledTask], Timeline], None]


class Lowered:
    """A planned function: nothing is compiled yet, and no device need be there."""

    def __init__(
        self,
        trace: Trace,
        plan: Plan,
        split: Split,
        devices: Callable[[], Sequence[jax.Device]],
        options: CompileOptions,
        cache: ExecutableCache,
        plan_again: Callable[[Known, Plan | None], Plan],
        learn: Learn | None = None,
    ) -> None:
        self._plan_again = plan_again
        self._learn = learn
        self._trace = trace
        self._split = split
        self._devices = devices
        self._options = options
        self._cache = cache
        self._compiled: Compiled | None = None
        self._lock = threading.Lock()
        self.plan = plan

    @property
    def program(self) -> Program:
        """The flat program that a step runs."""
        return program_of(self.plan.module)

    def as_text(self) -> str:
        """The planned module as text."""
        return self.plan.text

    def compile(self) -> Compiled:
        """Compile every task for its device, once: later calls give the same ``Compiled``.

        So what the placed function itself runs and what its stages give share executables, the
        constants on the devices, and the limit on steps under way. Raises DeviceError when this
        process lacks devices of the plan, CompilationError when XLA refuses a task.

        What the compiled tasks take decides: the plan's peaks are then XLA's own, and where they
        pass a limit the placement is made again and ``plan`` is another one
        (InfeasiblePlacementError when that does not help; ``baechi_jax/compiled_memory.py``).
        """
        with self._lock:
            if self._compiled is None:
                devices = self._devices()
                check_devices(self.program, devices)
                fitted = compile_to_fit(self.plan, self._compile_tasks, self._plan_again)
                self.plan = fitted.plan
                executor = Executor(fitted.program, fitted.tasks, devices)
                self._compiled = Compiled(
                    self._trace, self.plan, self._split, executor, self._learn
                )
            return self._compiled

    def _compile_tasks(self, program: Program) -> list[CompiledTask]:
        return compile_program(
            program, self._trace.equations, self._devices(), self._options, self._cache
        )


class Compiled:
    """A function ready to run on the devices of its plan."""

    def __init__(
        self,
        trace: Trace,
        plan: Plan,
        split: Split,
        executor: Executor,
        learn: Learn | None = None,
    ) -> None:
        self.plan = plan
        self._learn = learn
        self.executor = executor
        self.in_tree = trace.in_tree
        self.out_tree = trace.out_tree
        self._split = split
        program = executor.program
        count = len(trace.constants)
        names = (*(f"constant {index}" for index in range(count)), *trace.argument_names)
        leaves = leaves_of(program.arguments, names, executor.devices)
        self._names = trace.argument_names
        self._placer = ArgumentPlacer(leaves[count:], trace.in_avals)
        self._joiner = ResultJoiner(program, trace.out_avals, executor.devices)
        # Once per plan; they stay there.
        self._constants: list[jax.Array] = []
        for constant, leaf in zip(trace.constants, leaves):
            if leaf.runs:
                self._constants += restack(constant, leaf.runs).arrays
            else:
                self._constants.append(jax.device_put(constant, leaf.sharding))

    # Running --------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step. Results are ready later, as with ``jax.jit``.

        Arguments must have the types and the structure it was compiled for. Those committed to
        another device than ``input_shardings`` says are an error here, as with JAX's own stages.
        """
        leaves, pending = self._checked(args, kwargs)
        return self.launch(leaves, pending)

    def measure_memory(self, *args: Any, **kwargs: Any) -> tuple[Any, StepMemory]:
        """Run one step slowly, instruction by instruction: its results, and what memory it took."""
        leaves, pending = self._checked(args, kwargs)
        placed, _ = self._placer.place(leaves, pending)
        results, memory = measure_step(self.executor, [*self._constants, *placed])
        return jax.tree.unflatten(self.out_tree, self._joiner.join(results)), memory

    def measure_times(self, *args: Any, **kwargs: Any) -> tuple[Any, Timeline]:
        """Run one step and note when everything ends: its results, and the timeline.

        The timeline goes beside the predicted one in ``plan.report(path, timeline)``. The first
        step after compiling is slower than those that follow. With ``costs="profile"`` the next
        plan knows from it how long tasks take that are never run on made-up values.
        """
        leaves, pending = self._checked(args, kwargs)
        placed, _ = self._placer.place(leaves, pending)
        results, timeline = measure_times(self.executor, [*self._constants, *placed])
        if self._learn is not None:
            self._learn(self.executor.tasks, timeline)
        return jax.tree.unflatten(self.out_tree, self._joiner.join(results)), timeline

    def pending(self, leaves: Sequence[Any]) -> list[int] | None:
        """Which leaves must be moved first; None when one has another type."""
        return self._placer.pending(leaves)

    def launch(self, leaves: Sequence[Any], pending: Sequence[int]) -> Any:
        """Move the leaves in ``pending`` and launch the step on all of them.

        Nothing is moved or freed before an earlier step has left room for it.
        """
        self._placer.check(leaves)
        self.executor.pace(leaves, self._names)
        placed, lost = self._placer.bring(leaves, pending)
        results = self.executor.run([*self._constants, *placed], lost)
        return jax.tree.unflatten(self.out_tree, self._joiner.join(results))

    # What it wants and gives --------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The flat program that a step runs."""
        return self.executor.program

    @property
    def constants(self) -> list[jax.Array]:
        """What the function closes over, where the plan wants it."""
        return self._constants

    @property
    def placer(self) -> ArgumentPlacer:
        """What moves the arguments."""
        return self._placer

    @property
    def input_shardings(self) -> Any:
        """Where each argument belongs, as ``(args, kwargs)`` (static arguments left out).

        For a stacked leaf in pieces that are no even split: a ``StackedSharding``, which
        ``baechi.device_put`` takes.
        """
        return jax.tree.unflatten(self.in_tree, self._placer.shardings)

    @property
    def output_shardings(self) -> Any:
        """Where each result will lie."""
        return jax.tree.unflatten(self.out_tree, self._joiner.shardings)

    def as_text(self) -> str:
        """The flat program, one instruction a line."""
        return str(self.executor.program)

    # Checks ---------------------------------------------------------------------------------------

    def _checked(self, args: Any, kwargs: Any) -> tuple[list[Any], list[int]]:
        dynamic, static = self._split.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        if tree != self.in_tree or static != self._split.static:
            raise ArgumentError(self._structure_error(tree, static))
        pending = self._placer.pending(leaves)
        if pending is None:
            raise ArgumentError(self._type_error(leaves))
        for index in pending:
            self._check_place(index, leaves[index])
        return leaves, pending

    def _structure_error(self, tree: Any, static: Any) -> str:
        if static != self._split.static:
            return (
                f"compiled for the static arguments {self._split.static}, called with {static}; "
                "compile again for these"
            )
        return (
            f"called with arguments of another structure than it was compiled for:\n"
            f"  compiled for {self.in_tree}\n  called with  {tree}"
        )

    def _type_error(self, leaves: Sequence[Any]) -> str:
        for argument, aval, leaf in zip(
            self._placer.leaves, self._placer.avals, leaves, strict=True
        ):
            try:
                found = abstract(leaf)
            except TypeError:
                return f"argument {argument.name} is no array: {type(leaf).__name__}"
            if not same_type(found, aval):
                return (
                    f"argument {argument.name} was compiled as {aval.str_short(True)}, and is "
                    f"{found.str_short(True)} in this call; compile again for it"
                )
        raise AssertionError("every type agrees")

    def _check_place(self, index: int, leaf: Any) -> None:
        if not isinstance(leaf, jax.Array | StackedArray) or not getattr(leaf, "committed", True):
            return
        argument = self._placer.leaves[index]
        raise ArgumentError(
            f"argument {argument.name} lies on {_places(leaf.sharding)}, and was compiled for "
            f"{_places(argument.sharding)}; move it with "
            "baechi.device_put(args, compiled.input_shardings[0]), or call the placed function "
            "itself, which moves it"
        )


def _places(sharding: LeafSharding) -> str:
    """Where ``sharding`` puts an array, for messages."""
    if isinstance(sharding, StackedSharding):
        return str(sharding)
    return ", ".join(sorted(str(device) for device in sharding.device_set))
