"""``func.func`` and ``func.return``."""

from __future__ import annotations

from baechi_jax.ir.attributes import Attribute, DictAttr, Unit
from baechi_jax.ir.core import Operation
from baechi_jax.ir.dialect import define_op, invalid
from baechi_jax.ir.dialects.checks import check_place, device_list, index_in
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.pieces import leaves, piece_of
from baechi_jax.ir.types import FunctionType, TensorType, Type, unplaced


@define_op("func.func", closed=True, symbol_table=True)
def _func(op: Operation) -> None:
    name = op.attributes.get("sym_name")
    if not isinstance(name, str) or not name:
        raise invalid(op, f"a function needs its name in 'sym_name', found {name!r}")
    if op.operands or op.results:
        raise invalid(op, "a function has no operands and no results")
    parent = op.parent_op
    if parent is not None and parent.name != "builtin.module":
        raise invalid(op, f"a function stands in a module, found it in '{parent.name}'")
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        raise invalid(op, "a function has one region of one block")
    ops = op.body.ops
    if not ops or ops[-1].name != "func.return":
        raise invalid(op, "the body of a function must end with 'func.return'")
    type_ = op.attributes.get("function_type")
    if not isinstance(type_, FunctionType):
        raise invalid(
            op, f"'function_type' must be a function type, found {type_!r}; refresh_function_type"
        )
    inputs = [argument.type for argument in op.body.arguments]
    results = [value.type for value in ops[-1].operands]
    _check_types(op, "argument", type_.inputs, inputs)
    _check_types(op, "result", type_.results, results)
    _check_argument_attributes(op, inputs, results)
    _check_result_attributes(op, results)
    if name == "main":
        _check_pieces(op, "argument", "arg_attrs", inputs)
        _check_pieces(op, "result", "res_attrs", results)
    _check_channels(op)


def _check_types(op: Operation, what: str, declared: tuple[Type, ...], found: list[Type]) -> None:
    if len(declared) != len(found):
        raise invalid(
            op,
            f"'function_type' has {len(declared)} {what}s, the body {len(found)}; after a change "
            "call refresh_function_type",
        )
    for index, (left, right) in enumerate(zip(declared, found)):
        if left != right:
            raise invalid(
                op,
                f"{what} {index} is {left} in 'function_type', but {right} in the body; after a "
                "change call refresh_function_type",
            )


def _entries(op: Operation, key: str, count: int) -> list[DictAttr]:
    attribute = op.attributes.get(key)
    if attribute is None:
        return []
    if not isinstance(attribute, tuple) or (attribute and len(attribute) != count):
        found = len(attribute) if isinstance(attribute, tuple) else repr(attribute)
        raise invalid(op, f"'{key}' must be an array of {count} dictionaries, found {found}")
    entries: list[DictAttr] = []
    for index, entry in enumerate(attribute):
        if not isinstance(entry, DictAttr):
            raise invalid(op, f"entry {index} of '{key}' must be a dictionary, found {entry!r}")
        entries.append(entry)
    return entries


_KINDS: dict[str, type | tuple[type, ...]] = {
    "baechi.name": str,
    "baechi.donated": Unit,
    "baechi.constant": Unit,
    "baechi.state": int,
    "baechi.argument": int,
    "baechi.result": int,
    "baechi.group": str,
    "baechi.devices": tuple,
    "baechi.pin": tuple,
}


def _check_kinds(op: Operation, what: str, entry: DictAttr) -> None:
    for key, value in entry.items():
        kind = _KINDS.get(key)
        if kind is not None and type(value) is not kind:
            wanted = "unit" if kind is Unit else getattr(kind, "__name__", str(kind))
            raise invalid(op, f"'{key}' of {what} must be {wanted}, found {value!r}")


def _check_argument_attributes(op: Operation, inputs: list[Type], results: list[Type]) -> None:
    taken: dict[Attribute, int] = {}
    for index, entry in enumerate(_entries(op, "arg_attrs", len(inputs))):
        if not entry.items_:
            continue
        name = entry.get("baechi.name")
        what = f"argument {index}" + (f" ({name})" if isinstance(name, str) else "")
        _check_kinds(op, what, entry)
        if "baechi.devices" in entry:
            check_place(op, entry["baechi.devices"], f"'baechi.devices' of {what}", inputs[index])
        if "baechi.pin" in entry:
            device_list(op, entry["baechi.pin"], f"'baechi.pin' of {what}")
        state = entry.get("baechi.state")
        if state is None:
            continue
        if not index_in(state, len(results)):
            raise invalid(
                op, f"'baechi.state' of {what} is {state}, but there are {len(results)} results"
            )
        if state in taken:
            raise invalid(
                op, f"result {state} is the next value of argument {taken[state]} and of {what}"
            )
        taken[state] = index
        after = results[state] if isinstance(state, int) else None
        if after is not None and unplaced(after) != unplaced(inputs[index]):
            raise invalid(
                op, f"{what} is {inputs[index]}, but its next value, result {state}, is {after}"
            )


def _check_result_attributes(op: Operation, results: list[Type]) -> None:
    for index, entry in enumerate(_entries(op, "res_attrs", len(results))):
        _check_kinds(op, f"result {index}", entry)


def _check_pieces(op: Operation, what: str, key: str, types: list[Type]) -> None:
    """The pieces of each stacked leaf are its whole, in order, with their rows in dimension 0."""
    entries = _entries(op, key, len(types))
    try:
        pieces = [piece_of(entry) for entry in entries]
        if not any(pieces):
            return
        leaves(pieces)
    except IRError as error:
        raise invalid(op, f"'baechi.piece' of a {what}: {error}") from None
    for index, (piece, type_) in enumerate(zip(pieces, types)):
        tensor = unplaced(type_)
        if piece is None:
            continue
        if not isinstance(tensor, TensorType) or tensor.shape[:1] != (piece.size,):
            raise invalid(
                op, f"{what} {index} is a piece of {piece.size} rows, but its type is {type_}"
            )


def _check_channels(op: Operation) -> None:
    """Each send, and each receive, of a function has a channel of its own."""
    for end in ("baechi.send", "baechi.recv"):
        seen: set[Attribute] = set()
        for inner in op.body.ops:
            if inner.name == end and "channel" in inner.attributes:
                channel = inner.attributes["channel"]
                if channel in seen:
                    raise invalid(inner, f"channel {channel} is used by another '{end}' too")
                seen.add(channel)


@define_op("func.return", terminator=True)
def _return(op: Operation) -> None:
    parent = op.parent_op
    if parent is None or parent.name != "func.func":
        raise invalid(op, "'func.return' ends the body of a function")
    if op.results or op.regions:
        raise invalid(op, "'func.return' has no results and no regions")
