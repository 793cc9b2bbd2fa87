"""Printing operations in MLIR's generic form.

What is printed parses back to the same module, here and in MLIR. Names are unique in a function,
since a region sees the names around it: ``%arg0`` for the arguments of a function, ``%0``, ``%1``,
... for the rest, and a value's own name where it has one.
"""

from __future__ import annotations

import re

from baechi_jax.ir.attribute_printer import dictionary_text, quoted
from baechi_jax.ir.core import Block, Operation, OpResult, Value
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.location import Location
from baechi_jax.ir.types import FunctionType, Type

_NOT_IN_NAMES = re.compile(r"[^\w$.-]", re.ASCII)
_AUTOMATIC_NAME = re.compile(r"\d.*|arg\d+", re.ASCII)


def print_module(op: Operation, *, locations: bool = True) -> str:
    """The text of ``op``, ending in a newline; ``locations`` adds ``loc(...)`` where it is known.

    Raises IRError when an attribute has no text form, naming the operation.
    """
    printer = Printer(locations=locations)
    printer.print(op, "")
    printer.out.append("\n")
    return "".join(printer.out)


class Printer:
    """Collects text in ``out``. Names of values stay the same for the life of a printer."""

    __slots__ = (
        "_attributes",
        "_files",
        "_locations",
        "_names",
        "_next",
        "_strings",
        "_types",
        "_used",
        "locations",
        "out",
    )

    def __init__(self, *, locations: bool) -> None:
        self.locations = locations
        self.out: list[str] = []
        self._names: dict[Value, str] = {}
        self._used: set[str] = set()
        self._next = 0
        # By identity: the module keeps its types, attributes and locations alive while we print.
        self._types: dict[int, str] = {}
        self._attributes: dict[int, str] = {}
        self._locations: dict[int, str] = {}
        #: By name stack and file: what stands before and after line and column.
        self._files: dict[tuple[str, str], tuple[str, str]] = {}
        self._strings: dict[str, str] = {}

    # Names ------------------------------------------------------------------------------------

    def name(self, value: Value) -> str:
        """The name of ``value`` as an operand: ``%0``, or ``%0#1`` of several results."""
        known = self._names.get(value)
        if known is not None:
            return known
        if isinstance(value, OpResult) and len(value.owner.results) > 1:
            base = self._fresh(value.owner.results[0])
            for result in value.owner.results:
                self._names[result] = f"{base}#{result.index}"
            return self._names[value]
        name = self._names[value] = self._fresh(value)
        return name

    def _fresh(self, value: Value) -> str:
        hint = value.name
        if hint is None:
            name = f"%{self._next}"
            self._next += 1
            # A hint is never a number, so numbers do not clash.
            return name
        hint = _NOT_IN_NAMES.sub("_", hint)
        if not hint or _AUTOMATIC_NAME.fullmatch(hint):
            hint = f"_{hint}"
        name = f"%{hint}"
        count = 0
        while name in self._used:
            count += 1
            name = f"%{hint}_{count}"
        self._used.add(name)
        return name

    def name_all(self, op: Operation) -> None:
        """Name every value in ``op`` as printing it would."""
        for result in op.results:
            self.name(result)
        for value in op.operands:
            self.name(value)
        for region in op.regions:
            for index, block in enumerate(region.blocks):
                if op.name == "func.func" and index == 0:
                    self._name_function_arguments(block)
                for argument in block.arguments:
                    self.name(argument)
                for child in block.ops:
                    self.name_all(child)

    def head(self, op: Operation) -> str:
        """``op`` on one line, ``{...}`` for each region, without its location."""
        start = len(self.out)
        locations, self.locations = self.locations, False
        try:
            self.print(op, "", bodies=False)
            return "".join(self.out[start:])
        finally:
            del self.out[start:]
            self.locations = locations

    def _name_function_arguments(self, block: Block) -> None:
        for argument in block.arguments:
            if argument.name is None:
                self._names[argument] = f"%arg{argument.index}"

    # Operations -------------------------------------------------------------------------------

    def print(self, op: Operation, indent: str, *, bodies: bool = True) -> None:
        """Append ``op``; with ``bodies`` false its regions are left out."""
        names, types = self._names, self._types
        results, operands = op.results, op.operands
        # One operand and one result is the most common case.
        if len(results) == 1:
            result = results[0]
            name = names.get(result)
            if name is None:
                name = names[result] = self._fresh(result)
            left = f"{name} = "
            type_ = result.type
            outputs = types.get(id(type_)) or self._type(type_)
            if isinstance(type_, FunctionType):
                outputs = f"({outputs})"
        else:
            left = ""
            if results:
                base = self.name(results[0]).partition("#")[0]
                left = f"{base}:{len(results)} = "
            parts = [types.get(id(result.type)) or self._type(result.type) for result in results]
            outputs = f"({', '.join(parts)})"
        if len(operands) == 1:
            value = operands[0]
            reads = names.get(value) or self.name(value)
            inputs = types.get(id(value.type)) or self._type(value.type)
        else:
            reads = ", ".join([names.get(value) or self.name(value) for value in operands])
            inputs = ", ".join(
                [types.get(id(value.type)) or self._type(value.type) for value in operands]
            )
        name = self._strings.get(op.name) or self._quoted_name(op)
        head = f"{left}{name}({reads})"
        if op.regions:
            self.out.append(head)
            self._print_regions(op, indent, bodies)
            head = ""
        attributes = ""
        if op.attributes:
            try:
                attributes = f" {dictionary_text(op.attributes, self._attributes)}"
            except IRError as error:
                raise IRError(f"cannot print '{op.name}' at {op.location}: {error}") from error
        location = ""
        if self.locations:
            location = self._locations.get(id(op.location)) or self._location(op.location)
        self.out.append(f"{head}{attributes} : ({inputs}) -> {outputs}{location}")

    def _print_regions(self, op: Operation, indent: str, bodies: bool) -> None:
        out = self.out
        if not bodies:
            out.append(f" ({', '.join(['{...}'] * len(op.regions))})")
            return
        # The names of a function are its own: its text stays as it is beside any other.
        is_function = op.name == "func.func"
        if is_function:
            saved = (self._used, self._next)
            self._used, self._next = set(), 0
        inner = indent + "  "
        separator = " ("
        for region in op.regions:
            out.append(separator + "{\n")
            separator = ", "
            if is_function and region.blocks:
                self._name_function_arguments(region.blocks[0])
            for index, block in enumerate(region.blocks):
                if index or block.arguments or not block.ops:
                    self._print_label(block, index, indent)
                for child in block.ops:
                    out.append(inner)
                    self.print(child, inner)
                    out.append("\n")
            out.append(indent + "}")
        out.append(")")
        if is_function:
            self._used, self._next = saved

    def _print_label(self, block: Block, index: int, indent: str) -> None:
        arguments = ", ".join(
            [f"{self.name(argument)}: {self._type(argument.type)}" for argument in block.arguments]
        )
        self.out.append(f"{indent}^bb{index}{f'({arguments})' if arguments else ''}:\n")

    # Pieces -----------------------------------------------------------------------------------

    def _quoted_name(self, op: Operation) -> str:
        if not op.name:
            raise IRError(f"an operation at {op.location} has no name")
        return self._string(op.name)

    def _type(self, type_: Type) -> str:
        text = self._types.get(id(type_))
        if text is None:
            text = self._types[id(type_)] = str(type_)
        return text

    def _location(self, location: Location) -> str:
        around = self._files.get((location.name, location.file))
        if around is None:
            around = self._files[location.name, location.file] = self._around(location)
        before, after = around
        text = before + after
        if location.file:
            text = f"{before}{location.line}:{location.column}{after}"
        self._locations[id(location)] = text
        return text

    def _around(self, location: Location) -> tuple[str, str]:
        """What stands before and after the line and column of ``location``."""
        file = f"{self._string(location.file)}:" if location.file else ""
        if location.name:
            name = self._string(location.name)
            return (f" loc({name}({file}", "))") if file else (f" loc({name}", ")")
        return (f" loc({file}", ")") if file else ("", "")

    def _string(self, text: str) -> str:
        known = self._strings.get(text)
        if known is None:
            known = self._strings[text] = quoted(text)
        return known
