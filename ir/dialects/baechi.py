"""Dialect ``baechi``: tasks, transfers, and what stands between them; see ``docs/ir.md``."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.attributes import Attribute, FloatAttr, IntegerAttr, SymbolRef, Unit
from baechi_jax.ir.core import BlockArgument, Operation, Value
from baechi_jax.ir.dialect import define_op, invalid
from baechi_jax.ir.dialects.checks import device_list, device_number, operand_indices
from baechi_jax.ir.floats import FLOAT_FORMATS
from baechi_jax.ir.function import argument_attributes
from baechi_jax.ir.symbols import resolve
from baechi_jax.ir.types import InFlightType, OnType, TensorType, TokenType, Type, unplaced

#: What stands between tasks, never in one.
_BETWEEN_TASKS = frozenset(
    ("baechi.task", "baechi.send", "baechi.recv", "baechi.wait", "baechi.run", "func.func")
)

# Tasks -------------------------------------------------------------------------------------------


@define_op("baechi.task", closed=True)
def _task(op: Operation) -> None:
    _in_function(op)
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        raise invalid(op, "a task has one region of one block")
    name = op.attributes.get("sym_name")
    if name is not None and not isinstance(name, str):
        raise invalid(op, f"'sym_name' must be a string, found {name!r}")
    body = op.body
    if not body.ops or body.ops[-1].name != "baechi.yield":
        raise invalid(op, "the region of a task must end with 'baechi.yield'")
    for inner in body.ops:
        if inner.name in _BETWEEN_TASKS:
            raise invalid(inner, f"'{inner.name}' cannot stand in a task")
    if len(body.arguments) != len(op.operands):
        raise invalid(
            op, f"it has {len(op.operands)} operands, but {len(body.arguments)} block arguments"
        )
    first: dict[Value, int] = {}
    for index, (value, argument) in enumerate(zip(op.operands, body.arguments)):
        if value in first:
            raise invalid(op, f"operands {first[value]} and {index} are the same value")
        first[value] = index
        if _inner_type(op, value.type, f"operand {index}") != argument.type:
            raise invalid(
                op, f"operand {index} is {value.type}, but its block argument is {argument.type}"
            )
    yielded = body.ops[-1].operands
    if len(yielded) != len(op.results):
        raise invalid(op, f"it has {len(op.results)} results, but yields {len(yielded)} values")
    for index, (result, value) in enumerate(zip(op.results, yielded)):
        if _inner_type(op, result.type, f"result {index}") != value.type:
            raise invalid(op, f"result {index} is {result.type}, but it yields {value.type}")
    _check_places(op)
    _check_donated(op)


def _in_function(op: Operation) -> None:
    parent = op.parent_op
    if parent is not None and parent.name != "func.func":
        raise invalid(op, f"'{op.name}' stands right in a function, found it in '{parent.name}'")


def _inner_type(op: Operation, type_: Type, what: str) -> Type:
    if isinstance(type_, InFlightType):
        raise invalid(op, f"{what} is still in flight; a task reads what a receive gives")
    return unplaced(type_)


def _check_places(op: Operation) -> None:
    """All operands and results have a place, on the task's devices, or none has."""
    values = [*op.operands, *op.results]
    places = [value.type.devices for value in values if isinstance(value.type, OnType)]
    if not places:
        return
    if len(places) != len(values):
        raise invalid(op, "some of its operands and results have a place ('!baechi.on'), some none")
    given = op.attributes.get("baechi.devices")
    if given is None:
        raise invalid(op, "its operands have places, so it needs 'baechi.devices'")
    devices = device_list(op, given, "'baechi.devices'")
    for index, place in enumerate(places):
        if place != devices:
            count = len(op.operands)
            what = f"operand {index}" if index < count else f"result {index - count}"
            raise invalid(
                op,
                f"{what} lies on {list(place)}, but the task runs on {list(devices)}; "
                "a transfer is missing",
            )


