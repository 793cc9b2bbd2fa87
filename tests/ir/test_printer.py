"""What the printer writes, to the letter."""

import enum
import math

import numpy as np
import pytest

from baechi_jax.ir.attribute_printer import print_attribute
from baechi_jax.ir.attributes import (
    Attribute,
    DenseArray,
    DenseElements,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    ParameterizedAttr,
    SymbolRef,
    Unit,
    register_attribute,
)
from baechi_jax.ir.core import Block, Module, Operation, Region
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import Location
from baechi_jax.ir.parser import parse_attribute, parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device
from baechi_jax.ir.types import FunctionType, OnType, OpaqueType, ScalarType, TensorType

F32, I32 = TensorType((), "f32"), TensorType((), "i32")


def number(value: float, name: str) -> Attribute:
    return FloatAttr(value, ScalarType(name))


ATTRIBUTES: list[tuple[Attribute, str]] = [
    (True, "true"),
    (3, "3 : i64"),
    (-(2**63), "-9223372036854775808 : i64"),
    (1.5, "1.5 : f64"),
    (1e300, "1.0e+300 : f64"),
    (0.1, "0.1 : f64"),
    (-0.0, "-0.0 : f64"),
    (math.nan, "0x7FF8000000000000 : f64"),
    (-math.inf, "0xFFF0000000000000 : f64"),
    (5e-324, "0x0000000000000001 : f64"),
    (number(0.1, "f32"), "0.1 : f32"),
    (number(0.10000000149011612, "f32"), "0.1 : f32"),
    (number(16777216.0, "f32"), "16777216.0 : f32"),
    (number(3.4e38, "f32"), "3.4e+38 : f32"),
    (number(1e-45, "f32"), "0x00000001 : f32"),
    (number(0.1, "bf16"), "0.1 : bf16"),
    (number(math.nan, "bf16"), "0x7FC0 : bf16"),
    (number(-math.inf, "f16"), "0xFC00 : f16"),
    (number(math.nan, "f8E4M3FN"), "0x7F : f8E4M3FN"),
    (number(math.nan, "f8E4M3FNUZ"), "0x80 : f8E4M3FNUZ"),
    (number(-0.0, "f8E4M3FNUZ"), "0.0 : f8E4M3FNUZ"),
    (number(-0.0, "f8E5M2"), "-0.0 : f8E5M2"),
    (number(0.5, "f4E2M1FN"), "0x1 : f4E2M1FN"),
    (number(6.0, "f4E2M1FN"), "6.0 : f4E2M1FN"),
    (number(2.0**-127, "f8E8M0FNU"), "0x00 : f8E8M0FNU"),
    (IntegerAttr(-3, ScalarType("i8")), "-3 : i8"),
    (IntegerAttr(1, ScalarType("i1")), "true"),
    (IntegerAttr(2**70, ScalarType("i128")), "1180591620717411303424 : i128"),
    ('a"b\\c\n\t\0\x7fé𝄞', '"a\\22b\\5Cc\\0A\\09\\00\\7Fé𝄞"'),
    ("\udcff", '"\\FF"'),
    ((), "[]"),
    (
        (1, 2.0, True, "x", (), Unit(), math.inf),
        '[1, 2.0, true, "x", [], unit, 0x7FF0000000000000 : f64]',
    ),
    (DictAttr.of({"a": 1, "b c": Unit(), "1": (1,)}), '{a = 1 : i64, "b c", "1" = [1]}'),
    (SymbolRef(("main", "t 7", "x.y")), '@main::@"t 7"::@x.y'),
    (DenseArray(ScalarType("i64"), (1, -2)), "array<i64: 1, -2>"),
    (DenseArray(ScalarType("i1"), (True, False)), "array<i1: true, false>"),
    (DenseArray(ScalarType("f32"), (0.1, math.nan)), "array<f32: 0.1, 0x7FC00000>"),
    (DenseArray(ScalarType("f32"), ()), "array<f32>"),
    (DenseElements("[1, 2]", TensorType((2,), "i64")), "dense<[1, 2]> : tensor<2xi64>"),
    (OpaqueAttr("jax", "obj"), "#jax.obj"),
    (OpaqueAttr("jax", "obj", '"<f at 0x1>"'), '#jax.obj<"<f at 0x1>">'),
    (OpaqueAttr("jax", "", "1"), "#jax<1>"),
    (Cost(), "#baechi.cost"),
    (Cost(flops=2.0, seconds=(1e-06,)), "#baechi.cost<flops = 2.0, seconds = [1.0e-06]>"),
    (Device(name='a "b"'), '#baechi.device<name = "a \\22b\\22">'),
    (FunctionType((F32, I32), (I32,)), "(tensor<f32>, tensor<i32>) -> tensor<i32>"),
    (FunctionType((), (FunctionType((), ()),)), "() -> (() -> ())"),
    (OnType((0, 1), F32, 'split "0"'), '!baechi.on<[0, 1], tensor<f32>, "split \\220\\22">'),
    (OpaqueType("jax", "", "1"), "!jax<1>"),
]


