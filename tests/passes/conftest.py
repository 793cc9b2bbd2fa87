"""RUN/CHECK tests: every ``.mlir`` file below a ``filecheck`` folder is a test.

A ``// RUN:`` line is a command as lit writes it, run in this process: ``baechi-opt`` and
``filecheck`` stages joined by ``|``, with ``%s`` (the file), ``%S`` (its folder) and ``%t`` (a
temporary path of this test), ``2>&1``, ``not`` before a stage that must fail, and ``\\`` at the end
of a line that goes on.
"""

import contextlib
import io
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser


class RunFailure(Exception):
    """A RUN line that did not do what it should; the message is what pytest shows."""


@dataclass(frozen=True)
class _Result:
    status: int
    stdout: str
    stderr: str


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".mlir" and "filecheck" in file_path.parts:
        collector: FileCheckFile = FileCheckFile.from_parent(parent, path=file_path)
        return collector
    return None


class FileCheckFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        item: FileCheckItem = FileCheckItem.from_parent(self, name=self.path.stem)
        yield item


class FileCheckItem(pytest.Item):
    def runtest(self) -> None:
        run_file(self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: object) -> str:
        if isinstance(excinfo.value, RunFailure):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"filecheck: {self.name}"


@pytest.fixture
def run_filecheck() -> Callable[[Path], None]:
    """Run the RUN lines of a file; raises when one fails."""
    return run_file


def run_file(path: Path) -> None:
    commands = list(_commands(path))
    if not commands:
        raise RunFailure(f"{path}: no RUN line")
    with tempfile.TemporaryDirectory() as folder:
        substitutions = {"%s": str(path), "%S": str(path.parent), "%t": f"{folder}/{path.stem}"}
        for line, command in commands:
            _run_pipeline(path, line, command, substitutions)


def _commands(path: Path) -> Iterator[tuple[int, str]]:
    """``(line, command)`` of each RUN line, continuation lines joined."""
    pending, start = "", 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        _, found, command = line.partition("RUN:")
        if not found or not line.lstrip().startswith("//"):
            continue
        start = start if pending else number
        pending += command.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        yield start, pending
        pending = ""


def _run_pipeline(path: Path, line: int, command: str, substitutions: dict[str, str]) -> None:
    stages: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word == "|":
            stages.append([])
            continue
        for key, value in substitutions.items():
            word = word.replace(key, value)
        stages[-1].append(word)
    text, shown = "", ""
    for stage in stages:
        merged = "2>&1" in stage
        words = [word for word in stage if word != "2>&1"]
        expect_failure = words[:1] == ["not"]
        words = words[1:] if expect_failure else words
        result = _run_stage(words, text, merged)
        if (result.status != 0) != expect_failure:
            found = f"exit status {result.status}" + (", expected failure" * expect_failure)
            raise RunFailure(
                f"{path}:{line}: {found}\n  RUN: {command}\n"
                + _section(f"stderr of {words[0]}", result.stderr)
                + _section(f"stdout of {words[0]}", result.stdout)
                + _section("its input", text if len(stages) > 1 and stage is not stages[0] else "")
                + shown
            )
        # The errors of an earlier stage explain why a later one found nothing.
        shown += _section(f"stderr of {words[0]}", result.stderr)
        text = result.stdout


def _run_stage(words: list[str], text: str, merged: bool) -> _Result:
    stdout = io.StringIO()
    stderr = stdout if merged else io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        if words[0] == "baechi-opt":
            status = _call_opt(words[1:], text)
        elif words[0] == "filecheck":
            status = _call_filecheck(words, text)
        else:
            raise RunFailure(f"unknown command '{words[0]}' in a RUN line")
    return _Result(status, stdout.getvalue(), "" if merged else stderr.getvalue())


def _call_opt(arguments: list[str], text: str) -> int:
    from baechi_jax.opt import main as baechi_opt

    with mock.patch("sys.stdin", io.StringIO(text)):
        try:
            baechi_opt(arguments, prog_name="baechi-opt")
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else 1
    return 0


def _call_filecheck(words: list[str], text: str) -> int:
    options = parse_argv_options(list(words))
    checks = Parser.from_opts(options)
    return Matcher(options, FInput(options.readable_input_file(), text), checks).run()


def _section(title: str, text: str) -> str:
    return f"--- {title}\n{text.rstrip()}\n" if text.strip() else ""
