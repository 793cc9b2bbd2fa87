"""What a value is and where it comes from, for messages."""

from __future__ import annotations

from baechi_jax.ir.core import OpResult, Value
from baechi_jax.ir.types import unplaced

_TASK, _SEND, _RECV = "baechi.task", "baechi.send", "baechi.recv"


def argument_text(name: str) -> str:
    """``argument params['w']``; one without a name is called so already."""
    return name if name.startswith("argument ") else f"argument {name}"


def describe_value(value: Value) -> tuple[str, str]:
    """The operation that computes ``value`` with its type, and its source line (empty if unknown).

    Looks into tasks and through transfers; a copy of an argument is named by its type alone.
    """
    type_ = unplaced(value.type)
    while isinstance(value, OpResult):
        owner = value.owner
        if owner.name == _TASK:
            value = owner.body.terminator.operands[value.index]
        elif owner.name in (_SEND, _RECV):
            value = owner.operands[0]
        else:
            source = str(owner.location) if owner.location.known else ""
            return f"{owner.name.removeprefix('jax.')} {type_}", source
    return f"a copy of {type_}", ""
