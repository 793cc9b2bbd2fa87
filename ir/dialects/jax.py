"""Dialect ``jax``: one operation for each primitive, known or not.

Only what every such operation obeys is checked: its regions are closed by ``baechi.yield``, and the
tokens that keep its effects in order are its last operands and its last results.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.dialect import define_dialect, invalid
from baechi_jax.ir.types import TokenType


@define_dialect("jax")
def _jax(op: Operation) -> None:
    if op.regions:
        for number, region in enumerate(op.regions):
            ops = region.blocks[0].ops if region.blocks else []
            if not ops or ops[-1].name != "baechi.yield":
                raise invalid(op, f"region {number} must end with 'baechi.yield'")
    operands = op.operands
    results = op.results
    if (results and _is_token(results[-1])) or (operands and _is_token(operands[-1])):
        read = _trailing_tokens(op, operands, "operand")
        given = _trailing_tokens(op, results, "result")
        if read != given:
            raise invalid(
                op, f"it reads {read} tokens and gives {given}; for each effect it must do both"
            )


def _is_token(value: Value) -> bool:
    return type(value.type) is TokenType


def _trailing_tokens(op: Operation, values: Sequence[Value], what: str) -> int:
    count = 0
    for index, value in enumerate(values):
        if _is_token(value):
            count += 1
        elif count:
            raise invalid(op, f"{what} {index} comes after a token; tokens come last")
    return count
