"""Every rule of the verifier, broken once; and what it lets pass."""

from pathlib import Path

import pytest

from baechi_jax.ir.attributes import SymbolRef
from baechi_jax.ir.core import Block, Module, Operation, Region
from baechi_jax.ir.errors import VerificationError
from baechi_jax.ir.parser import parse_module, parse_operation
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.types import ScalarType, TensorType
from baechi_jax.ir.verifier import verify

F32 = TensorType((), "f32")


def main(
    body: str,
    *,
    arguments: str = "%x: tensor<f32>",
    returns: str = "",
    inputs: str = "tensor<f32>",
    types: str = "",
    extra: str = "",
    beside: str = "",
    module: str = "",
) -> Module:
    """A module with ``body`` in its ``@main``, which returns ``returns`` of ``types``."""
    return parse_module(
        f""""builtin.module"() ({{
  "func.func"() ({{
  ^bb0{f"({arguments})" if arguments else ""}:
{body}
    "func.return"({returns}) : ({types}) -> ()
  }}) {{sym_name = "main", function_type = ({inputs}) -> ({types}){extra}}} : () -> ()
{beside}
}}) {{{module}}} : () -> ()
"""
    )


def fails(op: Operation, *parts: str) -> str:
    """The message with which ``verify`` refuses ``op``; its first lines must hold ``parts``."""
    with pytest.raises(VerificationError) as caught:
        verify(op)
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    return message


# The message --------------------------------------------------------------------------------------


def test_a_file_name_that_no_system_takes_has_no_line_to_show() -> None:
    module = main("""    "jax.bad"() ({}) : () -> () loc("\\00":3:0)""")
    assert "region 0 must end with 'baechi.yield'" in fails(module)


def test_a_message_shows_the_op_its_source_line_and_its_neighbours(
    tmp_path: Path,
) -> None:
    source = tmp_path / "train.py"
    source.write_text("import jax\nloss = jnp.sum(x)  # here\n", encoding="utf-8")
    binary = "(tensor<f32>, tensor<f32>) -> tensor<f32>"
    unary = "(tensor<f32>) -> tensor<f32>"
    after = "\n".join(f'    "jax.later{i}"(%x) : (tensor<f32>) -> ()' for i in range(6))
    before = "\n".join(f'    %a{i} = "jax.op{i}"(%x) : {unary}' for i in range(6))
    module = main(
        f"""{before}
    %t = "jax.bad"(%a5, %x) ({{}}) {{y = 2 : i64}}
      : (tensor<f32>, tensor<f32>) -> tensor<f32> loc("{source}":2:0)
{after}"""
    )
    assert fails(module).split("\n") == [
        f"{source}:2: 'jax.bad': region 0 must end with 'baechi.yield'",
        "    2 | loss = jnp.sum(x)  # here",
        "  in func.func @main:",
        "        ... 2 more",
        '        %a2 = "jax.op2"(%x) : (tensor<f32>) -> tensor<f32>',
        '        %a3 = "jax.op3"(%x) : (tensor<f32>) -> tensor<f32>',
        '        %a4 = "jax.op4"(%x) : (tensor<f32>) -> tensor<f32>',
        '        %a5 = "jax.op5"(%x) : (tensor<f32>) -> tensor<f32>',
        f'    --> %t = "jax.bad"(%a5, %x) ({{...}}) {{y = 2 : i64}} : {binary}',
        '        "jax.later0"(%x) : (tensor<f32>) -> ()',
        '        "jax.later1"(%x) : (tensor<f32>) -> ()',
        '        "jax.later2"(%x) : (tensor<f32>) -> ()',
        '        "jax.later3"(%x) : (tensor<f32>) -> ()',
        "        ... 3 more",
    ]


def test_names_in_a_message_are_those_of_the_printed_module() -> None:
    module = main(
        """    %0 = "jax.a"(%x) : (tensor<f32>) -> tensor<f32>
    %1 = "baechi.task"(%0) ({
    ^bb0(%2: tensor<f32>):
      %3 = "jax.b"(%2) ({}) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%3) : (tensor<f32>) -> ()
    }) {sym_name = "t0"} : (tensor<f32>) -> tensor<f32>"""
    )
    message = fails(module, "unknown source: 'jax.b': region 0")
    assert "  in func.func @main, baechi.task @t0:" in message
    assert '--> %3 = "jax.b"(%2)' in message


def test_a_message_survives_what_cannot_be_printed_and_long_lines() -> None:
    module = main('    %a = "jax.a"(%x) : (tensor<f32>) -> tensor<f32>\n    "jax.b"() : () -> ()')
    first, second = module.main.body.ops[:2]
    second.attributes["baechi.devices"] = [0]  # type: ignore[assignment]
    first.attributes["long"] = "x" * 500
    message = fails(second, "attribute 'baechi.devices' is a list, which is no attribute: use bool")
    assert '"jax.b"(...)  // an attribute of it has no text form' in message
    assert all(len(line) < 180 for line in message.split("\n"))


