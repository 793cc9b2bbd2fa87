"""What is varied: ``devices=1..8``, ``memory=2GiB,4GiB``, bandwidth, latency, placer.

An axis is a name and its values; a point has one value of each axis. Points are in the order of the
axes, the last one running fastest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from baechi_jax.ir.errors import BaechiError, TopologyError
from baechi_jax.units import parse_bytes

#: Most points of a sweep: each is a plan.
MOST_POINTS = 1000

Value = int | float | str


class SweepError(BaechiError):
    """A sweep is malformed, or asks for a machine that the topology does not describe."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``values`` of what ``name`` says, and how they were written."""

    name: str
    values: tuple[Value, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One value of each axis, by the axis's name; ``labels`` as they were written."""

    values: dict[str, Value]
    labels: dict[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{name} {label}" for name, label in self.labels.items())


def parse_axis(text: str) -> Axis:
    """The axis of ``NAME=VALUE,VALUE,...``; numbers of devices may be ranges, ``1..4,8``.

    Raises SweepError that says what is wrong and what is accepted.
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise SweepError(
            f"'{text}' is not NAME=VALUES, such as devices=1..8 or memory=2GiB,4GiB; what can be "
            f"varied: {', '.join(AXES)}"
        )
    read = AXES.get(name)
    if read is None:
        raise SweepError(f"there is no '{name}' to vary; there are {', '.join(AXES)}")
    parts = [part.strip() for part in values.split(",")]
    if not all(parts):
        raise SweepError(f"{name}: '{values}' has an empty value; write {_EXAMPLES[name]}")
    found: dict[Value, str] = {}
    for part in parts:
        for value, label in read(part):
            if value in found:
                raise SweepError(f"{name}: {label} is given twice in '{values}'")
            found[value] = label
    return Axis(name, tuple(found), tuple(found.values()))


def points(axes: Sequence[Axis]) -> list[Point]:
    """Every combination; raises SweepError for an axis given twice, and for too many points."""
    names = [axis.name for axis in axes]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SweepError(f"'{name}' is varied twice; give all its values at once")
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_POINTS:
        raise SweepError(f"that is {count} plans to make; at most {MOST_POINTS} at once")
    pairs = [list(zip(axis.values, axis.labels)) for axis in axes]
    return [
        Point(
            {name: value for name, (value, _) in zip(names, chosen)},
            {name: label for name, (_, label) in zip(names, chosen)},
        )
        for chosen in itertools.product(*pairs)
    ]


# Values -----------------------------------------------------------------------------------------

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_SECONDS = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|ms|s)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _devices(text: str) -> Iterable[tuple[Value, str]]:
    match = _RANGE.fullmatch(text)
    if match is not None:
        first, last = int(match[1]), int(match[2])
        if first > last:
            raise SweepError(f"devices: the range '{text}' runs backwards; write {last}..{first}")
    elif text.isdecimal():
        first = last = int(text)
    else:
        raise SweepError(f"devices: '{text}' is no number of devices; write {_EXAMPLES['devices']}")
    if first < 1:
        raise SweepError(f"devices: '{text}' asks for no device at all; the least is 1")
    if last - first >= MOST_POINTS:
        raise SweepError(f"devices: '{text}' is {last - first + 1} plans; at most {MOST_POINTS}")
    return [(count, str(count)) for count in range(first, last + 1)]


def _bytes(name: str) -> Callable[[str], Iterable[tuple[Value, str]]]:
    def read(text: str) -> Iterable[tuple[Value, str]]:
        if ".." in text:
            raise SweepError(f"{name}: sizes have no ranges; list them, such as {_EXAMPLES[name]}")
        try:
            return [(parse_bytes(text), text)]
        except TopologyError as error:
            raise SweepError(f"{name}: {error}") from error

    return read


def _latency(text: str) -> Iterable[tuple[Value, str]]:
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise SweepError(
            f"latency: '{text}' is no time; write a number and ns, us, ms or s, such as "
            f"{_EXAMPLES['latency']}"
        )
    return [(float(match[1]) * _UNITS[match[2]], text)]


def _placer(text: str) -> Iterable[tuple[Value, str]]:
    from baechi_jax.passes.placement.auto import PLACERS

    if text not in PLACERS and not re.fullmatch(r"single:\d+", text):
        raise SweepError(f"placer: there is no '{text}'; there are {', '.join(PLACERS)}")
    return [(text, text)]


#: How the values of each axis are read.
AXES: dict[str, Callable[[str], Iterable[tuple[Value, str]]]] = {
    "devices": _devices,
    "memory": _bytes("memory"),
    "bandwidth": _bytes("bandwidth"),
    "latency": _latency,
    "placer": _placer,
}

_EXAMPLES = {
    "devices": "1..8 or 1,2,4",
    "memory": "2GiB,4GiB",
    "bandwidth": "10GB,100GB (bytes per second of each link)",
    "latency": "10us,1ms",
    "placer": "m-etf,m-sct",
}
