"""What importing costs, and the lazy exports."""

import importlib.util
import subprocess
import sys

import pytest

import baechi_jax

#: Slow to import; nothing below the runtime needs them to start.
HEAVY = ("jax", "jaxlib", "numba", "mip", "networkx", "rich", "scipy", "jinja2")


def loaded_after(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded after ``code``."""
    script = (
        f"import sys\n{code}\nprint(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import baechi_jax; dir(baechi_jax); baechi_jax.Topology; import baechi_jax.ir",
        "import baechi_jax.passes as p; p.all_passes(); p.default_pipeline()",
        "from baechi_jax.opt import main; main(['--list-passes'], standalone_mode=False)",
    ],
)
def test_light_imports_stay_light(code: str) -> None:
    assert loaded_after(code) == set()


def test_the_check_above_can_fail() -> None:
    assert "rich" in loaded_after("import rich")


@pytest.mark.parametrize("name", baechi_jax.__all__)
def test_every_export_resolves(name: str) -> None:
    value = getattr(baechi_jax, name)
    assert value is not None
    assert name in dir(baechi_jax)


def test_exports_and_their_modules_agree() -> None:
    assert set(baechi_jax.__all__) == {*baechi_jax._EXPORTS, "__version__"}
    for module in set(baechi_jax._EXPORTS.values()):
        assert importlib.util.find_spec(module) is not None, module


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'baechi_jax' has no attribute 'plcae'"):
        _ = baechi_jax.plcae


@pytest.mark.parametrize("first", ["import baechi_jax.place", "baechi_jax.on"])
def test_place_is_the_function_whatever_was_imported_first(first: str) -> None:
    script = f"import baechi_jax\n{first}\nassert callable(baechi_jax.place), baechi_jax.place"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
