"""``baechi.place``: a function that runs placed over several devices.

The decorated function behaves like ``jax.jit`` of it. The first call with new types traces, plans
and compiles; later ones find the compiled step by the structure and the types of the arguments.
Under an outer transformation (``jit``, ``grad``, ``vmap``) it is the function itself, jitted.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import jax

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import BaechiError
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.from_jaxpr import convert
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.pieces import leaves
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.local import devices_of, local_topology
from baechi_jax.options import (
    PROFILE_SECONDS,
    costs_option,
    devices_option,
    folder_option,
    pipeline_option,
    plan_option,
    topology_option,
)
from baechi_jax.passes.cost.measured import MeasuredCosts
from baechi_jax.passes.placement.errors import InfeasiblePlacementError
from baechi_jax.passes.registry import Pass
from baechi_jax.passes.simulate.timeline import Timeline
from baechi_jax.passes.split_results import split_results
from baechi_jax.placed_state import (
    Layers,
    PinArguments,
    PinResults,
    PlacedLayers,
    PlacedLeaf,
    Wanted,
    leaves_like,
    misplaced,
)
from baechi_jax.plan import Plan, PlanMismatchError, check_matches
from baechi_jax.planner import Known, PlannerOptions, apply_decisions, plan_module
from baechi_jax.profiled import ProfileOptions, Profiler, plan_with_profile
from baechi_jax.retraces import Retraces
from baechi_jax.runtime.compile import (
    CompiledTask,
    CompileOptions,
    ExecutableCache,
    check_devices,
    compile_program,
)
from baechi_jax.runtime.errors import DeviceError
from baechi_jax.runtime.instructions import Program, program_of
from baechi_jax.runtime.stacked import StackedArray
from baechi_jax.runtime.state import abstract, leaves_of
from baechi_jax.signature import Signature
from baechi_jax.stages import Compiled, Lowered, Split, Traced

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Options:
    """What ``place`` was given, checked."""

    topology: Topology | None
    devices: tuple[jax.Device, ...] | None
    planner: PlannerOptions
    compile: CompileOptions
    like: PlacedFunction | None
    plan: Plan | None
    profile: ProfileOptions | None


class PlaceOptions(TypedDict, total=False):
    """The keyword arguments of ``place``; see there."""

    topology: Topology | str | Path | None
    placer: str
    pipeline: str | Sequence[Pass] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    like: PlacedFunction | None
    plan: Plan | str | Path | None
    devices: Sequence[jax.Device] | None
    dump_folder: str | Path | None
    verify_each: bool
    compiler_options: Mapping[str, Any] | None
    compile_threads: int | None
    progress: bool | None
    costs: str
    profile_seconds: float
    profile_folder: str | Path | None


@overload
def place(fn: Callable[..., Any], /, **options: Unpack[PlaceOptions]) -> PlacedFunction: ...


@overload
def place(
    fn: None = None, /, **options: Unpack[PlaceOptions]
) -> Callable[[Callable[..., Any]], PlacedFunction]: ...


def place(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    topology: Topology | str | Path | None = None,
    placer: str = "auto",
    pipeline: str | Sequence[Pass] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    like: PlacedFunction | None = None,
    plan: Plan | str | Path | None = None,
    devices: Sequence[jax.Device] | None = None,
    dump_folder: str | Path | None = None,
    verify_each: bool = False,
    compiler_options: Mapping[str, Any] | None = None,
    compile_threads: int | None = None,
    progress: bool | None = None,
    costs: str = "analytic",
    profile_seconds: float = PROFILE_SECONDS,
    profile_folder: str | Path | None = None,
) -> Any:
    """Place ``fn`` over several devices: ``@place``, ``@place(...)`` or ``place(fn, ...)``.

    - ``topology``: the machine, a ``Topology`` or its file; by default the devices at hand.
    - ``placer``: ``auto``, ``m-topo``, ``m-etf``, ``m-sct``, ``milp``, ``expert``, ...
    - ``pipeline``: the passes to run instead of the default ones.
    - ``donate_argnums``, ``donate_argnames``, ``static_argnums``, ``static_argnames``,
      ``compiler_options``: as for ``jax.jit``. What ``jax.jit`` or ``place`` was told of ``fn``
      holds where they are left out.
    - ``like``: another placed function. Arguments that are also that one's (by path and type) stay
      where its plan put them; the topology is that one's too.
    - ``plan``: a saved plan, or its file, whose decisions are repeated. It must have been made for
      this function and this machine, and have its arguments where ``like`` has them if both are
      given; not together with ``placer``, ``pipeline`` or measured ``costs``.
    - ``devices``: the JAX device of each device of the topology; by default by name, else in order.
    - ``dump_folder``: write the IR there after each pass. ``verify_each``: check it after each.
    - ``compile_threads``, ``progress``: see ``runtime.compile.CompileOptions``.
    - ``costs``: ``analytic``, or ``profile``: compile and measure the tasks of a first plan on the
      devices at hand, then plan again (docs/costs.md). Running them takes at most
      ``profile_seconds``; what was measured is kept in ``profile_folder`` for the next time, by
      default in the user's cache folder.

    Raises TypeError and ValueError for options that are wrong or exclude each other, and for a
    function that ``jax.jit`` was told the shardings of; PipelineError for a pipeline or
    placer that does not exist, TopologyError for a topology that cannot be read.
    """
    if fn is None:
        given = {k: v for k, v in locals().items() if k != "fn"}
        return functools.partial(place, **given)
    if not callable(fn):
        raise TypeError(f"place needs a function, found {type(fn).__name__}")
    told = _told(fn)
    if told.get("compiler_options") and not isinstance(fn, PlacedFunction):
        # JAX takes them at the outermost jit only, and tracing makes it an inner one.
        fn = compat.unjitted(fn)
    if static_argnums is None and static_argnames is None:
        static_argnums, static_argnames = told.get("static_argnums"), told.get("static_argnames")
    if donate_argnums is None and donate_argnames is None:
        donate_argnums, donate_argnames = told.get("donate_argnums"), told.get("donate_argnames")
    signature = Signature(
        fn,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
    )
    if like is not None and not isinstance(like, PlacedFunction):
        raise TypeError(f"like must be a placed function, found {type(like).__name__}")
    if pipeline is not None and placer != "auto":
        raise ValueError("give a pipeline or a placer, not both: the pipeline names its placer")
    if plan is not None and (pipeline is not None or placer != "auto"):
        other = "pipeline" if pipeline is not None else "placer"
        raise ValueError(
            f"give a plan or a {other}, not both: a plan's decisions are repeated, with the "
            "pipeline that made them"
        )
    if costs != "analytic" and plan is not None:
        raise ValueError("give a plan or costs, not both: a plan holds the costs it was made with")
    if compiler_options is None:
        compiler_options = told.get("compiler_options")
    xla_options = tuple((compiler_options or {}).items())
    options = _Options(
        topology_option(topology),
        devices_option(devices),
        PlannerOptions(
            pipeline_option(pipeline, placer),
            folder_option(dump_folder, "dump_folder"),
            verify_each,
            progress,
        ),
        CompileOptions(compile_threads, progress, xla_options),
        like,
        plan_option(plan),
        costs_option(costs, profile_seconds, profile_folder, progress, xla_options),
    )
    return PlacedFunction(fn, signature, options)


def _told(fn: Callable[..., Any]) -> dict[str, Any]:
    """What ``jax.jit`` or ``place`` was told of ``fn``, as options of ``place``.

    Raises ValueError for an option of ``jax.jit`` that says where to run, which a plan decides.
    """
    if isinstance(fn, PlacedFunction):
        compiler_options = dict(fn._options.compile.compiler_options)
        return {**fn._signature.jit_options, "compiler_options": compiler_options}
    places = compat.jit_places(fn)
    if places:
        raise ValueError(
            f"the function was given to jax.jit with {' and '.join(places)}, and place decides "
            "where everything lies: give place the function without jax.jit (fn.__wrapped__), "
            "with baechi.on or like= for what must be somewhere"
        )
    return compat.jit_options(fn)


def place_init(
    init_fn: Callable[..., Any], /, *, like: PlacedFunction, **options: Any
) -> PlacedFunction:
    """``init_fn``, with every result made on the device where ``like`` wants it.

    So a model that no device can hold whole is initialised piece by piece: results are matched to
    the arguments of ``like`` by path and type, and the initialiser is planned with them pinned
    there, within the same memory limits. Stacked layers that ``like`` holds in pieces are made in
    these pieces where the initialiser works layer by layer (``docs/stacked-state.md``).

    ``like`` must have a plan already; give it shapes:
    ``train_step.plan(jax.eval_shape(init_fn, key), batch)``. ``options`` are those of ``place``.
    """
    placed = place(init_fn, like=like, **options)
    placed._pins_results = True
    return placed


@contextlib.contextmanager
def on(device: int) -> Iterator[None]:
    """Pin what is traced inside to device ``device`` of the topology.

    The same as ``jax.named_scope("baechi.device:N")``.
    """
    if not isinstance(device, int) or isinstance(device, bool) or device < 0:
        raise TypeError(f"on needs the index of a device, found {device!r}")
    with jax.named_scope(f"baechi.device:{device}"):
        yield


class _Entry:
    """What is known for one signature of arguments."""

    __slots__ = (
        "_attributes",
        "_unused",
        "compiled",
        "context",
        "costs",
        "kept",
        "lowered",
        "static",
        "trace",
        "tree",
    )

    def __init__(self, tree: Any, static: Any, context: Any, traced: Trace) -> None:
        self.tree = tree
        self.static = static
        self.context = context
        self.trace = traced
        self.lowered: Lowered | None = None
        self.compiled: Compiled | None = None
        #: What was measured for it, and the executables that were, until the step has its own.
        self.costs: MeasuredCosts | None = None
        self.kept: Sequence[CompiledTask] = ()
        self._unused = True
        self._attributes = argument_attributes(traced.module.main)[len(traced.constants) :]

    @property
    def is_state(self) -> list[bool]:
        """For each argument leaf, whether the function gives its next value or it is donated."""
        return [
            "baechi.state" in entry or donated
            for entry, donated in zip(self._attributes, self.trace.donated, strict=True)
        ]

    def module(self) -> Module:
        """A traced module that passes may change. The first costs nothing."""
        if self._unused:
            self._unused = False
            return self.trace.module
        state = {
            index: result
            for index, entry in enumerate(self._attributes)
            if isinstance(result := entry.get("baechi.state"), int)
        }
        return convert(
            self.trace.jaxpr,
            argument_names=self.trace.argument_names,
            result_names=self.trace.result_names,
            donated=self.trace.donated,
            state=state,
        ).module


class PlacedFunction:
    """A function placed by ``place``. Call it as the function itself."""

    def __init__(self, fn: Callable[..., Any], signature: Signature, options: _Options) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._signature = signature
        self._options = options
        self._pins_results = False
        self._jit: Any = jax.jit(fn, **signature.static_options)
        self._entries: dict[Any, _Entry] = {}
        #: The entry of the last call, looked at first.
        self._last: _Entry | None = None
        #: The first plan: later ones keep its state where it lies.
        self._first: _Entry | None = None
        like = options.like
        #: With the functions placed like this one.
        self._executables: ExecutableCache = (
            ExecutableCache() if like is None else like._executables
        )
        self._lock = threading.RLock()
        self._retraces = Retraces(self._name)

    # Calling ------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, placed. The first call with new types plans and compiles."""
        if compat.is_tracing() or compat.jit_disabled():
            return self._jit(*args, **kwargs)
        dynamic, static = self._signature.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        context = compat.trace_context()
        last = self._last
        if (
            last is not None
            and last.compiled is not None
            and last.tree == tree
            and last.static == static
            and last.context == context
        ):
            pending = last.compiled.pending(leaves)
            if pending is not None:
                self._retraces.in_a_row = 0
                return last.compiled.launch(leaves, pending)
        compiled = self._compiled(args, kwargs, leaves, tree, static, context)
        pending = compiled.pending(leaves)
        assert pending is not None
        return compiled.launch(leaves, pending)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<placed {self._name}>"

    # Stages -------------------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The first of JAX's ahead-of-time stages; ``args`` may be shapes."""
        entry = self._entry(args, kwargs)
        split = self._split(entry)
        return Traced(entry.trace, split, self._name, entry.module, lambda: self._lowered(entry))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """``trace(...).lower()``."""
        return self.trace(*args, **kwargs).lower()

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments, which may be ``jax.ShapeDtypeStruct``.

        Nothing is allocated or compiled, and the topology may be of a machine that is not there.
        A later call with arguments of these types runs this plan.
        """
        return self.lower(*args, **kwargs).plan

    def input_shardings(self, *args: Any, **kwargs: Any) -> Any:
        """Where the plan for these arguments (or shapes) wants each leaf.

        A tuple with one tree for each positional argument (None for a static one), for
        ``baechi.device_put`` or a checkpoint library; with keyword arguments, a pair of that tuple
        and a dictionary. A stacked leaf that the plan holds in pieces has a ``NamedSharding`` over
        a mesh where the split is even, and a ``baechi.StackedSharding`` where it is not.
        """
        lowered = self.lower(*args, **kwargs)
        program = lowered.program
        devices = self._devices()
        for argument in program.arguments:
            _check_device(devices, argument.device)
        trace = self._entry(args, kwargs).trace
        names = (*("constant" for _ in trace.constants), *trace.argument_names)
        leaves = leaves_of(program.arguments, names, devices)
        shardings = [leaf.sharding for leaf in leaves[len(trace.constants) :]]
        positional, named = jax.tree.unflatten(trace.in_tree, shardings)
        positional = self._signature.restore(args, positional)
        return (positional, named) if kwargs else positional

    def clear_cache(self) -> None:
        """Forget all traces, plans and executables."""
        with self._lock:
            self._entries.clear()
            self._last = self._first = None
            self._retraces.in_a_row = 0
            self._jit.clear_cache()
            self._executables.clear()

    # Finding and making entries -----------------------------------------------------------------

    @property
    def _name(self) -> str:
        fn = self._fn
        while isinstance(fn, functools.partial):
            fn = fn.func
        return getattr(fn, "__name__", type(fn).__name__)

    def _compiled(
        self, args: Any, kwargs: Any, leaves: Any, tree: Any, static: Any, context: Any
    ) -> Compiled:
        with self._lock:
            types_ = self._types(args, kwargs, leaves)
            entry = self._entries.get((tree, static, context, types_))
            if entry is None or entry.compiled is None:
                self._retraces.count(tree, static, types_)
                entry = self._entry(args, kwargs)
                entry.compiled = self._lowered(entry).compile()
                entry.kept = ()
            else:
                self._retraces.in_a_row = 0
            self._last = entry
            assert entry.compiled is not None
            return entry.compiled

    def _entry(self, args: Any, kwargs: Any) -> _Entry:
        dynamic, static = self._signature.split(args, kwargs)
        leaves, tree = jax.tree.flatten(dynamic)
        context = compat.trace_context()
        key = (tree, static, context, self._types(args, kwargs, leaves))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                shapes = self._signature.map_traced(_for_tracing, args, kwargs)
                with paused_collection():
                    traced = trace(self._fn, *shapes, **self._signature.jit_options)
                entry = self._entries[key] = _Entry(tree, static, context, traced)
            return entry

    def _types(self, args: Any, kwargs: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Shape, dtype and weak type of each leaf, as a key."""
        try:
            return tuple(map(_type_key, leaves))
        except TypeError as error:
            raise self._signature.no_array(args, kwargs, _is_no_array, error) from error

    def _lowered(self, entry: _Entry) -> Lowered:
        with self._lock:
            if entry.lowered is None:
                plan = self._plan_entry(entry)
                if self._options.profile is not None:
                    plan = self._profiled(entry, plan, self._options.profile)
                entry.lowered = Lowered(
                    entry.trace,
                    plan,
                    self._split(entry),
                    self._devices,
                    self._options.compile,
                    self._executables,
                    lambda known, repeated: self._plan_entry(entry, known, repeated),
                    None if self._options.profile is None else self._learn,
                )
                if self._first is None:
                    self._first = entry
            return entry.lowered

    def _split(self, entry: _Entry) -> Split:
        return Split(self._signature.split, self._signature.restore, entry.static, ())

    def _profiled(self, entry: _Entry, plan: Plan, options: ProfileOptions) -> Plan:
        """Measure the tasks of ``plan`` and plan again; see ``baechi_jax/profiled.py``."""
        devices = self._devices()
        check_devices(program_of(plan.module), devices)
        declared = self._topology()
        if declared.size > len(devices):
            raise DeviceError(
                f"costs='profile' measures on every device, and this process has {len(devices)} of "
                f"the topology's {declared.size}; plan with costs='analytic' for a machine that is "
                "not there"
            )

        def plan_again(costs: MeasuredCosts) -> Plan:
            entry.costs = costs
            return self._plan_entry(entry)

        def compile_(program: Program) -> list[CompiledTask]:
            return compile_program(
                program, entry.trace.equations, devices, self._options.compile, self._executables
            )

        found = plan_with_profile(plan, plan_again, Profiler(declared, devices, options), compile_)
        entry.costs, entry.kept = found.costs, found.compiled
        return found.plan

    def _learn(self, tasks: Sequence[CompiledTask], step: Timeline) -> None:
        """Keep what a real step tells of tasks that are not measured."""
        options = self._options.profile
        assert options is not None
        Profiler(self._topology(), self._devices(), options).learn(tasks, [step])

    def _plan_entry(
        self, entry: _Entry, known: Known | None = None, repeated: Plan | None = None
    ) -> Plan:
        """Plan with what is ``known`` of memory; with the placement of ``repeated`` if given."""
        topology = self._topology()
        results = self._wanted_results(entry)
        cuts = {
            index: [(run.start, run.stop) for run in layers if run.stop is not None]
            for index, layers in results
            if len(layers) > 1
        }

        def fresh() -> Module:
            module = entry.module()
            module.attributes["baechi.fingerprint"] = fingerprint(module)
            if cuts:
                counted = bool(jax.config.jax_threefry_partitionable)  # type: ignore[attr-defined]
                split_results(module, cuts, partitionable=counted)
            return module

        options = self._options.planner
        saved = self._options.plan
        if saved is not None:
            check_matches(saved, fingerprint(entry.module()), topology, f"'{self._name}'")
        repeated = repeated or saved
        if repeated is not None:
            if known is not None:
                # Its decisions are about the tasks that its own costs made.
                known = replace(known, costs=MeasuredCosts.of(repeated.module))
            recorded = str(repeated.module.attributes["baechi.pipeline"])
            options = replace(options, pipeline=recorded)
            planned = apply_decisions(fresh, repeated.module, topology, options, known)
            plan = Plan(planned.module, self._name, planned.timings)
            if saved is not None and self._options.like is not None:
                self._check_like(entry, plan, results)
            return plan
        if entry.costs is not None:
            known = replace(known or Known(), costs=entry.costs)
        arguments = self._wanted_arguments(entry)
        argument_pins: list[Pass] = [PinArguments(tuple(arguments))] if arguments else []
        extra: list[Pass] = [PinResults(tuple(results))] if results else []
        # Without the pins, or the margin (compiled_memory.py), planning is tried again.
        unpinned = self._options.like is None and bool(argument_pins)
        last = known is None or not any(known.margin)
        try:
            planned = plan_module(
                fresh,
                topology,
                options,
                [*argument_pins, *extra],
                known,
                advise=last and not unpinned,
            )
        except InfeasiblePlacementError:
            if not unpinned:
                raise
            _log.warning(
                "%s: the state cannot stay where the first plan put it with these shapes; it will "
                "move",
                self._name,
            )
            planned = plan_module(fresh, topology, options, extra, known, advise=last)
        return Plan(planned.module, self._name, planned.timings)

    def _wanted_arguments(self, entry: _Entry) -> list[tuple[int, Layers]]:
        """The arguments that have a place already, constants counted, and where."""
        traced = entry.trace
        known = self._known_leaves(entry)
        if not known:
            return []
        offset = len(traced.constants)
        wanted = _wanted(traced.argument_names, traced.in_avals)
        return [
            (offset + index, leaf.layers)
            for index, leaf in enumerate(leaves_like(wanted, known))
            if leaf is not None
        ]

    def _wanted_results(self, entry: _Entry) -> list[tuple[int, Layers]]:
        """The results of ``place_init`` that ``like`` has a place for, and where."""
        if not self._pins_results:
            return []
        wanted = _wanted(entry.trace.result_names, entry.trace.out_avals)
        results = leaves_like(wanted, self._known_leaves(entry))
        return [(index, leaf.layers) for index, leaf in enumerate(results) if leaf is not None]

    def _check_like(self, entry: _Entry, plan: Plan, results: Sequence[tuple[int, Layers]]) -> None:
        """Raise PlanMismatchError where a saved plan has a leaf elsewhere than ``like`` has it."""
        traced, program = entry.trace, program_of(plan.module)
        arguments = program.arguments
        names = [*("constant" for _ in traced.constants), *traced.argument_names]
        wrong = [
            f"argument {names[leaf]}"
            for leaf in misplaced(
                self._wanted_arguments(entry),
                [argument.piece for argument in arguments],
                [argument.device for argument in arguments],
            )
        ]
        pieces = program.result_pieces or (None,) * len(program.results)
        devices = [program.devices[slot] for slot in program.results]
        wrong += [traced.result_names[leaf] for leaf in misplaced(results, pieces, devices)]
        if wrong:
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise PlanMismatchError(
                f"the saved plan (plan=) has {', '.join(wrong[:3])}{more} on another device than "
                f"{self._options.like!r} (like=); give one of the two, or plan again like it"
            )

    def _known_leaves(self, entry: _Entry) -> list[PlacedLeaf]:
        """Leaves that have a place already: those of ``like``, the state of the first plan."""
        like = self._options.like
        if like is not None:
            return like.placed_leaves()
        if self._first is not None and self._first is not entry:
            # State stays where the first plan put it, so that calls with other shapes find it.
            return [leaf for leaf, state in self._placed(self._first) if state]
        return []

    def placed_leaves(self) -> list[PlacedLeaf]:
        """The arguments of the first plan and their devices; raises BaechiError without a plan."""
        with self._lock:
            if self._first is None:
                raise BaechiError(
                    f"'{self._name}' has no plan yet, so nothing can be placed like it; call it "
                    f"first, or plan it from shapes: {self._name}.plan(jax.eval_shape(...), ...)"
                )
            return [leaf for leaf, _ in self._placed(self._first)]

    def _placed(self, entry: _Entry) -> list[tuple[PlacedLeaf, bool]]:
        assert entry.lowered is not None
        traced = entry.trace
        arguments = entry.lowered.program.arguments
        ranges = leaves([argument.piece for argument in arguments])[len(traced.constants) :]
        placed: list[tuple[PlacedLeaf, bool]] = []
        for name, aval, members, is_state in zip(
            traced.argument_names, traced.in_avals, ranges, entry.is_state, strict=True
        ):
            own = [arguments[index] for index in members]
            layers = tuple(
                PlacedLayers(0, None, each.device)
                if each.piece is None
                else PlacedLayers(each.piece.start, each.piece.stop, each.device)
                for each in own
            )
            placed.append((PlacedLeaf(name, tuple(aval.shape), aval.dtype, layers), is_state))
        return placed

    # Machine ------------------------------------------------------------------------------------

    def _topology(self) -> Topology:
        options = self._options
        if options.topology is not None:
            return options.topology
        if options.plan is not None:
            return options.plan.declared_topology
        if options.like is not None:
            return options.like._topology()
        return _default_topology(options.devices)

    def _devices(self) -> tuple[jax.Device, ...]:
        options = self._options
        if options.devices is not None:
            return options.devices
        if options.like is not None and options.topology is None:
            return options.like._devices()
        return devices_of(self._topology())


@functools.lru_cache(maxsize=8)
def _default_topology(devices: tuple[jax.Device, ...] | None) -> Topology:
    return local_topology(devices=devices)


def _check_device(devices: Sequence[jax.Device], index: int) -> None:
    if index >= len(devices):
        raise DeviceError(
            f"the plan uses device {index}, and this process has {len(devices)} devices; there is "
            "no sharding for a device that is not there"
        )


def _wanted(names: Sequence[str], avals: Sequence[Any]) -> list[Wanted]:
    return [
        Wanted(name, tuple(aval.shape), aval.dtype) for name, aval in zip(names, avals, strict=True)
    ]


def _type_key(leaf: Any) -> Any:
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else abstract(leaf)
    return (aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False)))


def _for_tracing(leaf: Any) -> Any:
    """``leaf``, or its shape: where an array over several devices lies is no part of a trace."""
    spread = isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1
    if not spread and not isinstance(leaf, StackedArray):
        return leaf
    shape, dtype, weak = _type_key(leaf)
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)


def _is_no_array(leaf: Any) -> bool:
    try:
        _type_key(leaf)
    except TypeError:
        return True
    return False
