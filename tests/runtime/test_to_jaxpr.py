"""Tasks, changed parameters, hand-written operations, and what cannot be rebuilt."""

from __future__ import annotations

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from baechi_jax.ir.attributes import DictAttr, OpaqueAttr
from baechi_jax.ir.core import Block, Operation, Region
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import ScalarType, TensorType
from baechi_jax.runtime.decode_params import decode
from baechi_jax.runtime.to_jaxpr import function_to_jaxpr, operations_to_jaxpr, task_to_jaxpr

X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)


def run(jaxpr, *args):
    jax.extend.core.check_jaxpr(jaxpr.jaxpr)
    return jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))(*args)


def main_of(tr: Trace):
    return function_to_jaxpr(tr.module.main, tr.equations)


def find(tr: Trace, name: str) -> Operation:
    return next(op for op in tr.module.walk() if op.name == name)


def as_task(tr: Trace, start: int, end: int) -> Operation:
    """Ops ``start:end`` of ``@main`` as a task in their place."""
    block = tr.module.main.body
    inside = block.ops[start:end]
    made = {result: None for op in inside for result in op.results}
    reads = list(dict.fromkeys(v for op in inside for v in op.operands if v not in made))
    gives = [v for v in made if any(user not in inside for user in v.users)]
    body = Block([value.type for value in reads])
    task = Operation("baechi.task", reads, [v.type for v in gives], {"sym_name": "t0"})
    mapping = dict(zip(reads, body.arguments))
    for op in inside:
        body.append(op.clone(mapping))
    body.append(Operation("baechi.yield", [mapping[v] for v in gives]))
    task.add_region(Region([body]))
    for value, result in zip(gives, task.results):
        for op, index in list(value.uses):
            if op not in inside:
                op.set_operand(index, result)
    block.set_ops([*block.ops[:start], task, *block.ops[end:]])
    for op in reversed(inside):
        op.drop_operands()
    return task


# Tasks ------------------------------------------------------------------------------------------


def test_task() -> None:
    tr = trace(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x), axis=0) + 1, (X,))
    task = as_task(tr, 1, 4)
    jaxpr = task_to_jaxpr(task, tr.equations)
    assert [a.str_short() for a in jaxpr.in_avals] == ["float32[2,3]", "float32[2,3]"]
    (got,) = run(jaxpr, X, np.sin(X))
    np.testing.assert_allclose(got, (np.sin(X) * np.cos(X)).sum(0), 1e-6, 1e-6)
    # A function is rebuilt through its tasks.
    (whole,) = run(main_of(tr), X)
    np.testing.assert_allclose(whole, (np.sin(X) * np.cos(X)).sum(0) + 1, 1e-6)


def test_tokens_vanish_from_a_task(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x):
        jax.debug.print("one {}", x[0, 0], ordered=True)
        y = x * 2
        jax.debug.print("two {}", y[0, 0], ordered=True)
        return y

    tr = trace(f, (X,))
    ops = tr.module.main.body.ops
    second = [op.name for op in ops].index("jax.debug_print") + 1
    task = as_task(tr, second, len(ops) - 1)
    jaxpr = task_to_jaxpr(task, tr.equations)
    assert len(jaxpr.in_avals) == 1
    assert len(jaxpr.out_avals) == 1
    assert len(jaxpr.effects) == 1
    run(jaxpr, X)
    run(main_of(tr), X)
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["two", "-2.0", "one", "-1.0", "two", "-2.0"]


def test_transfers_pass_their_value_on() -> None:
    module = parse_module(
        """
        "builtin.module"() ({
          "func.func"() ({
          ^bb0(%x: !baechi.on<[0], tensor<2xf32>>):
            %s = "baechi.send"(%x) {channel = 0 : i64, from = 0 : i64, to = 1 : i64}
              : (!baechi.on<[0], tensor<2xf32>>) -> !baechi.in_flight<tensor<2xf32>>
            %r = "baechi.recv"(%s) {channel = 0 : i64}
              : (!baechi.in_flight<tensor<2xf32>>) -> !baechi.on<[1], tensor<2xf32>>
            "baechi.wait"(%r) : (!baechi.on<[1], tensor<2xf32>>) -> ()
            %t = "baechi.task"(%r) ({
            ^bb0(%a: tensor<2xf32>):
              %b = "jax.add"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
              "baechi.yield"(%b) : (tensor<2xf32>) -> ()
            }) {sym_name = "t", baechi.devices = [1]}
              : (!baechi.on<[1], tensor<2xf32>>) -> !baechi.on<[1], tensor<2xf32>>
            "func.return"(%t) : (!baechi.on<[1], tensor<2xf32>>) -> ()
          }) {sym_name = "main", function_type = (!baechi.on<[0], tensor<2xf32>>)
              -> !baechi.on<[1], tensor<2xf32>>} : () -> ()
        }) : () -> ()
        """
    )
    (got,) = run(function_to_jaxpr(module.main, []), np.ones(2, np.float32))
    np.testing.assert_array_equal(got, [2, 2])


