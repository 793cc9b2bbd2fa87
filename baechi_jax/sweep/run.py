"""Planning a function once for each point of a sweep: one trace, many machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import BaechiError
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, Shortfall
from baechi_jax.plan import Plan
from baechi_jax.planner import PlannerOptions, pipeline_text, plan_module
from baechi_jax.sweep.axes import Axis, Point, points
from baechi_jax.sweep.machines import machines_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What planning for one point gave.

    A plan: ``step_seconds`` and the fields after it. No room: ``shortfalls`` of the placement that
    came closest, and ``needed_bytes``, limits for each device that another keeps in simulation
    (empty where none was found). Anything else that went wrong: ``error``. ``peak_bytes`` and
    ``limit_bytes`` are of every device.
    """

    point: Point
    step_seconds: float | None = None
    lower_bound_seconds: float = 0.0
    peak_bytes: tuple[int, ...] = ()
    limit_bytes: tuple[int, ...] = ()
    devices_used: int = 0
    placer: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    needed_bytes: tuple[int, ...] = ()
    error: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is a plan."""
        return self.step_seconds is not None

    @property
    def fullest(self) -> tuple[int, int]:
        """Peak and limit of the device whose limit is used most; for no room, of the worst."""
        if self.shortfalls:
            worst = max(self.shortfalls, key=lambda each: (each.missing_bytes, -each.device))
            return worst.peak_bytes, worst.limit_bytes
        pairs = list(zip(self.peak_bytes, self.limit_bytes, strict=True))
        return max(pairs, key=lambda pair: pair[0] / pair[1], default=(0, 0))

    @property
    def missing_bytes(self) -> int:
        """Bytes by which the worst device is above its limit; zero for a plan."""
        return max((each.missing_bytes for each in self.shortfalls), default=0)


def sweep(
    make_module: Callable[[], Module],
    topology: Topology,
    axes: Sequence[Axis],
    *,
    placer: str = "auto",
    pipeline: str | None = None,
) -> tuple[list[Point], Iterator[Outcome]]:
    """The points of ``axes``, and what planning for each gives, one by one.

    ``make_module`` gives a traced module that passes may change, another one each time. Raises
    SweepError when the axes do not fit the topology, before anything is planned.
    """
    asked = points(axes)
    machines = machines_of(topology, asked)
    return asked, _outcomes(make_module, asked, machines, placer, pipeline)


def _outcomes(
    make_module: Callable[[], Module],
    asked: Sequence[Point],
    machines: Sequence[Topology],
    placer: str,
    pipeline: str | None,
) -> Iterator[Outcome]:
    for point, machine in zip(asked, machines, strict=True):
        text = pipeline or pipeline_text(str(point.values.get("placer", placer)))
        try:
            module = plan_module(make_module, machine, PlannerOptions(text), advise=False).module
        except InfeasiblePlacementError as error:
            yield _no_room(point, error)
        except BaechiError as error:
            yield Outcome(point, error=str(error).partition("\n")[0])
        else:
            yield _planned(point, Plan(module))


def _planned(point: Point, plan: Plan) -> Outcome:
    from baechi_jax.ir.attributes import DictAttr

    decided = plan.module.attributes.get("baechi.placement")
    entries = dict(decided.items_) if isinstance(decided, DictAttr) else {}
    return Outcome(
        point,
        plan.step_seconds,
        plan.lower_bound_seconds,
        plan.peak_bytes,
        tuple(device.usable_bytes for device in plan.topology.devices),
        len(plan.devices_used),
        str(entries.get("placer", "")),
    )


def _no_room(point: Point, error: InfeasiblePlacementError) -> Outcome:
    if not error.shortfalls:
        return Outcome(point, error=str(error).partition("\n")[0])
    return Outcome(point, shortfalls=error.shortfalls, needed_bytes=error.needed_bytes)


def figures(outcome: Outcome) -> dict[str, Any]:
    """One point as JSON's values."""
    found: dict[str, Any] = {**outcome.point.values, "fits": outcome.fits}
    if outcome.fits:
        return found | {
            "step_seconds": outcome.step_seconds,
            "lower_bound_seconds": outcome.lower_bound_seconds,
            "peak_bytes": list(outcome.peak_bytes),
            "limit_bytes": list(outcome.limit_bytes),
            "devices_used": outcome.devices_used,
            "placed_by": outcome.placer,
        }
    if outcome.error:
        return found | {"error": outcome.error}
    return found | {
        "missing_bytes": outcome.missing_bytes,
        "needed_bytes": list(outcome.needed_bytes),
        "shortfalls": [
            {
                "device": each.device,
                "name": each.name,
                "peak_bytes": each.peak_bytes,
                "limit_bytes": each.limit_bytes,
            }
            for each in outcome.shortfalls
        ],
    }
