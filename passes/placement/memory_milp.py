"""Packing groups into memory as a mixed-integer program: the last resort before giving up.

Every group goes to one device; at each of some moments of program order (the worst ones, see
``ledger.py``) the groups on a device take at most its limit plus a common excess. The program
minimises the excess, and among equals the bytes moved away from a given placement. Copies of
transferred tensors are not in it: the limits given should leave room for them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.solver import add_row, new_model

if TYPE_CHECKING:
    import mip
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.ledger import Profiles
    from baechi_jax.passes.placement.problem import PlacementProblem

#: Moments at which memory is counted.
_MOMENTS = 24
#: Most groups that get a variable of their own; the smallest others stay where they are.
_MOST_GROUPS = 160
#: Weight of a byte of excess against a byte moved.
_EXCESS_WEIGHT = 100.0


def pack_by_milp(
    problem: PlacementProblem,
    profiles: Profiles,
    device_of_group: list[int],
    limits: list[int],
    *,
    time_limit: float,
    seed: int = 0,
) -> list[int] | None:
    """The packing nearest to ``device_of_group`` with the least excess over ``limits``.

    None when the solver finds nothing within ``time_limit`` seconds.
    """
    movable = _movable(problem, profiles)
    if not movable:
        return None
    curve = _moments(profiles)
    unit = float(max(limits))
    model = new_model("memory", seed=seed)
    chosen, excess = _variables(model, problem, movable)
    _constraints(model, problem, curve, device_of_group, movable, chosen, excess, limits, unit)
    cost = dict.fromkeys(chosen, 0.0)
    for group, device in chosen:
        if device != device_of_group[group]:
            cost[group, device] = profiles.group_peak[group] / unit
    import mip

    model.objective = mip.minimize(
        mip.LinExpr(
            [excess, *chosen.values()], [_EXCESS_WEIGHT, *(cost[key] for key in chosen)], 0.0
        )
    )
    model.max_mip_gap = 0.02
    optimize(model, time_limit)
    if not model.num_solutions:
        return None
    return _decode(device_of_group, chosen)


def _movable(problem: PlacementProblem, profiles: Profiles) -> list[int]:
    free = [group for group in range(problem.groups) if len(problem.allowed[group]) > 1]
    free.sort(key=lambda group: (-profiles.group_peak[group], group))
    return sorted(group for group in free[:_MOST_GROUPS] if profiles.group_peak[group])


def _moments(profiles: Profiles) -> NDArray[np.int64]:
    """Bytes of each group at the worst moments, ``[g, moments]``."""
    curve = profiles.curve
    count = curve.shape[1]
    if count <= _MOMENTS:
        return curve
    total = curve.sum(axis=0)
    edges = np.linspace(0, count, _MOMENTS + 1).astype(np.int64)
    worst = [low + int(total[low:high].argmax()) for low, high in pairwise(edges)]
    return curve[:, worst]


def _variables(
    model: mip.Model, problem: PlacementProblem, movable: list[int]
) -> tuple[dict[tuple[int, int], mip.Var], mip.Var]:
    excess = model.add_var(name="excess")
    chosen = {
        (group, device): model.add_var(name=f"on_{group}_{device}", var_type="B")
        for group in movable
        for device in problem.allowed[group]
    }
    return chosen, excess


def _constraints(
    model: mip.Model,
    problem: PlacementProblem,
    curve: NDArray[np.int64],
    device_of_group: list[int],
    movable: list[int],
    chosen: dict[tuple[int, int], mip.Var],
    excess: mip.Var,
    limits: list[int],
    unit: float,
) -> None:
    for group in movable:
        own = [chosen[group, device] for device in problem.allowed[group]]
        add_row(model, own, [1.0] * len(own), "=", 1.0, f"one_device_{group}")
    fixed = np.zeros((problem.devices, curve.shape[1]), dtype=np.int64)
    moving = set(movable)
    for group, device in enumerate(device_of_group):
        if group not in moving:
            fixed[device] += curve[group]
    for device in range(problem.devices):
        here = [group for group in movable if device in problem.allowed[group]]
        for moment in range(curve.shape[1]):
            variables = [chosen[group, device] for group in here if curve[group, moment]]
            sizes = [float(curve[group, moment]) / unit for group in here if curve[group, moment]]
            room = (limits[device] - int(fixed[device, moment])) / unit
            add_row(
                model,
                [*variables, excess],
                [*sizes, -1.0],
                "<",
                room,
                f"memory_{device}_{moment}",
            )


def _decode(device_of_group: list[int], chosen: dict[tuple[int, int], mip.Var]) -> list[int]:
    result = list(device_of_group)
    for (group, device), variable in chosen.items():
        if variable.x > 0.5:
            result[group] = device
    return result