# Structure ----------------------------------------------------------------------------------------


def test_a_sound_module_passes() -> None:
    module = main(
        """    %w = "jax.while"(%x) ({
    ^bb0(%a: tensor<f32>):
      %y = "other.reads_around"(%a, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "baechi.yield"(%y) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    "unknown"() {task = @nobody, list = [1]} : () -> ()""",
        returns="%w, %w",
        types="tensor<f32>, tensor<f32>",
    )
    verify(module)
    for op in module.walk():
        verify(op)


def test_values_are_defined_before_they_are_read() -> None:
    module = main(
        """    "jax.a"(%y) : (tensor<f32>) -> () loc("f.py":7:1)
    %y = "jax.b"(%x) : (tensor<f32>) -> tensor<f32> loc("f.py":8:1)"""
    )
    fails(module, "f.py:7: 'jax.a': operand 0, result of 'jax.b' at f.py:8, is read before it is")


def test_a_region_reads_only_what_is_defined_before_it() -> None:
    module = main(
        """    "other.a"() ({
      "other.inner"(%y) : (tensor<f32>) -> ()
    }) : () -> ()
    %y = "jax.b"(%x) : (tensor<f32>) -> tensor<f32>"""
    )
    fails(module, "'other.inner': operand 0", "is read before it is defined")


def test_no_value_leaves_its_region() -> None:
    module = main(
        """    "other.a"() ({
      %y = "jax.b"(%x) : (tensor<f32>) -> tensor<f32>
    }) : () -> ()
    "jax.c"(%x) : (tensor<f32>) -> ()"""
    )
    inner = module.main.body.ops[0].body.ops[0]
    module.main.body.ops[1].set_operand(0, inner.result)
    fails(module, "'jax.c': operand 0", "is defined in a region that 'jax.c' is not in")


def test_no_operation_reads_its_own_results() -> None:
    for text in (
        '"other.a"(%y) : (i32) -> i32',
        '"other.a"() ({ "other.b"(%y) : (i32) -> () }) : () -> i32',
    ):
        module = parse_module(f"%y = {text}")
        fails(module, "is a result of the operation itself")


def test_a_closed_region_reads_nothing_from_outside() -> None:
    task = """    "baechi.task"() ({
      "jax.a"(%x) : (tensor<f32>) -> ()
      "baechi.yield"() : () -> ()
    }) : () -> ()"""
    fails(main(task), "operand 0, block argument 0, comes from outside of the 'baechi.task'")


def test_a_value_of_another_module_is_refused() -> None:
    module = main('    "jax.a"(%x) : (tensor<f32>) -> ()')
    loose = Operation("jax.b", (), (F32,))
    module.main.body.ops[0].set_operand(0, loose.result)
    fails(module, "operand 0, result of 'jax.b' at unknown source, is in no block of this module")


def test_parents_and_owners_point_back() -> None:
    module = main('    %a = "jax.a"(%x) ({}) : (tensor<f32>) -> tensor<f32>')
    op = module.main.body.ops[0]
    op.parent = None
    fails(module, "it is in a block that it does not have as its parent")
    op.parent = module.main.body
    op.results[0].index = 1
    fails(module, "result 0 belongs to another operation or position")
    op.results[0].index = 0
    op.regions[0].parent = None
    fails(module, "region 0 belongs to another operation")
    op.regions[0].parent = op
    block = op.regions[0].add_block(Block())
    block.parent = None
    fails(module, "the block of region 0 belongs to another region")
    op.regions[0].blocks = []
    module.main.body.arguments[0].index = 2
    fails(module, "block argument 0 belongs to another block or position")


def test_use_lists_agree_with_operands() -> None:
    module = main(
        '    %a = "jax.a"(%x) : (tensor<f32>) -> tensor<f32>\n    "jax.b"(%a) : (tensor<f32>) -> ()'
    )
    first, second = module.main.body.ops[:2]
    verify(module)
    del first.result.uses[second, 0]
    fails(module, "'jax.b': operand 0 does not have it in its list of uses")
    first.result.uses[second, 0] = None
    first.result.uses[second, 1] = None
    fails(module, "the uses of result of 'jax.a' at unknown source name operand 1 of <jax.b")
    del first.result.uses[second, 1]
    detached = Operation("jax.c", (first.result,))
    fails(module, "is read by <jax.c at unknown source>, which is not in here")
    detached.drop_operands()
    verify(module)


def test_no_operation_is_in_its_block_twice() -> None:
    for text in ('"jax.a"(%x) : (tensor<f32>) -> tensor<f32>', '"jax.a"(%x) : (tensor<f32>) -> ()'):
        module = main(f"    {text}")
        block = module.main.body
        block.ops.insert(0, block.ops[0])
        fails(module, "it is in its block twice")


