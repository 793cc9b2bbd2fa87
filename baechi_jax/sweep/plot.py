"""A sweep as a picture: predicted step time and peak memory, SVG drawn by hand, or a page with it.

The axis with most values runs to the right, each combination of the others is a line. A point for
which there is no room has a cross: below in the upper panel, at the bytes that it would need in the
lower one.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from baechi_jax.ir.files import write_text_atomically
from baechi_jax.sweep.axes import Axis, SweepError
from baechi_jax.sweep.run import Outcome
from baechi_jax.units import format_bytes, format_seconds

#: Endings of files that can be written.
ENDINGS = (".svg", ".html")

_WIDTH, _LEFT, _RIGHT, _TOP, _PANEL, _GAP = 760, 92, 24, 56, 220, 66
_COLOURS = ("#3b6fd4", "#e08a1e", "#2a9d78", "#c2477f", "#7a5cc9", "#4fb0cf", "#b8a12c", "#8a6350")
_INK, _DIM, _LINE, _RED = "#1c2430", "#667085", "#e3e7ed", "#cf3b3b"
_FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def check_plot_file(path: Path) -> None:
    """Raise SweepError unless ``path`` ends in one of ``ENDINGS``."""
    if path.suffix.lower() not in ENDINGS:
        raise SweepError(
            f"the ending of '{path}' says what to draw: {' or '.join(ENDINGS)}, not '{path.suffix}'"
        )


def write_plot(path: Path, title: str, axes: Sequence[Axis], outcomes: Sequence[Outcome]) -> None:
    """Write the picture, whole or not at all."""
    check_plot_file(path)
    picture = draw(title, axes, outcomes)
    if path.suffix.lower() == ".html":
        picture = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(title)}</title></head>\n"
            f'<body style="margin:24px">\n{picture}</body></html>\n'
        )
    write_text_atomically(path, picture)


def draw(title: str, axes: Sequence[Axis], outcomes: Sequence[Outcome]) -> str:
    """The picture as SVG's text."""
    across = max(axes, key=lambda axis: (len(axis.values), -axes.index(axis)))
    lines = _lines(across, axes, outcomes)
    legend = _Legend([line.label for line in lines if line.label])
    top = _TOP + legend.height
    cross = any(not each.fits for each in outcomes)
    steps = _Panel(
        "predicted step" + " (crosses: no room)" * cross,
        top,
        across,
        [_y_step(line) for line in lines],
        format_seconds,
        time_ticks,
    )
    peaks = _Panel(
        "peak of the fullest device (dashes: its limit)",
        top + _PANEL + _GAP,
        across,
        [_y_peak(line) for line in lines],
        format_bytes,
        byte_ticks,
    )
    height = top + 2 * _PANEL + 2 * _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="{html.escape(_FONT)}" font-size="12">'
    )
    parts = [
        head,
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, anchor="start", fill=_INK, size=16, weight=650),
        *legend.parts(),
        *steps.frame(),
        *peaks.frame(),
    ]
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _draw_steps(steps, line, colour, number)
        parts += _draw_peaks(peaks, line, colour)
    parts.append(_text(_WIDTH / 2, height - 14, across.name, fill=_INK))
    return "\n".join([*parts, "</svg>", ""])


# Data -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Series:
    """The outcomes along the axis, by position on it; None for points that were not planned."""

    label: str
    outcomes: tuple[Outcome | None, ...]


def _lines(across: Axis, axes: Sequence[Axis], outcomes: Sequence[Outcome]) -> list[_Series]:
    others = [axis.name for axis in axes if axis is not across]
    place = {value: index for index, value in enumerate(across.values)}
    found: dict[str, list[Outcome | None]] = {}
    for outcome in outcomes:
        label = ", ".join(f"{name} {outcome.point.labels[name]}" for name in others)
        row = found.setdefault(label, [None] * len(across.values))
        row[place[outcome.point.values[across.name]]] = outcome
    return [_Series(label, tuple(row)) for label, row in found.items()]


def _y_step(line: _Series) -> list[float]:
    return [each.step_seconds or 0.0 for each in line.outcomes if each is not None]


def _y_peak(line: _Series) -> list[float]:
    drawn = [each for each in line.outcomes if each is not None and not each.error]
    peaks = [float(each.fullest[0]) for each in drawn]
    most = max(peaks, default=0.0)
    # Limits far above would flatten the picture.
    return [*peaks, *(float(each.fullest[1]) for each in drawn if each.fullest[1] <= 3 * most)]


# Drawing ----------------------------------------------------------------------------------------


def _draw_steps(panel: _Panel, line: _Series, colour: str, number: int) -> list[str]:
    parts: list[str] = []
    points: list[tuple[float, float]] = []
    for index, outcome in enumerate(line.outcomes):
        x = panel.x(index)
        if outcome is None or outcome.step_seconds is None:
            # A line does not go through a point that is not there.
            parts += _polyline(points, colour)
            points = []
            if outcome is not None:
                y = panel.bottom - 9 - 14 * (number % 8)
                parts.append(_cross(x, y, colour, _told(outcome)))
            continue
        points.append((x, panel.y(outcome.step_seconds)))
        parts.append(_dot(*points[-1], colour, _told(outcome)))
    return [*_polyline(points, colour), *parts]


