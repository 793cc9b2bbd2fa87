"""The analysis as a function: what it takes, what it refuses, what its report says."""

import re
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from baechi_jax.ir.errors import PassError
from baechi_jax.passes.axis.analysis import analyze
from baechi_jax.passes.axis.piece import on_piece
from baechi_jax.passes.axis.states import FULL, Full, Neither, Partial, Split, join
from tests.passes.axis.arrays import array
from tests.passes.axis.execution import Followed, compare, follow


def test_an_axis_may_start_at_a_result() -> None:
    """As the stacked results of a scan over layers, whose own layers depend on one another."""

    def fn(ws: Any, x: Any) -> Any:
        _, hs = lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, ws)
        return hs * 2, (ws**2).sum(0), jnp.sqrt(jnp.sum(hs))

    followed = follow(fn, [array(4, 3, 3), array(2, 3)], {0: 0})
    assert followed.results == ["neither", "partial sum", "neither"]
    function = followed.report.function
    (scan,) = (op for op in function.body.ops if op.name == "jax.scan")
    report = analyze(function, {0: 0, scan.results[1]: 0})
    assert report.results[:2] == (Split(0), Partial("sum"))
    assert report.state(scan.results[1]) == Split(0)
    assert isinstance(report.results[2], Neither)


def test_what_is_refused() -> None:
    def fn(x: Any, y: Any, n: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, x: x * n, x) + y

    followed = follow(fn, [array(4, 3), array(4, 3), jnp.float32(1)], {0: -2})
    function = followed.report.function
    assert followed.report.arguments == (Split(0), FULL, FULL)
    (loop,) = (op for op in function.body.ops if op.regions)
    inner = loop.body if len(loop.regions) == 1 else loop.regions[1].blocks[0]
    for axes, message in [
        ({}, "no input is given"),
        ({7: 0}, "there is no argument 7: '@main' has 3"),
        ({0: 2}, "argument 'x' has no dimension 2: its type is tensor<4x3xf32>"),
        ({2: 0}, "argument 'n' has no dimension 0"),
        ({0: 0, 1: 1}, "dimension 1 of argument 'y' has 3 elements and argument 'x' has 4"),
        ({inner.arguments[-1]: 0}, "is not an argument of '@main'"),
        ({inner.ops[0].results[0]: 0}, "is not in the body of '@main'"),
    ]:
        with pytest.raises(PassError, match=re.escape(message)):
            analyze(function, axes)


def test_pieces_must_be_equal() -> None:
    followed = follow(lambda x: x * 2, [array(6, 3)], {0: 0})
    (op,) = (op for op in followed.report.function.body.ops if op.name == "jax.mul")
    with pytest.raises(
        PassError, match="6 elements cannot be cut into 4 equal pieces; it can into"
    ):
        followed.report.shrink(op, 4)
    with pytest.raises(PassError, match="there is no piece 3 of 3"):
        on_piece(op, followed.report, 3, 3, {})


def test_what_shrinks() -> None:
    def fn(x: Any) -> Any:
        y = jnp.broadcast_to(x[:, None], (4, 3, 2)).reshape(12, 2)
        return y[:, :1]

    followed = follow(fn, [array(4, 2)], {0: 0})
    report = followed.report
    found = {
        op.name: report.shrink(op, 2)
        for op in report.function.body.ops
        if report.on_piece(op).shrinks
    }
    assert found["jax.reshape"] == {"new_sizes": (6, 2)}
    assert found["jax.slice"] == {"limit_indices": (6, 1)}
    assert found["jax.broadcast_in_dim"]["shape"] in ((2, 3, 2), (2, 1, 2))
    assert str(report.piece_type(report.function.body.ops[-1].operands[0], 2)) == "tensor<6x1xf32>"


def test_mixed_operations_have_no_pieces() -> None:
    followed = follow(lambda x: x[::-1] + 1, [array(4)], {0: 0})
    report = followed.report
    mapping: dict[Any, Any] = {value: value for value in report.function.body.arguments}
    rev, _, add, _ = report.function.body.ops
    for op in (rev, add):
        with pytest.raises(PassError) as error:
            on_piece(op, report, 2, 0, mapping)
        assert f"'{op.name}' cannot run on a piece of the axis" in str(error.value)
        assert "'jax.rev' reverses the axis" in str(error.value)


def test_joins() -> None:
    op = follow(lambda x: x + 1, [array(2)], {0: 0}).report.function.body.ops[0]
    pairs = [
        (FULL, Split(1), Split(1)),
        (Partial("max"), FULL, Partial("max")),
        (Full(0), Partial("sum"), Partial("sum")),
        (Full(1), Partial("prod"), Partial("prod")),
        (Full(0), Full(1), FULL),
        (Full(0), Full(0), Full(0)),
    ]
    for left, right, expected in pairs:
        assert join(left, right, op, "a carry") == expected
        assert join(right, left, op, "a carry") == expected
    mixed = [
        (FULL, Partial("sum")),
        (Full(1), Partial("sum")),
        (Split(0), Split(1)),
        (Split(0), Partial("sum")),
    ]
    for left, right in mixed:
        found = join(left, right, op, "a carry")
        assert isinstance(found, Neither)
        assert f"makes a carry {left} in one place and {right} in another" in found.message
        assert join(found, FULL, op, "a carry") is found
        assert join(FULL, found, op, "a carry") is found


def test_the_comparison_finds_a_wrong_state() -> None:
    """The check that all rules are tested by must be able to fail."""
    followed = follow(lambda x: (jnp.tanh(x), x.sum(0)), [array(4, 3)], {0: 0})
    assert compare(followed, [array(4, 3)], 2) == 3
    report = followed.report
    for result, wrong in ((1, Partial("max")), (0, FULL)):
        value = report.function.body.terminator.operands[result]
        states = {**report.states, value: wrong}
        lying = type(report)(report.function, report.size, states, report.ops)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            compare(Followed(followed.trace, lying), [array(4, 3)], 2)