def test_operations_with_given_inputs_and_outputs() -> None:
    tr = trace(lambda x: jnp.exp(jnp.sin(x) * x), (X,))
    sin, mul, exp, _ = tr.module.main.body.ops
    jaxpr = operations_to_jaxpr(
        [mul, exp],
        [sin.result, *tr.module.main.body.arguments],
        [mul.result, exp.result],
        tr.equations,
    )
    product, _ = run(jaxpr, np.sin(X), X)
    np.testing.assert_allclose(product, np.sin(X) * X, 1e-6)
    with pytest.raises(IRError, match=r"read before it is made: result 0 of 'jax.sin' at .*\.py"):
        operations_to_jaxpr([mul], tr.module.main.body.arguments, [mul.result], tr.equations)


# Parameters that a pass changed -----------------------------------------------------------------


def test_changed_axes_and_shapes() -> None:
    tr = trace(lambda x: jnp.broadcast_to(jnp.sum(x, axis=0), (4, 3)), (X,))
    reduce, broadcast = find(tr, "jax.reduce_sum"), find(tr, "jax.broadcast_in_dim")
    reduce.attributes["axes"] = (1,)
    reduce.result.type = TensorType((2,), "f32")
    broadcast.attributes["shape"] = (2, 5)
    broadcast.attributes["broadcast_dimensions"] = (0,)
    broadcast.result.type = TensorType((2, 5), "f32")
    (got,) = run(main_of(tr), X)
    np.testing.assert_allclose(got, np.repeat(X.sum(1)[:, None], 5, 1), 1e-6)


def test_changed_named_tuple_enum_and_dtype() -> None:
    def f(x, i):
        return x.at[i].get(mode="fill", fill_value=np.nan).astype(jnp.bfloat16)

    tr = trace(f, (X, np.array([0, 9], np.int32)))
    gather, convert = find(tr, "jax.gather"), find(tr, "jax.convert_element_type")
    gather.attributes["mode"] = "CLIP"
    numbers = gather.attributes["dimension_numbers"]
    assert isinstance(numbers, DictAttr)
    gather.attributes["dimension_numbers"] = DictAttr.of(dict(numbers))
    convert.attributes["new_dtype"] = ScalarType("f16")
    convert.result.type = TensorType(convert.result.type.shape, "f16")
    (got,) = run(main_of(tr), X, np.array([0, 9], np.int32))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, X[[0, 1]].astype(np.float16))


def test_decoding_follows_the_traced_parameter() -> None:
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    encoded = DictAttr(
        (
            ("offset_dims", (2,)),
            ("collapsed_slice_dims", (0,)),
            ("start_index_map", (0,)),
            ("operand_batching_dims", ()),
            ("start_indices_batching_dims", ()),
        )
    )
    assert decode(encoded, numbers) == lax.GatherDimensionNumbers((2,), (0,), (0,))
    assert decode("CLIP", lax.GatherScatterMode.ONE_HOT) is lax.GatherScatterMode.CLIP
    assert decode(("HIGHEST", "DEFAULT"), (lax.Precision.HIGH,) * 2) == (
        lax.Precision.HIGHEST,
        lax.Precision.DEFAULT,
    )
    assert decode((1, 2, 3), [4, 5]) == [1, 2, 3]
    assert decode((1, 2), frozenset({3})) == frozenset({1, 2})
    assert decode((0.5, 1.5), 1j) == 0.5 + 1.5j
    assert decode(DictAttr((("a", 2),)), {"a": 1}) == {"a": 2}
    assert decode(3, np.int32(2)) == np.int32(3)
    assert type(decode(3, np.int32(2))) is np.int32
    assert decode(OpaqueAttr("baechi", "none"), (1, 2)) is None
    assert decode((4,), None) == (4,)
    like = object()
    assert decode(OpaqueAttr("jax", "opaque", '"object"'), like) is like
    with pytest.raises(IRError, match="is no GatherScatterMode: expected one of"):
        decode("NOWHERE", lax.GatherScatterMode.CLIP)
    with pytest.raises(IRError, match="expected the fields"):
        decode(DictAttr((("offset_dims", ()),)), numbers)
    with pytest.raises(IRError, match="cannot be made from text"):
        decode(OpaqueAttr("jax", "opaque", '"function"'), like)