def _check_donated(op: Operation) -> None:
    """What is donated dies here, or is an argument that the caller gave away."""
    donates = operand_indices(op, "baechi.donates")
    frees = operand_indices(op, "baechi.frees")
    for index in donates:
        if index in frees:
            continue
        value = op.operands[index]
        function = op.parent_op
        given_away = (
            isinstance(value, BlockArgument)
            and function is not None
            and value.owner.parent_op is function
            and "baechi.donated" in argument_attributes(function)[value.index]
        )
        if not given_away:
            raise invalid(
                op, f"it donates operand {index}, which lives on: it is not in 'baechi.frees'"
            )


@define_op("baechi.yield", terminator=True)
def _yield(op: Operation) -> None:
    parent = op.parent_op
    if parent is not None and parent.name in ("func.func", "builtin.module"):
        raise invalid(op, f"'baechi.yield' cannot end a '{parent.name}'")
    if op.results or op.regions:
        raise invalid(op, "'baechi.yield' has no results and no regions")


@define_op("baechi.run")
def _run(op: Operation) -> None:
    _in_function(op)
    _no_regions(op)
    reference = op.attributes.get("task")
    if not isinstance(reference, SymbolRef):
        raise invalid(op, f"'task' must name a task, such as @main::@t7, found {reference!r}")
    task = resolve(op, reference)
    if task is not None:
        if task.name != "baechi.task":
            raise invalid(op, f"'task' names a '{task.name}', not a task")
        _check_same_types(op, "operand", op.operands, task.operands)
        _check_same_types(op, "result", op.results, task.results)
    _check_donated(op)


def _check_same_types(
    op: Operation, what: str, own: Sequence[Value], of_task: Sequence[Value]
) -> None:
    if len(own) != len(of_task):
        raise invalid(op, f"it has {len(own)} {what}s, but the task has {len(of_task)}")
    for index, (left, right) in enumerate(zip(own, of_task)):
        if left.type != right.type:
            raise invalid(op, f"{what} {index} is {left.type}, but the task's is {right.type}")


# Transfers ---------------------------------------------------------------------------------------


def _channel(op: Operation) -> int:
    value = op.attributes.get("channel")
    if type(value) is not int or value < 0:
        raise invalid(op, f"'channel' must be a number that is not negative, found {value!r}")
    return value


def _end(op: Operation, key: str) -> int:
    if key not in op.attributes:
        raise invalid(op, f"it needs '{key}', the device at the other end")
    return device_number(op, op.attributes[key], f"'{key}'")


def _one(op: Operation, values: Sequence[Value], what: str) -> Value:
    if len(values) != 1:
        raise invalid(op, f"it needs one {what}, found {len(values)}")
    return values[0]


def _no_regions(op: Operation) -> None:
    if op.regions:
        raise invalid(op, "it has no regions")


@define_op("baechi.send")
def _send(op: Operation) -> None:
    _in_function(op)
    _no_regions(op)
    value = _one(op, op.operands, "operand")
    _channel(op)
    target = _end(op, "to")
    if isinstance(value.type, InFlightType):
        raise invalid(op, "what it sends is in flight already")
    if isinstance(unplaced(value.type), TokenType):
        raise invalid(op, "it sends a token; ordered effects must share a device")
    if isinstance(value.type, OnType) and target in value.type.devices:
        raise invalid(op, f"the value lies on device {target} already")
    if not op.results:  # in the program of one device
        return
    source = _end(op, "from")
    if source == target:
        raise invalid(op, f"it sends from device {source} to itself")
    if not isinstance(value.type, OnType) or source not in value.type.devices:
        raise invalid(op, f"it sends from device {source}, but the value is {value.type}")
    result = _one(op, op.results, "result")
    if result.type != InFlightType(value.type.type):
        raise invalid(
            op, f"its result must be {InFlightType(value.type.type)}, found {result.type}"
        )
    receives = [user for user in result.users if user.name != "baechi.wait"]
    if len(receives) != 1 or receives[0].name != "baechi.recv":
        found = ", ".join(f"'{user.name}'" for user in receives) or "none"
        raise invalid(op, f"one 'baechi.recv' must read what it sends, found {found}")
    for user, _ in value.uses:
        if user is op or user.name != "baechi.send" or user.parent is not op.parent:
            continue
        if user.attributes.get("to") == target:
            raise invalid(op, f"another send takes the same value to device {target}")