@pytest.mark.parametrize(("attribute", "text"), ATTRIBUTES, ids=[text for _, text in ATTRIBUTES])
def test_attributes(attribute: Attribute, text: str) -> None:
    assert print_attribute(attribute) == text
    assert print_attribute(parse_attribute(text)) == text


def test_subclasses_of_numbers_and_strings_print_as_such() -> None:
    class Mode(enum.IntEnum):
        FAST = 2

    class Name(str):
        __slots__ = ()

    assert print_attribute(Mode.FAST) == "2 : i64"
    assert print_attribute((Mode.FAST,)) == "[2]"
    assert print_attribute(Name("x")) == '"x"'
    assert print_attribute(np.float64(1.5)) == "1.5 : f64"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "[1] of type list is no attribute; convert it to bool, int"),
        (None, "None of type NoneType is no attribute"),
        (np.int64(1), "of type int64 is no attribute"),
        (2**63, "9223372036854775808 does not fit in 64 bits: give an IntegerAttr"),
        ((2**63,), "does not fit in 64 bits"),
        (number(1.0, "f80"), "a float cannot have type f80"),
        (number(math.nan, "f4E2M1FN"), "nan has no text form: f4E2M1FN has no NaN"),
        (number(-1.0, "f8E8M0FNU"), "f8E8M0FNU has no negative numbers"),
        ("\ud800", "the string '\\ud800' has no text form"),
        (
            OpaqueAttr("jax", "obj", "(]"),
            "the body of #jax.obj has brackets or strings that are not",
        ),
        (OpaqueAttr("jax", "obj", ">"), "the body of #jax.obj has brackets or strings"),
        (OpaqueAttr("jax", "obj", '"'), "the body of #jax.obj has brackets or strings"),
        (DictAttr.of({"": 1}), "an attribute needs a name"),
        (ParameterizedAttr(), "ParameterizedAttr is not registered: use register_attribute"),
    ],
)
def test_what_has_no_text_form(value: Attribute, message: str) -> None:
    with pytest.raises(IRError) as caught:
        print_attribute(value)
    assert message in str(caught.value)
    op = Operation("a.b", attributes={"x": value}, location=Location("f.py", 3, 0))
    with pytest.raises(IRError, match=r"cannot print 'a\.b' at f\.py:3: "):
        print_module(op)


def test_an_operation_needs_a_name() -> None:
    with pytest.raises(IRError, match="an operation at unknown source has no name"):
        print_module(Operation(""))