def test_changed_trip_count_and_body() -> None:
    def f(x):
        return lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0]

    tr = trace(f, (X,))
    scan = find(tr, "jax.scan")
    scan.attributes["length"] = 5
    literal = next(op for op in scan.walk() if op.name == "baechi.literal")
    literal.attributes["value"] = 3.0
    (got,) = run(main_of(tr), X)
    np.testing.assert_allclose(got, X * 3**5, 1e-6)


def test_errors_name_the_operation_and_its_line() -> None:
    tr = trace(lambda x: jnp.sum(x, axis=0), (X,))
    reduce = find(tr, "jax.reduce_sum")
    del reduce.attributes["axes"]
    with pytest.raises(IRError, match=r"test_to_jaxpr\.py:\d+: 'jax.reduce_sum' has no attribute"):
        main_of(tr)
    reduce.attributes["axes"] = OpaqueAttr("jax", "opaque", '"function"')
    with pytest.raises(IRError, match=r"\.py:\d+: 'jax.reduce_sum', parameter 'axes': .*from text"):
        main_of(tr)
    reduce.attributes["axes"] = (0,)
    reduce.attributes["baechi.eqn"] = 99
    with pytest.raises(IRError, match="outside the trace's 1 equations: the module belongs to ano"):
        main_of(tr)


def test_lost_region() -> None:
    tr = trace(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), (X,))
    find(tr, "jax.cond").regions.pop()
    with pytest.raises(IRError, match=r"'jax.cond' has 1 regions; the traced equation has 2"):
        main_of(tr)


# Operations without a traced equation -----------------------------------------------------------


def function_of(body: str, *arguments: str) -> Operation:
    names = ", ".join(f"%x{i}: {type_}" for i, type_ in enumerate(arguments))
    block = f"^bb0({names}):" if arguments else "^bb0:"
    return parse_module(
        f'"builtin.module"() ({{"func.func"() ({{\n{block}\n{body}\n}}) '
        '{sym_name = "main"} : () -> ()}) : () -> ()'
    ).main


T = "tensor<2x3xf32>"

