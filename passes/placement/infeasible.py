"""What to say when nothing fits: by how much, where, because of what, and what would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.peak_table import size_text
from baechi_jax.passes.placement.bounds import MemoryGap
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, Shortfall
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.live import live_bytes, peak_table, when
from baechi_jax.passes.placement.placement import expand
from baechi_jax.passes.placement.repair import Repaired, pack, repair
from baechi_jax.passes.simulate.judge import ALL_RULES, judge

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem
    from baechi_jax.passes.simulate.simulator import Simulation

#: Placers' proposals: placer, assignment, simulation.
Tried = Sequence[tuple[str, tuple[int, ...], "Simulation"]]

#: Groups that are named as too large for any device.
_NAMED = 3
#: Most devices that the message proposes, as a multiple of those there are.
_MOST_TIMES = 3
#: Limits that are tried in the search for the smallest, and when two are near enough.
_LIMITS, _NEAR = 6, 1.02


def infeasible(
    problem: PlacementProblem,
    profiles: Profiles,
    tried: Tried,
    gap: MemoryGap | None,
    placer: str,
) -> InfeasiblePlacementError:
    """The error for a problem on which all of ``tried`` fail.

    ``gap``: the proof that nothing fits, if there is one; ``placer``: what was asked for.
    """
    limits = problem.lists.limit_bytes
    name, assignment, simulation = min(tried, key=lambda each: each[2].excess_bytes(limits))
    shortfalls = tuple(
        Shortfall(device, problem.machine.names[device], peak, limit)
        for device, (peak, limit) in enumerate(zip(simulation.peak_bytes, limits))
        if peak > limit
    )
    lines = [_headline(problem, placer)]
    if gap is not None:
        what = (
            "all that lives at once"
            if gap.group < 0
            else f"{problem.describe_group(gap.group)}, which must be on one device,"
        )
        where = "all devices together have" if gap.group < 0 else "the largest limit is"
        lines.append(
            f"None can: {what} takes at least {size_text(gap.needed_bytes)} "
            f"({when(problem, gap.node)}), and {where} {size_text(gap.limit_bytes)}."
        )
    worst = max(shortfalls, key=lambda each: (each.missing_bytes, -each.device))
    table = peak_table(problem, assignment, simulation, worst.device)
    lines.append(f"The closest found (by {name}): {table.headline}.")
    lines += [
        f"Device {each.device} ({each.name}) needs {size_text(each.peak_bytes)}, "
        f"{size_text(each.missing_bytes)} more than its limit, too."
        for each in shortfalls
        if each is not worst
    ]
    lines.append(f"The largest buffers on device {worst.device} then, and their share of its peak:")
    needed, remedies = _remedies(problem, profiles, tried, shortfalls)
    too_large = _too_large(problem, profiles, assignment, simulation, worst.device)
    return InfeasiblePlacementError(
        "\n".join(lines),
        shortfalls,
        proven=gap is not None,
        peak=table,
        remark="\n".join(too_large),
        remedies=tuple(remedies),
        needed_bytes=needed,
    )


def _headline(problem: PlacementProblem, placer: str) -> str:
    if placer.startswith("single") and problem.devices > 1:
        return (
            f"placer '{placer}' keeps all that it can on one device, and none holds it "
            f"({_machine(problem)}); placer 'auto' spreads it."
        )
    return f"no placement fits the memory of {_machine(problem)}."


def _too_large(
    problem: PlacementProblem,
    profiles: Profiles,
    assignment: tuple[int, ...],
    simulation: Simulation,
    device: int,
) -> list[str]:
    """A line for each group there that no device can hold by itself, the largest first."""
    limits = problem.lists.limit_bytes
    live = live_bytes(problem, assignment, simulation, device)
    found = [
        group
        for group in live
        if profiles.group_peak[group] > max(limits[each] for each in problem.allowed[group])
    ]
    found.sort(key=lambda group: (-profiles.group_peak[group], group))
    return [
        f"{problem.describe_group(group)} takes {size_text(profiles.group_peak[group])} by itself, "
        "too large for any device where it may be."
        for group in found[:_NAMED]
    ]


def _remedies(
    problem: PlacementProblem,
    profiles: Profiles,
    tried: Tried,
    shortfalls: tuple[Shortfall, ...],
) -> tuple[tuple[int, ...], list[str]]:
    """Limits that were found to fit, and what to try."""
    limits = problem.lists.limit_bytes
    remedies: list[str] = []
    needed, how = smallest_limits(problem, profiles, tried)
    if len(set(limits)) == 1:
        needed = (max(needed),) * len(needed)
    remedies.append(limits_text(needed, how))
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
            f"{problem.describe_group(largest)} with {size_text(profiles.group_peak[largest])}"
        )
    is_argument = problem.is_argument[problem.producer]
    kept = int(problem.tensor_bytes[is_argument & problem.persistent].sum())
    if kept * 20 > sum(limits):
        remedies.append(
            f"donate arguments (donate_argnums): undonated ones take {size_text(kept)} all through "
            "the step, beside their next values"
        )
    remedies.append(
        "choose-residuals before fuse-tasks, if the pipeline lacks it: it recomputes cheap values "
        "for the backward pass instead of keeping them"
    )
    remedies.append("a smaller batch, where activations are what fills the devices")
    return needed, remedies


def smallest_limits(
    problem: PlacementProblem, profiles: Profiles, tried: Tried
) -> tuple[tuple[int, ...], str]:
    """Limits that fit, none below the present ones, and what keeps them.

    Starts from the peaks of the placer that is least above the limits, as a share of them, and
    tries ever smaller limits by packing and repair, a few times. An estimate: less may do, and the
    rest of the pipeline may need more. The planner tries it (``baechi_jax/limits_that_fit.py``).
    """
    limits = problem.lists.limit_bytes

    def ratio_of(simulation: Simulation) -> float:
        return max(peak / limit for peak, limit in zip(simulation.peak_bytes, limits))

    how, _, best = min(tried, key=lambda each: ratio_of(each[2]))
    low, attempt = 1.0, ratio_of(best)
    for _ in range(_LIMITS):
        found = _pack_within(problem, profiles, attempt).simulation
        if ratio_of(found) < ratio_of(best):
            best, how = found, "packing by memory"
        if ratio_of(found) > attempt:
            low = attempt
        if ratio_of(best) <= low * _NEAR:
            break
        attempt = (low * ratio_of(best)) ** 0.5
    needed = tuple(map(max, limits, best.peak_bytes))
    return needed, f"{how} keeps to that in simulation; less may do"


def _pack_within(problem: PlacementProblem, profiles: Profiles, ratio: float) -> Repaired:
    relaxed = [int(limit * ratio) + 1 for limit in problem.lists.limit_bytes]
    within = problem.with_limits(relaxed)
    return repair(within, profiles, pack(within, profiles, relaxed), ALL_RULES)


def limits_text(limit_bytes: Sequence[int], why: str) -> str:
    """``a limit of 1.51 MiB on each device (why)``; for unequal ones, each device's."""
    if len(set(limit_bytes)) == 1:
        return f"a limit of {at_least(limit_bytes[0])} on each device ({why})"
    return f"limits of {', '.join(map(at_least, limit_bytes))} ({why})"


def at_least(nbytes: int) -> str:
    """``1.51 MiB``: never less than ``nbytes``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{math.ceil(100 * nbytes / factor) / 100:.2f} {unit}"
    return f"{nbytes} B"


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
            f"{devices} ({size_text(limits[0])} each)"
            if count > 1
            else f"{devices} ({size_text(limits[0])})"
        )
    return f"{count} devices ({', '.join(map(size_text, limits))})"
