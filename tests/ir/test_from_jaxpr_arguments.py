"""Arguments and results of a traced function: names, donation, state, constants, structure."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baechi_jax.ir.attributes import Unit
from baechi_jax.ir.core import Operation
from baechi_jax.ir.from_jaxpr import from_jaxpr
from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.ir.jax_types import type_of
from baechi_jax.ir.trace import Trace, trace

X = jax.ShapeDtypeStruct((4,), np.float32)
M = jax.ShapeDtypeStruct((4, 4), np.float32)


def ops(tr: Trace, name: str) -> list[Operation]:
    return [op for op in tr.module.walk() if op.name == name]


def only(tr: Trace, name: str) -> Operation:
    (op,) = ops(tr, name)
    return op


def test_names_come_from_the_pytree() -> None:
    def step(state, x, *rest, scale):
        return {"state": state, "out": [x * scale, rest[0]]}

    tr = trace(step, ({"w": M, "b": (X, X)}, X, X), {"scale": 2.0})
    attributes = argument_attributes(tr.module.main)
    assert [entry["baechi.name"] for entry in attributes] == [
        "state['b'][0]",
        "state['b'][1]",
        "state['w']",
        "x",
        "rest[0]",
        "scale",
    ]
    assert tr.argument_names == tuple(entry["baechi.name"] for entry in attributes)
    names = [entry["baechi.name"] for entry in result_attributes(tr.module.main)]
    assert names[0] == "result['out'][0]"
    assert names[-1] == "result['state']['w']"


def test_static_and_donated_arguments() -> None:
    def f(x, power, y):
        return x**power, y

    tr = trace(f, (X, 3, M), static_argnums=1, donate_argnums=(2,))
    assert tr.argument_names == ("x", "y")
    assert tr.donated == (False, True)
    first, second = argument_attributes(tr.module.main)
    assert "baechi.donated" not in first
    assert second["baechi.donated"] == Unit()
    assert only(tr, "jax.integer_pow").attributes["y"] == 3


def test_static_by_name_may_be_given_by_position() -> None:
    def f(x, *, power=2):
        return x**power

    def g(x, power):
        return x**power

    assert trace(f, (X,), {"power": 3}, static_argnames="power").argument_names == ("x",)
    assert trace(g, (X, 3), static_argnames=("power",)).argument_names == ("x",)
    assert trace(g, (X, X), donate_argnames="power").donated == (False, True)
    assert trace(g, (X, X), donate_argnums=0).donated == (True, False)


def test_state() -> None:
    def step(params, opt, batch):
        return jnp.sum(batch), jax.tree.map(lambda p: p + 1, params), (opt[0] + 1, opt[1])

    params = {"w": M, "b": X}
    count = jax.ShapeDtypeStruct((), np.int32)
    tr = trace(step, (params, (count, params), X), donate_argnums=(0, 1))
    by_name = {e["baechi.name"]: e.get("baechi.state") for e in argument_attributes(tr.module.main)}
    results = tr.result_names
    assert results[by_name["params['w']"]] == "result[1]['w']"
    assert results[by_name["opt[0]"]] == "result[2][0]"
    assert results[by_name["opt[1]['b']"]] == "result[2][1]['b']"
    assert by_name["batch"] is None


def test_closed_over_arrays_are_the_first_arguments() -> None:
    table, bias = np.ones((4, 4), np.float32), jnp.arange(4.0)
    tr = trace(lambda x: x @ table + bias, (X,))
    assert len(tr.constants) == 2
    first, second, x = argument_attributes(tr.module.main)
    assert first == {"baechi.name": "constants[0]", "baechi.constant": Unit()}
    assert second["baechi.constant"] == Unit()
    assert "baechi.constant" not in x
    types = [argument.type for argument in tr.module.main.body.arguments]
    assert [type_of(jax.typeof(c)) for c in tr.constants] == types[:2]


def test_structures() -> None:
    tr = trace(lambda a, *, b: (a, {"x": b}), ((X, None),), {"b": M})
    assert tr.in_tree == jax.tree.structure((((X, None),), {"b": M}))
    assert tr.out_tree == jax.tree.structure(((X, None), {"x": M}))
    assert [str(a) for a in tr.in_avals] == ["float32[4]", "float32[4,4]"]


def test_from_jaxpr_without_names() -> None:
    module, equations = from_jaxpr(jax.make_jaxpr(lambda x: x * 2)(X))
    assert argument_attributes(module.main) == [{}]
    assert equations[0].equation.primitive.name == "mul"


class _Checked:
    """A pytree class that refuses leaves it does not know, as jmp's loss scales do."""

    def __init__(self, value: object, accepts: tuple[type, ...]) -> None:
        if not isinstance(value, (jax.Array, np.ndarray, jax.ShapeDtypeStruct, *accepts)):
            raise TypeError(f"no array: {value}")
        self.value, self.accepts = value, accepts


class _TakesObjects(_Checked):
    def __init__(self, value: object) -> None:
        super().__init__(value, () if type(value) is not object else (object,))


class _TakesArraysOnly(_Checked):
    def __init__(self, value: object) -> None:
        super().__init__(value, ())


for _class in (_TakesObjects, _TakesArraysOnly):
    jax.tree_util.register_pytree_with_keys(
        _class,
        lambda node: (((jax.tree_util.GetAttrKey("value"), node.value),), None),
        lambda _, children, cls=_class: cls(*children),
    )


@pytest.mark.parametrize(
    ("cls", "name"), [(_TakesObjects, "scale.value"), (_TakesArraysOnly, "scale")]
)
def test_classes_that_check_their_leaves(cls: type[_Checked], name: str) -> None:
    def step(scale, x):
        return cls(scale.value + 1), x * scale.value

    tr = trace(step, (cls(X), X), donate_argnums=0)
    assert tr.argument_names[0].startswith(name)
    assert tr.argument_names[1] == "x"
    assert tr.donated == (True, False)
    state = argument_attributes(tr.module.main)[0]
    assert state["baechi.state"] == 0
