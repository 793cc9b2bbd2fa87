"""Programs remembered by structure: equal ones are found again, others are told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baechi_jax.ir.core import Block
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.topology import Device
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.cost import program
from baechi_jax.passes.cost.liveness import temporary_bytes
from baechi_jax.passes.cost.program import Program, program_of

_DEVICES = (Device(),)

_BODY = """
  %c = "baechi.literal"() {value = 2.0 : f32} : () -> tensor<f32>
  %0 = "jax.mul"(%x, %c) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %1 = "jax.dot_general"(%0, %x) {dimension_numbers = [[[1], [0]], [[], []]]}
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = "jax.exp"(%1) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = "jax.add"(%2, %1) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
"""


def _block(body: str = _BODY) -> Block:
    text = f"""
"builtin.module"() ({{
  "func.func"() ({{
  ^bb0(%x: tensor<64x64xf32>):{body}
    "func.return"(%3, %1) : (tensor<64x64xf32>, tensor<64x64xf32>) -> ()
  }}) {{function_type = (tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>),
    sym_name = "main"}} : () -> ()
}}) : () -> ()
"""
    return parse_module(text).main.body


def _program(block: Block, devices: tuple[Device, ...] = _DEVICES) -> Program:
    return program_of(block.ops[:-1], block.arguments, block.terminator.operands, devices)


def test_equal_structures_are_one_program() -> None:
    assert _program(_block()) is _program(_block())


def test_where_literals_stand_does_not_count() -> None:
    body = """
  %0 = "jax.mul"(%x, %c) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>"""
    assert body in _BODY
    literal = """
  %again = "baechi.literal"() {value = 2.0 : f32} : () -> tensor<f32>"""
    twice = _BODY.replace(body, literal + body.replace("%c", "%again"))
    assert _program(_block(twice)) is _program(_block())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("jax.exp", "jax.tanh"),
        ("value = 2.0", "value = 3.0"),
        ("[[1], [0]]", "[[0], [0]]"),
        ("(%0, %x)", "(%x, %0)"),
        ("(%2, %1)", "(%2, %2)"),
        ('exp"(%1)', 'exp"(%0)'),
    ],
)
def test_other_structures_are_other_programs(old: str, new: str) -> None:
    assert old in _BODY
    assert _program(_block(_BODY.replace(old, new))) is not _program(_block())


def test_other_devices_costs_and_results_are_other_programs() -> None:
    known = _program(_block())
    assert _program(_block(), (replace(_DEVICES[0], flops_per_second=1.0),)) is not known
    measured = _block()
    measured.ops[2].attributes["baechi.cost"] = Cost(seconds=(1.0,))
    assert _program(measured) is not known
    assert _program(measured).work.seconds[0] >= 1.0
    block = _block()
    block.terminator.set_operands(list(reversed(block.terminator.operands)))
    assert _program(block) is not known


def test_an_operation_that_changed_is_looked_at_again() -> None:
    block = _block()
    known = _program(block)
    exp = block.ops[3]
    exp.attributes["accuracy"] = "high"
    changed = _program(block)
    assert changed is not known
    exp.attributes["accuracy"] = "low"
    assert _program(block) not in (known, changed)
    del exp.attributes["accuracy"]
    # What a pass notes on an operation does not count, its cost aside.
    exp.attributes["baechi.group"] = "g"
    assert _program(block) is known
    exp.name = "jax.tanh"
    other = _program(block)
    assert other is not known
    exp.results[0].type = TensorType((64, 64), "bf16")
    assert _program(block) not in (known, other)
    block.ops[4].set_operand(1, block.arguments[0])
    assert _program(block) is not _program(_block())


def test_bodies_of_loops_are_compared() -> None:
    def scan(name: str) -> Block:
        return _block(
            f"""
  %1 = "jax.scan"(%x, %x) ({{
  ^bb0(%y: tensor<64x64xf32>, %z: tensor<64x64xf32>):
    %w = "jax.{name}"(%y, %z) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    "baechi.yield"(%w) : (tensor<64x64xf32>) -> ()
  }}) {{length = 3 : i64, num_consts = 1 : i64, num_carry = 1 : i64}}
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = "jax.neg"(%1) : (tensor<64x64xf32>) -> tensor<64x64xf32>
"""
        )

    assert _program(scan("add")) is _program(scan("add"))
    assert _program(scan("add")) is not _program(scan("pow"))


def test_a_remembered_program_has_the_right_memory() -> None:
    for donated in ((), (0,), None):
        block = _block()
        found = _program(block).temporary_bytes(block.arguments, block.terminator.operands, donated)
        assert found == temporary_bytes(
            block.ops[:-1], block.arguments, block.terminator.operands, donated
        )


def test_the_oldest_programs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    known = _program(_block())
    monkeypatch.setattr(program, "_REMEMBERED", 8)
    other = _program(_block(_BODY.replace("jax.exp", "jax.log")))
    assert list(program._known.values()) == [other]
    assert _program(_block()) is not known
