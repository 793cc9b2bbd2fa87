"""What to say when nothing fits: by how much, where, because of what, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.bounds import MemoryGap
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, Shortfall
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.repair import live_bytes, pack, repair
from baechi_jax.passes.simulate.judge import ALL_RULES, judge

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate.simulator import Simulation

#: Groups that the message names.
_NAMED = 5
#: Most devices that the message proposes, as a multiple of those there are.
_MOST_TIMES = 3


def infeasible(
    problem: PlacementProblem,
    profiles: Profiles,
    tried: Sequence[tuple[str, tuple[int, ...], Simulation]],
    gap: MemoryGap | None,
    placer: str,
) -> InfeasiblePlacementError:
    """The error for a problem on which all of ``tried`` (placer, assignment, simulation) fail.

    ``gap``: the proof that nothing fits, if there is one; ``placer``: what was asked for.
    """
    limits = problem.lists.limit_bytes
    name, assignment, simulation = min(tried, key=lambda each: each[2].excess_bytes(limits))
    shortfalls = tuple(
        Shortfall(device, problem.machine.names[device], peak, limit)
        for device, (peak, limit) in enumerate(zip(simulation.peak_bytes, limits))
        if peak > limit
    )
    headline = f"no placement fits the memory of {_machine(problem)}."
    if placer.startswith("single") and problem.devices > 1:
        headline = (
            f"placer '{placer}' keeps all that it can on one device, and none holds it "
            f"({_machine(problem)}); placer 'auto' spreads it."
        )
    lines = [headline]
    if gap is not None:
        what = (
            "all that lives at once"
            if gap.group < 0
            else f"{problem.describe_group(gap.group)}, which must be on one device,"
        )
        where = "all devices together have" if gap.group < 0 else "the largest limit is"
        lines.append(
            f"None can: {what} takes at least {_size(gap.needed_bytes)} "
            f"({_when(problem, gap.node)}), and {where} {_size(gap.limit_bytes)}."
        )
    lines.append(f"The closest found (by {name}):")
    for each in shortfalls:
        lines.append(
            f"  device {each.device} ({each.name}) needs {_size(each.peak_bytes)}, "
            f"{_size(each.missing_bytes)} more than its limit of {_size(each.limit_bytes)}; "
            "there at the peak:"
        )
        live = live_bytes(problem, assignment, simulation, each.device)
        ranked = sorted(live, key=lambda group: (-live[group], group))
        for group in ranked[:_NAMED]:
            alone = profiles.group_peak[group]
            most = max(limits[device] for device in problem.allowed[group])
            note = f"; by itself {_size(alone)}, too large for any device" if alone > most else ""
            lines.append(f"    {_size(live[group]):>10}  {problem.describe_group(group)}{note}")
        if len(ranked) > _NAMED:
            rest = sum(live[group] for group in ranked[_NAMED:])
            lines.append(f"    {_size(rest):>10}  {len(ranked) - _NAMED} others")
    lines.append("What would help:")
    lines += [f"  - {each}" for each in _remedies(problem, profiles, tried, shortfalls)]
    return InfeasiblePlacementError("\n".join(lines), shortfalls, proven=gap is not None)


def _remedies(
    problem: PlacementProblem,
    profiles: Profiles,
    tried: Sequence[tuple[str, tuple[int, ...], Simulation]],
    shortfalls: tuple[Shortfall, ...],
) -> list[str]:
    limits = problem.lists.limit_bytes
    remedies: list[str] = []
    ratio, peaks, placer = min(
        (
            max(peak / limit for peak, limit in zip(simulation.peak_bytes, limits)),
            simulation.peak_bytes,
            name,
        )
        for name, _, simulation in tried
    )
    relaxed = [int(limit * ratio) + 1 for limit in limits]
    fitted = repair(
        problem.with_limits(relaxed), profiles, _pack_within(problem, profiles, relaxed), ALL_RULES
    )
    found = max(peak / limit for peak, limit in zip(fitted.simulation.peak_bytes, limits))
    if found < ratio:
        ratio, peaks, placer = found, fitted.simulation.peak_bytes, "packing by memory"
    if len(set(limits)) == 1:
        remedies.append(f"a limit of {_size(max(peaks))} on each device ({placer} fits that)")
    else:
        remedies.append(f"{ratio:.3f} times every limit ({placer} fits that)")
    count = _devices_needed(problem)
    if count:
        extra = count - problem.devices
        remedies.append(
            f"{extra} more device{'s' if extra > 1 else ''} like {problem.machine.names[-1]}"
        )
    over = {each.device for each in shortfalls}
    pinned = [
        group
        for group, pin in enumerate(problem.pinned.tolist())
        if pin in over and profiles.group_peak[group]
    ]
    if pinned:
        largest = max(pinned, key=lambda group: (profiles.group_peak[group], -group))
        remedies.append(
            f"unpin some of the {len(pinned)} groups pinned to those devices; the largest is "
            f"{problem.describe_group(largest)} with {_size(profiles.group_peak[largest])}"
        )
    is_argument = problem.is_argument[problem.producer]
    kept = int(problem.tensor_bytes[is_argument & problem.persistent].sum())
    if kept * 20 > sum(limits):
        remedies.append(
            f"donate arguments (donate_argnums): undonated ones take {_size(kept)} all through "
            "the step, beside their next values"
        )
    remedies.append(
        "choose-residuals before fuse-tasks, if the pipeline lacks it: it recomputes cheap values "
        "for the backward pass instead of keeping them"
    )
    remedies.append("a smaller batch, where activations are what fills the devices")
    return remedies


def _pack_within(problem: PlacementProblem, profiles: Profiles, limits: list[int]) -> list[int]:
    return pack(problem.with_limits(limits), profiles, limits)


def _devices_needed(problem: PlacementProblem) -> int:
    """The least number of devices, more than there are, on which packing fits; 0 if none found."""
    size = problem.devices
    for count in range(size + 1, size * _MOST_TIMES + 1):
        machine = problem.machine.repeated(count)
        columns = [min(device, size - 1) for device in range(count)]
        larger = problem.with_machine(machine, np.ascontiguousarray(problem.seconds[:, columns]))
        limits = larger.lists.limit_bytes
        profiles = Profiles(larger)
        device = pack(larger, profiles, limits)
        if judge(larger, expand(larger, device), ALL_RULES).fits(limits):
            return count
    return 0


def _machine(problem: PlacementProblem) -> str:
    limits = problem.lists.limit_bytes
    count = problem.devices
    if len(set(limits)) == 1:
        devices = f"{count} devices" if count > 1 else "the device"
        return (
            f"{devices} ({_size(limits[0])} each)"
            if count > 1
            else f"{devices} ({_size(limits[0])})"
        )
    return f"{count} devices ({', '.join(map(_size, limits))})"


def _when(problem: PlacementProblem, node: int) -> str:
    if problem.lists.is_argument[node]:
        return "at the start of the step"
    source = problem.node_sources[node]
    return f"while '{problem.node_names[node]}'" + (f" at {source}" if source else "") + " runs"


def _size(nbytes: int) -> str:
    """``1.50 MiB``; the exact figures are on the error."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes} B"
