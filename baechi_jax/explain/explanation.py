"""An answer to "why is it there?": what binds it, and what every other device would cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baechi_jax.explain.colocation import colocation_reasons, pinned_device
from baechi_jax.explain.moves import Move, Overflow, moves
from baechi_jax.explain.subject import find_subject
from baechi_jax.explain.view import PlacedView
from baechi_jax.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from baechi_jax.ir.core import Module

#: Steps that differ by less are called equal.
_EQUAL = 5e-3


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why ``subject`` is on ``device``.

    ``reasons``: sentences. ``moves``: the plan first, then the other devices in order.
    ``device_names`` and ``limit_bytes``: of every device.
    """

    subject: str
    device: int
    reasons: tuple[str, ...]
    moves: tuple[Move, ...]
    device_names: tuple[str, ...]
    limit_bytes: tuple[int, ...]

    def table(self) -> Table:
        """One row for each device: when it would start, the step, memory there; for rich."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("device", no_wrap=True)
        for heading in ("starts", "step", "change", "peak there", "limit"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("so")
        chosen = self.moves[0]
        for move in sorted(self.moves, key=lambda each: each.device):
            change = move.step_seconds / chosen.step_seconds - 1 if chosen.step_seconds else 0.0
            table.add_row(
                self.device_names[move.device],
                "-" if move.start_seconds is None else format_seconds(move.start_seconds),
                format_seconds(move.step_seconds),
                "" if move.chosen else f"{100 * change:+.1f}%",
                format_bytes(move.peak_bytes[move.device]),
                format_bytes(self.limit_bytes[move.device]),
                self._verdict(move),
                style="bold" if move.chosen else "",
            )
        return table

    def __str__(self) -> str:
        """Sentences and table as plain text."""
        from baechi_jax.report.summary import render_text

        lines = [self.headline, *(f"- {reason}" for reason in self.reasons)]
        return "\n".join(lines) + "\n" + render_text(self.table(), width=110)

    @property
    def headline(self) -> str:
        """What is where."""
        what = self.subject[0].upper() + self.subject[1:]
        return f"{what} on device {self.device_names[self.device]}."

    def figures(self) -> dict[str, Any]:
        """The same as JSON's values."""
        return {
            "subject": self.subject,
            "device": self.device,
            "reasons": list(self.reasons),
            "alternatives": [
                {
                    "device": move.device,
                    "name": self.device_names[move.device],
                    "chosen": move.chosen,
                    "pinned_elsewhere": move.pinned,
                    "fits": move.fits,
                    "step_seconds": move.step_seconds,
                    "start_seconds": move.start_seconds,
                    "peak_bytes": list(move.peak_bytes),
                    "limit_bytes": list(self.limit_bytes),
                    "missing": _missing(move.overflow),
                }
                for move in self.moves
            ],
        }

    def _verdict(self, move: Move) -> str:
        if move.chosen:
            return "as planned"
        if move.pinned:
            return "pinned elsewhere"
        if move.overflow is not None:
            where = (
                ""
                if move.overflow.device == move.device
                else (f" on {self.device_names[move.overflow.device]}")
            )
            return f"{format_bytes(move.overflow.missing_bytes)} too much{where}"
        ratio = move.step_seconds / self.moves[0].step_seconds - 1
        return "as good" if abs(ratio) < _EQUAL else "slower" if ratio > 0 else "faster"


def explain(
    plan: Module, what: str, progress: Callable[[int, int], None] | None = None
) -> Explanation:
    """Why ``what`` is where ``plan`` has it, and what every other device would cost.

    ``what``: an argument's path or the beginning of one (``state.params``), a source line
    (``model.py:12``), an operation (``dot_general#3``), a colocation group, a scope, or a task of
    the plan (``t4``). ``progress`` hears how many devices are done, of how many.

    Raises ExplainError when ``what`` names nothing, or things on several devices; PassError for a
    plan that does not say what was placed.
    """
    view = PlacedView(plan)
    subject = find_subject(view, what)
    found: list[Move] = []
    for move in moves(view, subject.nodes):
        found.append(move)
        if progress is not None:
            progress(len(found), view.problem.devices)
    names = tuple(map(view.device_name, range(view.problem.devices)))
    limits = tuple(view.problem.lists.limit_bytes)
    reasons = colocation_reasons(view, subject)
    reasons += _choice(found, names, pinned=pinned_device(view, subject) is not None)
    return Explanation(subject.title, found[0].device, tuple(reasons), tuple(found), names, limits)


def _choice(found: list[Move], names: tuple[str, ...], *, pinned: bool) -> list[str]:
    """Sentences about the other devices: memory, start, step."""
    here, *others = found
    if not others:
        return ["The machine has one device."]
    sentences: list[str] = []
    for move in others:
        if move.overflow is not None:
            sentences.append(_memory(move, move.overflow, here, names))
    free = [move for move in others if move.fits and not move.pinned]
    if pinned:
        return sentences
    if not free:
        return [*sentences, "Nowhere else does it fit."]
    best = min(free, key=lambda move: (move.step_seconds, move.device))
    ratio = best.step_seconds / here.step_seconds - 1 if here.step_seconds else 0.0
    name = names[best.device]
    if abs(ratio) < _EQUAL:
        sentences.append(f"Device {name} would do as well: the step is the same within 0.5%.")
    elif ratio > 0:
        why = _later(here, best)
        sentences.append(
            f"Of the devices where it fits, the best other is {name}: a step {100 * ratio:.1f}% "
            f"longer{why}."
        )
    else:
        sentences.append(
            f"By this simulation device {name} would be better: a step {-100 * ratio:.1f}% "
            "shorter. The placer did not find that; pin it there to have it."
        )
    return sentences


def _memory(move: Move, overflow: Overflow, here: Move, names: tuple[str, ...]) -> str:
    sooner = ""
    if (
        move.start_seconds is not None
        and here.start_seconds is not None
        and move.start_seconds < here.start_seconds
    ):
        gain = format_seconds(here.start_seconds - move.start_seconds)
        sooner = f", though it would start {gain} earlier there"
    which = "it" if overflow.device == move.device else f"then {names[overflow.device]}"
    while_ = f" while {overflow.task} runs" if overflow.task else ""
    return (
        f"Device {names[move.device]} has no room for it{sooner}: {which} would hold "
        f"{format_bytes(overflow.peak_bytes)} of {format_bytes(overflow.limit_bytes)}, "
        f"{format_bytes(overflow.missing_bytes)} too much, {format_seconds(overflow.seconds)} into "
        f"the step{while_}."
    )


def _later(here: Move, move: Move) -> str:
    if here.start_seconds is None or move.start_seconds is None:
        return ""
    later = move.start_seconds - here.start_seconds
    if later > 0:
        return f", where it would start {format_seconds(later)} later"
    return ""


def _missing(overflow: Overflow | None) -> dict[str, Any] | None:
    if overflow is None:
        return None
    return {
        "device": overflow.device,
        "peak_bytes": overflow.peak_bytes,
        "limit_bytes": overflow.limit_bytes,
        "bytes": overflow.missing_bytes,
        "seconds": overflow.seconds,
        "task": overflow.task,
    }
