"""What a fingerprint sees, and what it does not."""

import pytest

from baechi_jax.ir.core import Operation
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.parser import parse_module, parse_operation
from baechi_jax.ir.printer import print_module

TEXT = """"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %0 = "baechi.task"(%x, %y) ({
    ^bb0(%1: tensor<f32>, %2: tensor<f32>):
      %3 = "jax.sub"(%1, %2) {baechi.eqn = 0 : i64, k = [1, "s"], o = #jax.obj<"at 0x1">}
        : (tensor<f32>, tensor<f32>) -> tensor<f32> loc("f.py":1:2)
      %4 = "jax.while"(%3) ({
      ^bb0(%5: tensor<f32>):
        "baechi.yield"(%5) : (tensor<f32>) -> ()
      }) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%4) : (tensor<f32>) -> ()
    }) {sym_name = "t0", baechi.cost = #baechi.cost} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "func.return"(%0) : (tensor<f32>) -> ()
  }) {sym_name = "main", arg_attrs = [{baechi.name = "a"}, {}],
      function_type = (tensor<f32>, tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()
"""

SAME = {
    "locations": ('"f.py":1:2', '"g.py":9:9'),
    "names of values": ("%x", "%other"),
    "names of symbols": ('"t0"', '"t99"'),
    "equations": ("baechi.eqn = 0", "baechi.eqn = 7"),
    "costs": ("#baechi.cost}", "#baechi.cost<flops = 1.0>}"),
    "decisions": ('{sym_name = "t0"', '{sym_name = "t0", baechi.devices = [3], baechi.group = "g"'),
    "addresses": ("at 0x1", "at 0x2"),
    "order of attributes": ('k = [1, "s"], o = #jax.obj<"at 0x1">', 'o = #jax.obj, k = [1, "s"]'),
    "names of arguments": ('baechi.name = "a"', 'baechi.name = "b", baechi.devices = [1]'),
    "absent entries": ('arg_attrs = [{baechi.name = "a"}, {}],', ""),
    "places": ("tensor<f32>", "!baechi.on<[0], tensor<f32>>"),
    "module attributes": ("}) : () -> ()\n", '}) {baechi.pipeline = "x"} : () -> ()\n'),
}

DIFFERENT = {
    "operations": ("jax.sub", "jax.add"),
    "wiring": ('"jax.sub"(%1, %2)', '"jax.sub"(%2, %1)'),
    "types": ("tensor<f32>", "tensor<f64>"),
    "weak types": ("tensor<f32>", "tensor<f32, #baechi.weak>"),
    "parameters": ('[1, "s"]', '[1, "t"]'),
    "kinds of parameters": ('[1, "s"]', '[1.0, "s"]'),
    "strings and brackets": ('[1, "s"]', '[1, "s]"]'),
    "names of parameters": ("k = [", "j = ["),
    "kinds of opaque attributes": ("#jax.obj<", "#jax.other<"),
    "results": ('"baechi.yield"(%4)', '"baechi.yield"(%3)'),
    "what is returned": ('"func.return"(%0)', '"func.return"(%x)'),
    "donation": ('baechi.name = "a"', "baechi.donated"),
    "state": ('baechi.name = "a"', "baechi.state = 0"),
    "layouts": ("tensor<f32>", '!baechi.on<[0], tensor<f32>, "split 0">'),
}


@pytest.mark.parametrize("what", SAME)
def test_does_not_see(what: str) -> None:
    old, new = SAME[what]
    assert old in TEXT
    changed = TEXT.replace(old, new)
    assert fingerprint(parse_module(changed)) == fingerprint(parse_module(TEXT))


@pytest.mark.parametrize("what", DIFFERENT)
def test_sees(what: str) -> None:
    old, new = DIFFERENT[what]
    assert old in TEXT
    assert fingerprint(parse_module(TEXT.replace(old, new))) != fingerprint(parse_module(TEXT))


def test_is_the_same_in_every_process() -> None:
    op = parse_operation('"jax.a"() {x = 1 : i64, y = [1.5, true, @f, {b, a = i32}]} : () -> i32')
    assert len(fingerprint(op)) == 64
    assert fingerprint(op) == fingerprint(parse_operation(print_module(op)))
    # A changed value means that saved plans no longer load.
    assert fingerprint(op).startswith("3c1861cd83fe50c6")


def test_odd_argument_attributes_count_as_they_are() -> None:
    one, two = (parse_operation(f'"func.func"() {{arg_attrs = {x}}} : () -> ()') for x in (1, 2))
    assert fingerprint(one) != fingerprint(two)


def test_does_not_see_where_a_value_flies() -> None:
    one = parse_operation('"a.b"() {t = !baechi.in_flight<tensor<f32>>} : () -> tensor<f32>')
    two = parse_operation('"a.b"() {t = tensor<f32>} : () -> !baechi.in_flight<tensor<f32>>')
    assert fingerprint(one) == fingerprint(two)


def task(name: str, operands: str, types: str) -> str:
    return f"""
    %{name} = "baechi.task"({operands}) ({{
    ^bb0(%a{name}: tensor<f32>, %b{name}: tensor<f32>):
      %c{name} = "jax.mul"(%a{name}, %b{name}) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "baechi.yield"(%c{name}) : (tensor<f32>) -> ()
    }}) {{sym_name = "{name}"}} : ({types}) -> tensor<f32>"""


def test_tasks_of_repeated_layers_are_equal() -> None:
    module = parse_module(
        '%x, %y = "x.a"() : () -> (tensor<f32>, tensor<f32>)'
        + task("t0", "%x, %y", "tensor<f32>, tensor<f32>")
        + task("t1", "%t0, %x", "tensor<f32>, tensor<f32>")
    )
    _, first, second = module.body.ops
    assert fingerprint(first) == fingerprint(second)
    inner = second.body.ops[0]
    inner.set_operand(1, inner.operands[0])
    assert fingerprint(first) != fingerprint(second)


def test_takes_little_time() -> None:
    import time

    block = parse_module('%x = "x.a"() : () -> tensor<4x8xf32>').body
    value = block.ops[0].result
    for index in range(5000):
        attributes = {"axes": (0, 1), "name": "f", "flag": True, "baechi.eqn": index}
        op = block.append(Operation("jax.add", (value, value), (value.type,), attributes))
        value = op.result
    module = block.parent_op
    assert module is not None
    started = time.process_time()
    fingerprint(module)
    # 25 ms where this was written; wide, since test machines are shared.
    assert time.process_time() - started < 0.5