def test_a_registered_attribute_of_ones_own() -> None:
    from dataclasses import dataclass

    @register_attribute("test.pair")
    @dataclass(frozen=True, slots=True)
    class Pair(ParameterizedAttr):
        left: int
        right: str = "r"

    assert print_attribute(Pair(1)) == "#test.pair<left = 1>"
    assert print_attribute((Pair(1, "x"),)) == '[#test.pair<left = 1, right = "x">]'
    assert parse_attribute('#test.pair<right = "x", left = 1>') == Pair(1, "x")


def test_a_module_to_the_letter() -> None:
    module = Module({"baechi.pipeline": "x"}, location=Location("f.py", 1, 0))
    block = Block((F32, F32))
    func = Operation("func.func", (), (), {"sym_name": "main"}, [Region([block])])
    module.body.append(func)
    one = block.append(Operation("jax.one", (block.arguments[0],), (F32, I32)))
    inner = Block((F32,))
    inner.append(Operation("baechi.yield", inner.arguments))
    loop = block.append(
        Operation(
            *("jax.while", one.results, (FunctionType((), ()),), {}),
            [Region([inner]), Region([Block()]), Region([])],
            Location("f.py", 12, 4, "a/b"),
        )
    )
    block.append(Operation("func.return", (), location=Location(name="only name")))
    loop.result.name = "loop"
    assert print_module(module) == (
        '"builtin.module"() ({\n'
        '  "func.func"() ({\n'
        "  ^bb0(%arg0: tensor<f32>, %arg1: tensor<f32>):\n"
        '    %0:2 = "jax.one"(%arg0) : (tensor<f32>) -> (tensor<f32>, tensor<i32>)\n'
        '    %loop = "jax.while"(%0#0, %0#1) ({\n'
        "    ^bb0(%1: tensor<f32>):\n"
        '      "baechi.yield"(%1) : (tensor<f32>) -> ()\n'
        "    }, {\n"
        "    ^bb0:\n"
        "    }, {\n"
        '    }) : (tensor<f32>, tensor<i32>) -> (() -> ()) loc("a/b"("f.py":12:4))\n'
        '    "func.return"() : () -> () loc("only name")\n'
        '  }) {sym_name = "main"} : () -> ()\n'
        '}) {baechi.pipeline = "x"} : () -> () loc("f.py":1:0)\n'
    )
    assert "loc(" not in print_module(module, locations=False)


def test_names_are_hints_made_valid_and_unique() -> None:
    block = Block((F32,) * 4)
    for argument, name in zip(block.arguments, ("state.params['w']", "7", "arg1", "")):
        argument.name = name
    ops = [Operation("a.b", (), (F32,)) for _ in range(4)]
    for op, name in zip(ops, ("loss", "loss", "loss_1", None)):
        op.result.name = name
        block.append(op)
    text = print_module(Operation("func.func", regions=[Region([block])]))
    assert (
        "^bb0(%state.params__w__: tensor<f32>, %_7: tensor<f32>, %_arg1: tensor<f32>, %_:" in text
    )
    names = [line.split()[0] for line in text.split("\n") if "a.b" in line]
    assert names == ["%loss", "%loss_1", "%loss_1_1", "%0"]
    assert print_module(parse_module(text).body.ops[0]) == text


def test_each_function_counts_from_zero() -> None:
    text = """"builtin.module"() ({
  "func.func"() ({
    %0 = "a.b"() : () -> tensor<f32>
    "func.return"() : () -> ()
  }) {sym_name = "f"} : () -> ()
  "func.func"() ({
    %0 = "a.b"() : () -> tensor<f32>
    "func.return"() : () -> ()
  }) {sym_name = "g"} : () -> ()
}) : () -> ()
"""
    assert print_module(parse_module(text)) == text


def test_an_operation_prints_alone() -> None:
    module = parse_module('%a:2 = "a.b"() : () -> (i1, i2)\n%c = "a.c"(%a#1) : (i2) -> i4')
    assert print_module(module.body.ops[1]) == '%c = "a.c"(%a#1) : (i2) -> i4\n'
