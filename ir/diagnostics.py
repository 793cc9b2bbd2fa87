"""Messages that show where in a module something is wrong."""

from __future__ import annotations

from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.printer import Printer

#: Operations shown before and after the faulty one, and characters of each.
_AROUND = 4
_WIDTH = 160


def describe(op: Operation, message: str) -> str:
    """``message`` with the op, its source line, and the operations around it.

    The first line stands alone: ``train.py:12: 'baechi.send' ...: message``.
    """
    lines = [f"{op.location}: '{op.name}'{_symbol(op)}: {message}"]
    source = source_line(op)
    if source:
        lines.append(f"    {op.location.line} | {source}")
    lines += neighbours(op)
    return "\n".join(lines)


def source_line(op: Operation) -> str:
    """The line of source that ``op`` comes from; empty where it cannot be read."""
    # A name with a null byte, which text may spell, is none that the system takes.
    if not op.location.file or op.location.line < 1 or "\0" in op.location.file:
        return ""
    import linecache

    return linecache.getline(op.location.file, op.location.line).strip()[:_WIDTH]


def neighbours(op: Operation) -> list[str]:
    """The operations around ``op``, one a line, an arrow at ``op`` itself."""
    block = op.parent
    siblings = block.ops if block is not None and op in block.ops else [op]
    printer = Printer(locations=False)
    printer.name_all(_named_root(op))
    at = siblings.index(op)
    first = max(0, at - _AROUND)
    last = min(len(siblings), at + _AROUND + 1)
    lines = [f"  in {_path(op)}:"] if op.parent_op is not None else []
    if first:
        lines.append(f"        ... {first} more")
    for sibling in siblings[first:last]:
        arrow = "-->" if sibling is op else "   "
        lines.append(f"    {arrow} {_head(printer, sibling)}")
    if last < len(siblings):
        lines.append(f"        ... {len(siblings) - last} more")
    return lines


def _head(printer: Printer, op: Operation) -> str:
    try:
        text = printer.head(op)
    except IRError:
        text = f'"{op.name}"(...)  // an attribute of it has no text form'
    return text if len(text) <= _WIDTH else text[: _WIDTH - 4] + " ..."


def _named_root(op: Operation) -> Operation:
    """The function that ``op`` is in; what holds it all where there is none."""
    while op.name != "func.func" and op.parent_op is not None:
        op = op.parent_op
    return op


def _path(op: Operation) -> str:
    """``func.func @main, baechi.task @t3``: what ``op`` is inside of, outermost first."""
    parts: list[str] = []
    parent = op.parent_op
    while parent is not None and parent.name != "builtin.module":
        parts.append(f"{parent.name}{_symbol(parent)}")
        parent = parent.parent_op
    return ", ".join(reversed(parts)) or "the module"


def _symbol(op: Operation) -> str:
    name = op.attributes.get("sym_name")
    return f" @{name}" if isinstance(name, str) else ""
