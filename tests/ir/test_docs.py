"""The modules in docs/ir.md parse, verify, print as they stand, and are MLIR."""

import re
from pathlib import Path

import pytest
from jaxlib.mlir import ir as mlir

from baechi_jax.ir import dialect
from baechi_jax.ir.dialect import ATTRIBUTE_CHECKS, OP_DEFINITIONS
from baechi_jax.ir.errors import VerificationError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.verifier import verify

DOCUMENT = (Path(__file__).parents[2] / "docs" / "ir.md").read_text(encoding="utf-8")
MODULES = re.findall(r"```mlir\n(.*?)```", DOCUMENT, re.DOTALL)


def test_there_are_modules() -> None:
    assert len(MODULES) == 2


@pytest.mark.parametrize("text", MODULES)
def test_modules(text: str) -> None:
    module = parse_module(text, "docs/ir.md")
    verify(module)
    assert print_module(module) == text
    with mlir.Context() as context:
        context.allow_unregistered_dialects = True
        assert mlir.Module.parse(text).operation.verify()


def test_a_definition_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "OP_DEFINITIONS", dict(OP_DEFINITIONS))
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(compile(code, "docs/ir.md", "exec"), {})
    with pytest.raises(VerificationError, match=r"'mine\.twice': it doubles one value, found 0"):
        verify(parse_module('"mine.twice"() : () -> ()'))


def test_every_operation_and_attribute_is_described() -> None:
    names = [n for n in OP_DEFINITIONS if n.split(".")[0] in ("builtin", "func", "baechi")]
    for name in names + list(ATTRIBUTE_CHECKS):
        assert f"`{name}`" in DOCUMENT, name
