"""The way back: a task, a function or a list of operations as a ClosedJaxpr.

Operations that come from the trace (``baechi.eqn``) are rebuilt from their traced equation: each
parameter is decoded from its attribute, result types come from the operation, regions become jaxprs
again. Operations that a pass or a human wrote are made by ``decode_ops``. Tokens vanish: equations
are in the order of the operations, which the tokens order. Tasks inside are opened, and transfers
pass their value on, so a function can be rebuilt after any pass.

Assumes that regions are closed (values come in as operands).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Block, Operation, OpResult, Value
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.from_jaxpr import EquationRecord
from baechi_jax.ir.jax_params import encode, replace_jaxprs
from baechi_jax.ir.jax_types import aval_of, type_of
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.types import TensorType, TokenType, unplaced
from baechi_jax.runtime.decode_ops import equations_of
from baechi_jax.runtime.decode_params import decode, decode_literal

#: What ends a block; its operands are the block's results.
_TERMINATORS = frozenset({"func.return", "baechi.yield"})

#: Operations that compute nothing: the value goes through, or there is none.
_TRANSPARENT = frozenset({"baechi.send", "baechi.recv"})
_SKIPPED = frozenset({"baechi.token", "baechi.wait"})


def task_to_jaxpr(task: Operation, equations: Sequence[EquationRecord]) -> compat.ClosedJaxpr:
    """The jaxpr of a ``baechi.task``: one input per operand, one output per result, no tokens.

    Raises IRError for an operation that cannot be rebuilt, naming it and its source line.
    """
    name = task.attributes.get("sym_name", "task")
    return _block_to_jaxpr(task.body, equations, str(name))


def function_to_jaxpr(func: Operation, equations: Sequence[EquationRecord]) -> compat.ClosedJaxpr:
    """The jaxpr of a ``func.func``, constants among its inputs; see ``task_to_jaxpr``."""
    return _block_to_jaxpr(func.body, equations, str(func.attributes.get("sym_name", "main")))


def operations_to_jaxpr(
    ops: Iterable[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    equations: Sequence[EquationRecord],
    name: str = "operations",
) -> compat.ClosedJaxpr:
    """The jaxpr that computes ``outputs`` from ``inputs`` by ``ops``, in that order.

    Tokens among inputs and outputs are dropped.
    """
    with paused_collection():
        builder = _Builder(equations)
        invars = builder.add_inputs(inputs)
        for op in ops:
            builder.add(op)
        return compat.closed_jaxpr(invars, builder.read_all(outputs), builder.eqns, name)


def _block_to_jaxpr(
    block: Block, equations: Sequence[EquationRecord], name: str
) -> compat.ClosedJaxpr:
    terminator = block.terminator
    return operations_to_jaxpr(
        block.ops[:-1], block.arguments, terminator.operands, equations, name
    )


class _Builder:
    """One jaxpr in the making."""

    def __init__(self, equations: Sequence[EquationRecord]) -> None:
        self.eqns: list[Any] = []
        self._equations = equations
        self._env: dict[Value, Any] = {}

    def add_inputs(self, values: Iterable[Value], avals: Sequence[Any] | None = None) -> list[Any]:
        """Variables for ``values``, tokens left out; ``avals`` are the traced ones, if known."""
        invars: list[Any] = []
        for value in values:
            if type(value.type) is TokenType:
                continue
            known = avals[len(invars)] if avals is not None else None
            var = self._env[value] = compat.Var(_aval(value, known, self._equations))
            invars.append(var)
        return invars

    def read_all(self, values: Iterable[Value]) -> list[Any]:
        """The atoms of ``values``, tokens left out."""
        env = self._env
        try:
            return [env[value] for value in values if type(unplaced(value.type)) is not TokenType]
        except KeyError as error:
            missing: Value = error.args[0]
            op = missing.defining_op
            where = "a block argument" if op is None else f"'{op.name}' at {op.location}"
            raise IRError(
                f"a value is read before it is made: result {missing.index} of {where}; "
                "the operations given must be in order, and their inputs complete"
            ) from None

    def add(self, op: Operation) -> None:
        """Append the equations of ``op``."""
        name = op.name
        if name == "baechi.literal":
            self._env[op.results[0]] = _literal(op)
        elif name == "baechi.task":
            self._open(op)
        elif name in _TRANSPARENT:
            self._env.update(zip(op.results, self.read_all(op.operands)))
        elif name not in _SKIPPED:
            record = _record(op, self._equations)
            if record is None:
                self._add_untraced(op)
            elif record.equation is None:
                self._env[op.results[0]] = _constant(op, record)
            else:
                self._add_traced(op, record)

    def _open(self, task: Operation) -> None:
        body = task.body
        for argument, operand in zip(body.arguments, task.operands):
            if operand in self._env:
                self._env[argument] = self._env[operand]
        for op in body.ops[:-1]:
            self.add(op)
        for result, value in zip(task.results, body.terminator.operands):
            if value in self._env:
                self._env[result] = self._env[value]

    def _add_traced(self, op: Operation, record: EquationRecord) -> None:
        original = record.equation
        invars = self.read_all(op.operands)
        outvars: list[Any] = []
        for result in op.results:
            if type(result.type) is TokenType:
                continue
            index = len(outvars)
            known = original.outvars[index].aval if index < len(original.outvars) else None
            var = self._env[result] = compat.Var(_aval(result, known, self._equations))
            outvars.append(var)
        params = _params(op, record, len(invars), self._equations)
        self.eqns.append(compat.rebuild_eqn(original, invars, outvars, original.primitive, params))

    def _add_untraced(self, op: Operation) -> None:
        invars = self.read_all(op.operands)
        eqns, outputs = equations_of(op, invars)
        self.eqns.extend(eqns)
        self._env.update(zip(op.results, outputs))


# Parameters ---------------------------------------------------------------------------------------


def _record(op: Operation, equations: Sequence[EquationRecord]) -> EquationRecord | None:
    """The record that ``op`` names; None where it names none, or has become another operation."""
    index = op.attributes.get("baechi.eqn")
    if index is None:
        return None
    if not isinstance(index, int) or not 0 <= index < len(equations):
        raise IRError(
            f"{op.location}: 'baechi.eqn = {index}' of '{op.name}' is outside the trace's "
            f"{len(equations)} equations: the module belongs to another trace"
        )
    record = equations[index]
    return record if record.name == op.name else None


def _params(
    op: Operation, record: EquationRecord, num_operands: int, equations: Sequence[EquationRecord]
) -> dict[str, Any]:
    original = record.equation
    traced = compat.read_params(original)
    attributes = op.attributes
    params: dict[str, Any] = {}
    changed = traced is not original.params
    for name, value in traced.items():
        encoded = record.attributes.get(name)
        if encoded is None:  # it holds jaxprs: a region
            params[name] = value
            continue
        attribute = attributes.get(name)
        if attribute is encoded or attribute == encoded:
            params[name] = value
            continue
        changed = True
        params[name] = _decode(op, name, attribute, value)
    if record.jaxprs:
        _replace_regions(op, record, params, equations)
        changed = True
        hoisted = attributes.get("baechi.hoisted", 0)
        if record.name not in ("jax.scan", "jax.while", "jax.cond") and isinstance(hoisted, int):
            params = compat.extend_call_params({**params, **_counts(traced)}, hoisted)
    if not changed:
        return original.params  # type: ignore[no-any-return]
    try:
        return compat.write_params(original, params, num_operands)
    except ValueError as error:
        raise IRError(f"{op.location}: '{op.name}': {error}") from None


def _counts(traced: dict[str, Any]) -> dict[str, Any]:
    # `num_consts` of a custom derivative was counted up when constants were hoisted into the call;
    # `extend_call_params` counts from the traced number.
    return {"num_consts": traced["num_consts"]} if "num_consts" in traced else {}


def _decode(op: Operation, name: str, attribute: Attribute | None, like: Any) -> Any:
    if attribute is None:
        raise IRError(
            f"{op.location}: '{op.name}' has no attribute '{name}'; the traced equation has "
            f"'{name} = {encode(like)!r}'"
        )
    try:
        return decode(attribute, like)
    except IRError as error:
        raise IRError(f"{op.location}: '{op.name}', parameter '{name}': {error}") from None


def _replace_regions(
    op: Operation,
    record: EquationRecord,
    params: dict[str, Any],
    equations: Sequence[EquationRecord],
) -> None:
    if len(op.regions) != len(record.jaxprs):
        raise IRError(
            f"{op.location}: '{op.name}' has {len(op.regions)} regions; the traced equation has "
            f"{len(record.jaxprs)}: {[path for path, _ in record.jaxprs]}"
        )
    new = iter(
        [
            _region_to_jaxpr(region.blocks[0], jaxpr, path, equations)
            for region, (path, jaxpr) in zip(op.regions, record.jaxprs)
        ]
    )
    for name in compat.read_params(record.equation):
        if name not in record.attributes:
            params[name] = replace_jaxprs(params[name], new)


def _region_to_jaxpr(
    block: Block, like: Any, name: str, equations: Sequence[EquationRecord]
) -> Any:
    """The jaxpr of a region, open or closed as ``like`` is."""
    builder = _Builder(equations)
    traced = [var.aval for var in compat.jaxpr_inputs(like)]
    arguments = [a for a in block.arguments if type(a.type) is not TokenType]
    extra = len(arguments) - len(traced)
    avals = [None] * extra + traced if extra >= 0 else None
    invars = builder.add_inputs(arguments, avals)
    for op in block.ops[:-1]:
        builder.add(op)
    outvars = builder.read_all(block.terminator.operands)
    if isinstance(like, compat.ClosedJaxpr):
        return compat.closed_jaxpr(invars, outvars, builder.eqns, name)
    return compat.open_jaxpr(invars, outvars, builder.eqns, name, len(like.constvars))


# Values -------------------------------------------------------------------------------------------


def _aval(value: Value, known: Any, equations: Sequence[EquationRecord]) -> Any:
    """The abstract value of ``value``: the traced one where it has the same type."""
    type_ = unplaced(value.type)
    if known is not None and type_of(known) == type_:
        return known
    if not isinstance(type_, TensorType) and isinstance(value, OpResult):
        # What is no array exists in the trace alone.
        record = _record(value.owner, equations)
        if record is not None and record.equation is not None:
            aval = record.equation.outvars[value.index].aval
            if type_of(aval) == type_:
                return aval
    return aval_of(type_)


def _literal(op: Operation) -> Any:
    type_ = op.results[0].type
    if not isinstance(type_, TensorType) or type_.shape:
        raise IRError(f"{op.location}: 'baechi.literal' gives a tensor without dimensions")
    aval = aval_of(type_)
    try:
        value = decode_literal(op.attributes["value"], type_.element)
        return compat.number_literal(value, aval)
    except (IRError, KeyError, ValueError, OverflowError) as error:
        raise IRError(f"{op.location}: 'baechi.literal': {error}") from None


def _constant(op: Operation, record: EquationRecord) -> Any:
    value = record.constant
    return compat.array_literal(value, aval_of(unplaced(op.results[0].type)))
