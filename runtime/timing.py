"""When everything really happens in a step: a timeline as the simulator gives one, but measured.

The step is issued as any step, without waiting. For each device a thread waits for its tasks one
after another and notes when each ends, as another does for each link and its transfers. When
something starts cannot be seen from outside; it is taken to start as soon as it could: when it was
issued, what it reads was there, and what ran before it on its device or link had ended. Memory is
not measured here (``memory.py`` does that).
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax

from baechi_jax.ir.location import Location
from baechi_jax.ir.types import nbytes
from baechi_jax.passes.simulate.timeline import Timeline, TimelineEvent
from baechi_jax.runtime.execute import Executor, free
from baechi_jax.runtime.instructions import Copy, Put, Run, task_device

#: A device, or a link between two.
_Lane = tuple[int, int]


@dataclass(slots=True)
class _Span:
    """One task or transfer: what it reads and gives, when it was issued and when it ended."""

    kind: Literal["task", "transfer"]
    lane: _Lane
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nbytes: int
    location: Location
    issued: float = 0.0
    ended: float = 0.0


def measure_times(
    executor: Executor, arguments: Sequence[jax.Array]
) -> tuple[list[jax.Array], Timeline]:
    """Run one step of ``executor``; its results, which are ready, and when everything happened.

    Donated arguments are given away, as in any step. Raises ExecutionError as a step does.
    """
    slots = executor.slots(arguments)
    jax.block_until_ready(list(arguments))
    spans: list[_Span] = []
    with _Watchers() as watchers:
        begun = time.perf_counter()
        for function, inputs, outputs, drops, deletes, item in executor.linked:
            issued = time.perf_counter() - begun
            values = [slots[slot] for slot in inputs]
            try:
                if isinstance(item, Run):
                    span = _task_span(executor, item)
                    results, wait = _launch(executor, item, function, values)
                    _watch(watchers, span, issued, begun, wait, spans)
                else:
                    results = function(*values)
                    if isinstance(item, Put | Copy):
                        for span, array in zip(_copy_spans(executor, item), results, strict=True):
                            wait = _waiter(array)
                            _watch(watchers, span, issued, begun, wait, spans)
            except Exception as error:
                raise executor.error(item, error, arguments) from error
            for slot, result in zip(outputs, results):
                slots[slot] = result
            del values, results
            free(slots, drops, deletes)
        results = executor.results(slots)
        jax.block_until_ready(results)
    return results, _timeline(executor, spans)


def _launch(
    executor: Executor, item: Run, function: Callable[..., Sequence[Any]], values: Sequence[Any]
) -> tuple[Sequence[Any], Callable[[], object]]:
    """Start a task; its results, and what waits for its end also where they are given away."""
    executable = executor.tasks[item.task].executable
    if executable.has_effects:
        # It has ended when it returns.
        return function(*values), lambda: None
    results, token = executable.call_with_token(*values)
    return results, token.block_until_ready


def _waiter(array: jax.Array) -> Callable[[], object]:
    def wait() -> None:
        # A copy that a task has taken over meanwhile had arrived before.
        with contextlib.suppress(RuntimeError, ValueError):
            array.block_until_ready()

    return wait


def _watch(
    watchers: _Watchers,
    span: _Span,
    issued: float,
    begun: float,
    wait: Callable[[], object],
    spans: list[_Span],
) -> None:
    span.issued = issued
    spans.append(span)

    def finish() -> None:
        wait()
        span.ended = time.perf_counter() - begun

    watchers.add(span.lane, finish)


def _task_span(executor: Executor, item: Run) -> _Span:
    task = executor.tasks[item.task].operation
    device = task_device(task)
    size = sum(nbytes(executor.program.types[slot]) for slot in item.outputs)
    name = str(task.attributes.get("sym_name", f"task {item.task}"))
    return _Span("task", (device, device), name, item.inputs, item.outputs, size, task.location)


def _copy_spans(executor: Executor, item: Put | Copy) -> list[_Span]:
    program = executor.program
    makers = {
        slot: executor.tasks[other.task].operation
        for other in program.instructions
        if isinstance(other, Run)
        for slot in other.outputs
    }
    spans: list[_Span] = []
    for source, output, target in zip(item.inputs, item.outputs, item.targets, strict=True):
        maker = makers.get(source)
        if maker is not None:
            name, location = str(maker.attributes.get("sym_name")), maker.location
        else:
            known = source < len(program.arguments)
            name = program.arguments[source].name if known else f"%{source}"
            location = Location()
        lane = (program.devices[source], target)
        size = nbytes(program.types[output])
        spans.append(_Span("transfer", lane, name, (source,), (output,), size, location))
    return spans


def _timeline(executor: Executor, spans: Sequence[_Span]) -> Timeline:
    _tighten(spans)
    count = len(executor.devices)
    there: dict[int, float] = {}
    free: dict[_Lane, float] = {}
    busy = [0.0] * count
    events: list[TimelineEvent] = []
    for span in spans:
        inputs = max((there.get(slot, 0.0) for slot in span.inputs), default=0.0)
        start = min(max(span.issued, inputs, free.get(span.lane, 0.0)), span.ended)
        free[span.lane] = span.ended
        there.update(dict.fromkeys(span.outputs, span.ended))
        source, target = span.lane
        if span.kind == "task":
            busy[source] += span.ended - start
        events.append(
            TimelineEvent(
                span.kind,
                span.name,
                start,
                span.ended,
                source,
                target,
                span.nbytes,
                span.location,
            )
        )
    events.sort(key=lambda event: event.start_seconds)
    return Timeline(
        events=tuple(events),
        device_names=tuple(str(device) for device in executor.devices),
        memory_steps=((),) * count,
        peak_bytes=(0,) * count,
        limit_bytes=tuple(each.limit_bytes for each in executor.program.memory) or (0,) * count,
        busy_seconds=tuple(busy),
        makespan_seconds=max((span.ended for span in spans), default=0.0),
    )


def _tighten(spans: Sequence[_Span]) -> None:
    """Correct ends that were noted late: nothing ends after what came after it has ended."""
    makers: dict[int, _Span] = {}
    before: list[list[_Span]] = []
    last: dict[_Lane, _Span] = {}
    for span in spans:
        found = [makers[slot] for slot in span.inputs if slot in makers]
        if span.lane in last:
            found.append(last[span.lane])
        before.append(found)
        last[span.lane] = span
        makers.update(dict.fromkeys(span.outputs, span))
    for span, found in zip(reversed(spans), reversed(before), strict=True):
        for earlier in found:
            earlier.ended = min(earlier.ended, span.ended)


@dataclass(slots=True)
class _Watchers:
    """A thread for each lane, which does what it is given, in order."""

    _queues: dict[_Lane, queue.SimpleQueue[Callable[[], None] | None]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def add(self, lane: _Lane, finish: Callable[[], None]) -> None:
        """Do ``finish`` after all that ``lane`` was given before."""
        found = self._queues.get(lane)
        if found is None:
            found = self._queues[lane] = queue.SimpleQueue()
            thread = threading.Thread(target=_work, args=(found,), name="baechi-watch")
            self._threads.append(thread)
            thread.start()
        found.put(finish)

    def __enter__(self) -> _Watchers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._queues.values():
            each.put(None)
        for thread in self._threads:
            thread.join()


def _work(given: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (finish := given.get()) is not None:
        # An error in a task is raised where its results are waited for.
        with contextlib.suppress(Exception):
            finish()
