"""Our text against MLIR's own parser and printer, on random modules."""

import contextlib
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir as mlir

import baechi_jax as baechi
from baechi_jax.ir.attribute_printer import print_attribute
from baechi_jax.ir.attributes import (
    Attribute,
    DenseArray,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    SymbolRef,
    Unit,
)
from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.errors import VerificationError
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.floats import FLOAT_FORMATS, from_bits
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
    Type,
)
from baechi_jax.ir.verifier import verify
from tests.four_layers import arguments, step

# What MLIR makes of a text --------------------------------------------------------------------


def through_mlir(text: str, *, debug_info: bool = False) -> str:
    """``text`` as MLIR prints it again, in generic form."""
    context = mlir.Context()
    context.allow_unregistered_dialects = True
    with context:
        module = mlir.Module.parse(text)
        printed: str = module.operation.get_asm(
            print_generic_op_form=True, enable_debug_info=debug_info
        )
        return printed


def structure(op: Operation, *, locations: bool) -> Any:
    """``op`` as nested tuples: no names of values, dictionaries sorted as MLIR sorts them."""
    numbers: dict[Value, int] = {}

    def number(values: Any) -> tuple[int, ...]:
        return tuple(numbers.setdefault(value, len(numbers)) for value in values)

    def walk(op: Operation) -> Any:
        attributes = {key: print_attribute(in_order(value)) for key, value in op.attributes.items()}
        operands = number(op.operands)
        results = number(op.results)
        return (
            *(op.name, operands, results, [result.type for result in op.results]),
            dict(sorted(attributes.items())),
            # MLIR places an op without location where it stands in the text, a file called "-".
            (UNKNOWN if op.location.file == "-" else op.location) if locations else None,
            [
                [
                    (
                        number(block.arguments),
                        [argument.type for argument in block.arguments],
                        *tuple(walk(inner) for inner in block.ops),
                    )
                    for block in region.blocks
                ]
                for region in op.regions
            ],
        )

    return walk(op)


def in_order(value: Attribute) -> Attribute:
    if isinstance(value, tuple):
        return tuple(map(in_order, value))
    if isinstance(value, DictAttr):
        return DictAttr(tuple(sorted((key, in_order(entry)) for key, entry in value.items_)))
    return value


# Random modules -----------------------------------------------------------------------------------

FLOATS = sorted(FLOAT_FORMATS)
INTEGERS = [f"{sign}{bits}" for sign in ("i", "ui", "si") for bits in (2, 4, 8, 16, 32, 64)]
ELEMENTS = [
    *("i1", "index", "complex<f32>", "complex<f64>", "!baechi.float0", "ui1", "i128"),
    *('!baechi.key<"fry">', '!baechi.key<"rbg">', '!jax.dtype<"x y">'),
    *INTEGERS,
    *FLOATS,
]

identifiers = st.text(string.ascii_letters + "_", min_size=1, max_size=6)
#: Any text at all, and bytes that are not UTF-8 as Python's file names hold them.
texts = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.text('"\\\n\t\0{}[]<>()/-%#@!é€𝄞', max_size=8),
    st.binary(max_size=5).map(lambda data: data.decode("utf-8", "surrogateescape")),
)
names = texts.filter(bool)
shapes = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
tensor_types = st.builds(TensorType, shapes, st.sampled_from(ELEMENTS), st.booleans())
bodies = st.one_of(
    st.none(),
    st.sampled_from(["", "a -> b", "[1, {2}], (x)", "2 : i64"]),
    names.map(print_attribute),
)
opaque_types = st.builds(OpaqueType, st.just("other"), identifiers, bodies)
held_types = st.one_of(tensor_types, st.just(TokenType()), opaque_types)
layouts = st.one_of(st.just("whole"), names)
value_types = st.one_of(
    tensor_types,
    held_types,
    st.builds(
        OnType, st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), held_types, layouts
    ),
    st.builds(InFlightType, held_types),
    st.sampled_from([ScalarType("i32"), ScalarType("f8E4M3FN"), ScalarType("complex<f32>")]),
)
types: st.SearchStrategy[Type] = st.recursive(
    value_types,
    lambda inner: st.builds(
        FunctionType,
        st.lists(inner, max_size=2).map(tuple),
        st.lists(inner, max_size=2).map(tuple),
    ),
    max_leaves=3,
)


@st.composite
def integer_attributes(draw: st.DrawFn) -> IntegerAttr:
    name = draw(st.sampled_from([*INTEGERS, "index", "i128", "ui1", "i7"]).filter("i64".__ne__))
    bits = 64 if name == "index" else int(name.lstrip("usi"))
    low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return IntegerAttr(draw(st.integers(low, high)), ScalarType(name))


