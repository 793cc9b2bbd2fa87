"""A planned module as a flat program."""

from __future__ import annotations

import pytest

from baechi_jax.ir.errors import IRError
from baechi_jax.ir.parser import parse_module
from baechi_jax.runtime.instructions import Copy, Program, Put, Run, program_of

T = "tensor<4xf32>"
ON0, ON1 = f"!baechi.on<[0], {T}>", f"!baechi.on<[1], {T}>"


def task(name: str, device: int, ins: str, outs: str, count: int, **attributes: str) -> str:
    """A task from its region on: it gives its first operand ``count`` times."""
    extra = "".join(f", baechi.{key} = {value}" for key, value in attributes.items())
    arguments = ", ".join(f"%x{name}{i}: {T}" for i in range(ins.count("!baechi.on")))
    first = f"%x{name}0" if arguments else "%none"
    results = ", ".join([first] * count)
    types = ", ".join([T] * count)
    return (
        f'({{\n    ^bb0({arguments}):\n      "baechi.yield"({results}) : ({types}) -> ()\n    }}) '
        f'{{sym_name = "{name}", baechi.devices = [{device}]{extra}}} : ({ins}) -> ({outs})'
    )


def module(arguments: list[str], body: str, results: str, types: str, attributes: str = "") -> str:
    args = ", ".join(f"%arg{index}: {type_}" for index, type_ in enumerate(arguments))
    return (
        f'"builtin.module"() ({{\n  "func.func"() ({{\n  ^bb0({args}):\n{body}\n'
        f'    "func.return"({results}) : ({types}) -> ()\n  }}) '
        f'{{sym_name = "main"{attributes}}} : () -> ()\n}}) : () -> ()\n'
    )


def program(*args: str, **kwargs: str) -> Program:
    return program_of(parse_module(module(*args, **kwargs)))  # type: ignore[arg-type]


def test_slots_and_drops() -> None:
    found = program(
        [ON0, ON0],
        f'    %0 = "baechi.task"(%arg0, %arg1) {task("a", 0, f"{ON0}, {ON0}", ON0, 1)}\n'
        f'    %1 = "baechi.send"(%0) {{channel = 0 : i64, from = 0 : i64, to = 1 : i64, '
        f"baechi.frees = [0]}} : ({ON0}) -> !baechi.in_flight<{T}>\n"
        f'    %2 = "baechi.recv"(%1) {{channel = 0 : i64}} : (!baechi.in_flight<{T}>) -> {ON1}\n'
        f'    "baechi.wait"(%2) : ({ON1}) -> ()\n'
        f'    %3 = "baechi.task"(%2) {task("b", 1, ON1, ON1, 1, frees="[0]", donates="[0]")}\n',
        "%3",
        ON1,
    )
    assert str(found).splitlines() == [
        "%2 = run a on 0 (%0, %1)",
        "%3 = put %2 to 1 drop %2",
        "wait %3",
        "%4 = run b on 1 (%3) donate %3 drop %3",
        "return %4",
    ]
    assert found.slot_count == 5
    assert found.devices == (0, 0, 0, 1, 1)
    assert found.device_count == 2


def test_neighbouring_sends_are_one_put() -> None:
    send = '"baechi.send"(%arg{0}) {{channel = {0} : i64, from = 0 : i64, to = 1 : i64}}'
    body = "".join(
        f"    %{n} = {send.format(n)} : ({ON0}) -> !baechi.in_flight<{T}>\n"
        f'    %r{n} = "baechi.recv"(%{n}) {{channel = {n} : i64}} : '
        f"(!baechi.in_flight<{T}>) -> {ON1}\n"
        for n in range(2)
    )
    found = program([ON0, ON0], body, "%r0, %r1", f"{ON1}, {ON1}")
    assert found.instructions == (Put((0, 1), (2, 3), (1, 1)),)
    assert found.results == (2, 3)


def test_results_that_nothing_reads_are_dropped() -> None:
    found = program(
        [ON0],
        f'    %0, %1 = "baechi.task"(%arg0) {task("a", 0, ON0, f"{ON0}, {ON0}", 2)}\n',
        "%0",
        ON0,
    )
    assert found.instructions == (Run(0, (0,), (1, 2), (), (2,)),)


def test_shared_results_and_kept_arguments_are_copied() -> None:
    found = program(
        [ON0],
        f'    %0 = "baechi.task"(%arg0) {task("a", 0, ON0, ON0, 1)}\n',
        "%0, %arg0, %0",
        f"{ON0}, {ON0}, {ON0}",
    )
    assert found.instructions[-1] == Copy((0, 1), (2, 3), (0, 0))
    assert found.results == (1, 2, 3)


def test_a_donated_argument_is_given_back_once() -> None:
    found = program(
        [ON0],
        "",
        "%arg0, %arg0",
        f"{ON0}, {ON0}",
        attributes=", arg_attrs = [{baechi.donated}]",
    )
    assert found.results == (0, 1)
    assert found.instructions == (Copy((0,), (1,), (0,)),)


def test_a_result_that_is_wanted_elsewhere() -> None:
    found = program(
        [ON0],
        f'    %0 = "baechi.task"(%arg0) {task("a", 0, ON0, ON0, 1)}\n',
        "%0",
        ON0,
        attributes=", res_attrs = [{baechi.devices = [1]}]",
    )
    assert found.instructions[-1] == Copy((1,), (2,), (1,))
    assert found.devices[2] == 1


def test_tokens_have_no_slot() -> None:
    token = "!baechi.on<[0], !baechi.token>"
    body = (
        f'    %0 = "baechi.task"() ({{\n      %1 = "baechi.token"() {{effect = "IO"}} : () -> '
        f'!baechi.token\n      "baechi.yield"(%1) : (!baechi.token) -> ()\n    }}) '
        f'{{sym_name = "a", baechi.devices = [0]}} : () -> {token}\n'
        f'    %2 = "baechi.task"(%0, %arg0) ({{\n    ^bb0(%3: !baechi.token, %4: {T}):\n'
        f'      "baechi.yield"(%4) : ({T}) -> ()\n    }}) '
        f'{{sym_name = "b", baechi.devices = [0], baechi.frees = [0, 1], baechi.donates = [1]}} : '
        f"({token}, {ON0}) -> {ON0}\n"
    )
    found = program([ON0], body, "%2", ON0)
    assert found.instructions == (Run(0, (), ()), Run(1, (0,), (1,), (0,), (0,)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f'    %0 = "jax.sin"(%arg0) : ({ON0}) -> {ON0}\n', "'jax.sin' .* cannot be run"),
        (
            f'    %0 = "baechi.task"(%arg0) {task("a", 0, ON0, ON0, 1, frees="[7]")}\n',
            "has no operand 7",
        ),
        (
            f'    %0 = "baechi.task"(%arg0) {task("a", 0, ON0, ON0, 1)}\n'.replace(
                "baechi.devices = [0]", "baechi.devices = [0, 1]"
            ),
            "task 'a' .* must lie on one device",
        ),
    ],
)
def test_what_cannot_be_run(body: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        program([ON0], body, "%0", ON0)


def test_arguments_need_a_place() -> None:
    with pytest.raises(IRError, match="argument 0 of @main has no place"):
        program([T], "", "%arg0", T)
