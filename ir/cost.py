"""Cost and memory attributes."""

from __future__ import annotations

from dataclasses import dataclass

from baechi_jax.ir.attributes import ParameterizedAttr, register_attribute


@register_attribute("baechi.cost")
@dataclass(frozen=True, slots=True)
class Cost(ParameterizedAttr):
    """What an op or a task costs: ``#baechi.cost<flops = 3.0, ...>``.

    ``seconds`` holds one entry for each kind in ``Topology.kinds``, in that order.
    ``temporary_bytes`` is the peak of what lives only while it runs, on top of operands and
    results; ``output_bytes`` is the sum of its results. Resident bytes (the step's arguments, alive
    when it starts) are in no cost: they follow from the arguments' types.
    """

    flops: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    seconds: tuple[float, ...] = ()
    temporary_bytes: int = 0
    output_bytes: int = 0


@register_attribute("baechi.memory")
@dataclass(frozen=True, slots=True)
class DeviceMemory(ParameterizedAttr):
    """The memory plan of one device, in bytes.

    ``peak_bytes``: the most that lives at once when instructions run one by one in issue order.
    ``run_ahead_bytes``: the same when the host runs as far ahead as the plan's waits allow.
    ``resident_bytes``: arguments that live there when the step starts.
    """

    peak_bytes: int = 0
    run_ahead_bytes: int = 0
    resident_bytes: int = 0
    limit_bytes: int = 0


@register_attribute("baechi.task_memory")
@dataclass(frozen=True, slots=True)
class TaskMemory(ParameterizedAttr):
    """What a compiled task takes on top of its operands and results, as its compiler says.

    ``task``: its fingerprint, and the operands that it takes over (``baechi.donates``);
    ``structure``: what is in it, wherever its operands come from (``passes/memory_measured.py``),
    where it takes more than predicted; ``kind``: of device. ``modelled_bytes``: the prediction.
    """

    task: str = ""
    structure: str = ""
    kind: str = ""
    temporary_bytes: int = 0
    modelled_bytes: int = 0
