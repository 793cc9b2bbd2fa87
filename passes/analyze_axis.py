"""``analyze-axis``: write what becomes of an axis of chosen inputs into the module.

An analysis on demand, no part of a pipeline that makes plans: it changes nothing but its own
attributes, which later passes may drop. ``docs/axis-analysis.md`` has the states and the rules;
passes that need them call ``passes/axis/analysis.py`` instead of reading them here.

===============================  ===============================================================
``baechi.axis``                  on an operation: the state of each result, left out where all are
                                 full; in ``arg_attrs`` and ``res_attrs``: of that argument, result
``baechi.axis_arguments``        the states of the arguments of each region
``baechi.axis_reason``           on the operation that mixes the axis: what it does to it
``baechi.axis_slices``           ``[operand, dimension]``: full, and a piece reads its part
``baechi.axis_combines``         operands to be combined over the pieces first
``baechi.axis_shrinks``          parameters that are a size along the axis: ``"shape[0]"``
``baechi.axis_size``             on the function: elements of the axis
===============================  ===============================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import (
    argument_attributes,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.passes.axis.analysis import analyze, argument_names
from baechi_jax.passes.axis.report import AxisReport, OnPiece
from baechi_jax.passes.axis.states import Full
from baechi_jax.passes.registry import Pass, register_pass, suggestion

#: Names that a message lists at most.
_LISTED = 12


@register_pass
@dataclass(frozen=True)
class AnalyzeAxis(Pass):
    """``inputs`` name arguments of ``@main``, with ``*`` and ``?``.

    A name also stands for all that is inside it: ``batch`` for ``batch['x']``. ``axis`` is the
    dimension in each of them, negative from the end. With ``combine``, partial values are combined
    where they would be mixed.
    """

    name = "analyze-axis"
    summary = "say what becomes of an axis of chosen inputs: split, partial, full or neither"

    inputs: tuple[str, ...] = ()
    axis: int = 0
    combine: bool = False

    def run(self, module: Module) -> None:
        """Replaces the attributes of an earlier run.

        Raises PassError where no input is given, and for one that no argument is named after, or
        that has no such axis.
        """
        function = module.main
        names = argument_names(function)
        if not self.inputs:
            raise PassError(
                "name the inputs whose axis to follow, as in analyze-axis{inputs=[x] axis=0}"
                + _candidates("", names)
            )
        _clear(function)
        chosen = chosen_arguments(self.inputs, names)
        axes: dict[int | Value, int] = dict.fromkeys(chosen, self.axis)
        report = analyze(function, axes, combine=self.combine)
        _write(function, report)


def chosen_arguments(patterns: Sequence[str], names: Sequence[str]) -> list[int]:
    """The arguments that the patterns name, in order.

    A pattern has ``*`` and ``?``, and stands for all that is inside what it names. Raises PassError
    for one that names no argument.
    """
    chosen: set[int] = set()
    for pattern in patterns:
        # Brackets are part of names (batch['x']), so they have no meaning of their own here.
        glob = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        regex = re.compile(rf"{glob}([.\[].*)?", re.DOTALL)
        found = [index for index, name in enumerate(names) if regex.fullmatch(name)]
        if not found:
            raise PassError(f"no argument is named '{pattern}'" + _candidates(pattern, names))
        chosen.update(found)
    return sorted(chosen)


def _candidates(pattern: str, names: Sequence[str]) -> str:
    """The closest names, those of whole trees (``batch``) among them; else what there is."""
    trees = {re.split(r"[.\[]", name)[0] for name in names}
    near = suggestion(pattern, {*trees, *names})
    if near.startswith("; did you mean"):
        return near
    more = len(names) - _LISTED
    return f"; there are: {', '.join(names[:_LISTED])}" + (f" and {more} more" if more > 0 else "")


def _clear(function: Operation) -> None:
    for op in function.walk():
        for name in [name for name in op.attributes if name.startswith("baechi.axis")]:
            del op.attributes[name]


def _write(function: Operation, report: AxisReport) -> None:
    function.attributes["baechi.axis_size"] = report.size
    arguments = argument_attributes(function)
    for entry, state in zip(arguments, report.arguments):
        entry.pop("baechi.axis", None)
        if not isinstance(state, Full):
            entry["baechi.axis"] = str(state)
    set_argument_attributes(function, arguments)
    results = result_attributes(function)
    for entry, state in zip(results, report.results):
        entry.pop("baechi.axis", None)
        if not isinstance(state, Full):
            entry["baechi.axis"] = str(state)
    set_result_attributes(function, results)
    for op in function.walk():
        if op is not function:
            op.attributes.update(_attributes(op, report))
    for origin in report.mixed():
        origin.op.attributes["baechi.axis_reason"] = origin.reason


def _attributes(op: Operation, report: AxisReport) -> Mapping[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    states = [report.state(result) for result in op.results]
    if any(not isinstance(state, Full) for state in states):
        attributes["baechi.axis"] = tuple(str(state) for state in states)
    inside = tuple(
        tuple(str(report.state(argument)) for argument in block.arguments)
        for region in op.regions
        for block in region.blocks
    )
    if any(state != "full" for states_ in inside for state in states_):
        attributes["baechi.axis_arguments"] = inside
    attributes.update(_on_piece(report.on_piece(op)))
    return attributes


def _on_piece(needs: OnPiece) -> Mapping[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    if needs.slices:
        attributes["baechi.axis_slices"] = needs.slices
    if needs.combines:
        attributes["baechi.axis_combines"] = tuple(operand for operand, _ in needs.combines)
    if needs.shrinks:
        attributes["baechi.axis_shrinks"] = tuple(
            name if position is None else f"{name}[{position}]" for name, position in needs.shrinks
        )
    return attributes
