"""``baechi-opt``: run passes over IR text, in mlir-opt's manner.

Reads a file or stdin, verifies, runs a pipeline, prints the module. It imports no jax, and only the
passes that the pipeline names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import BaechiError
from baechi_jax.ir.files import write_text_atomically
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.pass_manager import PassManager, PassTiming, PrintAfter
from baechi_jax.passes.pipeline import (
    NAMED_PIPELINES,
    parse_pipeline,
    print_value,
)
from baechi_jax.passes.registry import Pass, all_passes, options_of

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", default="-")
@click.option("--pass-pipeline", default="", help="Passes to run: name{option=value},name,...")
@click.option("--list-passes", is_flag=True, help="List passes with their options and defaults.")
@click.option("-o", "output", default="-", help="Output file, written whole or not at all.")
@click.option("--print-ir-after-all", is_flag=True, help="Print the IR after each pass.")
@click.option("--print-ir-after-change", is_flag=True, help="... after passes that changed it.")
@click.option("--print-ir-after", multiple=True, metavar="NAME", help="... after this pass.")
@click.option(
    "--print-ir-tree-dir",
    type=_FOLDER,
    help="Print to numbered files in this folder instead of the standard error stream.",
)
@click.option("--verify-each/--no-verify-each", default=True, help="Verify between passes.")
@click.option("--split-input-file", is_flag=True, help="Modules stand between '// -----' lines.")
@click.option("--timing", is_flag=True, help="Show the seconds of each pass.")
@click.option("--no-locations", is_flag=True, help="Leave source locations out of what is printed.")
@click.option(
    "--topology",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A topology (JSON) to attach to the module before the first pass.",
)
@click.option("--reproducer-dir", type=_FOLDER, help="Leave the IR before a failing pass here.")
def main(
    file: str,
    pass_pipeline: str,
    list_passes: bool,
    output: str,
    print_ir_after_all: bool,
    print_ir_after_change: bool,
    print_ir_after: tuple[str, ...],
    print_ir_tree_dir: Path | None,
    verify_each: bool,
    split_input_file: bool,
    timing: bool,
    no_locations: bool,
    topology: Path | None,
    reproducer_dir: Path | None,
) -> None:
    """Run passes over the IR text in FILE ('-', the default, is the standard input stream).

    Errors go to the standard error stream; the exit status is then 1.
    """
    print_after: PrintAfter | None = print_ir_after or None
    if print_ir_after_change:
        print_after = "changed"
    if print_ir_after_all:
        print_after = "all"
    try:
        if list_passes:
            click.echo("\n".join(_describe_passes()))
            return
        settings = _Settings(
            passes=parse_pipeline(pass_pipeline),
            print_after=print_after,
            dump_folder=print_ir_tree_dir,
            verify_each=verify_each,
            locations=not no_locations,
            topology=None if topology is None else Topology.load(topology),
            reproducer_folder=reproducer_dir,
        )
        text = _read(file)
    except BaechiError as error:
        _report(error)
        raise SystemExit(1) from None

    name = "<stdin>" if file == "-" else file
    chunks = _split(text) if split_input_file else [text]
    results: list[str] = []
    for number, chunk in enumerate(chunks):
        try:
            results.append(settings.run(chunk, name, number if split_input_file else None))
        except (BaechiError, OSError) as error:
            # The other modules still run: one test file holds many errors.
            _report(error)
    if timing:
        _show_timings(settings.timings)
    failed = len(results) < len(chunks)
    printed = "// -----\n".join(results)
    if output == "-":
        click.echo(printed, nl=False)
    elif not failed:
        try:
            write_text_atomically(output, printed)
        except OSError as error:
            _report(BaechiError(f"cannot write {output}: {error}"))
            failed = True
    if failed:
        raise SystemExit(1)


@dataclass(slots=True)
class _Settings:
    """What is done to each module, and the timings of all of them."""

    passes: Sequence[Pass]
    print_after: PrintAfter | None
    dump_folder: Path | None
    verify_each: bool
    locations: bool
    topology: Topology | None
    reproducer_folder: Path | None
    timings: list[PassTiming] = field(default_factory=list)

    def run(self, text: str, filename: str, number: int | None) -> str:
        """The text of the module after all passes; ``number`` is its place in a split file."""
        folder = self.dump_folder
        if folder is not None and number is not None:
            folder = folder / f"split_{number}"
        manager = PassManager(
            self.passes,
            verify_each=self.verify_each,
            print_after=self.print_after,
            dump_folder=folder,
            locations=self.locations,
            reproducer_folder=self.reproducer_folder,
        )

        def read() -> Module:
            module = parse_module(text, filename)
            if self.topology is not None:
                module.attributes["baechi.topology"] = self.topology
            return module

        module = read()
        try:
            # A single pass needs no reproducer: the input is one.
            manager.run(module, read if len(self.passes) > 1 else None)
        finally:
            self.timings += manager.timings
        return print_module(module, locations=self.locations)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BaechiError(f"cannot read {file}: {error}") from error


def _split(text: str) -> list[str]:
    """The modules between ``// -----`` lines, padded so that line numbers stay the file's."""
    chunks: list[str] = []
    line = 0
    for part in re.split(r"^// -----[ \t]*$", text, flags=re.MULTILINE):
        chunks.append("\n" * line + part)
        line += part.count("\n")
    return chunks


def _report(error: BaseException) -> None:
    click.echo(f"baechi-opt: error: {error}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"note: {note}", err=True)


def _describe_passes() -> list[str]:
    lines = ["Passes:"]
    for cls in all_passes():
        lines.append(f"  {cls.name:<24}{cls.summary}")
        for option in options_of(cls).values():
            default = "required" if option.required else f"default {print_value(option.default)}"
            lines.append(f"      {option.name:<20}{option.type_name}, {default}")
    lines.append("Pipelines:")
    lines += [f"  {name:<24}{','.join(passes)}" for name, passes in NAMED_PIPELINES.items()]
    return lines


def _show_timings(timings: Sequence[PassTiming]) -> None:
    from rich.console import Console
    from rich.table import Table

    total = sum(timing.seconds + timing.verify_seconds for timing in timings)
    table = Table("pass", title="Pass timing")
    for heading in ("seconds", "verify", "share"):
        table.add_column(heading, justify="right")
    for timing in timings:
        share = (timing.seconds + timing.verify_seconds) / total if total else 0.0
        table.add_row(
            timing.name, f"{timing.seconds:.4f}", f"{timing.verify_seconds:.4f}", f"{share:.1%}"
        )
    table.add_section()
    table.add_row(
        "total",
        f"{sum(timing.seconds for timing in timings):.4f}",
        f"{sum(timing.verify_seconds for timing in timings):.4f}",
        "",
    )
    Console(stderr=True).print(table)
