"""Pipelines: their text form, and the named ones.

The text is mlir-opt's: passes separated by commas, options in braces separated by spaces.

    annotate-costs{source=analytic},colocate,fuse-tasks{max-tasks=200},place{placer=m-sct}

A value is a bare word, a ``"quoted string"`` (with ``\\"``, ``\\\\``, ``\\n``), or a list of these,
``[a,b]``. The name of a pipeline stands for the passes in it; an option given to it goes to every
pass in it that has that option: ``default{placer=m-sct}``.

``parse_pipeline(print_pipeline(passes)) == passes``. Printing leaves out options that have their
default value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from baechi_jax.ir.errors import PipelineError
from baechi_jax.passes.registry import (
    Option,
    OptionValue,
    Pass,
    all_passes,
    find_pass,
    options_of,
    suggestion,
)

#: From a traced module to tasks that are ready to be placed.
PREPARE: tuple[str, ...] = (
    # Calls first: what is inside them is then seen by everything below, dead code included.
    "inline-calls",
    # A skipped update is one conditional over the whole state; in parts it can be spread. Before
    # dead code goes: a branch that is never taken leaves some.
    "split-conds",
    # Before everything that looks at single operations: layers in a scan are none. What a scan
    # gave and nobody reads is dead only now.
    "unroll-scans",
    # Before costs, so that nothing pays for what is never used.
    "eliminate-dead-code",
    # Costs (and the topology they are for) are what every later decision stands on.
    "annotate-costs",
    # Needs the name stacks of single ops and the state arguments; fusing must know the groups.
    "colocate",
    # Before fusing: at a task's border every residual becomes a real buffer.
    "choose-residuals",
    # Last: it decides what "one thing to place" is, within the groups and the true peaks.
    "fuse-tasks",
)

#: From placed tasks to a plan that a runtime follows.
LOWER: tuple[str, ...] = (
    # Once devices are known, it is known what is sent. Before merging, which settles the borders.
    "spare-sends",
    # Once devices are known, neighbours on one device are one program; fewer transfers to plan.
    "merge-tasks",
    # Merging has settled the borders, so each value is sent once to each device that reads it.
    "insert-transfers",
    # Transfers have an order too: it is chosen together with the order of the tasks.
    "schedule",
    # Lifetimes follow from the order; waits are put into it.
    "plan-memory",
    # Each device's program is a part of the finished whole.
    "partition",
    # Trusts none of the above.
    "verify-plan",
)

#: From a traced module to a checked plan.
DEFAULT: tuple[str, ...] = (
    *PREPARE,
    # A placer works on the tasks; the local search then improves what it found on the simulator,
    # before merging takes away the small tasks that it can still move.
    "place",
    "refine-placement",
    *LOWER,
)

#: Pipelines that a text may name.
NAMED_PIPELINES: dict[str, tuple[str, ...]] = {
    "prepare": PREPARE,
    "lower": LOWER,
    "default": DEFAULT,
}


def default_pipeline(placer: str = "auto") -> tuple[Pass, ...]:
    """The passes that make a plan, with this placer. Imports them."""
    return _instantiate_named("default", {"placer": placer})


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that ``text`` names, with their options.

    Raises PipelineError, which shows the column, for a syntax error, a pass or option that does
    not exist (with the closest names), a value of the wrong type, or a required option left out.
    """
    return _Parser(text).parse()


def print_pipeline(passes: Iterable[Pass]) -> str:
    """The text of ``passes``; options that have their default value are left out."""
    return ",".join(_print_pass(each) for each in passes)


def print_value(value: OptionValue) -> str:
    """The text of an option's value: ``true``, ``1e-06``, ``m-sct``, ``"two words"``, ``[1,2]``."""
    if isinstance(value, tuple):
        return "[" + ",".join(print_value(each) for each in value) + "]"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A bare none would read as the absence of a value.
        if _BARE.fullmatch(value) and value != "none":
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return repr(value)


def _print_pass(each: Pass) -> str:
    shown = []
    for option in options_of(type(each)).values():
        value: OptionValue = getattr(each, option.field)
        if option.required or value != option.default:
            shown.append(f"{option.name}={print_value(value)}")
    return each.name + (f"{{{' '.join(shown)}}}" if shown else "")


def _instantiate_named(name: str, options: Mapping[str, OptionValue]) -> tuple[Pass, ...]:
    """The passes of a named pipeline; each option goes to every pass that has it."""
    passes: list[Pass] = []
    for pass_name in NAMED_PIPELINES[name]:
        cls = find_pass(pass_name)
        known = options_of(cls)
        given = {known[key].field: value for key, value in options.items() if key in known}
        passes.append(cls(**given))
    return tuple(passes)


# Parsing -------------------------------------------------------------------------------------