WRITTEN = {
    "elementwise": (
        f"""
        %c = "baechi.literal"() {{value = 2.0 : f32}} : () -> tensor<f32>
        %a = "jax.mul"(%x0, %c) : ({T}, tensor<f32>) -> {T}
        %b = "jax.max"(%a, %x0) {{baechi.cost = #baechi.cost<flops = 6.0>}} : ({T}, {T}) -> {T}
        %d = "jax.ge"(%b, %a) : ({T}, {T}) -> tensor<2x3xi1>
        %e = "jax.and"(%d, %d) : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
        %r = "jax.select_n"(%e, %a, %b) : (tensor<2x3xi1>, {T}, {T}) -> {T}
        "func.return"(%r) : ({T}) -> ()""",
        lambda x: np.maximum(2 * x, x),
    ),
    "shapes": (
        f"""
        %a = "jax.transpose"(%x0) {{permutation = [1, 0]}} : ({T}) -> tensor<3x2xf32>
        %b = "jax.reshape"(%a) : (tensor<3x2xf32>) -> tensor<6xf32>
        %c = "jax.slice"(%b) {{start_indices = [1], limit_indices = [5]}}
          : (tensor<6xf32>) -> tensor<4xf32>
        %d = "jax.concatenate"(%c, %b) {{dimension = 0 : i64}}
          : (tensor<4xf32>, tensor<6xf32>) -> tensor<10xf32>
        %e = "jax.broadcast_in_dim"(%d) {{broadcast_dimensions = [1]}}
          : (tensor<10xf32>) -> tensor<2x10xf32>
        "func.return"(%e) : (tensor<2x10xf32>) -> ()""",
        lambda x: np.tile(np.concatenate([x.T.reshape(-1)[1:5], x.T.reshape(-1)]), (2, 1)),
    ),
    "reductions": (
        f"""
        %a = "jax.reduce_sum"(%x0) {{axes = [0]}} : ({T}) -> tensor<3xf32>
        %b = "jax.reduce_max"(%x0) {{axes = [0]}} : ({T}) -> tensor<3xf32>
        %c = "jax.dot_general"(%a, %b)
          {{dimension_numbers = [[[0], [0]], [[], []]], precision = "HIGHEST"}}
          : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
        "func.return"(%c) : (tensor<f32>) -> ()""",
        lambda x: x.sum(0) @ x.max(0),
    ),
    "conversions": (
        f"""
        %a = "jax.convert_element_type"(%x0) {{new_dtype = f16, weak_type = false}}
          : ({T}) -> tensor<2x3xf16>
        %b = "jax.convert_element_type"(%a) : (tensor<2x3xf16>) -> tensor<2x3xf32, #baechi.weak>
        %i = "jax.iota"() {{dimension = 1 : i64}} : () -> tensor<2x3xi32>
        %f = "jax.convert_element_type"(%i) : (tensor<2x3xi32>) -> {T}
        %c:2 = "jax.optimization_barrier"(%b, %f) : (tensor<2x3xf32, #baechi.weak>, {T})
          -> (tensor<2x3xf32, #baechi.weak>, {T})
        %r = "jax.add"(%c#0, %c#1) : (tensor<2x3xf32, #baechi.weak>, {T}) -> {T}
        "func.return"(%r) : ({T}) -> ()""",
        lambda x: x.astype(np.float16).astype(np.float32) + np.arange(3),
    ),
    "any primitive whose parameters are all in the text": (
        f"""
        %a = "jax.cumsum"(%x0) {{axis = 1 : i64, reverse = true}} : ({T}) -> {T}
        %b = "jax.rev"(%a) {{dimensions = [0]}} : ({T}) -> {T}
        %c = "jax.integer_pow"(%b) {{y = 2 : i64}} : ({T}) -> {T}
        "func.return"(%c) : ({T}) -> ()""",
        lambda x: x[:, ::-1].cumsum(1)[::-1, ::-1] ** 2,
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_by_hand(name: str) -> None:
    body, expected = WRITTEN[name]
    (got,) = run(function_to_jaxpr(function_of(body, T), []), X)
    np.testing.assert_allclose(got, expected(X), 1e-3 if name == "conversions" else 1e-5)


BROKEN = {
    "unknown primitive": (
        f'%a = "jax.flub"(%x0) : ({T}) -> {T}',
        "cannot rebuild 'jax.flub', .* no such primitive",
    ),
    "another dialect": (
        f'%a = "stablehlo.add"(%x0) : ({T}) -> {T}',
        "the dialect 'stablehlo' has no equations",
    ),
    "opaque parameter": (
        f'%a = "jax.cumsum"(%x0) {{axis = #jax.opaque<"int">, reverse = true}} : ({T}) -> {T}',
        "cannot be made from text",
    ),
    "unexpected attribute": (
        f'%a = "jax.sin"(%x0) {{speed = 3 : i64}} : ({T}) -> {T}',
        r"unexpected attributes \['speed'\]",
    ),
    "wrong result type": (
        f'%a = "jax.sin"(%x0) : ({T}) -> tensor<3x2xf32>',
        r"says it gives \(tensor<3x2xf32>\), but JAX gives \(tensor<2x3xf32>\)",
    ),
    "missing parameter": (
        f'%a = "jax.transpose"(%x0) : ({T}) -> {T}',
        "cannot rebuild 'jax.transpose'.*'permutation'",
    ),
    "wrong operands": (
        f'%a = "jax.add"(%x0) : ({T}) -> {T}',
        "cannot rebuild 'jax.add'",
    ),
    "a region": (
        f'%a = "jax.scan"(%x0) ({{"baechi.yield"() : () -> ()}}) : ({T}) -> {T}',
        "regions needs its traced equation",
    ),
    "literal of another kind": (
        '%a = "baechi.literal"() {value = "two"} : () -> tensor<f32>',
        "'baechi.literal': expected a number of type f32, found 'two'",
    ),
    "literal with dimensions": (
        f'%a = "baechi.literal"() {{value = 2.0 : f32}} : () -> {T}',
        "tensor without dimensions",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_rebuilt(name: str) -> None:
    body, message = BROKEN[name]
    text = f'{body} loc("model.py":12:4)\n"func.return"(%x0) : ({T}) -> ()'
    with pytest.raises(IRError, match=r"(?s)model\.py:12: .*" + message):
        function_to_jaxpr(function_of(text, T), [])


def test_an_operation_that_became_another_is_made_anew() -> None:
    tr = trace(lambda x: x + x, (X,))
    find(tr, "jax.add").name = "jax.mul"
    (got,) = run(main_of(tr), X)
    np.testing.assert_allclose(got, X * X)
