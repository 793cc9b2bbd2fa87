"""What importing the IR costs, and what it exports."""

import subprocess
import sys

import baechi_jax.ir


def test_importing_the_ir_imports_neither_jax_nor_numpy() -> None:
    code = """
import sys
import baechi_jax.ir
from baechi_jax.ir import builder, diagnostics, dialect, files, fingerprint, symbols, verifier
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = done.stdout
    assert "'baechi_jax'" in loaded
    for heavy in ("jax", "jaxlib", "numpy", "networkx", "numba", "mip", "scipy"):
        assert f"'{heavy}'" not in loaded, heavy


def test_exports_resolve_and_are_sorted() -> None:
    assert len(set(baechi_jax.ir.__all__)) == len(baechi_jax.ir.__all__)
    for name in baechi_jax.ir.__all__:
        assert getattr(baechi_jax.ir, name) is not None
