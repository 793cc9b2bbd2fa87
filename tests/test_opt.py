"""``baechi-opt`` as a command: streams, files, exit status, start-up."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from baechi_jax.ir.topology import Topology
from baechi_jax.opt import main

MODULE = """"builtin.module"() ({
  "func.func"() ({
  ^bb0(%arg0: tensor<4xf32>):
    %0 = "jax.jit"(%arg0) ({
    ^bb0(%1: tensor<4xf32>):
      %2 = "jax.sin"(%1) : (tensor<4xf32>) -> tensor<4xf32> loc("f.py":3:4)
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()
"""


def opt(*arguments: str | Path, text: str = MODULE) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], input=text)


def test_reads_stdin_and_prints_a_fixed_point() -> None:
    once = opt()
    assert once.exit_code == 0, once.stderr
    assert "jax.jit" in once.stdout
    again = opt("-", text=once.stdout)
    assert again.stdout == once.stdout
    assert again.stderr == ""


def test_reads_and_writes_files(tmp_path: Path) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(MODULE)
    result = opt(source, "--pass-pipeline=inline-calls", "-o", tmp_path / "out.mlir")
    assert (result.exit_code, result.output) == (0, "")
    assert "jax.jit" not in (tmp_path / "out.mlir").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mlir", "out.mlir"]


def test_a_failure_leaves_the_output_file_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    out.write_text("before")
    result = opt("-o", out, text="nonsense")
    assert result.exit_code == 1
    assert out.read_text() == "before"


def test_locations_can_be_left_out() -> None:
    assert "loc(" in opt().stdout
    assert "loc(" not in opt("--no-locations").stdout


def test_attaches_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(Topology.uniform(2).to_json())
    assert "baechi.topology = #baechi.topology<" in opt("--topology", file).stdout


def test_prints_between_passes(tmp_path: Path) -> None:
    pipeline = "--pass-pipeline=inline-calls,eliminate-dead-code"
    header = "// -----// IR Dump After {} //----- //"
    after_all = opt(pipeline, "--print-ir-after-all")
    assert header.format("inline-calls") in after_all.stderr
    assert header.format("eliminate-dead-code") in after_all.stderr
    after_change = opt(pipeline, "--print-ir-after-change")
    assert header.format("inline-calls") in after_change.stderr
    assert header.format("eliminate-dead-code") not in after_change.stderr
    after_one = opt(pipeline, "--print-ir-after=eliminate-dead-code")
    assert header.format("inline-calls") not in after_one.stderr
    assert header.format("eliminate-dead-code") in after_one.stderr
    folder = tmp_path / "tree"
    assert opt(pipeline, "--print-ir-tree-dir", folder).stderr == ""
    assert sorted(path.name for path in folder.iterdir()) == [
        "00_input.mlir",
        "01_inline-calls.mlir",
        "02_eliminate-dead-code.mlir",
    ]


def test_shows_timings() -> None:
    result = opt("--pass-pipeline=inline-calls", "--timing")
    assert result.exit_code == 0
    assert re.search(r"inline-calls .*\d\.\d{4}", result.stderr)
    assert "total" in result.stderr


def test_lists_passes_with_options() -> None:
    result = opt("--list-passes")
    assert result.exit_code == 0
    assert re.search(r"^  inline-calls +inline jit", result.stdout, re.MULTILINE)
    assert re.search(r"^  default +inline-calls,split-conds,", result.stdout, re.MULTILINE)


# Several modules in one file ----------------------------------------------------------------


def test_splits_the_input() -> None:
    text = f"{MODULE}// -----\n{MODULE}"
    result = opt("--split-input-file", "--pass-pipeline=inline-calls", text=text)
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.split("// -----\n")
    assert first == second == opt("--pass-pipeline=inline-calls").stdout


def test_a_bad_module_does_not_stop_the_others_and_keeps_its_lines() -> None:
    lines = MODULE.count("\n")
    text = f"{MODULE}// -----\n\nnonsense\n// -----\n{MODULE}"
    result = opt("--split-input-file", text=text)
    assert result.exit_code == 1
    assert result.stdout.count("builtin.module") == 2
    assert f"{lines + 3}:1" in result.stderr


def test_each_split_dumps_into_its_own_folder(tmp_path: Path) -> None:
    text = f"{MODULE}// -----\n{MODULE}"
    opt("--split-input-file", "--pass-pipeline=inline-calls", f"--print-ir-tree-dir={tmp_path}",
        text=text)  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["split_0", "split_1"]
    assert (tmp_path / "split_1" / "01_inline-calls.mlir").exists()


# Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["no-such-file.mlir"], "", "cannot read no-such-file.mlir: "),
        ([], "nonsense", "1:1"),
        (["--pass-pipeline=nothing-like-it"], MODULE, "unknown pass 'nothing-like-it'"),
        (["--pass-pipeline=inline-calls{x=1}"], MODULE, "column 14: pass 'inline-calls' has no"),
        (["--print-ir-after=x"], MODULE, "cannot print after 'x': no such pass"),
        (["--topology=no-such.json"], MODULE, "cannot read the topology no-such.json"),
        (["-o", "/dev/null/x"], MODULE, "cannot write /dev/null/x: "),
        (["--print-ir-tree-dir=/dev/null/x"], MODULE, "/dev/null"),
    ],
)
def test_errors_are_one_message_and_exit_status_1(
    arguments: list[str], text: str, message: str
) -> None:
    result = opt(*arguments, text=text)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_input_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "binary.mlir"
    file.write_bytes(b"\xff\xfe\x00")
    result = opt(file)
    assert result.exit_code == 1
    assert f"cannot read {file}: 'utf-8' codec can't decode" in result.stderr


def test_a_failing_pass_leaves_a_reproducer_that_fails_again(tmp_path: Path) -> None:
    broken = MODULE.replace("^bb0(%1: tensor<4xf32>):", "").replace("(%1)", "(%arg0)")
    arguments = ["--pass-pipeline=inline-calls", "--no-verify-each"]
    first = opt(*arguments, f"--reproducer-dir={tmp_path}", text=broken)
    assert first.exit_code == 1
    (file,) = tmp_path.iterdir()
    assert str(file) in first.stderr
    again = opt(file, *arguments)
    assert again.exit_code == 1
    assert "its body takes 0" in again.stderr


# Start-up -----------------------------------------------------------------------------------


def test_runs_as_a_command() -> None:
    command = Path(sys.executable).with_name("baechi-opt")
    done = subprocess.run(
        [command, "--pass-pipeline=inline-calls"],
        input=MODULE,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "jax.sin" in done.stdout
    assert done.stderr == ""