def test_regions_have_one_block() -> None:
    module = main('    "other.a"() ({ "jax.b"() : () -> () ^bb1: }) : () -> ()')
    fails(module, "region 0 has 2 blocks; no operation branches")


def test_terminators_end_their_blocks() -> None:
    module = main('    "func.return"() : () -> ()')
    fails(module, "a terminator must be the last operation of its block")


def test_attributes_are_attributes() -> None:
    op = Operation("jax.a")
    for value, kind in (([1], "list"), (None, "NoneType"), ({"a": 1}, "dict")):
        op.attributes["x"] = value  # type: ignore[assignment]
        fails(op, f"attribute 'x' is a {kind}, which is no attribute")
    op.attributes["x"] = type("Flag", (int,), {})(3)
    verify(op)


def test_symbols_are_unique_and_resolve() -> None:
    fails(
        main(
            """    "other.a"() {sym_name = "a"} : () -> ()
    "other.b"() {sym_name = "a"} : () -> ()"""
        ),
        "'other.b' @a: another operation is named @a too",
    )
    fails(main('    "other.a"() {sym_name = 1} : () -> ()'), "'sym_name' must be a string, found 1")
    fails(main('    "jax.a"() {f = @main::@b} : () -> ()'), "there is no operation @main::@b")
    verify(main('    "jax.a"() {f = @main} : () -> ()'))
    alone = Operation("jax.a", attributes={"f": SymbolRef(("elsewhere",))})
    verify(alone)


def test_unknown_names_in_known_dialects() -> None:
    fails(main('    "baechi.tsak"() : () -> ()'), "unknown operation; did you mean 'baechi.task'?")
    fails(
        main('    "func.xyz"() : () -> ()'), "unknown operation; there are func.func, func.return"
    )


# builtin, func ------------------------------------------------------------------------------------


def test_modules() -> None:
    def module(text: str) -> Operation:
        return parse_operation(text)

    fails(module('"builtin.module"() ({}) {x = 1} : () -> ()'), "attribute 'x' of a module needs a")
    verify(module('"builtin.module"() ({}) {sym_name = "m", a.b} : () -> ()'))
    op = Module()
    op.body.add_argument(F32)
    fails(op, "the block of a module has no arguments")
    fails(Module(regions=[]), "a module has one region of one block")
    fails(Operation("builtin.module", (), (F32,)), "a module has no operands and no results")


def test_functions() -> None:
    returned = '"func.return"() : () -> ()'
    named = '{sym_name = "f", function_type = () -> ()}'

    def function(text: str) -> Operation:
        return parse_operation(f'"func.func"() {text} : () -> ()')

    verify(function(f"({{ {returned} }}) {named}"))
    fails(function(f"({{ {returned} }})"), "a function needs its name in 'sym_name', found None")
    fails(function(f"({{}}) {named}"), "a function has one region of one block")
    fails(function(f"({{ ^bb0: }}) {named}"), "must end with 'func.return'")
    fails(function(f'({{ {returned} }}) {{sym_name = "f"}}'), "'function_type' must be a function")
    fails(
        Operation("func.func", (), (F32,), {"sym_name": "f"}),
        "a function has no operands and no results",
    )
    fails(
        main('    "func.func"() ({}) {sym_name = "g"} : () -> ()'),
        "a function stands in a module, found it in 'func.func'",
    )
    fails(
        main("", inputs=""), "'function_type' has 0 arguments, the body 1", "refresh_function_type"
    )
    fails(
        main("", inputs="i32"), "argument 0 is i32 in 'function_type', but tensor<f32> in the body"
    )
    module = main("", returns="%x", types="tensor<f32>")
    module.main.body.arguments[0].type = ScalarType("i32")
    fails(module, "argument 0 is tensor<f32> in 'function_type', but i32 in the body")
    module = main("", returns="%x", types="tensor<f32>")
    module.main.body.ops[-1].set_operands(())
    fails(module, "'function_type' has 1 results, the body 0")


RETURN = {"returns": "%x", "types": "tensor<f32>"}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("arg_attrs = 1", "'arg_attrs' must be an array of 1 dictionaries, found 1"),
        ("arg_attrs = [{}, {}]", "'arg_attrs' must be an array of 1 dictionaries, found 2"),
        ("arg_attrs = [1]", "entry 0 of 'arg_attrs' must be a dictionary, found 1"),
        ("res_attrs = [{}, {}]", "'res_attrs' must be an array of 1 dictionaries, found 2"),
        ("arg_attrs = [{baechi.name = 1}]", "'baechi.name' of argument 0 must be str, found 1"),
        (
            'arg_attrs = [{baechi.name = "w", baechi.donated = true}]',
            "'baechi.donated' of argument 0 (w) must be unit, found True",
        ),
        ("arg_attrs = [{baechi.state = true}]", "must be int, found True"),
        ("arg_attrs = [{baechi.state = 1}]", "'baechi.state' of argument 0 is 1, but there are 1"),
        ("arg_attrs = [{baechi.devices = []}]", "must be an array of devices, found ()"),
        ("arg_attrs = [{baechi.devices = [5]}]", "is device 5, but the topology has 2 devices"),
        ("arg_attrs = [{baechi.devices = [-1]}]", "must be the number of a device, found -1"),
        ("arg_attrs = [{baechi.pin = [0, 0]}]", "'baechi.pin' of argument 0 names a device twice"),
        ("res_attrs = [{baechi.result = unit}]", "'baechi.result' of result 0 must be int"),
    ],
)
def test_attributes_of_arguments_and_results(extra: str, message: str) -> None:
    topology = "baechi.topology = " + TOPOLOGY
    fails(main("", extra=f", {extra}", module=topology, **RETURN), message)
    verify(main("", extra=", arg_attrs = [], res_attrs = [{}]", module=topology, **RETURN))


