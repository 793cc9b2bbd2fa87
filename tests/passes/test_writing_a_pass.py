"""docs/writing-a-pass.md works as written: its files are pasted, its commands run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "writing-a-pass.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of the repository as the page needs, in a folder that may be written to."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("baechi_jax", "ir", "passes", "runtime"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
    (tmp_path / "tests/passes/filecheck").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/passes/conftest.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_page_works_as_written(checkout: Path) -> None:
    printed = ""
    commands = 0
    for language, path, text in _BLOCK.findall(PAGE):
        if path:
            (checkout / path).write_text(text, encoding="utf-8")
        elif language == "sh":
            done = shell(text, checkout)
            assert done.returncode == 0, f"{text}\n{done.stdout}"
            printed = done.stdout
            commands += 1
        else:
            assert language == "output"
            assert printed == text
    assert commands >= 5

    # The page's test does test: with a CHECK that does not hold it fails, and pytest says where.
    file = checkout / "tests/passes/filecheck/cancel_pairs.mlir"
    file.write_text(file.read_text().replace("// CHECK-NEXT: %[[NEG:.+]] = ", "// CHECK-NEXT: no "))
    failing = shell("python -m pytest -q tests/passes/filecheck", checkout)
    assert failing.returncode == 1
    assert "error: Couldn't match" in failing.stdout
    assert "1 failed" in failing.stdout
