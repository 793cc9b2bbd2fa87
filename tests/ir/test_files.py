"""Files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from baechi_jax.ir.files import write_text_atomically


def test_writes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "made" / "plan.mlir"
    write_text_atomically(target, "first\n")
    write_text_atomically(target, "é\n")
    assert target.read_bytes() == "é\n".encode()
    assert list(target.parent.iterdir()) == [target]


def test_others_may_read_it_as_any_new_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_text_atomically(tmp_path / "ours", "x")
    assert stat.S_IMODE(os.stat(tmp_path / "ours").st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "plan.mlir"
    target.write_text("before")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("baechi_jax.ir.files.os.replace", fail)
    with pytest.raises(type(error)):
        write_text_atomically(target, "after")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_text_that_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(tmp_path / "plan.mlir", "\udc80")
    assert list(tmp_path.iterdir()) == []