TOPOLOGY = (
    "#baechi.topology<devices = [#baechi.device, #baechi.device], links = "
    "[#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>"
)


def test_state_is_one_result_of_the_same_type() -> None:
    two = {"arguments": "%x: tensor<f32>, %y: tensor<i32>", "inputs": "tensor<f32>, tensor<i32>"}
    fails(
        main("", extra=", arg_attrs = [{baechi.state = 0}, {baechi.state = 0}]", **two, **RETURN),
        "result 0 is the next value of argument 0 and of argument 1",
    )
    fails(
        main("", extra=", arg_attrs = [{}, {baechi.state = 0}]", **two, **RETURN),
        "argument 1 is tensor<i32>, but its next value, result 0, is tensor<f32>",
    )


def test_an_argument_lies_where_its_type_says() -> None:
    placed = "!baechi.on<[1], tensor<f32>>"
    fails(
        main(
            "",
            arguments=f"%x: {placed}",
            inputs=placed,
            extra=", arg_attrs = [{baechi.devices = [0]}]",
        ),
        f"'baechi.devices' of argument 0 is [0], but its type is {placed}",
    )


def test_returns() -> None:
    fails(parse_module('"func.return"() : () -> ()'), "'func.return' ends the body of a function")
    module = main("")
    end = module.main.body.ops[-1]
    end.add_region(Region())
    fails(module, "'func.return' has no results and no regions")


# jax ----------------------------------------------------------------------------------------------


def test_tokens_come_last_and_go_through() -> None:
    token = '    %t = "baechi.token"() {effect = "io"} : () -> !baechi.token\n'
    verify(main(token + '    %u = "jax.a"(%x, %t) : (tensor<f32>, !baechi.token) -> !baechi.token'))
    fails(
        main(token + '    "jax.a"(%x, %t) : (tensor<f32>, !baechi.token) -> ()'),
        "'jax.a': it reads 1 tokens and gives 0; for each effect it must do both",
    )
    fails(
        main(token + '    %u = "jax.a"(%x) : (tensor<f32>) -> !baechi.token'),
        "it reads 0 tokens and gives 1",
    )
    fails(
        main(
            token + '    %u:2 = "jax.a"(%t, %x, %t) : (!baechi.token, tensor<f32>, !baechi.token) '
            "-> (!baechi.token, !baechi.token)"
        ),
        "operand 1 comes after a token; tokens come last",
    )


def test_regions_of_jax_ops_end_with_yield() -> None:
    fails(main('    "jax.a"() ({}) : () -> ()'), "region 0 must end with 'baechi.yield'")
    fails(main('    "jax.a"() ({ "jax.b"() : () -> () }) : () -> ()'), "region 0 must end with")


# baechi -------------------------------------------------------------------------------------------

ON0, ON1 = "!baechi.on<[0], tensor<f32>>", "!baechi.on<[1], tensor<f32>>"


def task(
    *,
    operands: str = "%x",
    arguments: str = "%a: tensor<f32>",
    body: str = "",
    yields: str = "%a",
    yielded: str = "tensor<f32>",
    attributes: str = 'sym_name = "t0"',
    types: str = "tensor<f32>",
    results: str = "tensor<f32>",
) -> str:
    return f"""    %r = "baechi.task"({operands}) ({{
    ^bb0({arguments}):
{body}
      "baechi.yield"({yields}) : ({yielded}) -> ()
    }}) {{{attributes}}} : ({types}) -> {results} loc("f.py":3:0)"""


def placed(body: str, **options: str) -> Module:
    """``body`` in a function whose argument ``%x`` lies on device 0, ``%y`` on device 1."""
    return main(
        body,
        arguments=f"%x: {ON0}, %y: {ON1}",
        inputs=f"{ON0}, {ON1}",
        module="baechi.topology = " + TOPOLOGY,
        **options,
    )


