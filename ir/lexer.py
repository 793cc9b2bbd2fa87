"""The character level of MLIR's text: a position in a text, what matches there, and errors.

There is no token list. The grammar's patterns are matched in place by the ``re`` module, since a
pattern for a whole operation head is far faster than a Python object for each of its tokens.
Comments are blanked before anything else, so that white space is ``\\s*`` everywhere.
"""

from __future__ import annotations

import re

from baechi_jax.ir.errors import ParseError

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_SPACE = re.compile(r"\s*", re.ASCII)
_STRING = re.compile(r'\s*"((?:[^"\\\n]|\\.)*)"', re.ASCII)
_ESCAPE = re.compile(r'\\(?:(["\\nt])|([0-9A-Fa-f]{2})|.)', re.DOTALL)
_FOUND = re.compile(r'[\w$.]+|"(?:[^"\\\n]|\\.)*"|[%@#^!][\w$.#-]*|->|::|\S', re.ASCII)

#: What ends with what, for skipping over a bracketed text.
_CLOSING = {"<": ">", "[": "]", "(": ")", "{": "}"}
_BRACKET = re.compile(r'->|[<>\[\](){}"]')


class Scanner:
    """A position in a text. Methods that match move it; those that fail raise ParseError."""

    __slots__ = ("filename", "original", "pos", "text")

    def __init__(self, text: str, filename: str = "<text>") -> None:
        self.original = text
        self.text = _STRING_OR_COMMENT.sub(_blank_comment, text) if "//" in text else text
        self.filename = filename
        self.pos = 0

    def error(self, message: str, pos: int | None = None) -> ParseError:
        """The error to raise at ``pos`` (default: the next character that is not white space)."""
        at = self.space_end() if pos is None else pos
        return ParseError(caret_message(self.original, self.filename, at, message))

    def space_end(self) -> int:
        """Where the white space at the current position ends."""
        match = _SPACE.match(self.text, self.pos)
        return match.end() if match else self.pos

    def found(self) -> str:
        """The next word, for messages."""
        match = _FOUND.match(self.text, self.space_end())
        return f"'{match.group()}'" if match else "the end of the text"

    def peek(self) -> str:
        """The next character that is not white space; empty at the end. Moves up to it."""
        text = self.text
        pos = self.pos
        char = text[pos : pos + 1]
        if char.isspace():
            self.pos = pos = self.space_end()
            char = text[pos : pos + 1]
        return char

    def at_end(self) -> bool:
        """Whether only white space is left."""
        return self.space_end() == len(self.text)

    def accept(self, token: str) -> bool:
        """Move past ``token`` if it is next."""
        pos = self.pos
        if not self.text.startswith(token, pos):
            pos = self.space_end()
            if not self.text.startswith(token, pos):
                return False
        self.pos = pos + len(token)
        return True

    def expect(self, token: str, where: str) -> None:
        """Move past ``token``, or raise an error that says ``where`` it was expected."""
        if not self.accept(token):
            raise self.error(f"expected '{token}' {where}, found {self.found()}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match ``pattern`` here and move past it."""
        match = pattern.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def string(self, what: str) -> str:
        """A string literal, decoded; ``what`` names it in the error."""
        match = _STRING.match(self.text, self.pos)
        if match is None:
            if self.peek() == '"':
                raise self.error("this string has no end on its line")
            raise self.error(f"expected {what}, found {self.found()}")
        start = match.start(1)
        self.pos = match.end()
        return self.decoded(match.group(1), start)

    def decoded(self, raw: str, start: int) -> str:
        """A string literal's text without its escapes; ``start`` is where it begins."""
        if "\\" not in raw:
            return raw
        out = bytearray()
        last = 0
        for match in _ESCAPE.finditer(raw):
            out += _encoded(raw[last : match.start()])
            last = match.end()
            named, digits = match.groups()
            if named:
                out += {"n": b"\n", "t": b"\t"}.get(named, named.encode())
            elif digits:
                out.append(int(digits, 16))
            else:
                raise self.error(
                    f"unknown escape '{match.group()}'; there are \\n, \\t, \\\\, \\\" and "
                    "two hex digits",
                    start + match.start(),
                )
        out += _encoded(raw[last:])
        # Bytes that are not UTF-8 become lone surrogates, as in Python's file names.
        return out.decode("utf-8", "surrogateescape")

    def balanced(self, what: str) -> str:
        """The text between the bracket that is next and its partner, brackets excluded.

        Skips over strings and ``->``. ``what`` names the construct in errors.
        """
        text = self.text
        opened = self.pos
        stack = [_CLOSING[text[opened]]]
        pos = opened + 1
        while True:
            match = _BRACKET.search(text, pos)
            if match is None:
                raise self.error(f"expected '{stack[-1]}' to end {what}", opened)
            token = match.group()
            pos = match.end()
            if token == "->":
                continue
            if token == '"':
                string = _STRING.match(text, match.start())
                if string is None:
                    raise self.error("this string has no end on its line", match.start())
                pos = string.end()
            elif token in _CLOSING:
                stack.append(_CLOSING[token])
            elif token != stack[-1]:
                raise self.error(
                    f"expected '{stack[-1]}' in {what}, found '{token}'", match.start()
                )
            else:
                stack.pop()
                if not stack:
                    self.pos = pos
                    return text[opened + 1 : pos - 1]


def is_balanced(body: str) -> bool:
    """Whether ``body`` can stand in ``<...>``: brackets and strings in it are closed."""
    scanner = Scanner("")
    scanner.text = f"<{body}>"
    try:
        scanner.balanced("it")
    except ParseError:
        return False
    return scanner.pos == len(scanner.text)


def caret_message(text: str, filename: str, pos: int, message: str) -> str:
    """``file:line:column: error: message``, then the line and a caret under the column."""
    pos = min(pos, len(text))
    start = text.rfind("\n", 0, pos) + 1
    end = text.find("\n", pos)
    line = text[start : len(text) if end < 0 else end].rstrip("\r")
    number = text.count("\n", 0, pos) + 1
    column = pos - start
    # A line of a large module is long; show what is around the fault.
    first = max(0, column - 90) if len(line) > 180 else 0
    shown = line[first : first + 180].replace("\t", " ")
    caret = " " * (column - first)
    return f"{filename}:{number}:{column + 1}: error: {message}\n  {shown}\n  {caret}^"


def escaped(text: str) -> str:
    """``text`` as the inside of a string literal.

    Quotes, backslashes, control characters and bytes that are not UTF-8 become ``\\`` and two hex
    digits. Raises ValueError for a lone surrogate that stands for no byte.
    """
    if _PLAIN.fullmatch(text):
        return text
    return _TO_ESCAPE.sub(_escape, text)


_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f\x7f\ud800-\udfff]')


def _escape(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:02X}" for byte in _encoded(match.group()))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _blank_comment(match: re.Match[str]) -> str:
    text = match.group()
    return " " * len(text) if text[0] == "/" else text
