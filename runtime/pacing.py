"""How many steps may be under way at once.

Dispatch is asynchronous: a loop of steps runs as far ahead of the devices as it can, and what it
issues takes memory. The plan bounds this within a step (its waits); here it is bounded from step to
step. A step takes, on each device, at most its run-ahead bytes less what lay there before; the
limit says how many such steps fit beside the resident bytes. A step that is a single task is left
alone: it behaves as ``jax.jit`` does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from baechi_jax.runtime.instructions import Program, Run

#: More steps ahead than this hide no latency.
MOST_STEPS = 8


def steps_in_flight(program: Program) -> int | None:
    """How many steps of ``program`` may be under way; None where nothing need be counted."""
    runs = sum(isinstance(item, Run) for item in program.instructions)
    if runs <= 1 or not program.memory:
        return None
    steps = MOST_STEPS
    for memory in program.memory:
        own = memory.run_ahead_bytes - memory.resident_bytes
        if own > 0:
            steps = min(steps, (memory.limit_bytes - memory.resident_bytes) // own)
    return max(steps, 1)


def last_runs(program: Program) -> frozenset[int]:
    """Positions in ``program.instructions`` of the last task of each device."""
    last: dict[int, int] = {}
    for position, item in enumerate(program.instructions):
        if isinstance(item, Run):
            device = program.tasks[item.task].attributes["baechi.devices"]
            assert isinstance(device, tuple)
            assert isinstance(device[0], int)
            last[device[0]] = position
    return frozenset(last.values())


@dataclass(frozen=True, slots=True)
class End:
    """The last task of one device in a step under way; ``token`` waits for its end."""

    token: Any
    task: int


class EarlierStepError(Exception):
    """A step under way failed with ``error``: ``task`` did, or something that it needs."""

    def __init__(self, task: int, error: Exception) -> None:
        super().__init__(f"task {task}: {error}")
        self.task = task
        self.error = error


class Pacer:
    """Holds the ends of the steps under way."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._flight: deque[list[End]] = deque()

    def wait(self) -> None:
        """Wait until one step more may start. Raises EarlierStepError for one that failed."""
        while len(self._flight) >= self._steps:
            # Popped first: a step that failed is not waited for again.
            ends = self._flight.popleft()
            try:
                for end in ends:
                    _wait(end)
            except KeyboardInterrupt:
                self._flight.appendleft(ends)
                raise

    def start(self) -> list[End]:
        """Count one step more; the list that takes its ends."""
        ends: list[End] = []
        self._flight.append(ends)
        return ends


def _wait(end: End) -> None:
    try:
        end.token.block_until_ready()
    except Exception as error:
        raise EarlierStepError(end.task, error) from error
