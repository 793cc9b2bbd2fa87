"""Regions, hoisted constants, tokens and locations of a traced function."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from baechi_jax.ir.attributes import FloatAttr, OpaqueAttr, Unit
from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.from_jaxpr import from_jaxpr
from baechi_jax.ir.jax_types import aval_of
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.trace import Trace, trace
from baechi_jax.ir.types import OpaqueType, TokenType

X = jax.ShapeDtypeStruct((4,), np.float32)
M = jax.ShapeDtypeStruct((4, 4), np.float32)


def ops(tr: Trace, name: str) -> list[Operation]:
    return [op for op in tr.module.walk() if op.name == name]


def only(tr: Trace, name: str) -> Operation:
    (op,) = ops(tr, name)
    return op


# Regions ------------------------------------------------------------------------------------------


def test_regions_are_named_and_closed() -> None:
    def f(x, flag):
        y = lax.while_loop(lambda c: c.sum() < 3, lambda c: c + x, x)
        z, _ = lax.scan(lambda c, v: (c * v, None), jnp.float32(1), y)
        return lax.cond(flag, lambda v: v + z, lambda v: v * z, y)

    tr = trace(f, (X, jax.ShapeDtypeStruct((), bool)))
    loop, scan, cond = only(tr, "jax.while"), only(tr, "jax.scan"), only(tr, "jax.cond")
    assert loop.attributes["baechi.regions"] == ("cond_jaxpr", "body_jaxpr")
    assert scan.attributes["baechi.regions"] == ("jaxpr",)
    assert cond.attributes["baechi.regions"] == ("branches[0]", "branches[1]")
    assert (scan.attributes["num_consts"], scan.attributes["num_carry"]) == (0, 1)
    assert scan.attributes["length"] == 4
    for op in (loop, scan, cond):
        for region in op.regions:
            (block,) = region.blocks
            assert block.terminator.name == "baechi.yield"
            known = set(block.arguments)
            for inner in block.ops:
                assert known.issuperset(inner.operands)
                known.update(inner.results)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (lambda x: jax.jit(jnp.sin)(x), "jax.jit"),
        (lambda x: jax.nn.relu(x), "jax.custom_jvp_call"),
        (lambda x: jax.grad(lambda v: jax.checkpoint(jnp.sin)(v).sum())(x), "jax.remat"),
    ],
)
def test_calls_have_a_region(fn, name: str) -> None:
    call = only(trace(fn, (X,)), name) if name != "jax.jit" else ops(trace(fn, (X,)), name)[0]
    assert len(call.body.arguments) == len(call.operands)
    assert len(call.body.terminator.operands) == len(call.results)


def test_nested_structures_of_jaxprs_become_regions() -> None:
    def f(x):
        return lax.custom_linear_solve(
            lambda v: v * 2, x, lambda _, b: b / 2, transpose_solve=lambda _, b: b / 2
        )

    solve = only(trace(f, (X,)), "jax.custom_linear_solve")
    paths = solve.attributes["baechi.regions"]
    assert isinstance(paths, tuple)
    assert "jaxprs.matvec" in paths
    assert len(paths) == len(solve.regions)
    assert "jaxprs" not in solve.attributes


TABLE = np.arange(16, dtype=np.float32).reshape(4, 4)


def helper(x):
    return jax.jit(lambda v: v @ TABLE)(x)


def test_constants_inside_calls_and_loops_are_hoisted() -> None:
    def f(x, flag):
        y = helper(x)
        y, _ = lax.scan(lambda c, _: (helper(c), None), y, None, length=2)
        y = lax.while_loop(lambda c: helper(c).sum() < 3, lambda c: helper(c) + x, y)
        return lax.cond(flag, lambda v: helper(v), lambda v: v * 2, y)

    tr = trace(f, (X, jax.ShapeDtypeStruct((), bool)))
    assert len(tr.constants) == 1
    table = tr.module.main.body.arguments[0]
    assert not ops(tr, "baechi.constant")
    scan, loop, cond = only(tr, "jax.scan"), only(tr, "jax.while"), only(tr, "jax.cond")
    jit = next(op for op in tr.module.main.body.ops if op.name == "jax.jit")
    assert jit.operands[0] is table
    assert jit.attributes["baechi.hoisted"] == 1
    assert scan.operands[0] is table
    assert scan.attributes["num_consts"] == 1
    assert loop.operands[0] is table
    assert loop.operands[1] is table
    assert (loop.attributes["cond_nconsts"], loop.attributes["body_nconsts"]) == (1, 2)
    assert cond.operands[1] is table
    assert all(len(r.blocks[0].arguments) == len(cond.operands) - 1 for r in cond.regions)


def test_constants_in_other_regions_stay_in_place() -> None:
    def f(x):
        return lax.custom_linear_solve(helper, x, lambda _, b: helper(b))

    tr = trace(f, (X,))
    constant = ops(tr, "baechi.constant")[0]
    assert constant.parent_op is not None
    assert constant.parent_op.name == "jax.custom_linear_solve"
    index = constant.attributes["baechi.eqn"]
    assert isinstance(index, int)
    np.testing.assert_array_equal(tr.equations[index].constant, TABLE)


def test_scalar_constants_inside_are_literals() -> None:
    scale = np.float32(3)
    two = jnp.asarray(2.0)
    tr = trace(lambda x: jax.jit(lambda v: v * scale + two)(x), (X,))
    jit = only(tr, "jax.jit")
    values = [op.attributes["value"] for op in jit.body.ops if op.name == "baechi.literal"]
    assert sorted(v.value for v in values if isinstance(v, FloatAttr)) == [2.0, 3.0]


def test_a_jaxpr_called_twice_shares_its_records() -> None:
    double = jax.jit(lambda v: v * 2)
    tr = trace(lambda x: double(double(x)), (X,))
    first, second = ops(tr, "jax.mul")
    assert first.attributes["baechi.eqn"] == second.attributes["baechi.eqn"]


# Effects ------------------------------------------------------------------------------------------


def test_tokens_keep_the_order_of_each_kind() -> None:
    def f(x):
        jax.debug.print("a {}", x, ordered=True)
        io_callback(lambda v: None, None, x, ordered=True)
        jax.debug.print("b {}", x)
        jax.debug.print("c {}", x, ordered=True)
        return jax.pure_callback(lambda v: v, X, x)

    tr = trace(f, (X,))
    assert tr.effects == ("Debug", "OrderedDebug", "OrderedIO")
    starts = {op.attributes["effect"]: op for op in ops(tr, "baechi.token")}
    assert set(starts) == set(tr.effects)
    assert starts["OrderedDebug"].attributes["ordered"] == Unit()
    assert "ordered" not in starts["Debug"].attributes
    a, b, c = ops(tr, "jax.debug_print")
    assert a.operands[-1] is starts["OrderedDebug"].result
    assert c.operands[-1] is a.results[-1]
    assert b.operands[-1] is starts["Debug"].result
    pure = only(tr, "jax.pure_callback")
    assert not any(isinstance(v.type, TokenType) for v in (*pure.operands, *pure.results))


def test_tokens_go_through_loops_branches_and_calls() -> None:
    def note(x):
        jax.debug.print("{}", x, ordered=True)
        io_callback(lambda v: None, None, x, ordered=False)
        return x

    def f(x, flag):
        note(x)
        x, _ = lax.scan(lambda c, _: (note(c), None), x, None, length=2)
        x = lax.cond(flag, note, lambda v: v, x)
        return jax.jit(note)(x)

    tr = trace(f, (X, jax.ShapeDtypeStruct((), bool)))
    main = tr.module.main.body.ops
    scan, cond, jit = (
        next(op for op in main if op.name == f"jax.{n}") for n in ("scan", "cond", "jit")
    )
    for before, after in ((scan, cond), (cond, jit)):
        assert list(after.operands[-2:]) == before.results[-2:]
    for op in (scan, cond, jit):
        for region in op.regions:
            block = region.blocks[0]
            assert [a.type for a in block.arguments[-2:]] == [TokenType()] * 2
            assert [v.type for v in block.terminator.operands[-2:]] == [TokenType()] * 2
    # The branch without effects passes its tokens on.
    quiet = cond.regions[0].blocks[0]
    assert list(quiet.terminator.operands[-2:]) == quiet.arguments[-2:]


def test_references_are_in_order_in_a_jaxpr_and_values_in_a_trace() -> None:
    def f(x):
        ref = jax.new_ref(x)
        ref[0] = ref[1] * 2
        return ref[...]

    module, _ = from_jaxpr(jax.make_jaxpr(f)(X))
    chain = [op for op in module.walk() if op.name in ("jax.new_ref", "jax.get", "jax.swap")]
    assert [op.name for op in chain] == ["jax.new_ref", "jax.get", "jax.swap", "jax.get"]
    for before, after in itertools.pairwise(chain):
        assert after.operands[-1] is before.results[-1]
    assert isinstance(chain[0].results[0].type, OpaqueType)
    tr = trace(f, (X,))
    assert not tr.effects
    assert all(not isinstance(r.type, OpaqueType) for op in tr.module.walk() for r in op.results)


def test_references_from_outside_are_refused() -> None:
    ref = jax.new_ref(jnp.zeros(4))

    def reads(cell):
        return cell[...]

    with pytest.raises(IRError, match=r"argument 'cell' of 'reads' is a reference"):
        trace(reads, (ref,))
    with pytest.raises(IRError, match="closes over a reference"):
        trace(lambda: ref[...], ())


# Locations ----------------------------------------------------------------------------------------


def test_source_lines_and_name_stacks() -> None:
    def loss(x):
        with jax.named_scope("layer1"):
            return jnp.sum(jnp.sin(x))

    tr = trace(jax.grad(loss), (X,))
    line = loss.__code__.co_firstlineno + 2
    cos = only(tr, "jax.cos")
    assert Path(cos.location.file) == Path(__file__)
    assert cos.location.line == line
    assert cos.location.column > 0
    assert cos.location.name == "jvp(layer1)"
    assert only(tr, "jax.mul").location.name == "transpose(jvp(layer1))"


def test_text_is_the_same_each_time() -> None:
    def f(x):
        jax.debug.print("{}", x)
        return jax.nn.relu(x) @ TABLE

    first = print_module(trace(f, (X,)).module)
    jax.clear_caches()
    assert print_module(trace(f, (X,)).module) == first
    assert not re.search(r"at 0x", first)


def test_unknown_abstract_values_and_primitives() -> None:
    from tests.runtime.functions import unheard_p

    tr = trace(lambda x: unheard_p.bind(x, factor=2.0, note=object), (X,))
    op = only(tr, "jax.unheard")
    assert op.attributes["factor"] == 2.0
    assert op.attributes["note"] == OpaqueAttr("jax", "opaque", '"type"')
    with pytest.raises(IRError, match="no abstract value"):
        aval_of(TokenType())


def test_closing_over_a_traced_value_is_refused() -> None:
    def outer(x):
        trace(lambda y: x + y, (X,))
        return x

    with pytest.raises((IRError, jax.errors.JAXTypeError)):
        jax.jit(outer)(jnp.zeros(4))
