"""The pass manager: order, verification, timings, printing, failures and reproducers."""

import gc
import io
import logging
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.errors import BaechiError, PassError, PipelineError, VerificationError
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.registry import Pass

TEXT = """
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "jax.sin"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("layer"("f.py":3:4))
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()
"""


@dataclass(frozen=True)
class Mark(Pass):
    name = "mark"
    summary = "Appends to a list in the module"

    label: str = "a"

    def run(self, module: Module) -> None:
        marks = module.attributes.get("test.marks", ())
        assert isinstance(marks, tuple)
        module.attributes["test.marks"] = (*marks, self.label)


@dataclass(frozen=True)
class Nothing(Pass):
    name = "nothing"
    summary = "Changes nothing"

    def run(self, module: Module) -> None:
        pass


@dataclass(frozen=True)
class Break(Pass):
    name = "break"
    summary = "Leaves a use of a value that is defined nowhere"

    def run(self, module: Module) -> None:
        block = module.main.body
        block.set_ops(block.ops[1:])


class NothingFits(BaechiError):
    pass


@dataclass(frozen=True)
class Fail(Pass):
    name = "fail"
    summary = "Fails after having changed the module"

    how: str = "crash"

    def run(self, module: Module) -> None:
        module.attributes["test.half_done"] = True
        if self.how == "crash":
            raise KeyError("a bug")
        if self.how == "interrupt":
            raise KeyboardInterrupt
        raise NothingFits("too large by 3 bytes")


@pytest.fixture
def module() -> Module:
    return parse_module(TEXT)


def test_runs_in_order(module: Module) -> None:
    PassManager([Mark("a"), Nothing(), Mark("b")]).run(module)
    assert module.attributes["test.marks"] == ("a", "b")


def test_times_each_pass(module: Module, caplog: pytest.LogCaptureFixture) -> None:
    manager = PassManager([Mark(), Nothing()], timing=True)
    with caplog.at_level(logging.INFO, "baechi_jax.passes"):
        manager.run(module)
    assert [timing.name for timing in manager.timings] == ["mark", "nothing"]
    assert all(timing.seconds >= 0 and timing.verify_seconds > 0 for timing in manager.timings)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "mark",
        "nothing",
    ]
    manager.run(module)
    assert len(manager.timings) == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_leaves_the_garbage_collector_as_it_was(module: Module, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        PassManager([Mark()]).run(module)
        with pytest.raises(NothingFits):
            PassManager([Fail("fit")]).run(module)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


# Printing -----------------------------------------------------------------------------------


def headers(text: str) -> list[str]:
    return re.findall(r"// -----// IR Dump After (.*) //----- //\n", text)


def test_prints_after_all(module: Module) -> None:
    stream = io.StringIO()
    PassManager([Mark(), Nothing()], print_to=stream).run(module)
    assert headers(stream.getvalue()) == ["mark", "nothing"]
    last = stream.getvalue().rpartition("//----- //\n")[2]
    assert last == print_module(module)


def test_prints_after_changes(module: Module) -> None:
    stream = io.StringIO()
    passes = [Nothing(), Mark(), Nothing(), Mark(), Nothing()]
    PassManager(passes, print_after="changed", print_to=stream).run(module)
    assert headers(stream.getvalue()) == ["mark", "mark"]


def test_prints_after_named_passes(module: Module) -> None:
    stream = io.StringIO()
    PassManager([Mark(), Nothing()], print_after=["nothing"], print_to=stream).run(module)
    assert headers(stream.getvalue()) == ["nothing"]


def test_prints_to_the_error_stream(module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    PassManager([Mark()], print_after="all", locations=False).run(module)
    out, err = capsys.readouterr()
    assert (out, headers(err)) == ("", ["mark"])
    assert "loc(" not in err


def test_a_name_to_print_after_must_be_in_the_pipeline() -> None:
    with pytest.raises(PipelineError, match=r"after 'mrak': no such pass .*did you mean 'mark'"):
        PassManager([Mark()], print_after=["mrak"])


def test_dumps_numbered_files(module: Module, tmp_path: Path) -> None:
    before = print_module(module)
    PassManager([Mark(), Nothing()], dump_folder=tmp_path / "dump").run(module)
    files = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert files == ["00_input.mlir", "01_mark.mlir", "02_nothing.mlir"]
    assert (tmp_path / "dump/00_input.mlir").read_text() == before
    assert (tmp_path / "dump/02_nothing.mlir").read_text() == print_module(module)


def test_dumps_only_changes_when_asked(module: Module, tmp_path: Path) -> None:
    PassManager([Nothing(), Mark()], print_after="changed", dump_folder=tmp_path).run(module)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00_input.mlir", "02_mark.mlir"]


def test_a_dump_replaces_an_earlier_one_and_nothing_else(module: Module, tmp_path: Path) -> None:
    PassManager([Mark(), Nothing(), Mark()], dump_folder=tmp_path).run(parse_module(TEXT))
    others = ["notes.mlir", "01_MY notes.mlir", "1_mark.mlir", "fail-00000000.mlir", "03_mark.txt"]
    for name in others:
        (tmp_path / name).write_text("")
    PassManager([Nothing()], dump_folder=tmp_path).run(module)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*others, "00_input.mlir", "01_nothing.mlir"])


# Failures -----------------------------------------------------------------------------------


