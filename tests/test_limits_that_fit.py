"""The search for limits that fit, with a planner that is a threshold."""

from collections.abc import Iterator

import pytest

from baechi_jax import limits_that_fit
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.limits_that_fit import NEAR, TRIES, with_limits_that_fit
from baechi_jax.passes.placement.errors import InfeasiblePlacementError

PRESENT = 1_000_000
LINKS = Topology.uniform(2).links
#: The second device is twice the first, and both keep some back.
MACHINE = Topology(
    (
        Device(memory_bytes=PRESENT + 5000, reserved_bytes=5000),
        Device(memory_bytes=2 * PRESENT + 300, reserved_bytes=300),
    ),
    LINKS,
)


class Planner:
    """Succeeds from ``least`` times the present limits on; keeps what it was asked."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.asked: list[float] = []

    def __call__(self, machine: Topology) -> bool:
        small, large = (device.usable_bytes for device in machine.devices)
        assert large == pytest.approx(2 * small, rel=0.02)
        self.asked.append(small / PRESENT)
        return small >= self.least * PRESENT


def guess(ratio: float) -> InfeasiblePlacementError:
    """An error that reckons with ``ratio`` times the present limits."""
    needed = (int(ratio * PRESENT), int(ratio * PRESENT))
    return InfeasiblePlacementError(
        "m", remark="r", remedies=("old", "a device more"), needed_bytes=needed, proven=True
    )


@pytest.mark.parametrize("least", [1.001, 1.2, 2.0, 9.0])
@pytest.mark.parametrize("estimate", [0.9, 1.0, 1.15, 2.0, 4.0])
def test_the_limits_are_near_the_least(least: float, estimate: float) -> None:
    planner = Planner(least)
    error = with_limits_that_fit(guess(estimate), MACHINE, planner)
    small = (error.needed_bytes[0] - 5000) / PRESENT
    # Sizes are printed with two digits after the point, so kibibytes are rounded up.
    assert least <= small <= least * NEAR * 1.01
    assert small in planner.asked
    assert len(planner.asked) <= TRIES
    assert error.remedies[0].startswith("limits of ")
    assert "what is reserved is counted" in error.remedies[0]
    assert error.remedies[1:] == ("a device more",)
    assert (error.message, error.remark, error.proven) == ("m", "r", True)


def test_an_estimate_that_is_right_costs_few_plans() -> None:
    planner = Planner(1.5)
    with_limits_that_fit(guess(1.5), MACHINE, planner)
    assert len(planner.asked) <= 3


def test_where_nothing_succeeds_the_error_stays() -> None:
    planner = Planner(float("inf"))
    error = guess(1.5)
    assert with_limits_that_fit(error, MACHINE, planner) is error
    assert len(planner.asked) == TRIES


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is an hour later at every look."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 3600.0

    clock = ticks()
    monkeypatch.setattr(limits_that_fit.time, "monotonic", lambda: next(clock))


@pytest.mark.usefixtures("hours")
def test_time_that_is_up_is_told() -> None:
    planner = Planner(1.1)
    error = with_limits_that_fit(guess(3.0), MACHINE, planner)
    assert len(planner.asked) == 1
    assert "planning succeeds with that; less may do" in error.remedies[0]
    hopeless = guess(1.05)
    assert with_limits_that_fit(hopeless, MACHINE, Planner(1.1)) is hopeless
