"""What the parser takes beside what the printer writes, and every error it gives."""

import math
import time

import pytest

from baechi_jax.ir.attributes import (
    DenseArray,
    DenseElements,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    SymbolRef,
    Unit,
)
from baechi_jax.ir.core import Module
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import ParseError
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.parser import parse_attribute, parse_module, parse_operation, parse_type
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
)

F32 = TensorType((), "f32")


# Modules and operations ---------------------------------------------------------------------------


def test_operations_without_a_module_get_one() -> None:
    module = parse_module('"a.b"() : () -> ()\n"a.c"() : () -> ()')
    assert [op.name for op in module.body.ops] == ["a.b", "a.c"]
    assert parse_module("// nothing\n").body.ops == []
    assert parse_module('"builtin.module"() ({}) : () -> ()').body.ops == []


def test_comments_stand_anywhere_but_in_strings() -> None:
    op = parse_operation(
        """// first "quote
        %a, // of two
        %b = "a.b" // name "
        ( ) { // attributes
          x = "http://x" // a URL
        } : () -> // types
        (i32, i64) // end"""
    )
    assert op.attributes == {"x": "http://x"}
    assert [result.name for result in op.results] == ["a", "b"]


def test_results_have_one_name_or_several() -> None:
    module = parse_module(
        """
        %x:2, %y = "a.b"() : () -> (i1, i2, i4)
        "a.c"(%x, %x#0, %x#1, %y, %y#0) : (i1, i1, i2, i4, i4) -> ()
        """
    )
    first, second = module.body.ops
    assert [value.index for value in second.operands] == [0, 0, 1, 2, 2]
    assert all(value.owner is first for value in second.operands)


def test_values_may_be_read_before_they_are_defined() -> None:
    module = parse_module(
        """
        "a.c"(%later, %two#1, %two#0) ({
          "a.d"(%later) : (i32) -> ()
        }) : (i32, i2, i1) -> ()
        %later = "a.b"() : () -> i32
        %two:2 = "a.e"() : () -> (i1, i2)
        """
    )
    reader, definer, two = module.body.ops
    assert list(reader.operands) == [definer.result, two.results[1], two.results[0]]
    assert list(reader.body.ops[0].operands) == [definer.result]
    assert (
        list(definer.result.uses) == [(reader.body.ops[0], 0), (reader, 0)]
        or len(definer.result.uses) == 2
    )


def test_regions_side_by_side_and_functions_have_names_of_their_own() -> None:
    module = parse_module(
        """
        "builtin.module"() ({
          "func.func"() ({
          ^bb0(%a: i32):
            "x.y"() ({ %b = "x.z"() : () -> i1 }, { %b = "x.z"() : () -> i2 }) : () -> ()
            "func.return"() : () -> ()
          }) : () -> ()
          "func.func"() ({
          ^entry(%a: i64):
            "func.return"() : () -> ()
          }) : () -> ()
        }) : () -> ()
        """
    )
    assert [f.body.arguments[0].type.name for f in module.functions] == ["i32", "i64"]


def test_several_blocks() -> None:
    op = parse_operation(
        '"a.b"() ({ "a.c"() : () -> ()\n^bb1(%x: i32): ^"\n'[:-4] + "}) : () -> ()"
    )
    assert [len(block.ops) for block in op.regions[0].blocks] == [1, 0]
    text = print_module(op)
    assert "^bb1(%x: i32):" in text
    assert print_module(parse_operation(text)) == text


def test_properties_are_attributes() -> None:
    op = parse_operation('"a.b"() <{p = 1 : i32}> {q} : () -> ()')
    assert op.attributes == {"p": IntegerAttr(1, ScalarType("i32")), "q": Unit()}


def test_names_of_operations_may_have_escapes() -> None:
    op = parse_operation('%r = "a\\22\\C3\\A9 b"() : () -> i32')
    assert op.name == 'a"é b'
    assert print_module(op) == '%r = "a\\22é b"() : () -> i32\n'


def test_operands_of_an_escaped_name() -> None:
    module = parse_module('%x = "a.b"() : () -> i32\n"a\\22"(%x, %x) : (i32, i32) -> ()')
    assert len(module.body.ops[1].operands) == 2


