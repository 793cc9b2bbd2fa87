"""Compiling the tasks of a program.

A task is lowered and compiled once for each distinct structure, donation and kind of device. An
executable belongs to its device; the other devices of that kind get copies, which takes a small
part of the time that compiling takes, or compile it again where it cannot be copied (callbacks,
backends without serialisation). Programs that share a cache share executables, too, as long as one
of them is alive. Lowering is Python and stays in the calling thread; each compilation starts in a
pool of threads as soon as its lowering is there. XLA's persistent compilation cache works as it
does for ``jax.jit``, since the same function reads it.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.attributes import DictAttr, OpaqueAttr
from baechi_jax.ir.core import Operation
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.from_jaxpr import EquationRecord
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.types import unplaced
from baechi_jax.runtime.errors import CompilationError, DeviceError, describe_task
from baechi_jax.runtime.instructions import Program, Run, task_device
from baechi_jax.runtime.progress import Progress
from baechi_jax.runtime.to_jaxpr import task_to_jaxpr

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, slots=True)
class CompiledTask:
    """The executable of one task on its device. Tasks that are alike share the executable.

    ``taken`` are the positions of the inputs whose buffers it takes, and which JAX then deletes.
    """

    operation: Operation
    device: jax.Device
    executable: compat.Executable
    taken: tuple[int, ...] = ()

    def __str__(self) -> str:
        return describe_task(self.operation, self.device)


class ExecutableCache:
    """Executables by all that decides them. It keeps none alive that no program uses any more."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[Hashable, compat.Executable] = (
            weakref.WeakValueDictionary()
        )

    def get(self, key: Hashable) -> compat.Executable | None:
        """The executable for ``key``, if there is one."""
        return self._known.get(key)

    def put(self, key: Hashable, executable: compat.Executable) -> None:
        """Keep ``executable`` for those who ask while it is in use."""
        self._known[key] = executable

    def clear(self) -> None:
        """Forget all executables."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """``threads``: how many compile at once, by default one per core. ``progress``: show a bar on
    stderr when it takes longer than a second; by default when a terminal is attached.
    ``compiler_options``: XLA's, as ``jax.jit`` takes them."""

    threads: int | None = None
    progress: bool | None = None
    compiler_options: tuple[tuple[str, Any], ...] = ()


def compile_program(
    program: Program,
    equations: Sequence[EquationRecord],
    devices: Sequence[jax.Device],
    options: CompileOptions = CompileOptions(),
    cache: ExecutableCache | None = None,
) -> list[CompiledTask]:
    """One compiled task for each of ``program.tasks``, in that order.

    ``equations`` is the trace's side table; ``devices[d]`` is device ``d`` of the topology.
    ``cache`` is looked into first, and gets what is compiled. Raises
    DeviceError when there are too few devices and CompilationError naming the task that XLA
    refused. After an exception, Ctrl-C included, no thread is left running.
    """
    check_devices(program, devices)
    cache = ExecutableCache() if cache is None else cache
    work = _Compilation(program, equations, devices, options, cache)
    with _pool(options.threads) as pool:
        work.run(pool)
    compiled: list[CompiledTask] = []
    for task, place in zip(program.tasks, work.places, strict=True):
        executable = work.known[place]
        taken = tuple(position for position, given in enumerate(executable.donated) if given)
        compiled.append(CompiledTask(task, devices[task_device(task)], executable, taken))
    return compiled


@dataclass(frozen=True, slots=True)
class _Place:
    """All that decides an executable: what is compiled (with donation, the kind of device and the
    configuration), and the device it is loaded for."""

    code: Hashable
    device: jax.Device


class _Compilation:
    """The executables of one program: each code is compiled once for each kind of device, and
    copied to the other devices of that kind where the backend can copy it."""

    def __init__(
        self,
        program: Program,
        equations: Sequence[EquationRecord],
        devices: Sequence[jax.Device],
        options: CompileOptions,
        cache: ExecutableCache,
    ) -> None:
        self.tasks = program.tasks
        self.equations = equations
        self.devices = devices
        self.options = options
        self.cache = cache
        self.donations = {
            item.task: item.donated for item in program.instructions if isinstance(item, Run)
        }
        #: For each task, and the first task of each place.
        self.places: list[_Place] = []
        self.owners: dict[_Place, int] = {}
        self.known: dict[_Place, compat.Executable] = {}
        self._lowered: dict[Hashable, compat.LoweredJaxpr] = {}

    def run(self, pool: ThreadPoolExecutor) -> None:
        """Fill ``places`` and ``known``."""
        started = time.monotonic()
        firsts: dict[Hashable, _Place] = {}
        others: list[_Place] = []
        compiling: dict[_Place, Future[compat.Executable]] = {}
        # Lowering reads JAX's configuration.
        settings: Hashable = (self.options.compiler_options, compat.trace_context())
        for index, task in enumerate(self.tasks):
            device = self.devices[task_device(task)]
            kind = (device.platform, device.device_kind)
            structure = _structure(task, self.equations)
            place = _Place((structure, self.donations[index], kind, settings), device)
            self.places.append(place)
            if place in self.owners:
                continue
            self.owners[place] = index
            cached = self.cache.get(place)
            if cached is not None:
                self.known[place] = cached
                firsts.setdefault(place.code, place)
            elif place.code in firsts:
                others.append(place)
            else:
                firsts[place.code] = place
                compiling[place] = self._compile(pool, place)
        total = len(compiling) + len(others)
        with Progress("compiling", total, self.options.progress, started) as bar:
            self._finish(compiling, bar)
            originals = {place: self.known[firsts[place.code]] for place in others}
            copies = {
                place: pool.submit(original.copy_to, place.device)
                for place, original in originals.items()
            }
            self._finish(copies, bar)
            rest = [place for place in others if place not in self.known]
            bar.advance(-len(rest))
            self._finish({place: self._compile(pool, place) for place in rest}, bar)

    def _compile(self, pool: ThreadPoolExecutor, place: _Place) -> Future[compat.Executable]:
        index = self.owners[place]
        lowered = self._lowered.get(place.code)
        if lowered is None:
            task, donated = self.tasks[index], self.donations[index]
            lowered = _lower(task, self.equations, donated, place.device)
            self._lowered[place.code] = lowered
        return pool.submit(lowered.compile, place.device, self.options.compiler_options)

    def _finish(self, futures: Mapping[_Place, Future[Any]], bar: Progress) -> None:
        """Wait, and keep what came."""
        _await(futures.values(), bar)
        for place, future in futures.items():
            try:
                executable = future.result()
            except Exception as error:
                what = describe_task(self.tasks[self.owners[place]], place.device)
                raise CompilationError(f"XLA cannot compile {what}: {error}") from error
            if executable is not None:
                self.known[place] = executable
                self.cache.put(place, executable)


