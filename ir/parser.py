"""Parsing operations: MLIR's generic form, as we print it and as MLIR's own printer does.

Accepted beside what we print: comments, location and type aliases, properties (``<{...}>``, read as
attributes), operands used before their definition, several results with a name each. Refused with
an error: custom assembly forms (``func.func @main``), branches between blocks (JAX's control flow
is structured: regions), and MLIR's attributes and types that no module of ours holds.

What the text says of a block argument's location is checked and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.lexer import Scanner
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.type_parser import FAST_LOCATION, SIMPLE_TYPE
from baechi_jax.ir.types import Type
from baechi_jax.ir.value_parser import OPERAND, RESULT, ValueParser

_T = TypeVar("_T")

_NAME = r"%[\w$.-]+"
# Its conditional refers to its second group; one group of ours comes before.
_LOCATION = FAST_LOCATION.replace("(?(2)", "(?(3)")
#: Results (a single name, or several), the name, the operands.
_HEAD = re.compile(
    r'\s*(?:(?:(%[\w$.-]+)|(%[^="]*?))\s*=\s*)?"([^"\\\n]+)"\s*\(([^()]*)\)', re.ASCII
)
_RESULTS = re.compile(r'\s*(%[^="]*?)\s*=\s*', re.ASCII)
#: The types of nearly every operation, and its location if that has a common form.
_TAIL = re.compile(
    rf'\s*:\s*(\((?:[^()"]|"[^"()\\\n]*")*\)\s*->\s*'
    rf'(?:\((?:[^()"]|"[^"()\\\n]*")*\)|{SIMPLE_TYPE}))(?:{_LOCATION})?',
    re.ASCII,
)
_LABEL = re.compile(r"\s*\^([\w$.-]+)\s*", re.ASCII)
_ARGUMENT = re.compile(rf"\s*({_NAME})\s*:", re.ASCII)
_BARE_OPERATION = re.compile(r"\s*([a-z_]\w*(?:\.\w+)*)", re.ASCII)

#: Operations whose regions see no value from outside, so that names start afresh.
_ISOLATED = frozenset(("builtin.module", "func.func"))


def parse_module(text: str, filename: str = "<text>") -> Module:
    """The module that ``text`` holds.

    Operations without a module around them get one, as in ``mlir-opt``. Raises ParseError with
    file, line, column, the line and a caret.
    """
    parser = _Parser(Scanner(text, filename))
    ops = parser.run(parser.top_level)
    if len(ops) == 1 and isinstance(ops[0], Module):
        return ops[0]
    block = Block()
    block.extend(ops)
    return Module(regions=[Region([block])])


def parse_operation(text: str, filename: str = "<text>") -> Operation:
    """The one operation that ``text`` holds; raises ParseError when there is not exactly one."""
    parser = _Parser(Scanner(text, filename))
    ops = parser.run(parser.top_level)
    if len(ops) != 1:
        raise parser.scanner.error(f"expected one operation, found {len(ops)}", 0)
    return ops[0]


def parse_attribute(text: str, filename: str = "<text>") -> Attribute:
    """The attribute that ``text`` holds; raises ParseError."""
    parser = _Parser(Scanner(text, filename))
    return parser.run(parser.attribute)


def parse_type(text: str, filename: str = "<text>") -> Type:
    """The type that ``text`` holds; raises ParseError."""
    parser = _Parser(Scanner(text, filename))
    return parser.run(parser.read_type)


class _Parser(ValueParser):
    """Parses operations; ``_values`` and the lists beside it belong to the isolated region."""

    def __init__(self, scanner: Scanner) -> None:
        super().__init__(scanner)
        self._signatures: dict[str, tuple[tuple[Type, ...], tuple[Type, ...]]] = {}

    def run(self, rule: Callable[[], _T]) -> _T:
        """Apply ``rule`` to the whole text."""
        scanner = self.scanner
        try:
            with paused_collection():
                result = rule()
        except RecursionError:
            raise scanner.error("nested too deeply") from None
        except ValueError as error:  # a number of thousands of digits
            raise scanner.error(str(error)) from error
        if not scanner.at_end():
            raise scanner.error(f"expected the end of the text, found {scanner.found()}")
        return result

    def top_level(self) -> list[Operation]:
        """Operations and alias definitions, up to the end of the text."""
        scanner = self.scanner
        ops: list[Operation] = []
        while char := scanner.peek():
            if char in "#!":
                self.skip_alias_definition()
            else:
                ops.append(self.operation())
        self.check_forward()
        return ops

    # Operations -------------------------------------------------------------------------------

    def operation(self) -> Operation:
        """One operation, and the names of its results."""
        scanner = self.scanner
        text = scanner.text
        head = _HEAD.match(text, scanner.pos)
        if head is not None:
            result, results, name, operand_text = head.groups()
            results_start = head.start(2)
            operands_start = head.start(4)
            pos = scanner.pos = head.end()
        else:
            result = None
            results, results_start, name, operand_text, operands_start = self._slow_head()
            pos = scanner.pos
        operands = self.operands(operand_text, operands_start) if operand_text else []

        char = text[pos + 1 : pos + 2]
        if text[pos : pos + 1] == " " and char in (":", "{", "("):
            scanner.pos = pos + 1
        else:
            char = scanner.peek()
        if char == "[":
            raise scanner.error(
                f"'{name}' branches to other blocks; control flow is structured here: use regions"
            )
        attributes: dict[str, Attribute] | None = None
        if char == "<":
            scanner.pos += 1
            attributes = self.dictionary()
            scanner.expect(">", "after properties")
            char = scanner.peek()
        regions = self._regions(name) if char == "(" else ()
        if regions:
            char = scanner.peek()
        if char == "{":
            begin = scanner.pos
            given = self.dictionary()
            if attributes is None:
                attributes = given
            else:
                for key, value in given.items():
                    if key in attributes:
                        raise scanner.error(f"'{key}' is both a property and an attribute", begin)
                    attributes[key] = value
        tail = _TAIL.match(text, scanner.pos)
        known = None if tail is None else self._signatures.get(tail.group(1))
        if tail is None or known is None:
            inputs, outputs, begin = self._signature(name, tail)
            location = self.trailing_location()
        else:
            inputs, outputs = known
            begin = scanner.pos
            where = tail.group(2)
            if where is None:
                scanner.pos = tail.end(1)
                location = self.trailing_location()
            else:
                scanner.pos = tail.end(1)
                location = self._locations.get(where) or self.fast_location(*tail.groups()[1:])
                scanner.pos = tail.end()
        if tuple([operand.type for operand in operands]) != inputs:
            if len(inputs) != len(operands):
                raise scanner.error(
                    f"'{name}' has {len(operands)} operands but {len(inputs)} types", begin
                )
            for index, (operand, type_) in enumerate(zip(operands, inputs)):
                if operand.type != type_:
                    self.wrong_type(operand, index, operand_text, type_, operands_start, name)
        if name == "builtin.module":
            op: Operation = self._module(operands, outputs, attributes, regions, begin)
            op.location = location
        else:
            op = Operation(name, operands, outputs, attributes, regions, location)
        if result is not None and len(op.results) == 1 and head is not None:
            self.define(result, op.results[0], head.start(1))
        elif result is not None and head is not None:
            self.name_results(op, result, head.start(1))
        elif results is not None:
            self.name_results(op, results, results_start)
        return op

    def _module(
        self,
        operands: list[Value],
        outputs: tuple[Type, ...],
        attributes: dict[str, Attribute] | None,
        regions: Sequence[Region],
        begin: int,
    ) -> Module:
        if operands or outputs or len(regions) != 1:
            raise self.scanner.error(
                "'builtin.module' has one region, no operands and no results", begin
            )
        if not regions[0].blocks:
            regions[0].add_block(Block())
        return Module(attributes, regions)

    def _slow_head(self) -> tuple[str | None, int, str, str, int]:
        """The head of an operation whose name has escapes, or what is wrong with it.

        Returns the results' text and where it starts, the name, and the same of the operands.
        """
        scanner = self.scanner
        start = scanner.space_end()
        scanner.pos = start
        match = scanner.match(_RESULTS)
        results = None if match is None else match.group(1)
        if match is None and scanner.text.startswith("%", scanner.pos):
            self._explain_results()
        bare = _BARE_OPERATION.match(scanner.text, scanner.pos)
        if bare is not None:
            raise scanner.error(
                f'expected an operation in MLIR\'s generic form, such as "{bare.group(1)}"(...); '
                "print it with --mlir-print-op-generic"
            )
        if scanner.peek() != '"':
            raise scanner.error(f"expected an operation, found {scanner.found()}")
        begin = scanner.pos
        name = scanner.string("the name of an operation")
        if not name:
            raise scanner.error("an operation needs a name", begin)
        scanner.expect("(", f"before the operands of '{name}'")
        begin = scanner.pos
        if scanner.accept(")"):
            return results, start, name, "", begin
        while True:
            scanner.peek()
            if not scanner.match(OPERAND):
                raise scanner.error(f"expected an operand of '{name}', found {scanner.found()}")
            if not scanner.accept(","):
                end = scanner.pos
                scanner.expect(")", f"or ',' in the operands of '{name}'")
                return results, start, name, scanner.text[begin:end], begin

    def _explain_results(self) -> NoReturn:
        scanner = self.scanner
        while True:
            scanner.peek()
            if not scanner.match(RESULT):
                raise scanner.error(f"expected the name of a result, found {scanner.found()}")
            if not scanner.accept(","):
                raise scanner.error(f"expected '=' after the results, found {scanner.found()}")

    # Regions ----------------------------------------------------------------------------------

    def _regions(self, name: str) -> list[Region]:
        scanner = self.scanner
        scanner.expect("(", "before regions")
        outer = (self._values, self._forward)
        isolated = name in _ISOLATED
        regions: list[Region] = []
        while True:
            if isolated:
                self._values, self._forward = {}, {}
            scanner.expect("{", f"before a region of '{name}'")
            regions.append(self._region())
            if isolated:
                self.check_forward()
            if not scanner.accept(","):
                break
        self._values, self._forward = outer
        scanner.expect(")", f"after the regions of '{name}'")
        return regions

    def _region(self) -> Region:
        scanner = self.scanner
        outer_defined = self._defined
        self._defined = []
        region = Region()
        labels: set[str] = set()
        block: Block | None = None
        while True:
            char = scanner.peek()
            if char == "}":
                scanner.pos += 1
                break
            if char == "^":
                block = region.add_block(self._block_header(labels))
                continue
            if not char:
                raise scanner.error(
                    "expected '}' at the end of a region, found the end of the text"
                )
            if block is None:
                block = region.add_block(Block())
            block.append(self.operation())
        for name in self._defined:
            del self._values[name]
        self._defined = outer_defined
        return region

    def _block_header(self, labels: set[str]) -> Block:
        scanner = self.scanner
        match = scanner.match(_LABEL)
        if match is None:
            raise scanner.error(f"expected a block such as ^bb0, found {scanner.found()}")
        label = match.group(1)
        if label in labels:
            raise scanner.error(f"block '^{label}' is defined twice", match.start(1) - 1)
        labels.add(label)
        block = Block()
        if scanner.accept("(") and not scanner.accept(")"):
            while True:
                argument = scanner.match(_ARGUMENT)
                if argument is None:
                    raise scanner.error(
                        f"expected an argument such as %arg0: f32, found {scanner.found()}"
                    )
                value = block.add_argument(self.read_type())
                self.define(argument.group(1), value, argument.start(1))
                self.trailing_location()
                if not scanner.accept(","):
                    scanner.expect(")", "or ',' in the arguments of a block")
                    break
        scanner.expect(":", f"after block '^{label}'")
        return block

    # Types ------------------------------------------------------------------------------------

    def _signature(
        self, name: str, tail: re.Match[str] | None
    ) -> tuple[tuple[Type, ...], tuple[Type, ...], int]:
        """``: (operand types) -> result types``, and where it begins.

        Remembered by its text where ``tail`` has it whole.
        """
        scanner = self.scanner
        scanner.expect(":", f"and the types of '{name}'")
        begin = scanner.space_end()
        inputs = self.type_list(f"the operand types of '{name}'")
        if not scanner.accept("->"):
            raise scanner.error(
                f"expected '->' between operand and result types, found {scanner.found()}"
            )
        outputs = self.result_types()
        if tail is not None and tail.end(1) == scanner.pos:
            self._signatures[tail.group(1)] = (inputs, outputs)
        return inputs, outputs, begin
