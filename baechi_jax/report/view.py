"""What a report shows of a plan, as plain data: read from the planned module and its timeline.

Every writer (HTML, Perfetto, tables) reads this and nothing else. Seconds count from the start of
the step; bytes are the plan's prediction.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device: what it does in a step and what it holds."""

    index: int
    name: str
    kind: str
    tasks: int
    busy_seconds: float
    flops: float
    peak_bytes: int
    run_ahead_bytes: int
    resident_bytes: int
    limit_bytes: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of ops of one layer and phase inside a task, in program order.

    ``share`` is its share of the task's predicted seconds. XLA orders and fuses a task's ops as it
    likes, so a part says how much, not when.
    """

    layer: str
    phase: str
    share: float


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task's run. ``layer`` and ``phase`` name the part with most seconds."""

    name: str
    device: int
    start_seconds: float
    end_seconds: float
    layer: str
    phase: str
    parts: tuple[Part, ...]
    flops: float
    ops: int
    output_bytes: int
    temporary_bytes: int
    source: str

    @property
    def seconds(self) -> float:
        """How long it runs."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class TransferView:
    """One copy of one value from device to device."""

    channel: int
    source: int
    target: int
    start_seconds: float
    end_seconds: float
    nbytes: int
    value: str

    @property
    def seconds(self) -> float:
        """How long the link is busy with it."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """One task or transfer as it ran; for a task ``source`` and ``target`` are its device."""

    name: str
    source: int
    target: int
    start_seconds: float
    end_seconds: float
    nbytes: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step as it ran. ``tasks`` are called as those of the plan."""

    seconds: float
    tasks: tuple[MeasuredSpan, ...]
    transfers: tuple[MeasuredSpan, ...]


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value between tasks, or an argument."""

    name: str
    type: str
    nbytes: int
    device: int
    source: str


@dataclass(frozen=True, slots=True)
class LayerNode:
    """The tasks of one layer in one phase on one device."""

    layer: str
    phase: str
    device: int
    tasks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LayerEdge:
    """Bytes that flow between two nodes, by index."""

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One placement that was tried; its step time is before tasks are merged and refined."""

    placer: str
    status: str
    step_seconds: float
    fits: bool


@dataclass(frozen=True, slots=True)
class LoopView:
    """An operation with a body that no placement can divide, with most of the step's work.

    ``what`` is its kind (``while loop``), ``share`` its share of the predicted seconds of all
    operations.
    """

    what: str
    source: str
    share: float
    device: int


@dataclass(frozen=True, slots=True)
class PlanView:
    """A whole plan.

    ``memory[d]`` is ``((seconds, bytes), ...)``: from then on, that much. ``layers`` and ``phases``
    are in the order in which a reader expects them: that of the forward pass, and of training.
    """

    title: str
    devices: tuple[DeviceView, ...]
    tasks: tuple[TaskView, ...]
    transfers: tuple[TransferView, ...]
    memory: tuple[tuple[tuple[float, int], ...], ...]
    values: tuple[ValueView, ...]
    layers: tuple[str, ...]
    phases: tuple[str, ...]
    nodes: tuple[LayerNode, ...]
    edges: tuple[LayerEdge, ...]
    step_seconds: float
    lower_bound_seconds: float
    placement: tuple[tuple[str, str], ...] = ()
    candidates: tuple[CandidateView, ...] = ()
    #: What happened when the compiled tasks took more memory than predicted.
    memory_note: str = ""
    #: What keeps the work on one device.
    loop: LoopView | None = None
    #: The step as it ran, where it was measured.
    measured: MeasuredStep | None = None

    @property
    def transfer_bytes(self) -> int:
        """Bytes moved between devices in one step."""
        return sum(transfer.nbytes for transfer in self.transfers)
