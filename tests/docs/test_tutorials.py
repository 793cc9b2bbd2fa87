"""The tutorials are true: their blocks run from top to bottom and print what the pages show."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pages"] = module  # where its dataclass looks its annotations up
    spec.loader.exec_module(module)
    return module


pages = _load()
TUTORIALS = sorted((pages.ROOT / "docs" / "tutorials").glob("*.md"))
INDEX = pages.ROOT / "docs" / "tutorials" / "README.md"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in TUTORIALS if page != INDEX], ids=lambda page: page.stem
)
def test_a_tutorial_is_true(page: Path, tmp_path: Path) -> None:
    shown = pages.run_page(page, tmp_path)
    assert shown
    wrong = [f"after\n{each.block}\nprinted\n{each.printed}" for each in shown if not each.true]
    assert not wrong, "\n".join(wrong)


def test_the_index_names_every_tutorial() -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert [page.name for page in TUTORIALS if page != INDEX and f"({page.name})" not in text] == []


PAGE = """
```python model.py
ANSWER = 42
```

```sh
wc -l < model.py
```

```output
1
```

```python
from model import ANSWER
print("one")
print(f"{ANSWER} ms")
print("three")
```

```output HOW
SHOWN
```
"""


@pytest.mark.parametrize(
    ("how", "shown", "true"),
    [
        ("", "one\n42 ms\nthree", True),
        ("", "one\n43 ms\nthree", False),
        ("near", "one\n45.0 ms\nthree", True),
        ("near", "one\n0.0361 s\nthree", True),
        ("near", "one\n52.6 ms\nthree", False),
        ("near", "one\n42 us\nthree", False),
        ("near", "two\n42 ms\nthree", False),
        ("near", "one\n42 ms", False),
    ],
)
def test_what_a_page_shows_is_compared(tmp_path: Path, how: str, shown: str, true: bool) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(" HOW", f" {how}".rstrip()).replace("SHOWN", shown))
    (tmp_path / "run").mkdir()
    assert [each.true for each in pages.run_page(page, tmp_path / "run")] == [True, true]


@pytest.mark.parametrize(
    ("shown", "printed", "near"),
    [
        # Counts within one or a fifth, bytes, seconds and ratios within a fifth.
        ("3 tasks", "2 tasks", True),
        ("3 tasks", "5 tasks", False),
        ("39 transfers", "46 transfers", True),
        ("1.02 x its bound", "1.24 x its bound", False),
        ("1023 KiB", "1.01 MiB", True),
        ("1.12 MiB", "1.12 KiB", False),
        ("0 B", "64.0 KiB", False),
        # Percentages within five points or a fifth.
        ("2%", "6%", True),
        ("2%", "8%", False),
        ("100%", "119%", True),
        ("-70.0%", "70.0%", False),
        # Names, types and source lines to the letter.
        ("t1 at f.py:70", "t2 at f.py:70", False),
        ("t1 at f.py:70", "t1 at f.py:71", False),
        ("tensor<8x64xf32>", "tensor<8x65xf32>", False),
        ("on cpu:0", "on cpu:1", False),
        # Not the placer, nor how a table is set.
        (
            "MiB. Placed by m-etf (heuristic).",
            "MiB. Placed\nby m-topo (for\nanother machine).",
            True,
        ),
        (" a   ─────\n", "a ──", True),
        ("of 192 \n  MiB.", "of 200 MiB.", True),
        ("1 2", "1", False),
    ],
)
def test_numbers_near_those_shown(shown: str, printed: str, near: bool) -> None:
    assert pages.Shown("", shown, printed, "near").true == near


@pytest.mark.parametrize("block", ["```python\n1 / 0\n```\n", "```sh\nfalse\n```\n"])
def test_a_block_that_fails_is_told(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError, match=r"ZeroDivisionError|exit status 1"):
        pages.run_page(page, tmp_path)
