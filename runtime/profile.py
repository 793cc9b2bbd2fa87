"""How long compiled tasks really take.

Each task is run as it will run in a step: the same executable, on the same kind of device, with
inputs that lie there and whose buffers it takes where the step lets it. Samples go round: every
task once, then every task again, so that a passing load on the machine falls on all alike, and the
caches are about as cold as in a step. In each sample the first run is not counted: making inputs
has left the processor in another state than the task before leaves it in a step. Of the samples the
median is taken. A step launches without waiting, so short tasks are launched several times and
waited for once: what waiting itself takes (much, on a busy machine) is no part of a step.

Time is bounded by a ``Budget``. It counts making inputs and running, not compiling. No run is
started that is expected to pass the limit: by the model before the first one, by what that one took
from then on. A run that has started is not stopped. What has not been measured when the budget ends
stays unmeasured.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import jax

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.types import TensorType, Type, nbytes
from baechi_jax.runtime.profile_inputs import make_inputs
from baechi_jax.runtime.progress import Progress

_log = logging.getLogger(__name__)

#: Tasks shorter than this are run in batches that take about so long, of at most so many runs, and
#: get twice the samples: their times scatter more. Longer ones run twice, if they take no second.
SHORT_SECONDS = 20e-3
LONG_SECONDS = 1.0
LONGEST_BATCH = 16

#: Inputs that are kept from sample to sample, over all tasks; no more than a fourth of a device.
KEPT_BYTES = 256 << 20

#: Inputs and results of the runs of one batch.
BATCH_BYTES = 256 << 20

Clock = Callable[[], float]


class Budget:
    """Seconds that may be spent on measuring, over everything that is measured for one plan."""

    def __init__(self, seconds: float, clock: Clock = time.perf_counter) -> None:
        self.seconds = seconds
        self.clock = clock
        self._before = 0.0
        self._since: float | None = None

    @property
    def spent(self) -> float:
        """Seconds so far, those of what is running now included."""
        return self._before + (0.0 if self._since is None else self.clock() - self._since)

    def allows(self, expected_seconds: float) -> bool:
        """Whether something that takes ``expected_seconds`` may start."""
        spent = self.spent
        return spent < self.seconds and spent + expected_seconds <= self.seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time inside."""
        self._since = self.clock()
        try:
            yield
        finally:
            self._before, self._since = self.spent, None


@dataclass(frozen=True, slots=True)
class Subject:
    """A compiled task that is to be measured.

    ``types`` are those of its inputs, ``result_bytes`` what its results take. ``expected_seconds``
    decides who comes first, and whether the first run may start.
    """

    name: str
    executable: compat.Executable
    device: jax.Device
    types: tuple[Type, ...]
    expected_seconds: float
    result_bytes: int = 0
    #: What the device has.
    room_bytes: int = BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Measurement:
    """The median of ``samples`` runs; ``spread`` is the middle half of them, relative to it."""

    seconds: float
    samples: int
    spread: float


@dataclass(slots=True)
class _State:
    """What is known of one subject."""

    subject: Subject
    #: Inputs that its runs leave alone, by position.
    kept: dict[int, jax.Array] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    #: Runs of one sample.
    batch: int = 1
    #: How long a sample took, making its inputs included.
    whole: float = 0.0
    failed: bool = False