@st.composite
def float_attributes(draw: st.DrawFn) -> FloatAttr:
    name = draw(st.sampled_from(FLOATS).filter("f64".__ne__))
    bits = draw(st.integers(0, 2 ** FLOAT_FORMATS[name].bits - 1))
    return FloatAttr(from_bits(bits, name), ScalarType(name))


@st.composite
def dense_arrays(draw: st.DrawFn) -> DenseArray:
    name = draw(st.sampled_from(["i1", "i8", "si16", "ui32", "i64", "f32", "bf16", "f64"]))
    values: st.SearchStrategy[Any]
    if name == "i1":
        values = st.booleans()
    elif name in FLOAT_FORMATS:
        width = FLOAT_FORMATS[name].bits
        values = st.integers(0, 2**width - 1).map(lambda bits: from_bits(bits, name))
    else:
        values = st.integers(0, 127)
    return DenseArray(ScalarType(name), tuple(draw(st.lists(values, max_size=3))))


small = st.floats(0, 1e18)
costs = st.builds(
    Cost, small, small, small, st.lists(small, max_size=2).map(tuple), st.integers(0, 2**60)
)
topologies = st.builds(
    Topology.uniform,
    st.integers(1, 3),
    st.builds(Device, texts, st.integers(1, 2**50), st.floats(1e3, 1e18), name=texts),
)
leaves: st.SearchStrategy[Attribute] = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    texts,
    st.just(Unit()),
    integer_attributes(),
    float_attributes(),
    st.lists(names, min_size=1, max_size=3).map(lambda path: SymbolRef(tuple(path))),
    dense_arrays(),
    st.builds(OpaqueAttr, st.just("other"), identifiers, bodies),
    st.builds(OpaqueAttr, st.just("other"), st.just(""), names.map(print_attribute)),
    types,
    costs,
    st.builds(DeviceMemory, st.integers(0, 9)),
    topologies,
)
attributes: st.SearchStrategy[Attribute] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(names, inner, max_size=3).map(DictAttr.of),
    ),
    max_leaves=5,
)
dictionaries = st.dictionaries(st.one_of(identifiers, names), attributes, max_size=3)
locations = st.one_of(
    st.just(UNKNOWN),
    st.builds(Location, name=names),
    st.builds(
        Location,
        names.filter("-".__ne__),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        texts,
    ),
)
operation_names = st.sampled_from(
    ["jax.add", "baechi.task", "baechi.yield", "x", 'odd.name "é\\', "other.op-2"]
)


@st.composite
def blocks(draw: st.DrawFn, around: tuple[Value, ...], depth: int) -> Block:
    block = Block(draw(st.lists(types, max_size=2)))
    visible = [*around, *block.arguments]
    for argument in block.arguments:
        argument.name = draw(st.one_of(st.none(), names))
    for _ in range(draw(st.integers(0, 4))):
        indices = draw(st.lists(st.integers(0, 2**30), max_size=3)) if visible else []
        operands = [visible[index % len(visible)] for index in indices]
        regions: list[Region] = []
        if depth:
            for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
                filled = [draw(blocks(tuple(visible), depth - 1))]
                regions.append(Region(filled if draw(st.booleans()) or filled[0].ops else []))
        op = Operation(
            draw(operation_names),
            operands,
            draw(st.lists(types, max_size=3)),
            draw(dictionaries),
            regions,
            draw(locations),
        )
        if op.results and draw(st.booleans()):
            op.results[0].name = draw(names)
        block.append(op)
        visible += op.results
    return block


@st.composite
def modules(draw: st.DrawFn) -> Module:
    block = draw(blocks((), 2))
    # MLIR's modules have no arguments: put what reads some into an operation.
    outer = Operation("outer.op", regions=[Region([block])])
    module = Module()
    module.body.append(outer)
    return module


relaxed = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def check_fixed_point(module: Module) -> None:
    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    assert structure(again, locations=True) == structure(module, locations=True)
    bare = print_module(module, locations=False)
    assert structure(parse_module(bare), locations=False) == structure(module, locations=False)
    assert fingerprint(again) == fingerprint(module)


def check_against_mlir(module: Module) -> None:
    text = print_module(module)
    without = parse_module(through_mlir(text))
    assert structure(without, locations=False) == structure(module, locations=False)
    with_debug_info = parse_module(through_mlir(text, debug_info=True))
    assert structure(with_debug_info, locations=True) == structure(module, locations=True)