def test_tasks_that_pass() -> None:
    verify(main(task()))
    verify(placed(task(attributes="baechi.devices = [0]", types=ON0, results=ON0)))
    alone = task().replace('"baechi.task"(%x)', '"baechi.task"()').replace("(%a: tensor<f32>)", "")
    alone = alone.replace(": (tensor<f32>) -> tensor<f32> loc", ": () -> tensor<f32> loc")
    alone = alone.replace(
        '      "baechi.yield"', '%a = "jax.a"() : () -> tensor<f32> "baechi.yield"'
    )
    verify(parse_operation(alone))


TASK_ERRORS = {
    "a task has one region": ('    %r = "baechi.task"(%x) : (tensor<f32>) -> tensor<f32>', False),
    "must end with 'baechi.yield'": ('    "baechi.task"() ({ ^bb0: }) : () -> ()', False),
    "'baechi.wait' cannot stand in a task": (
        task(body='      "baechi.wait"(%a) : (tensor<f32>) -> ()'),
        False,
    ),
    "'sym_name' must be a string": (task(attributes="sym_name = 3"), False),
    "it has 1 operands, but 2 block arguments": (
        task(arguments="%a: tensor<f32>, %b: tensor<f32>"),
        False,
    ),
    "operands 0 and 1 are the same value": (
        task(
            operands="%x, %x",
            arguments="%a: tensor<f32>, %b: tensor<f32>",
            types="tensor<f32>, tensor<f32>",
        ),
        False,
    ),
    "operand 0 is tensor<f32>, but its block argument is tensor<i32>": (
        task(arguments="%a: tensor<i32>", yielded="tensor<i32>", results="tensor<i32>"),
        False,
    ),
    "it has 1 results, but yields 0 values": (task(yields="", yielded=""), False),
    "result 0 is tensor<i32>, but it yields tensor<f32>": (task(results="tensor<i32>"), False),
    "result 0 is still in flight": (task(results="!baechi.in_flight<tensor<f32>>"), False),
    "some of its operands and results have a place": (
        task(types=ON0, attributes="baechi.devices = [0]"),
        True,
    ),
    "its operands have places, so it needs 'baechi.devices'": (task(types=ON0, results=ON0), True),
    "operand 0 lies on [0], but the task runs on [1]; a transfer is missing": (
        task(types=ON0, results=ON1, attributes="baechi.devices = [1]"),
        True,
    ),
    "result 0 lies on [1], but the task runs on [0]": (
        task(types=ON0, results=ON1, attributes="baechi.devices = [0]"),
        True,
    ),
    "'baechi.devices' names a device twice: [0, 0]": (
        task(attributes="baechi.devices = [0, 0]"),
        True,
    ),
    "'baechi.devices' is device 2, but the topology has 2 devices": (
        task(types=ON0, results=ON0, attributes="baechi.devices = [2]"),
        True,
    ),
    "it donates operand 0, which lives on": (task(attributes="baechi.donates = [0]"), False),
    "'baechi.donates' must hold indices of the 1 operands, found (1,)": (
        task(attributes="baechi.donates = [1]"),
        False,
    ),
    "'baechi.frees' names an operand twice": (task(attributes="baechi.frees = [0, 0]"), False),
    "'baechi.frees' must hold indices of the 1 operands, found 0": (
        task(attributes="baechi.frees = 0"),
        False,
    ),
}


@pytest.mark.parametrize("message", TASK_ERRORS)
def test_tasks(message: str) -> None:
    text, on_devices = TASK_ERRORS[message]
    if on_devices and "tensor<f32>) ->" in text and ON0 not in text:
        text = text.replace(": (tensor<f32>) -> tensor<f32>", f": ({ON0}) -> {ON0}")
    fails(placed(text) if on_devices else main(text), message)


def test_tasks_stand_in_functions() -> None:
    nested = (
        '    "jax.a"() ({\n' + task(operands="%x") + '\n "baechi.yield"() : () -> () }) : () -> ()'
    )
    fails(main(nested), "'baechi.task' stands right in a function, found it in 'jax.a'")
    fails(
        main(
            '    "baechi.task"() ({ "baechi.task"() ({ "baechi.yield"() : () -> () }) : () -> ()\n'
            '"baechi.yield"() : () -> () }) : () -> ()'
        ),
        "'baechi.task'",
    )


def test_what_is_donated_dies_or_was_given_away() -> None:
    verify(main(task(attributes="baechi.donates = [0], baechi.frees = [0]")))
    verify(main(task(attributes="baechi.donates = [0]"), extra=", arg_attrs = [{baechi.donated}]"))
    fails(
        main('    "jax.a"(%x) {baechi.donates = [0]} : (tensor<f32>) -> ()'),
        "only a task or its run can donate operands",
    )


def test_yields() -> None:
    fails(
        parse_module('"builtin.module"() ({ "baechi.yield"() : () -> () }) : () -> ()'),
        "'baechi.yield' cannot end a 'builtin.module'",
    )
    module = main(task())
    module.main.body.ops[0].body.ops[-1].add_region(Region())
    fails(module, "'baechi.yield' has no results and no regions")


# Transfers ----------------------------------------------------------------------------------------