class TaskSampler:
    """Samples of ``subjects``; more can be taken at any time."""

    def __init__(
        self, subjects: Sequence[Subject], budget: Budget, progress: bool | None = None
    ) -> None:
        self._states = [_State(subject) for subject in subjects]
        # Longest first: what matters most is measured also where the budget is small.
        self._order = sorted(self._states, key=lambda state: -state.subject.expected_seconds)
        self._budget = budget
        self._progress = progress
        self._kept_bytes = 0

    def run(self, repeats: int) -> None:
        """Take samples until each subject has ``repeats`` (short ones more) or time is up."""
        rounds = 2 * repeats
        with Progress("measuring", rounds * len(self._order), self._progress) as bar:
            for round_ in range(rounds):
                for state in self._order:
                    bar.advance()
                    wanted = repeats * (2 if state.batch > 2 else 1)
                    if len(state.seconds) <= min(round_, wanted - 1):
                        self._sample(state)

    @property
    def measurements(self) -> list[Measurement | None]:
        """For each subject, what came of it; None where no run was counted."""
        return [_measurement(state.seconds) for state in self._states]

    def _sample(self, state: _State) -> None:
        warm = bool(state.seconds)
        # Before the first run only the model has an idea; the one that counts is the second.
        expected = state.whole if warm else 2 * state.subject.expected_seconds
        if state.failed or not self._budget.allows(expected):
            return
        clock = self._budget.clock
        started = clock()
        with self._budget.running():
            try:
                seconds = None if warm else self._first(state)
                state.seconds.append(self._run(state) if seconds is None else seconds)
            except jax.errors.JaxRuntimeError as error:
                # Mostly no memory: the step may still run, since there less lies beside it.
                _log.info("%s cannot be measured: %s", state.subject.name, error)
                state.failed = True
                state.kept.clear()
        state.whole = clock() - started

    def _first(self, state: _State) -> float | None:
        """Find the batch of a task that has not run; its seconds where there is no time for one."""
        call = state.subject.executable.call
        clock = self._budget.clock
        started = clock()
        jax.block_until_ready(call(*self._inputs(state)))
        cold = clock() - started
        if not self._budget.allows(cold):
            return cold
        seconds = self._run(state, warm=True)
        state.batch = self._batch(state, seconds)
        return None if self._budget.allows((state.batch + 1) * seconds) else seconds

    def _batch(self, state: _State, seconds: float) -> int:
        """How many runs make a sample of a task of which one takes about ``seconds``."""
        runs = min(int(SHORT_SECONDS / max(seconds, 1e-9)), LONGEST_BATCH)
        if seconds < LONG_SECONDS:
            runs = max(runs, 2)
        each = sum(nbytes(type_) for type_ in state.subject.types) + state.subject.result_bytes
        room = min(BATCH_BYTES, state.subject.room_bytes)
        return max(min(runs, room // max(each, 1)), 1)

    def _run(self, state: _State, *, warm: bool = False) -> float:
        """Seconds of one run, in a sample of as many as make a batch after one that warms up.

        ``warm``: there was one just now.
        """
        call = state.subject.executable.call
        calls = [self._inputs(state) for _ in range(state.batch + (not warm))]
        clock = self._budget.clock
        if not warm:
            jax.block_until_ready(call(*calls.pop()))
        started = clock()
        results = [call(*calls.pop()) for _ in range(state.batch)]
        jax.block_until_ready(results)
        return (clock() - started) / state.batch

    def _inputs(self, state: _State) -> list[jax.Array]:
        subject = state.subject
        missing = [i for i in range(len(subject.types)) if i not in state.kept]
        made = make_inputs([subject.types[i] for i in missing], subject.device)
        inputs = dict(state.kept)
        for position, array in zip(missing, made, strict=True):
            inputs[position] = array
            size = nbytes(subject.types[position])
            taken = subject.executable.donated[position]
            most = min(KEPT_BYTES, subject.room_bytes // 4)
            if not taken and self._kept_bytes + size <= most:
                state.kept[position] = array
                self._kept_bytes += size
        return [inputs[i] for i in range(len(subject.types))]


def _measurement(seconds: Sequence[float]) -> Measurement | None:
    if not seconds:
        return None
    middle = statistics.median(seconds)
    spread = 0.0
    if len(seconds) > 1 and middle > 0:
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        spread = (high - low) / middle
    return Measurement(middle, len(seconds), spread)


def takes_bytes(types: Sequence[Type], results: Sequence[Type], temporary_bytes: int) -> int:
    """Bytes that measuring a task needs on its device."""
    tensors = [type_ for type_ in (*types, *results) if isinstance(type_, TensorType)]
    return sum(nbytes(type_) for type_ in tensors) + temporary_bytes
