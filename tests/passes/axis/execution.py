"""Runs a function whole and on the pieces of an axis, and compares every value.

One program does both: the traced operations, and for each piece what ``on_piece`` makes of those
that do not mix the axis. The pieces' values are then joined as their state says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from baechi_jax.ir.core import Block, Operation, Value
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.axis.analysis import analyze
from baechi_jax.passes.axis.piece import on_piece
from baechi_jax.passes.axis.report import AxisReport
from baechi_jax.passes.axis.states import Full, Neither, Partial, Split, State
from baechi_jax.passes.inline_calls import InlineCalls
from baechi_jax.runtime.to_jaxpr import operations_to_jaxpr

_OPERATIONS = {
    "sum": "jax.add",
    "prod": "jax.mul",
    "max": "jax.max",
    "min": "jax.min",
    "and": "jax.and",
    "or": "jax.or",
}

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


@dataclass(frozen=True, eq=False)
class Followed:
    """A traced function and what the analysis says of it."""

    trace: Trace
    report: AxisReport

    @property
    def results(self) -> list[str]:
        """The states of the results, as text."""
        return [str(state) for state in self.report.results]

    def reason(self, result: int = 0) -> str:
        """Why a result is mixed."""
        state = self.report.results[result]
        assert isinstance(state, Neither), state
        return state.message


def follow(
    fn: Callable[..., Any],
    args: Sequence[Any],
    axes: Mapping[int, int],
    *,
    combine: bool = False,
    inline: bool = True,
) -> Followed:
    """Trace and analyse; ``axes`` counts the leaves of ``args``."""
    traced = trace(fn, args)
    if inline:
        InlineCalls().run(traced.module)
    first = len(traced.constants)
    given: dict[int | Value, int] = {first + index: axis for index, axis in axes.items()}
    return Followed(traced, analyze(traced.module.main, given, combine=combine))


def check(
    fn: Callable[..., Any],
    args: Sequence[Any],
    axes: Mapping[int, int],
    *,
    pieces: int | None = None,
    combine: bool = False,
    rtol: float = 2e-5,
) -> list[str]:
    """The states of the results, after comparing whole and pieces (as many as there can be)."""
    followed = follow(fn, args, axes, combine=combine)
    compare(followed, args, pieces or followed.report.size, rtol)
    return followed.results


def compare(
    followed: Followed, args: Sequence[Any], pieces: int, rtol: float = 2e-5, jit: bool = False
) -> int:
    """Compare every value of the body; the number of those that depend on the axis.

    ``jit`` compiles all as one program: some operations cannot run alone.
    """
    report, traced = followed.report, followed.trace
    body = report.function.body
    block = Block(argument.type for argument in body.arguments)
    whole: dict[Value, Value] = dict(zip(body.arguments, block.arguments))
    maps: list[dict[Value, Value]] = [{} for _ in range(pieces)]
    ops = block.ops
    for argument in body.arguments:
        for index, mapping in enumerate(maps):
            mapping[argument] = _part(ops, report, argument, whole[argument], pieces, index)
    combined: dict[Value, Value] = {}
    compared: list[Value] = [v for v in body.arguments if isinstance(v.type, TensorType)]
    for op in body.ops[:-1]:
        ops.append(op.clone(whole))
        results = [v for v in op.results if not isinstance(report.state(v), Neither)]
        mixed = any(isinstance(report.state(v), Neither) for v in (*op.operands, *op.results))
        if mixed and op.name != "jax.optimization_barrier":
            continue
        sources = [op.operands[operand] for operand, _ in report.on_piece(op).combines]
        for source in sources:
            if source not in combined:
                combined[source] = _combined(ops, report, source, maps)
        for index, mapping in enumerate(maps):
            local = {**mapping, **{source: combined[source] for source in sources}}
            ops += on_piece(op, report, pieces, index, local)
            mapping.update((result, local[result]) for result in results)
        compared += [v for v in results if isinstance(v.type, TensorType)]
    outputs = [whole[value] for value in compared]
    for mapping in maps:
        outputs += [mapping[value] for value in compared]
    program = operations_to_jaxpr(ops, block.arguments, outputs, traced.equations)
    leaves = [*traced.constants, *jax.tree_util.tree_leaves(args)]
    # One operation after another: pieces have the same shapes, so each kernel is compiled once.
    run = jax.extend.core.jaxpr_as_fun(program)
    found = (jax.jit(run) if jit else run)(*leaves)
    values = [_array(each) for each in found]
    count = len(compared)
    for position, value in enumerate(compared):
        parts = [values[(piece + 1) * count + position] for piece in range(pieces)]
        _same(value, report.state(value), values[position], parts, rtol)
    return sum(not isinstance(report.state(value), Full) for value in compared)


def _part(
    ops: list[Operation],
    report: AxisReport,
    argument: Value,
    given: Value,
    pieces: int,
    index: int,
) -> Value:
    state = report.state(argument)
    if not isinstance(state, Split):
        return given
    assert isinstance(argument.type, TensorType)
    shape = argument.type.shape
    part = report.piece_type(argument, pieces)
    assert isinstance(part, TensorType)
    length = part.shape[state.dimension]
    start = [0] * len(shape)
    start[state.dimension] = index * length
    limit = tuple(a + b for a, b in zip(start, part.shape))
    attributes = {"start_indices": tuple(start), "limit_indices": limit}
    ops.append(Operation("jax.slice", [given], [part], attributes))
    return ops[-1].results[0]


def _combined(
    ops: list[Operation], report: AxisReport, value: Value, maps: Sequence[dict[Value, Value]]
) -> Value:
    state = report.state(value)
    assert isinstance(state, Partial)
    total = maps[0][value]
    for mapping in maps[1:]:
        ops.append(Operation(_OPERATIONS[state.kind], [total, mapping[value]], [value.type]))
        total = ops[-1].results[0]
    return total


def _array(value: Any) -> Any:
    value = jnp.asarray(value)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype.kind == "V":  # bfloat16 and the like
        return array.astype(np.float32)
    return array


def _same(value: Value, state: State, whole: Any, parts: Sequence[Any], rtol: float) -> None:
    op = value.defining_op
    what = f"{op} result {value.index}: {state}" if op is not None else f"argument {value.index}"
    assert isinstance(value.type, TensorType)
    if value.type.element in ("bf16", "f16"):
        rtol = max(rtol, 2e-2)
    if isinstance(state, Full):
        # Not the same bits, where partial values were combined on the way.
        for part in parts:
            np.testing.assert_allclose(part, whole, rtol=rtol, atol=rtol, err_msg=what)
        return
    if isinstance(state, Split):
        joined = np.concatenate(parts, axis=state.dimension)
    else:
        assert isinstance(state, Partial), what
        joined = functools.reduce(_COMBINE[state.kind], parts)
    if whole.dtype.kind not in "fc":
        np.testing.assert_array_equal(joined, whole, err_msg=what)
        return
    # What cancels in the sum leaves the rounding of its terms.
    scale = max(np.max(np.abs(each), initial=0, where=np.isfinite(each)) for each in parts)
    np.testing.assert_allclose(joined, whole, rtol=rtol, atol=rtol * scale, err_msg=what)
