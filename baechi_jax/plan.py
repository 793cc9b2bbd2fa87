"""Plans: a placed module and what one asks of it.

A plan file is the module's text. Loading one runs no code: it is parsed, and checked for what it
is. What it decided (the device of each task and argument) is then repeated on a fresh trace by
``baechi.place(..., plan=...)``; costs, order and memory are computed anew there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import DeviceMemory
from baechi_jax.ir.errors import BaechiError, IRError, ParseError
from baechi_jax.ir.files import write_text_atomically
from baechi_jax.ir.topology import Topology
from baechi_jax.passes import plan_figures

if TYPE_CHECKING:
    from rich.table import Table

    from baechi_jax.explain import Explanation
    from baechi_jax.passes.pass_manager import PassTiming
    from baechi_jax.passes.simulate.timeline import Timeline

#: The version of plan files that this release writes; it reads this and older ones.
FORMAT = 1

_FORMAT_KEY = "baechi.plan_format"


class PlanFileError(BaechiError):
    """A file is no plan, or not one that this release can read; the message says what is wrong."""


class PlanMismatchError(BaechiError):
    """A plan was made for another function, other arguments, or another machine."""


class Plan:
    """Where each part of a function runs, and when. ``module`` is the planned module itself."""

    def __init__(
        self, module: Module, name: str = "step", timings: tuple[PassTiming, ...] = ()
    ) -> None:
        self.module = module
        self.name = name
        #: Seconds of each pass; empty for a loaded plan.
        self.timings = timings

    # What it says -------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The module as text, with source locations: what ``save`` writes."""
        from baechi_jax.ir.printer import print_module

        return print_module(self.module)

    @property
    def topology(self) -> Topology:
        """The machine that the plan is for."""
        topology = self.module.attributes.get("baechi.topology")
        if not isinstance(topology, Topology):
            raise IRError("the plan's module has no baechi.topology")
        return topology

    @property
    def declared_topology(self) -> Topology:
        """The machine as it was stated: ``topology`` before launches and links were measured."""
        from baechi_jax.passes.cost.measured import declared_topology

        return declared_topology(self.module) or self.topology

    @property
    def fingerprint(self) -> str:
        """Of the trace that the plan was made for."""
        return str(self.module.attributes.get("baechi.fingerprint", ""))

    @property
    def step_seconds(self) -> float:
        """The predicted time of one step."""
        return plan_figures.step_seconds(self.module)

    @property
    def lower_bound_seconds(self) -> float:
        """What no schedule on this machine can beat: the critical path, or all work shared out."""
        return plan_figures.lower_bound_seconds(self.module)

    @property
    def memory(self) -> tuple[DeviceMemory, ...]:
        """The memory plan of each device."""
        return plan_figures.device_memory(self.module)

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """The predicted peak of each device."""
        return tuple(entry.peak_bytes for entry in self.memory)

    @property
    def devices_used(self) -> tuple[int, ...]:
        """The devices that run at least one task."""
        return tuple(sorted(plan_figures.used_devices(self.module)))

    def summary(self) -> Table:
        """A table (print it with rich): tasks, share of the work, memory and transfers by device.

        Its caption gives the step time and its lower bound, and says when the plan uses one device
        because nothing beats it.
        """
        from baechi_jax.report.build import build_view
        from baechi_jax.report.summary import summary_table

        return summary_table(build_view(self.module, self.name))

    def __str__(self) -> str:
        """The summary as plain text."""
        from baechi_jax.report.summary import render_text

        return render_text(self.summary())

    def __repr__(self) -> str:
        used = len(self.devices_used)
        return f"<Plan of {self.name} on {used} of {self.topology.size} devices>"

    def report(self, path: str | Path, measured: Timeline | None = None) -> None:
        """Write the plan as one HTML page that stands alone, and beside it as a trace.

        The trace of ``plan.html`` is ``plan.trace.json``, as ``perfetto`` writes it. ``measured``:
        a step of this plan as it ran (``Compiled.measure_times``), to be shown beside the predicted
        one. Raises ValueError for a step of another plan.
        """
        from baechi_jax.report.build import build_view
        from baechi_jax.report.html import write_html
        from baechi_jax.report.perfetto import trace_beside, write_perfetto

        view = build_view(self.module, self.name, measured)
        write_html(view, path)
        write_perfetto(view, trace_beside(path))

    def perfetto(self, path: str | Path, measured: Timeline | None = None) -> None:
        """Write the plan as a trace for ui.perfetto.dev; ``measured`` as for ``report``."""
        from baechi_jax.report.build import build_view
        from baechi_jax.report.perfetto import write_perfetto

        write_perfetto(build_view(self.module, self.name, measured), path)

    def explain(self, what: str) -> Explanation:
        """Why ``what`` is where it is, and what every other device would cost; print it.

        ``what``: an argument's path (``state.params['w']``) or the beginning of one, a source line
        (``model.py:12``), an operation (``dot_general#3``), a scope, or a task (``t4``). Raises
        ExplainError when it names nothing, or things on several devices.
        """
        from baechi_jax.explain import explain

        return explain(self.module, what)

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the plan to ``path``; a reader sees the whole file or none of it."""
        self.module.attributes[_FORMAT_KEY] = FORMAT
        self.module.attributes["baechi.plan_name"] = self.name
        write_text_atomically(path, self.text)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file.

        Raises PlanFileError for a file that is truncated, no plan, or of a newer release.
        """
        from baechi_jax.ir.parser import parse_module

        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanFileError(f"cannot read the plan {path}: {error}") from error
        if not text.strip():
            raise PlanFileError(f"{path} is empty: it is no plan, or was cut off")
        # Looked for in the text: a newer format may hold what this release cannot parse.
        stated = re.search(rf"{re.escape(_FORMAT_KEY)} = (\d+)", text)
        if stated is not None and int(stated[1]) > FORMAT:
            raise PlanFileError(
                f"{path} has plan format {stated[1]}, this release reads up to {FORMAT}; load it "
                "with the release that wrote it, or plan again"
            )
        try:
            module = parse_module(text, str(path))
        except ParseError as error:
            raise PlanFileError(f"{path} is no plan, or was cut off: {error}") from error
        if not isinstance(module.attributes.get(_FORMAT_KEY), int):
            raise PlanFileError(
                f"{path} is IR, but no plan: it lacks {_FORMAT_KEY}; plans are written by "
                "Plan.save and by 'baechi plan --save'"
            )
        for key, kind in _NEEDED.items():
            if not isinstance(module.attributes.get(key), kind):
                raise PlanFileError(f"{path} is an incomplete plan: {key} is missing or wrong")
        return Plan(module, str(module.attributes.get("baechi.plan_name", "step")))


_NEEDED: dict[str, type] = {
    "baechi.topology": Topology,
    "baechi.fingerprint": str,
    "baechi.pipeline": str,
}


def check_matches(plan: Plan, fingerprint: str, topology: Topology, what: str) -> None:
    """Raise PlanMismatchError unless ``plan`` was made for this trace and this machine."""
    if plan.fingerprint != fingerprint:
        raise PlanMismatchError(
            f"the plan was made for another program than {what} with these arguments (fingerprint "
            f"{plan.fingerprint[:12]}, found {fingerprint[:12]}): the function, its arguments' "
            "shapes or dtypes, or JAX's release changed; plan again"
        )
    if plan.declared_topology != topology:
        raise PlanMismatchError(
            f"the plan was made for another machine than the one it is to run on: "
            f"{_difference(plan.declared_topology, topology)}; plan again for this topology"
        )


def _difference(planned: Topology, found: Topology) -> str:
    if planned.size != found.size:
        return f"it has {planned.size} devices, this one {found.size}"
    for index, (one, other) in enumerate(zip(planned.devices, found.devices, strict=True)):
        if one != other:
            return f"its device {index} is {one}, here it is {other}"
    return "their links differ"
