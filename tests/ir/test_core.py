"""Operations, values and blocks: use lists, erasing, cloning, order."""

import pytest

from baechi_jax.ir.attributes import FloatAttr, SymbolRef
from baechi_jax.ir.builder import Builder
from baechi_jax.ir.core import Block, Module, Operation, Region, topological_order
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.function import (
    argument_attributes,
    function,
    refresh_function_type,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.symbols import lookup, resolve
from baechi_jax.ir.types import FunctionType, ScalarType, TensorType
from baechi_jax.ir.verifier import verify

F32 = TensorType((), "f32")


def chain() -> tuple[Block, Operation, Operation, Operation]:
    """``a``, ``b(a, a)``, ``c(b)`` in a block."""
    block = Block()
    builder = Builder(block)
    a = builder.create("x.a", (), (F32,))
    b = builder.create("x.b", (a.result, a.result), (F32,))
    c = builder.create("x.c", (b.result,))
    return block, a, b, c


def test_use_lists_follow_operands() -> None:
    _, a, b, c = chain()
    assert list(a.result.uses) == [(b, 0), (b, 1)]
    assert a.result.users == [b]
    b.set_operand(0, b.operands[0])
    c.set_operand(0, a.result)
    assert a.result.users == [b, c]
    assert not b.result.uses
    c.set_operands((b.result, a.result))
    assert list(a.result.uses) == [(b, 0), (b, 1), (c, 1)]
    a.result.replace_all_uses_with(a.result)
    a.result.replace_all_uses_with(b.result)
    assert not a.result.uses
    assert list(c.operands) == [b.result, b.result]


def test_erasing() -> None:
    block, a, b, c = chain()
    with pytest.raises(IRError, match=r"cannot erase 'x\.a': its result 0 is in use"):
        a.erase()
    c.erase()
    b.erase()
    assert block.ops == [a]
    assert not a.result.uses
    assert b.parent is None
    Operation("x.loose").erase()


def test_retaining() -> None:
    block, a, b, c = chain()
    with pytest.raises(IRError, match=r"cannot erase 'x\.b': its result is in use"):
        block.retain(lambda op: op is not b)
    block.retain(lambda op: op is a)
    assert block.ops == [a]
    assert not a.result.uses
    assert c.parent is None


def test_erasing_drops_what_the_regions_read() -> None:
    module = parse_module(
        '%a = "x.a"() : () -> i32\n"x.b"() ({ "x.c"(%a) : (i32) -> () }) : () -> ()'
    )
    a, b = module.body.ops
    b.erase()
    assert not a.result.uses


def test_moving_in_blocks() -> None:
    block, a, b, c = chain()
    new = Operation("x.new")
    block.insert_before(b, new)
    assert [op.name for op in block.ops] == ["x.a", "x.new", "x.b", "x.c"]
    block.set_ops([a, b, c])
    assert new.parent is None
    assert block.terminator is c
    other = Block()
    other.extend([new])
    assert new.parent is other
    with pytest.raises(IRError, match="a block without operations has no terminator"):
        _ = Block().terminator


def test_results_and_bodies_are_asked_for_when_there_is_one() -> None:
    op = Operation("x.a", (), (F32, F32))
    with pytest.raises(IRError, match=r"'x\.a' has 2 results, expected one"):
        _ = op.result
    with pytest.raises(IRError, match=r"'x\.a' does not have exactly one region of one block"):
        _ = op.body
    assert repr(op) == "<x.a at unknown source>"
    assert op.parent_op is None
    assert Block().parent_op is None


def test_clones_are_apart_and_keep_their_data_flow() -> None:
    text = """"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %loss = "jax.a"(%x) ({
    ^bb0(%0: tensor<f32>):
      "baechi.yield"(%0) : (tensor<f32>) -> ()
    }) {k = 1 : i64} : (tensor<f32>) -> tensor<f32> loc("f.py":1:2)
    "func.return"(%loss) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()
"""
    module = parse_module(text)
    copy = module.clone()
    assert isinstance(copy, Module)
    assert print_module(copy) == text
    verify(copy)
    copy.main.body.ops[0].attributes["k"] = 2
    copy.main.body.arguments[0].name = None
    assert print_module(module) == text
    outside = module.main.body.ops[0].clone()
    assert list(outside.operands) == [module.main.body.arguments[0]]


def test_walking_goes_outside_in() -> None:
    module = parse_module(
        '"a.a"() ({ "a.b"() : () -> ()\n"a.c"() ({ "a.d"() : () -> () }) : () -> () }) : () -> ()'
    )
    assert [op.name for op in module.walk()] == ["builtin.module", "a.a", "a.b", "a.c", "a.d"]


def test_topological_order() -> None:
    block, a, b, c = chain()
    reader = Operation("x.r", regions=[Region([Block()])])
    reader.body.append(Operation("x.inner", (c.results or b.results)))
    block.append(reader)
    keys = {a: 0, b: 1, c: 9, reader: 5}
    shuffled = [reader, c, b, a]
    assert topological_order(shuffled, key=lambda op: keys[op]) == [a, b, reader, c]
    assert topological_order(shuffled, key=lambda op: 0) == [a, b, reader, c]
    b.set_operand(0, b.result)
    a.set_operands((b.result,))
    with pytest.raises(IRError, match="in a cycle through <x"):
        topological_order(block.ops, key=lambda op: 0)


def test_modules_find_functions() -> None:
    module = Module()
    with pytest.raises(IRError, match="the module has no function @main"):
        _ = module.main
    main = module.body.append(function("main"))
    module.body.append(Operation("x.a"))
    assert module.main is main
    assert module.functions == [main]
    assert module.lookup("other") is None


def test_functions() -> None:
    func = function("f", (F32,), Location("f.py", 1, 0))
    func.body.append(Operation("func.return", func.body.arguments))
    refresh_function_type(func)
    assert func.attributes["function_type"] == FunctionType((F32,), (F32,))
    assert argument_attributes(func) == [{}]
    set_argument_attributes(func, [{"a": 1}])
    set_result_attributes(func, [{"b": 2}])
    assert argument_attributes(func) == [{"a": 1}]
    assert result_attributes(func) == [{"b": 2}]
    verify(func)
    func.attributes["arg_attrs"] = ((), ())
    with pytest.raises(IRError, match="'arg_attrs' of @f has 2 entries for 1"):
        argument_attributes(func)
    func.attributes["arg_attrs"] = (1,)
    with pytest.raises(IRError, match="'arg_attrs' must hold dictionaries, found 1"):
        argument_attributes(func)
    func.attributes["arg_attrs"] = 1
    with pytest.raises(TypeError, match="expected an array attribute, found 1"):
        argument_attributes(func)


def test_building() -> None:
    block = Block((F32,))
    builder = Builder(block, location=Location("f.py", 1, 0))
    end = builder.create("x.end", location=UNKNOWN)
    front = Builder.before(end)
    one = front.literal(FloatAttr(1.0, ScalarType("f32")), F32)
    total = front.value("jax.add", (block.arguments[0], one), F32, {"k": 1})
    Builder.after(end).create("x.last", (total,))
    assert [op.name for op in block.ops] == ["baechi.literal", "jax.add", "x.end", "x.last"]
    assert end.location == UNKNOWN
    assert builder.create("x.more").location == Location("f.py", 1, 0)
    with pytest.raises(IRError, match=r"'x\.end' is in a block already; detach it first"):
        builder.insert(end)
    with pytest.raises(IRError, match=r"'x\.loose' is in no block"):
        Builder.before(Operation("x.loose"))


def test_symbols() -> None:
    module = parse_module(
        """
        "func.func"() ({
          "x.a"() {sym_name = "t"} : () -> ()
          "x.b"() : () -> ()
          "func.return"() : () -> ()
        }) {sym_name = "f"} : () -> ()
        """
    )
    func = module.functions[0]
    reader = func.body.ops[1]
    assert lookup(module, "f") is func
    assert resolve(reader, SymbolRef(("t",))) is func.body.ops[0]
    assert resolve(reader, SymbolRef(("f", "t"))) is func.body.ops[0]
    assert resolve(reader, SymbolRef(("f", "u"))) is None
    assert resolve(module, SymbolRef(("f",))) is None
    assert SymbolRef(("f", "t")).root == "f"
    assert SymbolRef(("f", "t")).leaf == "t"