def test_a_crash_names_the_pass_and_the_line(module: Module) -> None:
    manager = PassManager([Mark(), Fail()])
    with pytest.raises(PassError) as caught:
        manager.run(module)
    assert "pass 'fail' failed: KeyError: 'a bug' (test_pass_manager.py:" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert [timing.name for timing in manager.timings] == ["mark"]


def test_an_answer_keeps_its_class(module: Module) -> None:
    with pytest.raises(NothingFits, match="too large by 3 bytes") as caught:
        PassManager([Mark(), Fail("fit")]).run(module)
    assert caught.value.__notes__ == ["in pass 'fail{how=fit}'"]


def test_long_options_are_left_out_of_the_note(module: Module) -> None:
    with pytest.raises(NothingFits) as caught:
        PassManager([Fail("x" * 200)]).run(module)
    assert caught.value.__notes__ == ["in pass 'fail'"]


def test_a_dump_folder_gets_the_reproducer_too(module: Module, tmp_path: Path) -> None:
    with pytest.raises(NothingFits) as caught:
        PassManager([Mark(), Fail("fit")], dump_folder=tmp_path).run(module)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[:2] == ["00_input.mlir", "01_mark.mlir"]
    assert names[2] in "".join(caught.value.__notes__)


# Reproducers without a folder ---------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize(("last", "kind"), [(Fail(), PassError), (Break(), VerificationError)])
def test_a_crash_leaves_a_reproducer_in_a_temporary_folder(
    temporary: Path, last: Pass, kind: type[BaechiError]
) -> None:
    manager = PassManager([Mark("one"), Mark("two"), last, Mark("three")])
    with pytest.raises(kind) as caught:
        manager.run(parse_module(TEXT), lambda: parse_module(TEXT))
    (file,) = temporary.glob(f"baechi-*/{last.name}-*.mlir")
    command = f"baechi-opt --pass-pipeline={last.name} {file}"
    assert command in caught.value.__notes__[-1]
    text = file.read_text()
    assert command in text
    left = parse_module(text)
    assert left.attributes["test.marks"] == ("one", "two")
    assert "test.half_done" not in left.attributes


def test_an_answer_leaves_none(temporary: Path) -> None:
    with pytest.raises(NothingFits) as caught:
        PassManager([Fail("fit")]).run(parse_module(TEXT), lambda: parse_module(TEXT))
    assert caught.value.__notes__ == ["in pass 'fail{how=fit}'"]
    assert list(temporary.iterdir()) == []


def test_a_crash_that_cannot_be_repeated_is_still_that_crash(temporary: Path) -> None:
    def gone() -> Module:
        raise OSError("the input is gone")

    with pytest.raises(PassError, match="pass 'fail' failed") as caught:
        PassManager([Fail()]).run(parse_module(TEXT), gone)
    assert caught.value.__notes__ == [
        "the IR before the pass could not be made again: OSError: the input is gone"
    ]
    assert list(temporary.iterdir()) == []


def test_an_interrupt_goes_through(module: Module, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        PassManager([Fail("interrupt")], reproducer_folder=tmp_path).run(module)
    assert list(tmp_path.iterdir()) == []


def test_a_pass_that_breaks_the_module_is_named(module: Module) -> None:
    with pytest.raises(VerificationError) as caught:
        PassManager([Mark(), Break(), Nothing()]).run(module)
    assert caught.value.__notes__ == ["pass 'break' left the module invalid", "in pass 'break'"]


def test_without_verification_it_goes_unseen(module: Module) -> None:
    PassManager([Break(), Nothing()], verify_each=False).run(module)


def test_an_invalid_input_is_told_apart(module: Module) -> None:
    Break().run(module)
    with pytest.raises(VerificationError) as caught:
        PassManager([Nothing()]).run(module)
    assert caught.value.__notes__ == ["the module was invalid before the first pass ran"]


@pytest.mark.parametrize("locations", [True, False])
def test_a_failure_leaves_a_reproducer(module: Module, tmp_path: Path, locations: bool) -> None:
    folder = tmp_path / "left here"
    manager = PassManager([Mark(), Fail()], reproducer_folder=folder, locations=locations)
    with pytest.raises(PassError) as caught:
        manager.run(module)
    (file,) = folder.iterdir()
    assert re.fullmatch(r"fail-[0-9a-f]{8}\.mlir", file.name)
    text = file.read_text()
    command = f"baechi-opt --pass-pipeline=fail '{file}'"
    assert command in text
    assert command in "".join(caught.value.__notes__)
    assert "KeyError: 'a bug'" in text
    # It is the module before the pass, whole.
    left = parse_module(text)
    assert left.attributes["test.marks"] == ("a",)
    assert "test.half_done" not in left.attributes
    assert locations_of(left) == ["f.py:3"]


def locations_of(module: Module) -> list[str]:
    def known(op: Operation) -> bool:
        return op.location.known

    return [str(op.location) for op in filter(known, module.walk())]


def test_the_same_failure_leaves_one_reproducer(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(NothingFits):
            PassManager([Fail("fit")], reproducer_folder=tmp_path).run(parse_module(TEXT))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_reproducer_that_cannot_be_written_hides_no_error(module: Module, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PassError, match="a bug") as caught:
        PassManager([Fail()], reproducer_folder=tmp_path / "file").run(module)
    assert "could not be written" in "".join(caught.value.__notes__)