@define_op("baechi.recv")
def _recv(op: Operation) -> None:
    _in_function(op)
    _no_regions(op)
    channel = _channel(op)
    result = _one(op, op.results, "result")
    if isinstance(result.type, InFlightType):
        raise invalid(op, "its result must have arrived, found it in flight")
    if not op.operands:  # in the program of one device
        source = _end(op, "from")
        if isinstance(result.type, OnType) and source in result.type.devices:
            raise invalid(op, f"it receives on device {source} from itself")
        return
    value = _one(op, op.operands, "operand")
    send = value.defining_op
    if send is None or send.name != "baechi.send":
        raise invalid(op, "its operand must be the result of a 'baechi.send'")
    if send.attributes.get("channel") != channel:
        sent = send.attributes.get("channel")
        raise invalid(op, f"it receives on channel {channel}, but the send is on {sent!r}")
    target = send.attributes.get("to")
    if not isinstance(result.type, OnType) or target not in result.type.devices:
        raise invalid(op, f"it was sent to device {target}, but the result is {result.type}")
    if InFlightType(result.type.type) != value.type:
        raise invalid(op, f"it receives {value.type}, but the result is {result.type}")


@define_op("baechi.wait")
def _wait(op: Operation) -> None:
    _in_function(op)
    _no_regions(op)
    if op.results:
        raise invalid(op, "'baechi.wait' has no results")
    if not op.operands:
        raise invalid(op, "'baechi.wait' needs values to wait for")


# Constants and effects ---------------------------------------------------------------------------


@define_op("baechi.literal")
def _literal(op: Operation) -> None:
    _no_regions(op)
    if op.operands:
        raise invalid(op, "a literal has no operands")
    type_ = unplaced(_one(op, op.results, "result").type)
    if not isinstance(type_, TensorType) or type_.shape:
        raise invalid(op, f"a literal is a tensor without dimensions, found {type_}")
    if "value" not in op.attributes:
        raise invalid(op, "a literal needs its 'value'")
    value = op.attributes["value"]
    if not _fits(value, type_.element):
        raise invalid(op, f"'value' is {_shown(value)}, but the result is {type_}")


def _fits(value: Attribute, element: str) -> bool:
    """Whether ``value`` is written as a number of type ``element`` is."""
    if element.startswith("complex<"):
        part = element[len("complex<") : -1]
        return isinstance(value, tuple) and len(value) == 2 and all(_fits(v, part) for v in value)
    if element == "i1":
        return type(value) is bool
    if element == "i64":
        return type(value) is int
    if element == "f64":
        return isinstance(value, float)
    if element in FLOAT_FORMATS:
        return isinstance(value, FloatAttr) and value.type.name == element
    if element.startswith("!"):
        return True
    return isinstance(value, IntegerAttr) and value.type.name == element


def _shown(value: Attribute) -> str:
    if isinstance(value, IntegerAttr | FloatAttr):
        return f"{value.value} : {value.type}"
    return repr(value)


@define_op("baechi.constant")
def _constant(op: Operation) -> None:
    _no_regions(op)
    if op.operands:
        raise invalid(op, "a constant has no operands")
    _one(op, op.results, "result")
    if "baechi.eqn" not in op.attributes:
        raise invalid(op, "a constant needs 'baechi.eqn', where its value is")


@define_op("baechi.token")
def _token(op: Operation) -> None:
    _no_regions(op)
    if op.operands:
        raise invalid(op, "a token starts a chain of effects: it has no operands")
    if not isinstance(unplaced(_one(op, op.results, "result").type), TokenType):
        raise invalid(op, f"its result must be !baechi.token, found {op.results[0].type}")
    effect = op.attributes.get("effect")
    if not isinstance(effect, str):
        raise invalid(op, f"'effect' must be the kind of effect, a string, found {effect!r}")
    if not isinstance(op.attributes.get("ordered", Unit()), Unit):
        raise invalid(op, "'ordered' is a unit attribute")
