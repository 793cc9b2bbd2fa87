"""What is built from this checkout, and what starts without the heavy libraries."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: One file of each folder that reaches the package through a symlink, and the data it needs.
MEMBERS = [
    "baechi_jax/__init__.py",
    "baechi_jax/py.typed",
    "baechi_jax/ir/core.py",
    "baechi_jax/passes/registry.py",
    "baechi_jax/passes/placement/__init__.py",
    "baechi_jax/runtime/__init__.py",
    "baechi_jax/report/templates/report.html",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the package is built from, symlinks kept."""
    target = tmp_path_factory.mktemp("build") / "source"
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    for name in ("baechi_jax", "ir", "passes", "runtime"):
        shutil.copytree(
            ROOT / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    return target


def _build(kind: str, source: Path, output: Path) -> Path:
    code = f"from setuptools.build_meta import build_{kind} as build; print(build({str(output)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return output / done.stdout.splitlines()[-1]


def test_the_wheel_holds_one_package_with_everything(source: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(_build("wheel", source, tmp_path)) as wheel:
        names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"baechi_jax"}
    assert [member for member in MEMBERS if member not in names] == []


def test_a_wheel_can_be_built_from_the_source_archive(source: Path, tmp_path: Path) -> None:
    with tarfile.open(_build("sdist", source, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    folders = {path.name for path in unpacked.iterdir() if path.is_dir()}
    assert folders == {"baechi_jax", "baechi_jax.egg-info"}
    with zipfile.ZipFile(_build("wheel", unpacked, tmp_path)) as wheel:
        names = set(wheel.namelist())
    assert [member for member in MEMBERS if member not in names] == []


@pytest.mark.parametrize(
    "code",
    [
        "import baechi_jax",
        "import baechi_jax.ir, baechi_jax.passes",
        "import baechi_jax.cli",
        "from baechi_jax.cli import main; main(['--help'], standalone_mode=False)",
        "from baechi_jax.cli import main; main(['plan', '--help'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_imported_until_it_is_used(code: str) -> None:
    check = (
        "import sys\n"
        "heavy = {'jax', 'numba', 'mip', 'networkx', 'scipy', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_entry_point_exists() -> None:
    import importlib
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "scripts"
    ]
    for target in scripts.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target


def test_an_interpreter_is_found_by_trying_it() -> None:
    script = str(ROOT / ".ci" / "find-python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = subprocess.run([script, version], capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).exists()
    missing = subprocess.run(
        [script, "9.9", "exactly"], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 1
    assert "No Python 9.9" in missing.stderr
    assert "make PYTHON=" in missing.stderr


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 10
    broken: list[str] = []
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'src="([^"]+)"', text)
        for link in links:
            if "://" not in link and not (page.parent / link).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []
