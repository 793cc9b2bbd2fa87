"""Gathering: what mixes the axis runs once, on the whole; scans taken apart; uneven pieces."""

from __future__ import annotations

import pytest

from baechi_jax.ir.core import Module, Operation, Value
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.parser import parse_module
from baechi_jax.passes.axis.analysis import analyze
from baechi_jax.passes.axis.piece import on_rows
from baechi_jax.passes.axis.scan_form import ScanForm
from baechi_jax.passes.axis.states import FULL, Partial, Split

VECTOR = "tensor<5xf32>"


def module(body: str, result: str = "%r", type_: str = VECTOR) -> Module:
    return parse_module(
        f"""
"builtin.module"() ({{
  "func.func"() ({{
  ^bb0(%x: {VECTOR}, %y: {VECTOR}):
{body}
    "func.return"({result}) : ({type_}) -> ()
  }}) {{sym_name = "main", function_type = ({VECTOR}, {VECTOR}) -> {type_}}} : () -> ()
}}) : () -> ()"""
    )


def named(module: Module, name: str) -> Operation:
    return next(op for op in module.main.body.ops if op.name == name)


MIXED = f"""
    %0 = "jax.reduce_sum"(%x) {{axes = [0]}} : ({VECTOR}) -> tensor<f32>
    %1 = "jax.rev"(%x) {{dimensions = [0]}} : ({VECTOR}) -> {VECTOR} loc("train.py":3:0)
    %2 = "jax.sqrt"(%0) : (tensor<f32>) -> tensor<f32>
    %3 = "jax.mul"(%1, %2) : ({VECTOR}, tensor<f32>) -> {VECTOR}
    %r = "jax.add"(%3, %x) : ({VECTOR}, {VECTOR}) -> {VECTOR}
"""


def test_what_mixes_the_axis_runs_on_the_whole() -> None:
    found = module(MIXED)
    report = analyze(found.main, {0: 0}, combine=True, gather=True)
    rev, sqrt, add = (named(found, f"jax.{name}") for name in ("rev", "sqrt", "add"))
    assert report.on_piece(rev).gathers == ((0, 0),)
    assert report.on_piece(sqrt).combines == ((0, "sum"),)
    assert report.state(rev.result) == FULL
    assert report.state(named(found, "jax.reduce_sum").result) == Partial("sum")
    # A piece of the sum reads its part of what is whole by now.
    assert report.on_piece(add).slices == ((0, 0),)
    assert report.results == (Split(0),)
    assert [op.name for op in report.gathered] == ["jax.rev"]
    assert report.gathered[rev].message == "train.py:3: 'jax.rev' reverses the axis"
    assert report.mixed() == []


def test_without_gathering_it_is_neither() -> None:
    found = module(MIXED)
    report = analyze(found.main, {0: 0}, combine=True)
    assert str(report.results[0]) == "neither"
    assert report.gathered == {}


SCAN = f"""
    %s = "jax.reduce_sum"(%x) {{axes = [0]}} : ({VECTOR}) -> tensor<f32>
    %0:2 = "jax.scan"(%y, %s, %x) ({{
    ^bb0(%a: {VECTOR}, %c: tensor<f32>, %b: tensor<f32>):
      %1 = "jax.mul"(%c, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "baechi.yield"(%1, %c) : (tensor<f32>, tensor<f32>) -> ()
    }}) {{length = 5 : i64, num_consts = 1 : i64, num_carry = 1 : i64, reverse = true}}
      : ({VECTOR}, tensor<f32>, {VECTOR}) -> (tensor<f32>, {VECTOR}) loc("train.py":7:0)
    %r = "jax.mul"(%0#1, %0#0) : ({VECTOR}, tensor<f32>) -> {VECTOR}
"""


def test_a_scan_that_is_taken_apart_gives_rows_and_whole_carries() -> None:
    found = module(SCAN)
    scan = named(found, "jax.scan")
    report = analyze(found.main, {0: 0, 1: 0}, combine=True, gather=True, unrolled=[scan])
    assert [report.state(result) for result in scan.results] == [FULL, Split(0)]
    needs = report.on_piece(scan)
    assert needs.gathers == ((0, 0),)  # the constant is shared by all iterations
    assert needs.combines == ((1, "sum"),)
    assert report.gathered[scan].message.startswith("train.py:7: 'jax.scan' needs it in every")
    assert report.results == (Split(0),)


def test_the_form_of_a_scan() -> None:
    scan = named(module(SCAN), "jax.scan")
    form = ScanForm.of(scan)
    assert form == ScanForm(5, consts=1, carries=1, xs=1, ys=1, tokens=0, reverse=True)
    assert list(form.rows) == [2]
    del scan.attributes["length"]
    with pytest.raises(PassError, match=r"train.py:7: 'jax.scan' needs the attribute 'length'"):
        ScanForm.of(scan)


def test_pieces_of_different_sizes() -> None:
    found = module(
        f"""
    %0 = "jax.add"(%x, %y) : ({VECTOR}, {VECTOR}) -> {VECTOR}
    %r = "jax.reshape"(%0) {{new_sizes = [5, 1]}} : ({VECTOR}) -> tensor<5x1xf32>
""",
        type_="tensor<5x1xf32>",
    )
    report = analyze(found.main, {0: 0})
    x, y = found.main.body.arguments
    for start, rows in ((0, 2), (2, 3)):
        mapping: dict[Value, Value] = {x: x, y: y}
        ops = [
            made
            for op in found.main.body.ops[:-1]
            for made in on_rows(op, report, start, rows, mapping)
        ]
        cut, add, reshape = ops
        assert cut.attributes["start_indices"] == (start,)
        assert cut.attributes["limit_indices"] == (start + rows,)
        assert str(add.result.type) == f"tensor<{rows}xf32>"
        assert str(reshape.result.type) == f"tensor<{rows}x1xf32>"
        assert reshape.attributes["new_sizes"] == (rows, 1)
        for op in reversed(ops):
            op.drop_operands()


def test_the_caller_may_cut_in_its_own_way() -> None:
    found = module(f"""
    %r = "jax.add"(%x, %y) : ({VECTOR}, {VECTOR}) -> {VECTOR}
""")
    report = analyze(found.main, {0: 0})
    x, y = found.main.body.arguments
    asked: list[tuple[Value, int, int, int]] = []

    def cut(value: Value, dimension: int, start: int, size: int) -> Value:
        asked.append((value, dimension, start, size))
        return x

    (add,) = on_rows(named(found, "jax.add"), report, 1, 3, {x: x, y: y}, cut)
    assert asked == [(y, 0, 1, 3)]
    assert list(add.operands) == [x, x]
    add.drop_operands()