_BARE = re.compile(r'[^\s,={}\[\]"]+')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SPACE = re.compile(r"\s*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class _Word:
    """One value as written."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class _Assignment:
    """``option=value`` as written; the columns are offsets in the text."""

    name_column: int
    value_column: int
    value: _Word | tuple[_Word, ...]

    @property
    def text(self) -> str:
        """The value, for messages."""
        if isinstance(self.value, _Word):
            return self.value.text
        return "[" + ",".join(word.text for word in self.value) + "]"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def parse(self) -> tuple[Pass, ...]:
        passes: list[Pass] = []
        self._skip_space()
        if self.position == len(self.text):
            return ()
        while True:
            passes += self._element()
            if self.position == len(self.text):
                return tuple(passes)
            self._expect(",", "',' or the end after a pass")

    def _element(self) -> Sequence[Pass]:
        self._skip_space()
        column = self.position
        name = self._name("the name of a pass")
        given = self._options() if self._peek() == "{" else {}
        if name in NAMED_PIPELINES:
            return self._named(name, given)
        try:
            cls = find_pass(name)
        except PipelineError:
            known = [*(each.name for each in all_passes()), *NAMED_PIPELINES]
            message = f"unknown pass '{name}'{suggestion(name, known)}"
            raise self._error(message, column) from None
        return [self._instantiate(cls, given, column)]

    def _options(self) -> Mapping[str, _Assignment]:
        self._expect("{", "'{'")
        given: dict[str, _Assignment] = {}
        while self._peek() != "}":
            column = self.position
            name = self._name("an option or '}'")
            if name in given:
                raise self._error(f"option '{name}' is given twice", column)
            self._expect("=", f"'=' and a value after option '{name}'")
            value_column = self.position
            given[name] = _Assignment(column, value_column, self._value())
        self._expect("}", "'}'")
        return given

    def _value(self) -> _Word | tuple[_Word, ...]:
        if self._peek() != "[":
            return self._word()
        self._expect("[", "'['")
        words: list[_Word] = []
        while self._peek() != "]":
            if words:
                self._expect(",", "',' or ']' in a list")
            words.append(self._word())
        self._expect("]", "']'")
        return tuple(words)

    def _word(self) -> _Word:
        column = self.position
        if match := _STRING.match(self.text, column):
            self._advance(match.end())
            text = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], match[1])
            return _Word(text, quoted=True)
        if match := _BARE.match(self.text, column):
            self._advance(match.end())
            return _Word(match[0])
        raise self._unexpected("a value")

    def _name(self, what: str) -> str:
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self._unexpected(what)
        self._advance(match.end())
        return match[0]

    def _expect(self, character: str, what: str) -> None:
        if self._peek() != character:
            raise self._unexpected(what)
        self._advance(self.position + 1)

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _advance(self, position: int) -> None:
        self.position = position
        self._skip_space()

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    # From words to passes --------------------------------------------------------------------

    def _instantiate(self, cls: type[Pass], given: Mapping[str, _Assignment], column: int) -> Pass:
        options = options_of(cls)
        values: dict[str, OptionValue] = {}
        for name, assignment in given.items():
            option = options.get(name)
            if option is None:
                raise self._error(_no_option(cls, options, name), assignment.name_column)
            values[option.field] = self._convert(cls, option, assignment)
        for option in options.values():
            if option.required and option.field not in values:
                raise self._error(
                    f"pass '{cls.name}' needs option '{option.name}' ({option.type_name})", column
                )
        try:
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise self._error(f"pass '{cls.name}': {error}", column) from error

    def _named(self, name: str, given: Mapping[str, _Assignment]) -> Sequence[Pass]:
        classes = [find_pass(pass_name) for pass_name in NAMED_PIPELINES[name]]
        options: dict[str, OptionValue] = {}
        for option_name, assignment in given.items():
            takers = [cls for cls in classes if option_name in options_of(cls)]
            if not takers:
                known = {option for cls in classes for option in options_of(cls)}
                raise self._error(
                    f"no pass of pipeline '{name}' has an option '{option_name}'"
                    + suggestion(option_name, known),
                    assignment.name_column,
                )
            for cls in takers:
                options[option_name] = self._convert(cls, options_of(cls)[option_name], assignment)
        return _instantiate_named(name, options)

    def _convert(self, cls: type[Pass], option: Option, assignment: _Assignment) -> OptionValue:
        value = assignment.value
        if option.is_optional and value == _Word("none"):
            return None
        if isinstance(value, tuple) == option.is_tuple:
            try:
                if isinstance(value, tuple):
                    return tuple(_scalar(option.scalar, word) for word in value)
                return _scalar(option.scalar, value)
            except ValueError:
                pass
        default = "" if option.required else f" (default {print_value(option.default)})"
        raise self._error(
            f"option '{option.name}' of pass '{cls.name}' must be {option.type_name}{default}, "
            f"found '{assignment.text}'",
            assignment.value_column,
        )

    def _unexpected(self, what: str) -> PipelineError:
        found = f"'{self._peek()}'" if self._peek() else "the end"
        return self._error(f"expected {what}, found {found}", self.position)

    def _error(self, message: str, offset: int) -> PipelineError:
        start = self.text.rfind("\n", 0, offset) + 1
        line = self.text[start:].partition("\n")[0]
        column = offset - start
        number = self.text.count("\n", 0, offset) + 1
        where = f"column {column + 1}" if "\n" not in self.text else f"{number}:{column + 1}"
        return PipelineError(f"pipeline, {where}: {message}\n  {line}\n  {' ' * column}^")


def _scalar(scalar: str, word: _Word) -> bool | int | float | str:
    """The value of ``word`` as ``scalar``; raises ValueError when it is not one."""
    if scalar == "str":
        return word.text
    if word.quoted:
        raise ValueError("a quoted string is a str")
    if scalar == "bool":
        if word.text not in ("true", "false"):
            raise ValueError("neither true nor false")
        return word.text == "true"
    if scalar == "int":
        if not _INTEGER.fullmatch(word.text):
            raise ValueError("not an integer")
        return int(word.text)
    return float(word.text)


def _no_option(cls: type[Pass], options: Mapping[str, Option], name: str) -> str:
    if not options:
        return f"pass '{cls.name}' has no options, found '{name}'"
    described = ", ".join(
        f"{option.name} ({option.type_name}"
        + ("" if option.required else f", default {print_value(option.default)}")
        + ")"
        for option in options.values()
    )
    hint = suggestion(name, options) if len(options) > 1 else ""
    hint = hint if hint.startswith("; did you mean") else ""
    return f"pass '{cls.name}' has no option '{name}'{hint}; its options: {described}"
