"""The RUN/CHECK collector itself: what must fail fails, and says why."""

from collections.abc import Callable
from pathlib import Path

import pytest

MODULE = """
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "jax.sin"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()
"""

Run = Callable[[Path], None]


def case(folder: Path, *lines: str, text: str = MODULE) -> Path:
    file = folder / "case.mlir"
    file.write_text("\n".join(f"// {line}" for line in lines) + text)
    return file


def failure(run: Run, file: Path) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each test looks at the message
        run(file)
    assert type(caught.value).__name__ == "RunFailure"
    return str(caught.value)


@pytest.mark.parametrize(
    "lines",
    [
        ("RUN: baechi-opt %s | filecheck %s", "CHECK: jax.sin"),
        ("RUN: baechi-opt %s | baechi-opt - | filecheck %s", "CHECK: jax.sin"),
        ("RUN: baechi-opt %s \\", "RUN:   | filecheck %s", "CHECK: jax.sin"),
        ("RUN: baechi-opt %s -o %t", "RUN: baechi-opt %t | filecheck %s", "CHECK: jax.sin"),
        ("RUN: baechi-opt %s | filecheck %s --check-prefix=SIN", "SIN: jax.sin"),
        (
            "RUN: not baechi-opt %S/none.mlir 2>&1 | filecheck %s",
            "CHECK: error: {{.*}}No such file",
        ),
        ("RUN: baechi-opt %s | not filecheck %s", "CHECK: jax.cos"),
    ],
)
def test_what_holds_passes(tmp_path: Path, run_filecheck: Run, lines: tuple[str, ...]) -> None:
    run_filecheck(case(tmp_path, *lines))


def test_a_failing_check_fails_and_shows_the_output(tmp_path: Path, run_filecheck: Run) -> None:
    file = case(tmp_path, "RUN: baechi-opt %s | filecheck %s", "CHECK: jax.cos")
    said = failure(run_filecheck, file)
    assert f"{file}:1: exit status 1" in said
    assert f'{file}:2: error: Couldn\'t match "jax.cos"' in said
    assert '"jax.sin"(%' in said


def test_a_check_not_fails_where_it_matches(tmp_path: Path, run_filecheck: Run) -> None:
    file = case(tmp_path, "RUN: baechi-opt %s | filecheck %s", "CHECK-NOT: jax.sin")
    assert "excluded string found" in failure(run_filecheck, file)


def test_a_failing_command_shows_its_errors(tmp_path: Path, run_filecheck: Run) -> None:
    file = case(tmp_path, "RUN: baechi-opt %s | filecheck %s", "CHECK: x", text="\nnonsense\n")
    said = failure(run_filecheck, file)
    assert "stderr of baechi-opt" in said
    assert "nonsense" in said


def test_not_wants_a_failure(tmp_path: Path, run_filecheck: Run) -> None:
    file = case(tmp_path, "RUN: not baechi-opt %s")
    assert "exit status 0, expected failure" in failure(run_filecheck, file)


def test_a_later_run_line_counts_too(tmp_path: Path, run_filecheck: Run) -> None:
    file = case(tmp_path, "RUN: baechi-opt %s", "RUN: baechi-opt %s | filecheck %s", "CHECK: cos")
    assert f"{file}:2:" in failure(run_filecheck, file)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("CHECK: jax.sin",), "no RUN line"),
        (("RUN: baechi-opt %s | grep sin",), "unknown command 'grep'"),
        (("RUN: baechi-opt %s | filecheck %s",), "No check strings found"),
        (("RUN: baechi-opt %s --no-such-option",), "No such option"),
    ],
)
def test_mistakes_in_a_test_fail(
    tmp_path: Path, run_filecheck: Run, lines: tuple[str, ...], message: str
) -> None:
    assert message in failure(run_filecheck, case(tmp_path, *lines))