FLYING = "!baechi.in_flight<tensor<f32>>"


def send(
    value: str = "%x",
    *,
    attributes: str = "channel = 0, from = 0, to = 1",
    type_: str = ON0,
    result: str = FLYING,
    name: str = "%s",
) -> str:
    return f'    {name} = "baechi.send"({value}) {{{attributes}}} : ({type_}) -> {result}\n'


def recv(
    value: str = "%s",
    *,
    attributes: str = "channel = 0",
    type_: str = FLYING,
    result: str = ON1,
    name: str = "%r",
) -> str:
    return f'    {name} = "baechi.recv"({value}) {{{attributes}}} : ({type_}) -> {result}\n'


def test_transfers_that_pass() -> None:
    verify(placed(send() + recv()))
    verify(placed(send() + f'    "baechi.wait"(%s) : ({FLYING}) -> ()\n' + recv()))


TRANSFER_ERRORS = {
    "'baechi.send': it needs one operand, found 2": send("%x, %x", type_=f"{ON0}, {ON0}") + recv(),
    "'channel' must be a number that is not negative, found None": send(
        attributes="from = 0, to = 1"
    )
    + recv(),
    "'channel' must be a number that is not negative, found -1": send(
        attributes="channel = -1, from = 0, to = 1"
    )
    + recv(),
    "it needs 'to', the device at the other end": send(attributes="channel = 0, from = 0") + recv(),
    "it needs 'from', the device at the other end": send(attributes="channel = 0, to = 1") + recv(),
    "'to' is device 7, but the topology has 2 devices": send(
        attributes="channel = 0, from = 0, to = 7"
    )
    + recv(),
    "it sends from device 1 to itself": send(attributes="channel = 0, from = 1, to = 1") + recv(),
    "the value lies on device 0 already": send(attributes="channel = 0, from = 1, to = 0") + recv(),
    "it sends from device 1, but the value is !baechi.on<[2]": send(
        "%q",
        attributes="channel = 0, from = 1, to = 0",
        type_="!baechi.on<[2], tensor<f32>>",
    ).replace("    %s", '    %q = "jax.q"() : () -> !baechi.on<[2], tensor<f32>>\n    %s')
    + recv(),
    "its result must be !baechi.in_flight<tensor<f32>>, found !baechi.in_flight<tensor<i32>>": send(
        result="!baechi.in_flight<tensor<i32>>"
    )
    + recv(type_="!baechi.in_flight<tensor<i32>>", result="!baechi.on<[1], tensor<i32>>"),
    "one 'baechi.recv' must read what it sends, found none": send(),
    "one 'baechi.recv' must read what it sends, found 'baechi.recv', 'baechi.recv'": send()
    + recv()
    + recv(name="%r2", attributes="channel = 1"),
    "another send takes the same value to device 1": send()
    + recv()
    + send(name="%s2", attributes="channel = 1, from = 0, to = 1")
    + recv("%s2", name="%r2", attributes="channel = 1"),
    "channel 0 is used by another 'baechi.send' too": send()
    + recv()
    + send("%y", name="%s2", attributes="channel = 0, from = 1, to = 0", type_=ON1)
    + recv("%s2", name="%r2", result=ON0),
    "what it sends is in flight already": f'    %q = "jax.q"() : () -> {FLYING}\n'
    + send("%q", type_=FLYING)
    + recv(),
    "'baechi.recv': it needs one result": send()
    + recv(result=f"({ON1}, {ON1})").replace("%r =", "%r:2 ="),
    "its result must have arrived": send() + recv(result=FLYING),
    "its operand must be the result of a 'baechi.send'": recv("%x", type_=ON0),
    "it receives on channel 1, but the send is on 0": send() + recv(attributes="channel = 1"),
    "it was sent to device 1, but the result is !baechi.on<[0]": send() + recv(result=ON0),
    "it receives !baechi.in_flight<tensor<f32>>, but the result is": send()
    + recv(result="!baechi.on<[1], tensor<i32>>"),
    "it has no regions": (send() + recv()).replace("(%s) {", "(%s) ({}) {"),
    "'baechi.wait' needs values to wait for": '    "baechi.wait"() : () -> ()',
    "'baechi.wait' has no results": f'    %w = "baechi.wait"(%x) : ({ON0}) -> {ON0}',
}


@pytest.mark.parametrize("message", TRANSFER_ERRORS)
def test_transfers(message: str) -> None:
    fails(placed(TRANSFER_ERRORS[message]), message)


def test_tokens_are_never_sent() -> None:
    token = "!baechi.on<[0], !baechi.token>"
    fails(
        placed(
            f'    %t = "jax.t"() : () -> {token}\n'
            + send("%t", type_=token, result="!baechi.in_flight<!baechi.token>")
            + recv(type_="!baechi.in_flight<!baechi.token>", result=token.replace("0", "1"))
        ),
        "it sends a token; ordered effects must share a device",
    )


