"""Running a pipeline: verifying, timing and printing between every two passes.

A pass that fails names itself. The IR before it is left with the command that runs the pass again:
for every failure where a reproducer folder is given, in a temporary folder when a pass crashes.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import BaechiError, PassError, PipelineError, VerificationError
from baechi_jax.ir.files import write_text_atomically
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.pipeline import print_pipeline
from baechi_jax.passes.plan_errors import MemoryLimitError, PlanError
from baechi_jax.passes.registry import Pass, suggestion

PrintAfter = Literal["all", "changed"] | Sequence[str]


@dataclass(frozen=True, slots=True)
class PassTiming:
    """Wall seconds of one pass, and of the verification after it."""

    name: str
    seconds: float
    verify_seconds: float


class PassManager:
    """Runs ``passes`` over a module, in order.

    - ``verify_each``: verify the input and the result of each pass.
    - ``timing``: log the seconds of each pass when all are done. They are in ``timings`` anyway.
    - ``print_after``: ``"all"``; ``"changed"`` (passes that changed the printed module); or names
      of passes. It goes to ``print_to`` (the standard error stream unless given), or to numbered
      files in ``dump_folder``: ``00_input.mlir``, ``01_inline-calls.mlir``, ... Giving a folder
      alone means ``"all"``. Files of such names that an earlier run left there are removed first.
    - ``locations``: print source locations.
    - ``reproducer_folder``: where the IR before a failing pass is left; ``dump_folder`` unless
      given. It costs a printed module per pass. Without either, see ``run``.

    Raises PipelineError when ``print_after`` names a pass that is not in the pipeline.
    """

    def __init__(
        self,
        passes: Iterable[Pass],
        *,
        verify_each: bool = True,
        timing: bool = False,
        print_after: PrintAfter | None = None,
        print_to: TextIO | None = None,
        dump_folder: str | Path | None = None,
        locations: bool = True,
        reproducer_folder: str | Path | None = None,
    ) -> None:
        self.passes = tuple(passes)
        self.verify_each = verify_each
        self.timing = timing
        if print_after is None and (print_to is not None or dump_folder is not None):
            print_after = "all"
        self.print_after = print_after
        self.print_to = print_to
        self.dump_folder = None if dump_folder is None else Path(dump_folder)
        self.locations = locations
        folder = dump_folder if reproducer_folder is None else reproducer_folder
        self.reproducer_folder = None if folder is None else Path(folder)
        #: One entry for each pass that has run, of the latest ``run``.
        self.timings: list[PassTiming] = []
        if print_after is not None and not isinstance(print_after, str):
            names = [each.name for each in self.passes]
            for name in print_after:
                if name not in names:
                    raise PipelineError(
                        f"cannot print after '{name}': no such pass in the pipeline"
                        + suggestion(name, names)
                    )

    def run(self, module: Module, remake: Callable[[], Module] | None = None) -> None:
        """Transform ``module`` in place.

        An error that is an answer (a BaechiError: no placement fits, an op is invalid) is raised as
        it is, with a note that names the pass. Any other exception becomes a PassError, with the
        exception as its cause. In both cases the module is left as the pass left it.

        ``remake`` gives the same input once more. With it a crash (a PassError of that kind, a
        module or a plan that a pass left invalid) leaves a reproducer without a reproducer folder
        too: the passes before the one that crashed run again, and what they give is written to a
        temporary folder, which a note of the error names. Runs that succeed pay nothing.
        """
        self.timings = []
        # Passes make many objects that live as long as the module.
        with paused_collection():
            self._run_all(module, remake)
        if self.timing:
            self._log_timings()

    def _run_all(self, module: Module, remake: Callable[[], Module] | None) -> None:
        if self.verify_each:
            try:
                verify(module)
            except BaechiError as error:
                error.add_note("the module was invalid before the first pass ran")
                raise
        text = self._text(module) if self._keeps_text else ""
        if self.dump_folder is not None:
            _remove_dumps(self.dump_folder)
            self._write_dump(0, "input", text)
        for index, each in enumerate(self.passes):
            before = text
            # A reproducer needs the locations: name stacks decide colocation.
            hidden = self.reproducer_folder is not None and not self.locations
            known = print_module(module) if hidden else before
            try:
                self._run_one(each, module)
            except BaechiError as error:
                if self.reproducer_folder is not None:
                    _leave_reproducer(self.reproducer_folder, each, known, error)
                elif remake is not None and _is_crash(error):
                    self._leave_anyway(index, remake, error)
                raise
            if self._keeps_text:
                text = self._text(module)
            if self._prints(each, changed=text != before):
                self._print(index + 1, each, text or self._text(module))

    # One pass --------------------------------------------------------------------------------

    def _run_one(self, each: Pass, module: Module) -> None:
        start = time.perf_counter()
        try:
            each.run(module)
            ran = time.perf_counter()
            if self.verify_each:
                self._verify_after(each, module)
        except BaechiError as error:
            error.add_note(f"in pass '{_short_text(each)}'")
            raise
        except Exception as error:
            raise PassError(
                f"pass '{each.name}' failed: {type(error).__name__}: {error} ({_raised_at(error)})"
            ) from error
        self.timings.append(PassTiming(each.name, ran - start, time.perf_counter() - ran))

    def _verify_after(self, each: Pass, module: Module) -> None:
        try:
            verify(module)
        except BaechiError as error:
            error.add_note(f"pass '{each.name}' left the module invalid")
            raise

    def _leave_anyway(self, index: int, remake: Callable[[], Module], error: BaechiError) -> None:
        """Leave a reproducer for pass ``index`` in a new temporary folder."""
        import tempfile

        try:
            module = remake()
            for each in self.passes[:index]:
                each.run(module)
            folder = Path(tempfile.mkdtemp(prefix="baechi-"))
        except Exception as problem:
            error.add_note(
                f"the IR before the pass could not be made again: {type(problem).__name__}: "
                f"{problem}"
            )
            return
        _leave_reproducer(folder, self.passes[index], print_module(module), error)

    # Printing --------------------------------------------------------------------------------

    @property
    def _keeps_text(self) -> bool:
        """Whether the text of the module between all passes is needed."""
        return self.print_after in ("all", "changed") or self.reproducer_folder is not None

    def _text(self, module: Module) -> str:
        return print_module(module, locations=self.locations)

    def _prints(self, each: Pass, *, changed: bool) -> bool:
        if self.print_after is None:
            return False
        if isinstance(self.print_after, str):
            return self.print_after == "all" or changed
        return each.name in self.print_after

    def _print(self, number: int, each: Pass, text: str) -> None:
        if self.dump_folder is not None:
            self._write_dump(number, each.name, text)
        if self.dump_folder is None or self.print_to is not None:
            stream = sys.stderr if self.print_to is None else self.print_to
            # mlir-opt's header, which editors and scripts know.
            stream.write(f"// -----// IR Dump After {each.name} //----- //\n{text}")
            if not text.endswith("\n"):
                stream.write("\n")

    def _write_dump(self, number: int, name: str, text: str) -> None:
        assert self.dump_folder is not None
        width = max(2, len(str(len(self.passes))))
        write_text_atomically(self.dump_folder / f"{number:0{width}}_{name}.mlir", text)

    def _log_timings(self) -> None:
        import logging

        logger = logging.getLogger(__name__)
        for timing in self.timings:
            logger.info(
                "%s: %.4f s, verified in %.4f s",
                timing.name,
                timing.seconds,
                timing.verify_seconds,
            )


def _remove_dumps(folder: Path) -> None:
    """Remove what an earlier run dumped: its passes may have been others."""
    for path in sorted(folder.glob("[0-9][0-9]*_*.mlir")):
        if re.fullmatch(r"\d{2,}_[a-z0-9-]+\.mlir", path.name):
            path.unlink()


def _is_crash(error: BaechiError) -> bool:
    """Whether ``error`` is a fault of a pass, not an answer to the user."""
    if isinstance(error, MemoryLimitError):
        return False
    broken = isinstance(error, VerificationError | PlanError)
    return broken or (isinstance(error, PassError) and error.__cause__ is not None)


def _leave_reproducer(folder: Path, each: Pass, before: str, error: BaechiError) -> None:
    import hashlib
    import shlex

    # The same failure again gives the same file, so retries do not fill the folder.
    digest = hashlib.sha256(before.encode()).hexdigest()[:8]
    path = folder / f"{each.name}-{digest}.mlir"
    pipeline = shlex.quote(print_pipeline([each]))
    command = f"baechi-opt --pass-pipeline={pipeline} {shlex.quote(str(path))}"
    reason = f"{type(error).__name__}: {error}".replace("\n", "\n//   ")
    try:
        write_text_atomically(path, f"// {reason}\n// Run: {command}\n{before}")
    except OSError as problem:
        error.add_note(f"the IR before the pass could not be written to {path}: {problem}")
    else:
        error.add_note(f"the IR before the pass is in {path}; run it again with\n  {command}")


def _short_text(each: Pass) -> str:
    """A pass with its options; only its name where they are long, or more than a text can hold (a
    saved plan's decisions)."""
    try:
        text = print_pipeline([each])
    except BaechiError:
        return each.name
    return text if len(text) <= 100 else each.name


def _raised_at(error: BaseException) -> str:
    """``fuse_tasks.py:33``, the line that raised ``error``: the command line shows no traceback."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