def check_devices(program: Program, devices: Sequence[jax.Device]) -> None:
    """Raise DeviceError unless every device that ``program`` uses is there."""
    needed = program.device_count
    if needed > len(devices):
        raise DeviceError(
            f"the plan runs on {needed} devices, and this process has {len(devices)}: "
            f"{', '.join(map(str, devices))}. Plan for a topology of the devices at hand, for "
            "example with baechi.local_topology()"
        )


def _lower(
    task: Operation,
    equations: Sequence[EquationRecord],
    donated: Sequence[int],
    device: jax.Device,
) -> compat.LoweredJaxpr:
    try:
        with paused_collection():
            jaxpr = task_to_jaxpr(task, equations)
            flags = usable_donations(jaxpr.in_avals, jaxpr.out_avals, donated)
            return compat.lower_jaxpr(jaxpr, str(task.attributes.get("sym_name")), flags, device)
    except Exception as error:
        raise CompilationError(f"cannot lower {describe_task(task, device)}: {error}") from error


def usable_donations(
    in_avals: Sequence[Any], out_avals: Sequence[Any], donated: Sequence[int]
) -> list[bool]:
    """Which arguments XLA can give to results: each needs a result of its own shape and dtype.

    The others would only make JAX warn; the executor deletes them when they die.
    """
    wanted = Counter((aval.shape, aval.dtype) for aval in out_avals)
    flags = [False] * len(in_avals)
    for position in donated:
        key = (in_avals[position].shape, in_avals[position].dtype)
        if wanted[key]:
            wanted[key] -= 1
            flags[position] = True
    return flags


def _structure(task: Operation, equations: Sequence[EquationRecord]) -> Hashable:
    """What decides the executable of ``task``, apart from donation and device."""
    types = (
        tuple(str(unplaced(value.type)) for value in task.operands),
        tuple(str(unplaced(value.type)) for value in task.results),
    )
    return fingerprint(task), types, _untold(task, equations)


def _untold(task: Operation, equations: Sequence[EquationRecord]) -> tuple[Hashable, ...]:
    """What the text of ``task`` cannot tell: opaque parameters (a callback), and constants.

    Tasks with equal fingerprints may differ in these, so they are compared by value where they can
    be hashed, and by identity otherwise. What is compared is kept, so that nothing else can get its
    identity.
    """
    found: list[Hashable] = []
    for op in task.walk():
        index = op.attributes.get("baechi.eqn")
        if not isinstance(index, int):
            continue
        record = equations[index]
        if record.equation is None:
            found.append(_Same(record.constant))
            continue
        opaque = [name for name, value in op.attributes.items() if is_opaque(value)]
        if opaque:
            params = compat.read_params(record.equation)
            found += [_identity(params[name]) for name in opaque if name in params]
    return tuple(found)


def is_opaque(value: object) -> bool:
    """Whether an attribute holds what no text can: a parameter that JAX keeps."""
    if isinstance(value, tuple):
        return any(map(is_opaque, value))
    if isinstance(value, DictAttr):
        return any(map(is_opaque, value.values()))
    return isinstance(value, OpaqueAttr) and value.dialect == "jax"


def _identity(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value  # type: ignore[no-any-return]


class _Same:
    """Equal to another one of the same object."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


@contextmanager
def _pool(threads: int | None) -> Iterator[ThreadPoolExecutor]:
    """A pool that is empty when the block ends, however it ends: what has not started is dropped,
    and what XLA is compiling, which nothing can stop, is waited for."""
    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="baechi-compile")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _await(futures: Iterable[Future[Any]], bar: Progress) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, bar.until_shown(), return_when=FIRST_COMPLETED)
        bar.advance(len(done))