def _draw_peaks(panel: _Panel, line: _Series, colour: str) -> list[str]:
    parts: list[str] = []
    points: list[tuple[float, float]] = []
    for index, outcome in enumerate(line.outcomes):
        x = panel.x(index)
        if outcome is None or outcome.error:
            parts += _polyline(points, colour)
            points = []
            continue
        peak, limit = outcome.fullest
        if limit <= panel.most:
            y = panel.y(limit)
            parts.append(
                f'<line x1="{x - 12:.1f}" x2="{x + 12:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="4 2"/>'
            )
        if outcome.fits:
            points.append((x, panel.y(peak)))
            parts.append(_dot(*points[-1], colour, _told(outcome)))
        else:
            parts += _polyline(points, colour)
            points = []
            parts.append(_cross(x, panel.y(peak), colour, _told(outcome)))
    return [*_polyline(points, colour), *parts]


def _told(outcome: Outcome) -> str:
    if outcome.error:
        return f"{outcome.point}: {outcome.error}"
    peak, limit = outcome.fullest
    memory = f"{format_bytes(peak)} of {format_bytes(limit)}"
    if outcome.step_seconds is None:
        told = f"{outcome.point}: no room, {format_bytes(outcome.missing_bytes)} missing ({memory})"
        if outcome.needed_bytes:
            told += f"; {format_bytes(max(outcome.needed_bytes))} on each device may do"
        return told
    return f"{outcome.point}: step {format_seconds(outcome.step_seconds)}, peak {memory}"


class _Panel:
    """One chart: a frame, a scale from zero, a place on it for each value of the axis."""

    def __init__(
        self,
        title: str,
        top: float,
        across: Axis,
        values: Sequence[Sequence[float]],
        unit: Callable[[float], str],
        ticks: Callable[[float], list[float]],
    ) -> None:
        self.title = title
        self.top = top
        self.bottom = top + _PANEL
        self.across = across
        self.unit = unit
        self.ticks = ticks(max((value for row in values for value in row), default=0.0))
        self.most = self.ticks[-1]

    def x(self, index: int) -> float:
        """Where the value of that place on the axis is."""
        width = (_WIDTH - _LEFT - _RIGHT) / len(self.across.values)
        return _LEFT + (index + 0.5) * width

    def y(self, value: float) -> float:
        """Where a value is."""
        return self.bottom - _PANEL * value / self.most

    def frame(self) -> list[str]:
        """Title, lines and labels."""
        parts = [_text(_LEFT, self.top - 12, self.title, anchor="start", fill=_INK, weight=600)]
        for tick in self.ticks:
            y = self.y(tick)
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{_DIM if tick == 0 else _LINE}"/>'
            )
            parts.append(_text(_LEFT - 8, y + 4, self.unit(tick) if tick else "0", anchor="end"))
        labels = self.across.labels
        longest = max(map(len, labels)) * 7 + 8
        room = (_WIDTH - _LEFT - _RIGHT) / len(labels)
        every = max(1, math.ceil(longest / room))
        for index in range(0, len(labels), every):
            parts.append(_text(self.x(index), self.bottom + 18, labels[index]))
        return parts


class _Legend:
    """Names of the lines, in rows."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.places: list[tuple[float, float, str]] = []
        x, y = float(_LEFT), 46.0
        for label in labels:
            width = 30 + 6.8 * len(label)
            if x > _LEFT and x + width > _WIDTH - _RIGHT:
                x, y = float(_LEFT), y + 18
            self.places.append((x, y, label))
            x += width
        self.height = int(y - 46 + 30) if labels else 0

    def parts(self) -> list[str]:
        """A dot and a name each."""
        found: list[str] = []
        for number, (x, y, label) in enumerate(self.places):
            found.append(_dot(x + 5, y - 4, _COLOURS[number % len(_COLOURS)], label))
            found.append(_text(x + 15, y, label, anchor="start"))
        return found


def time_ticks(most: float) -> list[float]:
    """Four to six round numbers from zero to ``most`` or a little more."""
    return _ticks(most, 10.0)


def byte_ticks(most: float) -> list[float]:
    """The same for bytes, round in the unit in which they are written."""
    unit = 1024.0 ** int(math.log(max(most, 1.0), 1024))
    return [unit * tick for tick in _ticks(most / unit, 10.0)]


def _ticks(most: float, base: float) -> list[float]:
    if most <= 0:
        return [0.0, 1.0]
    power = base ** math.floor(math.log(most / 4, base))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * 5 >= most)
    return [step * index for index in range(math.ceil(most / step - 1e-9) + 1)]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "middle",
    fill: str = _DIM,
    size: int = 12,
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{html.escape(text)}</text>'
    )


def _dot(x: float, y: float, colour: str, told: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
        f"<title>{html.escape(told)}</title></circle>"
    )


def _cross(x: float, y: float, colour: str, told: str) -> str:
    return (
        f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" stroke="{colour}" '
        f'stroke-width="2.5" fill="none"><title>{html.escape(told)}</title></path>'
    )


def _polyline(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    if len(points) < 2:
        return []
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>']