def test_transfers_stand_in_functions() -> None:
    fails(parse_module('"baechi.wait"() : () -> ()'), "'baechi.wait' stands right in a function")


# Programs of one device ---------------------------------------------------------------------------


def program(body: str) -> Module:
    """``@main`` with one task, and beside it ``@main_d0`` with ``body``."""
    text = task(attributes='sym_name = "t7", baechi.devices = [0]', types=ON0, results=ON0)
    beside = f"""  "func.func"() ({{
  ^bb0(%x: {ON0}):
{body}
    "func.return"() : () -> ()
  }}) {{sym_name = "main_d0", function_type = ({ON0}) -> (),
        arg_attrs = [{{baechi.argument = 0}}]}} : () -> ()"""
    return placed(text, beside=beside)


def test_programs_that_pass() -> None:
    verify(
        program(
            f"""
    %r = "baechi.run"(%x) {{task = @main::@t7, baechi.frees = [0]}} : ({ON0}) -> {ON0}
    "baechi.send"(%r) {{channel = 0, to = 1}} : ({ON0}) -> ()
    %q = "baechi.recv"() {{channel = 1, from = 1}} : () -> {ON0}
    "baechi.wait"(%q) : ({ON0}) -> ()"""
        )
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f'%r = "baechi.run"(%x) : ({ON0}) -> {ON0}',
            "'task' must name a task, such as @main::@t7",
        ),
        (
            f'%r = "baechi.run"(%x) {{task = @main}} : ({ON0}) -> {ON0}',
            "'task' names a 'func.func'",
        ),
        (
            f'%r = "baechi.run"(%x) {{task = @main::@t8}} : ({ON0}) -> {ON0}',
            "no operation @main::@t8",
        ),
        (
            f'"baechi.run"(%x) {{task = @main::@t7}} : ({ON0}) -> ()',
            "it has 0 results, but the task",
        ),
        (f'%r = "baechi.run"() {{task = @main::@t7}} : () -> {ON0}', "it has 0 operands, but the"),
        (
            f'%r = "baechi.run"(%x) {{task = @main::@t7}} : ({ON0}) -> {ON1}',
            "result 0 is !baechi.on<[1], tensor<f32>>, but the task's is !baechi.on<[0]",
        ),
        (
            f'%r = "baechi.run"(%x) {{task = @main::@t7, baechi.donates = [0]}} : ({ON0}) -> {ON0}',
            "it donates operand 0, which lives on",
        ),
        (f'"baechi.send"(%x) {{channel = 0}} : ({ON0}) -> ()', "it needs 'to'"),
        (f'"baechi.send"(%x) {{channel = 0, to = 0}} : ({ON0}) -> ()', "lies on device 0 already"),
        (f'%r = "baechi.recv"() {{channel = 0}} : () -> {ON0}', "it needs 'from'"),
        (
            f'%r = "baechi.recv"() {{channel = 0, from = 0}} : () -> {ON0}',
            "on device 0 from itself",
        ),
    ],
)
def test_programs(body: str, message: str) -> None:
    fails(program(f"    {body}"), message)


# Constants and effects ----------------------------------------------------------------------------


def literal(value: str, type_: str = "tensor<f32>", attribute: str = "value = ") -> str:
    return f'    %l = "baechi.literal"() {{{attribute}{value}}} : () -> {type_}'


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("1.5 : f32", "tensor<f32>"),
        ("1.5 : f32", "tensor<f32, #baechi.weak>"),
        ("1.5", "tensor<f64>"),
        ("0x7F : f8E4M3FN", "tensor<f8E4M3FN>"),
        ("true", "tensor<i1>"),
        ("3", "tensor<i64>"),
        ("3 : ui8", "tensor<ui8>"),
        ("[1.0 : f32, 2.0 : f32]", "tensor<complex<f32>>"),
        ("[1.0, 2.0]", "tensor<complex<f64>>"),
        ("#jax.opaque", "tensor<!baechi.float0>"),
    ],
)
def test_literals_that_pass(value: str, type_: str) -> None:
    verify(main(literal(value, type_)))


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        ("1.5", "tensor<f32>", "'value' is 1.5, but the result is tensor<f32>"),
        ("1.5 : bf16", "tensor<f32>", "'value' is 1.5 : bf16, but the result is tensor<f32>"),
        ("1", "tensor<i1>", "'value' is 1, but the result is tensor<i1>"),
        ("true", "tensor<i64>", "'value' is True, but the result is tensor<i64>"),
        ("3 : i32", "tensor<ui32>", "'value' is 3 : i32, but the result is tensor<ui32>"),
        ("1.0", "tensor<complex<f64>>", "'value' is 1.0, but the result is tensor<complex<f64>>"),
        ("[1.0]", "tensor<complex<f64>>", "but the result is tensor<complex<f64>>"),
        ("1.0 : f32", "tensor<2xf32>", "a literal is a tensor without dimensions"),
        ("1.0 : f32", "i32", "a literal is a tensor without dimensions, found i32"),
    ],
)
def test_literals(value: str, type_: str, message: str) -> None:
    fails(main(literal(value, type_)), message)