@settings(relaxed, max_examples=60)
@given(modules())
def test_printing_what_was_parsed_is_a_fixed_point(module: Module) -> None:
    check_fixed_point(module)


@settings(relaxed, max_examples=60)
@given(modules())
def test_mlir_reads_what_we_print_and_we_read_what_it_prints(module: Module) -> None:
    check_against_mlir(module)


@settings(relaxed, max_examples=40)
@given(modules())
def test_the_verifier_refuses_in_one_way_only(module: Module) -> None:
    with contextlib.suppress(VerificationError):
        verify(module)
    for op in module.walk():
        with contextlib.suppress(VerificationError):
            verify(op)


@pytest.mark.slow
@settings(relaxed, max_examples=1500)
@given(modules())
def test_both_on_many_modules(module: Module) -> None:
    check_fixed_point(module)
    check_against_mlir(module)


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_goes_through_mlir(element: str) -> None:
    type_ = TensorType((2, 0, 3), element)
    module = Module()
    module.body.append(Operation("test.op", (), (type_, TensorType((), element, weak=True))))
    again = parse_module(through_mlir(print_module(module)))
    assert structure(again, locations=False) == structure(module, locations=False)


@pytest.mark.parametrize("name", sorted(set(FLOAT_FORMATS) - {"f64"}))
def test_every_value_of_a_narrow_float_goes_through_mlir(name: str) -> None:
    bits = FLOAT_FORMATS[name].bits
    step = 1 if bits <= 8 else 2 ** (bits - 10) + 1
    values = tuple(
        FloatAttr(from_bits(number, name), ScalarType(name)) for number in range(0, 2**bits, step)
    )
    module = Module()
    module.body.append(Operation("test.op", attributes={"values": values}))
    again = parse_module(through_mlir(print_module(module)))
    assert again.body.ops[0].attributes["values"] == values


@pytest.mark.parametrize("name", sorted(FLOAT_FORMATS))
@pytest.mark.parametrize(
    "text", ["0.1", "1.0e-3", "3.3333333333", "1.0e30", "-2.5", "0.75", "7.0", "1.0e-30", "240.5"]
)
def test_decimal_text_rounds_as_in_mlir(name: str, text: str) -> None:
    if text[0] == "-" and name == "f8E8M0FNU":
        pytest.skip("no negative numbers: an error here, nonsense in MLIR")
    source = f'"builtin.module"() ({{ "test.op"() {{a = {text} : {name}}} : () -> () }}) : () -> ()'
    ours = parse_module(source).body.ops[0].attributes["a"]
    theirs = parse_module(through_mlir(source)).body.ops[0].attributes["a"]
    assert ours == theirs


def test_a_plan_goes_through_mlir() -> None:
    topology = Topology.uniform(4, Device(memory_bytes=72 << 10))
    plan = baechi.place(step, topology=topology, donate_argnums=0).plan(*arguments())
    assert len(plan.devices_used) > 1
    text = print_module(plan.module)
    again = parse_module(through_mlir(text, debug_info=True))
    assert structure(again, locations=True) == structure(parse_module(text), locations=True)
    verify(again)


def test_what_only_mlir_prints_parses() -> None:
    # Aliases, properties, sorted attributes, nested locations.
    text = """
"builtin.module"() ({
  "func.func"() <{function_type = (i32) -> i32, sym_name = "main"}> ({
  ^bb0(%arg0: i32 loc("f.py":1:2)):
    "func.return"(%arg0) : (i32) -> () loc(callsite("g"("f.py":3:4) at "f.py":5:6))
  }) : () -> () loc(fused["x", "f.py":7:8])
}) : () -> ()
"""
    for debug_info in (False, True):
        module = parse_module(through_mlir(text, debug_info=debug_info))
        assert module.main.attributes["sym_name"] == "main"
        if debug_info:
            assert module.main.location == Location("f.py", 7, 8)
            assert module.main.body.ops[0].location == Location("f.py", 3, 4, "g")


def test_the_comparison_sees_a_difference() -> None:
    left = parse_module('"a.b"() {x = 1.0 : f32} : () -> () loc("f":1:2)')
    for other in (
        '"a.b"() {x = 1.0 : bf16} : () -> () loc("f":1:2)',
        '"a.b"() {y = 1.0 : f32} : () -> () loc("f":1:2)',
        '"a.b"() {x = 1.0 : f32} : () -> () loc("f":1:3)',
        '"a.b"() ({}) {x = 1.0 : f32} : () -> () loc("f":1:2)',
    ):
        assert structure(parse_module(other), locations=True) != structure(left, locations=True)
