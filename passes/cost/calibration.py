"""Factors that bring the analytic model to what was measured on one kind of device.

A measured task takes ``launch + sum over families of factor * analytic seconds``. The factors and
the launch are those with the least squared *relative* error, so that small tasks count as much as
large ones, with a pull of each factor towards the ratio that fits best when all are equal: a family
that was never or hardly measured gets that ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.passes.cost.families import FAMILIES

#: Weight of the pull towards the common ratio, against one measured task.
PULL = 0.05

#: No factor is further from the common ratio than this, up or down.
FURTHEST = 20.0

_SWEEPS = 400


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured task: analytic seconds by family, and the seconds that it took."""

    families: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """``factors`` has one for each of ``FAMILIES``."""

    factors: Mapping[str, float]
    launch_seconds: float

    def seconds(self, families: Mapping[str, float]) -> float:
        """What a task takes, launch included."""
        return self.launch_seconds + sum(
            self.factors[family] * seconds for family, seconds in families.items()
        )


def calibrate(samples: Sequence[Sample], launch_seconds: float) -> Calibration:
    """Fit; ``launch_seconds`` is what is assumed of a launch before anything is measured.

    Without samples of which the model expects anything, all factors are 1.
    """
    usable = [s for s in samples if s.seconds > 0 and sum(s.families.values()) > 0]
    if not usable:
        return Calibration(dict.fromkeys(FAMILIES, 1.0), launch_seconds)
    common = _common_ratio(usable, launch_seconds)
    # Unknowns are relative to their priors, so that one pull suits them all.
    priors = [*(common for _ in FAMILIES), max(launch_seconds, 1e-6)]
    rows = [
        [
            *(common * sample.families.get(family, 0.0) / sample.seconds for family in FAMILIES),
            priors[-1] / sample.seconds,
        ]
        for sample in usable
    ]
    bounds = [*((1 / FURTHEST, FURTHEST) for _ in FAMILIES), (0.0, 1e3)]
    found = _least_squares(rows, bounds)
    values = [value * prior for value, prior in zip(found, priors, strict=True)]
    return Calibration(dict(zip(FAMILIES, values[:-1], strict=True)), values[-1])


def _common_ratio(samples: Sequence[Sample], launch_seconds: float) -> float:
    """Measured over analytic seconds, in the geometric mean weighted by seconds."""
    total = sum(sample.seconds for sample in samples)
    logarithm = 0.0
    for sample in samples:
        analytic = sum(sample.families.values()) + launch_seconds
        logarithm += sample.seconds / total * math.log(sample.seconds / analytic)
    return math.exp(logarithm)


def _least_squares(
    rows: Sequence[Sequence[float]], bounds: Sequence[tuple[float, float]]
) -> list[float]:
    """The ``x`` within ``bounds`` that brings ``rows @ x`` near 1 and ``x`` near 1.

    Coordinate descent: exact in one coordinate at a time. The pull makes the problem strictly
    convex, so it converges to the one solution.
    """
    width = len(bounds)
    x = [1.0] * width
    residual = [1.0 - sum(row) for row in rows]
    curvature = [PULL + sum(row[i] ** 2 for row in rows) for i in range(width)]
    for _ in range(_SWEEPS):
        moved = 0.0
        for i, (low, high) in enumerate(bounds):
            slope = PULL * (1.0 - x[i]) + sum(row[i] * r for row, r in zip(rows, residual))
            new = min(max(x[i] + slope / curvature[i], low), high)
            change = new - x[i]
            if change:
                residual = [r - row[i] * change for row, r in zip(rows, residual)]
                x[i] = new
                moved = max(moved, abs(change))
        if moved < 1e-9:
            break
    return x