def test_other_constants_and_tokens() -> None:
    fails(main(literal("x", attribute="")), "a literal needs its 'value'")
    text = literal("1.0 : f32").replace("()", "(%x)", 1).replace(": ()", ": (tensor<f32>)")
    fails(main(text), "a literal has no operands")
    constant = '    %c = "baechi.constant"() {baechi.eqn = 0} : () -> tensor<4xf32>'
    verify(main(constant))
    fails(main(constant.replace("baechi.eqn = 0", "")), "a constant needs 'baechi.eqn'")
    fails(main(constant.replace("baechi.eqn = 0", "baechi.eqn = -1")), "the index of an equation")
    text = constant.replace("()", "(%x)", 1).replace(": ()", ": (tensor<f32>)")
    fails(main(text), "a constant has no operands")
    token = '    %t = "baechi.token"() {effect = "io", ordered} : () -> !baechi.token'
    verify(main(token))
    fails(
        main(token.replace('"io"', "1")), "'effect' must be the kind of effect, a string, found 1"
    )
    fails(main(token.replace("ordered", "ordered = 1")), "'ordered' is a unit attribute")
    fails(
        main(token.replace("!baechi.token", "i32")), "its result must be !baechi.token, found i32"
    )
    text = token.replace("()", "(%x)", 1).replace(": ()", ": (tensor<f32>)")
    fails(main(text), "a token starts a chain of effects: it has no operands")


# What passes leave on operations ------------------------------------------------------------------

ATTRIBUTE_ERRORS = {
    "baechi.cost = 1.0": "'baechi.cost' must be a #baechi.cost, found 1.0",
    "baechi.cost = #baechi.cost<flops = -1.0>": "'baechi.cost' holds -1.0; costs are finite",
    "baechi.cost = #baechi.cost<flops = 0x7FF8000000000000 : f64>": "'baechi.cost' holds nan",
    "baechi.cost = #baechi.cost<seconds = [1.0, 2.0]>": (
        "'baechi.cost' has seconds for 2 kinds of device, but the topology has 1: ['cpu']"
    ),
    'baechi.group = ""': "'baechi.group' must be the name of a group, found ''",
    "baechi.pin = 0": "'baechi.pin' must be an array of devices, found 0",
    "baechi.devices = [0.5]": "'baechi.devices' must be the number of a device, found 0.5",
    "baechi.eqn = true": "'baechi.eqn' must be the index of an equation, found True",
    "baechi.start_seconds = 1": "'baechi.start_seconds' must be seconds, a float",
    "baechi.start_seconds = -1.0": "'baechi.start_seconds' must be seconds, a float",
    "baechi.end_seconds = 1.0": "'baechi.end_seconds' needs 'baechi.start_seconds' beside it",
    "baechi.start_seconds = 2.0, baechi.end_seconds = 1.0": "it ends at 1.0 s, before its start",
    "baechi.step_seconds = 0x7FF0000000000000 : f64": "'baechi.step_seconds' must be seconds",
    "baechi.lower_bound_seconds = 1": "'baechi.lower_bound_seconds' must be seconds",
    "baechi.memory = [1]": "'baechi.memory' must be an array of #baechi.memory",
    "baechi.memory = [#baechi.memory]": "'baechi.memory' has 1 entries for 2 devices",
    "baechi.topology = #baechi.topology<devices = [#baechi.device]>": (
        "'baechi.topology' is a #baechi.topology on the module"
    ),
}


@pytest.mark.parametrize("attributes", ATTRIBUTE_ERRORS)
def test_attributes_of_operations(attributes: str) -> None:
    module = placed(f'    "jax.a"() {{{attributes}}} : () -> ()')
    fails(module, f"'jax.a': {ATTRIBUTE_ERRORS[attributes]}")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("baechi.topology = 1", "'baechi.topology' is a #baechi.topology on the module"),
        ("baechi.fingerprint = 1", "'baechi.fingerprint' must be a string, found 1"),
        ("baechi.pipeline = 1", "'baechi.pipeline' must be the text of a pipeline, found 1"),
        ("baechi.placement = 1", "'baechi.placement' must be a dictionary, found 1"),
    ],
)
def test_attributes_of_modules(attributes: str, message: str) -> None:
    fails(main("", module=attributes), message)
    verify(
        main("", module='baechi.fingerprint = "a", baechi.pipeline = "b", baechi.placement = {}')
    )


def test_kinds_of_device_are_counted_in_the_topology_of_the_module() -> None:
    module = main('    "jax.a"() {baechi.cost = #baechi.cost<seconds = [1.0, 2.0]>} : () -> ()')
    verify(module)
    module.attributes["baechi.topology"] = Topology.uniform(2)
    fails(module, "seconds for 2 kinds of device")