def test_numbers_and_argument_names_are_no_hints() -> None:
    op = parse_operation('%7 = "a.b"() ({^bb0(%arg3: i32, %loss: i32):}) : () -> i32')
    assert op.result.name is None
    assert [argument.name for argument in op.body.arguments] == [None, "loss"]


# Locations and aliases --------------------------------------------------------------------------

LOCATIONS = {
    "unknown": UNKNOWN,
    '"f.py":3:4': Location("f.py", 3, 4),
    '"f.py":3:4 to 5:6': Location("f.py", 3, 4),
    '"f.py":3:4 to :6': Location("f.py", 3, 4),
    '"n"': Location(name="n"),
    '"n"("f.py":3:4)': Location("f.py", 3, 4, "n"),
    '"a"("b"("f.py":3:4))': Location("f.py", 3, 4, "a"),
    '"n"(unknown)': Location(name="n"),
    'fused["n", "f.py":3:4]': Location("f.py", 3, 4),
    'fused<"meta">[unknown, "n"]': UNKNOWN,
    'fused[loc("n"), loc("f.py":3:4)]': Location("f.py", 3, 4),
    'callsite("n"("f.py":3:4) at "g.py":5:6)': Location("f.py", 3, 4, "n"),
    'callsite(unknown at "g.py":5:6)': Location("g.py", 5, 6),
    '"jit(f)/(a)"("a\\22b.py":3:4)': Location('a"b.py', 3, 4, "jit(f)/(a)"),
}


@pytest.mark.parametrize("text", LOCATIONS)
def test_locations(text: str) -> None:
    op = parse_operation(f'"a.b"() : () -> () loc({text})')
    assert op.location == LOCATIONS[text]
    again = print_module(op)
    assert print_module(parse_operation(again)) == again


def test_aliases_stand_before_and_after() -> None:
    module = parse_module(
        """
        #loc1 = loc("f.py":1:2)
        !pair = (i1, i2) -> ()
        #attr = [1, 2]
        "a.b"() {x = #attr, y = !pair, z = [#attr, #attr]} : () -> () loc(#loc2)
        #loc2 = loc("name"(#loc1))
        """
    )
    op = module.body.ops[0]
    assert op.location == Location("f.py", 1, 2, "name")
    pair = FunctionType((ScalarType("i1"), ScalarType("i2")), ())
    assert op.attributes == {"x": (1, 2), "y": pair, "z": ((1, 2), (1, 2))}


# Types and attributes ---------------------------------------------------------------------------

TYPES = {
    "tensor<f32>": F32,
    "tensor< 2 x 0x1 x f32 , #baechi.weak >": TensorType((2, 0, 1), "f32", weak=True),
    'tensor<3x!baechi.key<"fry">>': TensorType((3,), '!baechi.key<"fry">'),
    'tensor<3x!baechi<key<"fry">>>': TensorType((3,), '!baechi.key<"fry">'),
    "tensor<!baechi.float0>": TensorType((), "!baechi.float0"),
    "tensor<4xcomplex< f64 >>": TensorType((4,), "complex<f64>"),
    "!baechi.token": TokenType(),
    "!baechi<token>": TokenType(),
    "!baechi.on<[0], tensor<f32>>": OnType((0,), F32),
    '!baechi.on< [ 0 , 12 ] , tensor<f32> , "split 0" >': OnType((0, 12), F32, "split 0"),
    "!baechi.in_flight<tensor<f32>>": InFlightType(F32),
    "!baechi<in_flight<tensor<f32>>>": InFlightType(F32),
    '!jax.ref<"Ref<float>">': OpaqueType("jax", "ref", '"Ref<float>"'),
    "!jax.ref<a -> b>": OpaqueType("jax", "ref", "a -> b"),
    "!jax.ref<>": OpaqueType("jax", "ref", ""),
    '!jax<"x">': OpaqueType("jax", "", '"x"'),
    "() -> ()": FunctionType((), ()),
    "(i32) -> (i32)": FunctionType((ScalarType("i32"),), (ScalarType("i32"),)),
    "() -> (() -> ())": FunctionType((), (FunctionType((), ()),)),
    "f8E4M3B11FNUZ": ScalarType("f8E4M3B11FNUZ"),
    "ui3": ScalarType("ui3"),
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    assert parse_type(text) == TYPES[text]
    assert parse_type(str(TYPES[text])) == TYPES[text]


I8, F16 = ScalarType("i8"), ScalarType("f16")
ATTRIBUTES = {
    "true": True,
    "1 : i1": True,
    "0 : i1": False,
    "-3": -3,
    "-0x10": -16,
    "0x10 : i8": IntegerAttr(16, I8),
    "255 : i8": IntegerAttr(-1, I8),
    "18446744073709551615": -1,
    "18446744073709551615 : ui64": IntegerAttr(2**64 - 1, ScalarType("ui64")),
    "5 : index": IntegerAttr(5, ScalarType("index")),
    "1.": 1.0,
    "1.5e3 : f64": 1500.0,
    "0x7FF0000000000000 : f64": math.inf,
    "1.0e400": math.inf,
    "0x3C00 : f16": FloatAttr(1.0, F16),
    "65520.0 : f16": FloatAttr(math.inf, F16),
    "0.1 : f16": FloatAttr(0.0999755859375, F16),
    '"a\\22\\5C\\0A\\n\\t\\\\\\C3\\A9é"': 'a"\\\n\n\t\\éé',
    '"\\FF"': "\udcff",
    "[]": (),
    "[ 1, [], [[2 : i64]], [true] ]": (1, (), ((2,),), (True,)),
    "[unit, {a}]": (Unit(), DictAttr((("a", Unit()),))),
    '{"" = 1}': None,
    '{"a b" = 1, a.b$c}': DictAttr((("a b", 1), ("a.b$c", Unit()))),
    "@a": SymbolRef(("a",)),
    '@a::@"b c"::@d.e': SymbolRef(("a", "b c", "d.e")),
    "array<i64>": DenseArray(ScalarType("i64"), ()),
    "array<i1: true, false>": DenseArray(ScalarType("i1"), (True, False)),
    "array<f32: 1.5, 0xFF800000>": DenseArray(ScalarType("f32"), (1.5, -math.inf)),
    "array<i8: 255>": DenseArray(I8, (-1,)),
    "dense<[[1], [2]]> : tensor<2x1xi8>": DenseElements("[[1], [2]]", TensorType((2, 1), "i8")),
    "#jax.obj": OpaqueAttr("jax", "obj"),
    "#jax<obj>": OpaqueAttr("jax", "obj"),
    "#jax<obj<x>>": OpaqueAttr("jax", "obj", "x"),
    "#jax<1>": OpaqueAttr("jax", "", "1"),
    "#jax.obj<a->, b>": OpaqueAttr("jax", "obj", "a->, b"),
    '#jax.obj<"<>>">': OpaqueAttr("jax", "obj", '"<>>"'),
    "#baechi.cost": Cost(),
    "#baechi.cost<>": Cost(),
    "#baechi<cost<flops = 2>>": Cost(2.0),
    "#baechi.cost< seconds = [1, 2.5] , output_bytes=3 >": Cost(seconds=(1.0, 2.5), output_bytes=3),
    "tensor<f32>": F32,
    "() -> i8": FunctionType((), (I8,)),
}


@pytest.mark.parametrize("text", [text for text, value in ATTRIBUTES.items() if value is not None])
def test_attributes(text: str) -> None:
    for around in (text, f" {text} "):
        assert parse_attribute(around) == ATTRIBUTES[text]
    inside = parse_attribute(f"[{text},{text} , {{x={text}}}]")
    value = ATTRIBUTES[text]
    assert inside == (value, value, DictAttr((("x", value),)))


# Errors -----------------------------------------------------------------------------------------

TYPE_ERRORS = {
    "": "expected a type, found the end of the text",
    "flat32": "unknown type 'flat32'",
    "vector<4xf32>": "unknown type 'vector'",
    "tensor": "expected '<' after 'tensor'",
    "tensor<?xf32>": "dynamic dimensions are not supported",
    "tensor<*xf32>": "dynamic dimensions are not supported",
    "tensor<4x>": "expected a type, found '>'",
    "tensor<4x!baechi.token>": "expected an element type",
    "tensor<4xf32, #other.x>": "the only tensor encoding is #baechi.weak",
    "tensor<4xf32": "expected '>' at the end of a tensor type, found the end of the text",
    "(i32": "expected ')' after the inputs of a function type",
    "(i32) i32": "expected '->' in a function type, found 'i32'",
    "() -> (i32": "expected ')' after the result types",
    "!": "expected a type, found '!'",
    "!baechi.on": "expected '<' in '!baechi.on'",
    "!baechi.on<0, i32>": "expected devices such as '[0],' in '!baechi.on', found '0'",
    "!baechi.on<[], tensor<f32>>": "expected device numbers in '!baechi.on'",
    "!baechi.on<[0,], tensor<f32>>": "expected device numbers in '!baechi.on'",
    "!baechi.on<[0], i32>": "expected a tensor type in '!baechi.on', found i32",
    "!baechi.on<[0], tensor<f32>, 3>": "expected a layout string in '!baechi.on', found '3'",
    "!baechi.on<[0], tensor<f32> x>": "expected '>' at the end of '!baechi.on', found 'x'",
    "!baechi.in_flight<() -> ()>": "expected a tensor type in '!baechi.in_flight'",
    "!x.y<(]>": "expected ')' in the type '!x.y', found ']'",
    "!x.y<(a)": "expected '>' to end the type '!x.y'",
    '!x.y<"a>': "this string has no end on its line",
    "!unknown": "undefined alias '!unknown'",
    "i32 i32": "expected the end of the text, found 'i32'",
}


@pytest.mark.parametrize("text", TYPE_ERRORS)
def test_errors_of_types(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_type(text)
    assert TYPE_ERRORS[text] in str(caught.value)


ATTRIBUTE_ERRORS = {
    "": "expected an attribute, found the end of the text",
    "?": "expected an attribute, found '?'",
    "256 : i8": "256 does not fit in i8",
    "-129 : i8": "-129 does not fit in i8",
    "-1 : ui8": "-1 does not fit in ui8",
    "128 : si8": "128 does not fit in si8",
    "18446744073709551616": "18446744073709551616 does not fit in i64",
    "[-9223372036854775809]": "-9223372036854775809 does not fit in i64",
    "1 : f32": "'1' is no float: write '1.0'",
    "1.0 : i32": "a float cannot have type i32",
    "1 : tensor<f32>": "a number cannot have type tensor<f32>",
    "1.0 : complex<f32>": "a number cannot have type complex<f32>",
    "-0x10 : f32": "the bits of a float have no sign",
    "0x1FFFFFFFF : f32": "more than the 32 bits of f32",
    "-1.0 : f8E8M0FNU": "f8E8M0FNU has no negative numbers",
    "-": "expected a number, found '-'",
    "9" * 5000: "4300 digits",
    '"a': "this string has no end on its line",
    '"a\\q"': "unknown escape '\\q'",
    '"a\\0"': "unknown escape '\\0'",
    '"a" : i32': "strings with a type are not supported",
    "[1, 2": "expected ']' or ',' in an array, found the end of the text",
    "[1 2]": "expected ']' or ',' in an array, found '2'",
    "[,]": "expected an attribute, found ','",
    "{a = 1": "expected '}' or ',' after an attribute, found the end of the text",
    "{a 1}": "expected '}' or ',' after an attribute, found '1'",
    "{1 = 2}": "expected the name of an attribute, found '1'",
    "{a = 1,}": "expected the name of an attribute, found '}'",
    '{"" = 1}': "an attribute needs a name",
    "{a = 1, a = 2}": "attribute 'a' is given twice",
    "{a, a}": "attribute 'a' is given twice",
    '{a, "a" = 1.5}': "attribute 'a' is given twice",
    "@": "expected a symbol such as @main, found '@'",
    "@a::b": "expected a symbol such as @main, found 'b'",
    "array": "expected '<' after 'array'",
    "array<tensor<f32>: 1>": "an array cannot hold tensor<f32>",
    "array<i1: 1>": "expected true or false, found '1'",
    "array<i8: 1.5>": "expected '>' or ',' in an array, found '.5'",
    "array<i8: x>": "expected an integer, found 'x'",
    "array<i8: 256>": "256 does not fit in i8",
    "array<f32: 1>": "expected a float, found '1'",
    "array<i8: 1": "expected '>' or ',' in an array",
    "dense": "expected '<' after 'dense'",
    "dense<1>": "expected ':' after a dense attribute",
    "dense<1> : i32": "a dense attribute needs a tensor type, found i32",
    "dense<[1> : i32": "expected ']' in a dense attribute, found '>'",
    "loc(unknown)": "locations are not supported as attributes",
    "affine_map<() -> ()>": "'affine_map' attributes are not supported",
    "dense_resource<x> : tensor<1xi8>": "'dense_resource' attributes are not supported",
    "sparse<0, 1> : tensor<1xi8>": "'sparse' attributes are not supported",
    "strided<[1]>": "'strided' attributes are not supported",
    "distinct[0]<1>": "'distinct' attributes are not supported",
    "none": "unknown type 'none'",
    "#": "expected an attribute, found '#'",
    "#nowhere": "undefined alias '#nowhere'",
    "#x.y<(>": "expected ')' in the attribute '#x.y', found '>'",
    "#baechi.cost<1>": "expected a field of #baechi.cost, found '1'",
    "#baechi.cost<flop = 1.0>": "#baechi.cost has no field 'flop'; it has: flops, read_bytes",
    "#baechi.cost<flops 1.0>": "expected '=' after field 'flops' of #baechi.cost, found '1.0'",
    "#baechi.cost<flops = 1.0, flops = 1.0>": "field 'flops' of #baechi.cost is given twice",
    '#baechi.cost<flops = "many">': "field 'flops' of #baechi.cost must be float",
    "#baechi.cost<output_bytes = 1.5>": "field 'output_bytes' of #baechi.cost must be int",
    "#baechi.cost<output_bytes = true>": "field 'output_bytes' of #baechi.cost must be int",
    "#baechi.cost<seconds = [true]>": "'seconds' of #baechi.cost must be tuple[float, ...]",
    "#baechi.cost<seconds = 1.0>": "'seconds' of #baechi.cost must be tuple[float, ...]",
    "#baechi.cost<flops = 1.0": "expected '>' or ',' in #baechi.cost",
    "#baechi.link<source = 0>": "#baechi.link needs field 'target'",
    "#baechi.topology<devices = [1]>": "must be tuple[Device, ...]",
    "#baechi.topology<devices = []>": "#baechi.topology: a topology needs at least one device",
    "[" * 3000 + "]" * 3000: "nested too deeply",
}


@pytest.mark.parametrize("text", ATTRIBUTE_ERRORS, ids=lambda text: text[:40])
def test_errors_of_attributes(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_attribute(text)
    assert ATTRIBUTE_ERRORS[text] in str(caught.value)


OPERATION_ERRORS = {
    "module {}": 'generic form, such as "module"(...)',
    "%0 = func.call @f()": 'generic form, such as "func.call"(...)',
    "%": "expected the name of a result, found '%'",
    '%0 "a.b"() : () -> i32': "expected '=' after the results, found '\"a.b\"'",
    '%0, 1 = "a.b"() : () -> i32': "expected the name of a result, such as %0",
    '%0 %1 = "a.b"() : () -> i32': "expected ',' or '=' after a result",
    '%0:0, %1 = "a.b"() : () -> i32': "'%0' names no result",
    '%0:2 = "a.b"() : () -> i32': "'a.b' has 1 results, but 2 are named",
    '%0 = "a.b"() : () -> ()': "'a.b' has 0 results, but 1 are named",
    "%0 = 3": "expected an operation, found '3'",
    "?": "expected an operation, found '?'",
    '""() : () -> ()': "an operation needs a name",
    '"a.b" : () -> ()': "expected '(' before the operands of 'a.b', found ':'",
    '"a.b': "this string has no end on its line",
    '"a.b"(': "expected an operand of 'a.b', found the end of the text",
    '"a.b"(%x : (i32) -> ()': "expected ')' or ',' in the operands of 'a.b', found ':'",
    '"a.b"(x) : (i32) -> ()': "expected an operand such as %0, found 'x'",
    '"a.b"(%x,) : (i32) -> ()': "expected an operand such as %0, found ''",
    '"a.b"(%x) : (i32) -> ()': "undefined value '%x'",
    '%x = "a.b"() : () -> i32\n"a.c"(%x#1) : (i32) -> ()': "'%x' has no result number 1",
    '%x = "a.b"() : () -> i32\n%x = "a.b"() : () -> i32': "'%x' is defined twice",
    '"a.b"() ({^a(%x: i32, %x: i32):}) : () -> ()': "'%x' is defined twice",
    '"a.b"() {x} () -> ()': "expected ':' and the types of 'a.b', found '('",
    '"a.b"() {x = 1 : i64 : () -> ()': "expected '}' or ',' after an attribute, found ':'",
    '"a.b"() : i32 -> ()': "expected '(' before the operand types of 'a.b', found 'i32'",
    '"a.b"() : ()': "expected '->' between operand and result types, found the end of the text",
    '"a.b"() : (i32) -> ()': "'a.b' has 0 operands but 1 types",
    '%x = "a.b"() : () -> i32\n"a.c"(%x, %x) : (i32, i64) -> ()': (
        "operand 1 of 'a.c', %x, has type i32, but is used as i64"
    ),
    '"a.c"(%x, %x) : (i32, i64) -> ()\n%x = "a.b"() : () -> i32': (
        "operand 1 of 'a.c', %x, has type i32, but is used as i64"
    ),
    '"a.c"(%x) : (i32) -> ()\n%x = "a.b"() : () -> i64': (
        "'%x' has type i64, but was used before as i32"
    ),
    '"a.b"()[^bb1] : () -> ()': "'a.b' branches to other blocks; control flow is structured here",
    '"a.b"() <{x = 1}> {x = 2} : () -> ()': "'x' is both a property and an attribute",
    '"a.b"() <x> : () -> ()': "expected '{' before attributes, found 'x'",
    '"a\\22"(%x y) : (i32) -> ()': "expected ')' or ',' in the operands of 'a\"', found 'y'",
    '!a = i32\n#b = 1\n"a.b"() : (!b) -> ()': "undefined alias '!b'",
    '"a.b"() <{x = 1} : () -> ()': "expected '>' after properties, found ':'",
    '"a.b"() () : () -> ()': "expected '{' before a region of 'a.b', found ')'",
    '"a.b"() ({} : () -> ()': "expected ')' after the regions of 'a.b', found ':'",
    '"a.b"() ({ "a.c"() : () -> ()': "expected '}' at the end of a region, found the end",
    '"a.b"() ({ ^: }) : () -> ()': "expected a block such as ^bb0, found '^'",
    '"a.b"() ({ ^a: ^a: }) : () -> ()': "block '^a' is defined twice",
    '"a.b"() ({ ^a(i32): }) : () -> ()': "expected an argument such as %arg0: f32, found 'i32'",
    '"a.b"() ({ ^a(%x: i32: }) : () -> ()': "expected ')' or ',' in the arguments of a block",
    '"a.b"() ({ ^a(%x: i32) }) : () -> ()': "expected ':' after block '^a', found '}'",
    '"builtin.module"() : () -> ()': "'builtin.module' has one region, no operands and no results",
    '"a.b"() : () -> () loc': "expected '(' after 'loc'",
    '"a.b"() : () -> () loc(x)': "expected a location, found 'x'",
    '"a.b"() : () -> () loc(#x)': "undefined alias '#x'",
    '"a.b"() : () -> () loc(#x.y)': "expected a location, found '#x.y'",
    '"a.b"() : () -> () loc("x"': "expected ')' at the end of a location",
    '"a.b"() : () -> () loc("x"("y":1:2)': "expected ')' at the end of a location",
    '"a.b"() : () -> () loc("x"("y":1:2': "expected ')' after a named location",
    '"a.b"() : () -> () loc(callsite "x")': "expected '(' after 'callsite'",
    '"a.b"() : () -> () loc(callsite("x", "y"))': "expected 'at' between callee and caller",
    '"a.b"() : () -> () loc(callsite("x" at "y")': "expected ')' at the end of a location",
    '"a.b"() : () -> () loc(callsite("x" at "y"': "expected ')' after a call site",
    '"a.b"() : () -> () loc(fused "x")': "expected '[' after 'fused'",
    '"a.b"() : () -> () loc(fused<1 ["x"])': "expected '>' after a fused location's metadata",
    '"a.b"() : () -> () loc(fused["x")': "expected ']' after a fused location",
    '#a = 1\n#a = 2\n"a.b"() {x = #a} : () -> ()': "alias '#a' is defined twice",
    '#a = [#b]\n#b = [#a]\n"a.b"() {x = #a} : () -> ()': "alias '#a' refers to itself",
    '#a = 1\n"a.b"() : () -> () loc(#a)': "alias '#a' is not a location",
    '#a = loc("x")\n"a.b"() {x = #a} : () -> ()': "locations are not supported as attributes",
    '#a.b = 1\n"a.b"() : () -> ()': "expected an operation, found '#a.b'",
    "#a 1": "expected '=' after the name of an alias",
    "!a = i32 ?": "expected an operation, found '?'",
}


@pytest.mark.parametrize("text", OPERATION_ERRORS)
def test_errors_of_operations(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(text)
    assert OPERATION_ERRORS[text] in str(caught.value)


def test_an_operation_alone_is_one() -> None:
    with pytest.raises(ParseError, match="expected one operation, found 2"):
        parse_operation('"a.b"() : () -> ()\n"a.b"() : () -> ()')


def test_an_error_shows_file_line_column_and_a_caret() -> None:
    text = '// a comment\n"a.b"() : () -> ()\n  "a.c"(%nowhere) : (i32) -> () // "here"\n'
    with pytest.raises(ParseError) as caught:
        parse_module(text, "dir/plan.mlir")
    assert str(caught.value) == (
        "dir/plan.mlir:3:9: error: undefined value '%nowhere'\n"
        '    "a.c"(%nowhere) : (i32) -> () // "here"\n'
        "          ^"
    )


def test_the_caret_points_at_each_part() -> None:
    for text, column in {
        '"a.b"() {x = 300 : i8} : () -> ()': 14,
        '"a.b"() {x = [1, 300 : i8]} : () -> ()': 18,
        '"a.b"() {x, y = "a", x = 2} : () -> ()': 22,
        '"a.b"() {x = "a\\q"} : () -> ()': 16,
        '"a.b"() : () -> tensor<?xf32>': 24,
        '"a.b"() : () -> () loc(#nope)': 24,
        '"a.b"()    : (': 15,
    }.items():
        with pytest.raises(ParseError, match=f"<text>:1:{column}: error"):
            parse_module(text)


def test_a_long_line_is_cut_around_the_fault() -> None:
    attributes = ", ".join(f"a{index} = {index}" for index in range(200))
    with pytest.raises(ParseError) as caught:
        parse_operation(f'"a.b"() {{{attributes}, bad = ?}} : () -> ()')
    _, line, caret = str(caught.value).split("\n")
    assert len(line) <= 182
    assert line[caret.index("^")] == "?"


def test_deep_regions_are_refused() -> None:
    text = '"a.b"() ({\n' * 2000 + "}) : () -> ()\n" * 2000
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_module(text)


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_a_truncated_file_is_refused(cut: int) -> None:
    text = """\
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%arg0: tensor<2x!baechi.key<"fry">>):
    %0:2 = "jax.x"(%arg0) ({
    ^bb0(%1: i32):
      "baechi.yield"(%1) : (i32) -> ()
    }) {a = [1, [2.5], "s\\22"], baechi.cost = #baechi.cost<flops = 1.0>} :
      (tensor<2x!baechi.key<"fry">>) -> (tensor<f32>, !baechi.token) loc("n"("f.py":1:2))
    "func.return"(%0#0) : (tensor<f32>) -> () loc(#loc1)
  }) {sym_name = "main", function_type = (tensor<2x!baechi.key<"fry">>) -> tensor<f32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device]>} : () -> ()
#loc1 = loc(fused["a", "b.py":1:2])
"""
    assert isinstance(parse_module(text), Module)
    if 0 < cut < len(text.rstrip()):
        with pytest.raises(ParseError, match=r"plan:\d+:\d+: error: "):
            parse_module(text[:cut], "plan")


def test_odd_texts_do_not_take_forever() -> None:
    started = time.process_time()
    for text in (
        '"a.b"() : () -> !x.y<' + "-> " * 3000,
        '"a.b"() : () -> !x.y<' + "<" * 300,
        '"a.b"() {a = [' + "[1], " * 3000,
        '"a.b"() {a = ' + "[" * 200,
        "%a" + ", %a" * 3000,
        '"a.b"(' + "%a, " * 3000,
        '"a.b"() : (' + "i32, " * 3000,
        '"a.b"() {a = "' + "\\" * 3001,
        '"' + "a" * 30000,
        " " * 30000 + "?",
    ):
        with pytest.raises(ParseError):
            parse_module(text)
    assert time.process_time() - started < 2.0
