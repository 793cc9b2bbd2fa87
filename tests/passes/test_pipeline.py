"""Pipelines as text: options, named pipelines, messages."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError, PipelineError
from baechi_jax.passes import pipeline as pipeline_module
from baechi_jax.passes.pipeline import (
    DEFAULT,
    default_pipeline,
    parse_pipeline,
    print_pipeline,
)
from baechi_jax.passes.registry import (
    REGISTERED_PASSES,
    Pass,
    all_passes,
    find_pass,
    options_of,
    register_pass,
)


@dataclass(frozen=True)
class Sample(Pass):
    name = "test-sample"
    summary = "Options of every type"

    flag: bool = False
    max_tasks: int = 200
    tolerance: float = 1e-6
    source: str = "analytic"
    devices: tuple[int, ...] = ()
    only: tuple[str, ...] = ("dot_general",)
    limit: float | None = None
    label: str | None = None

    #: Not an option.
    calls: ClassVar[int] = 0

    def run(self, module: Module) -> None:
        pass


@dataclass(frozen=True)
class Needy(Pass):
    name = "test-needy"
    summary = "A required option"

    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count must not be negative, found {self.count}")

    def run(self, module: Module) -> None:
        pass


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Sample, Needy):
        monkeypatch.setitem(REGISTERED_PASSES, cls.name, cls)


def test_parses_options() -> None:
    text = (
        "test-sample{flag=true max-tasks=-3 tolerance=2 source=table devices=[0,1] "
        'only=["a b",c] limit=1e-3 label="none"},test-needy{count=1}'
    )
    assert parse_pipeline(text) == (
        Sample(True, -3, 2.0, "table", (0, 1), ("a b", "c"), 1e-3, "none"),
        Needy(1),
    )


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_pipeline_has_no_passes(text: str) -> None:
    assert parse_pipeline(text) == ()


def test_space_and_lines_do_not_matter() -> None:
    text = " test-sample {\n  max-tasks = 3\tlabel=none devices=[ 1 , 2 ] } ,\n test-sample{} "
    assert parse_pipeline(text) == (Sample(max_tasks=3, devices=(1, 2)), Sample())


def test_prints_only_what_differs_from_the_default() -> None:
    assert print_pipeline((Sample(), Needy(0))) == "test-sample,test-needy{count=0}"
    odd = Sample(flag=True, only=(), source='say "x\\y"\n')
    assert print_pipeline([odd]) == ('test-sample{flag=true source="say \\"x\\\\y\\"\\n" only=[]}')


@given(
    st.lists(
        st.one_of(
            st.builds(
                Sample,
                flag=st.booleans(),
                max_tasks=st.integers(),
                tolerance=st.floats(allow_nan=False),
                source=st.text(),
                devices=st.lists(st.integers()).map(tuple),
                only=st.lists(st.text()).map(tuple),
                limit=st.none() | st.floats(allow_nan=False),
                label=st.none() | st.text() | st.just("none"),
            ),
            st.builds(Needy, st.integers(min_value=0)),
        )
    ).map(tuple)
)
def test_round_trip(passes: tuple[Pass, ...]) -> None:
    text = print_pipeline(passes)
    assert parse_pipeline(text) == passes
    assert print_pipeline(parse_pipeline(text)) == text


def test_a_value_that_is_not_a_number_is_read() -> None:
    (sample,) = parse_pipeline("test-sample{tolerance=nan limit=-inf}")
    assert isinstance(sample, Sample)
    assert math.isnan(sample.tolerance)
    assert sample.limit == -math.inf


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("test-sampel", "unknown pass 'test-sampel'; did you mean 'test-sample'?", 1),
        (
            "test-sample,inline_calls",
            "unknown pass 'inline_calls'; did you mean 'inline-calls'",
            13,
        ),
        (
            "test-sample{max-task=3}",
            "pass 'test-sample' has no option 'max-task'; did you mean 'max-tasks'?; its options: ",
            13,
        ),
        (
            "test-sample{x=3}",
            "has no option 'x'; its options: flag (bool, default false), max-tasks (int, default",
            13,
        ),
        ("test-needy{count=1 x=2}", "has no option 'x'; its options: count (int)", 20),
        (
            "test-sample{max-tasks=many}",
            "option 'max-tasks' of pass 'test-sample' must be int (default 200), found 'many'",
            23,
        ),
        ("test-sample{max-tasks=1.5}", "must be int (default 200), found '1.5'", 23),
        ("test-sample{max-tasks=none}", "must be int (default 200), found 'none'", 23),
        ("test-sample{flag=1}", "must be bool (default false), found '1'", 18),
        ("test-sample{tolerance=small}", "must be float (default 1e-06), found 'small'", 23),
        ("test-sample{tolerance=[1]}", "must be float (default 1e-06), found '[1]'", 23),
        ('test-sample{max-tasks="3"}', "must be int (default 200), found '3'", 23),
        ("test-sample{devices=1}", "must be tuple of int (default []), found '1'", 21),
        ("test-sample{devices=[1,x]}", "must be tuple of int (default []), found '[1,x]'", 21),
        ("test-sample{limit=x}", "must be float or none (default none), found 'x'", 19),
        ("test-needy{count=x}", "option 'count' of pass 'test-needy' must be int, found 'x'", 18),
        ("test-sample,test-needy", "pass 'test-needy' needs option 'count' (int)", 13),
        ("test-needy{count=-1}", "pass 'test-needy': count must not be negative, found -1", 1),
        ("test-sample{flag=true flag=true}", "option 'flag' is given twice", 23),
        ("test-sample,", "expected the name of a pass, found the end", 13),
        ("test-sample test-sample", "expected ',' or the end after a pass, found 't'", 13),
        ("test-sample{flag}", "expected '=' and a value after option 'flag', found '}'", 17),
        ("test-sample{flag=}", "expected a value, found '}'", 18),
        ("test-sample{flag=true", "expected an option or '}', found the end", 22),
        ("test-sample{only=[a b]}", "expected ',' or ']' in a list, found 'b'", 21),
        ('test-sample{source="x}', "expected a value, found '\"'", 20),
    ],
)
def test_errors_show_the_column(text: str, message: str, column: int) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text)
    said = str(caught.value)
    assert message in said
    assert f"column {column}:" in said
    assert said.splitlines()[-2:] == [f"  {text}", " " * (column + 1) + "^"]


def test_an_error_in_a_text_of_several_lines_shows_the_line() -> None:
    with pytest.raises(PipelineError, match=r"pipeline, 2:3: unknown pass 'nothing-like-it'") as e:
        parse_pipeline("test-sample,\n  nothing-like-it,\ntest-sample")
    assert str(e.value).endswith("\n    nothing-like-it,\n    ^")


def test_a_pass_without_options_says_so() -> None:
    with pytest.raises(PipelineError, match="pass 'inline-calls' has no options, found 'x'"):
        parse_pipeline("inline-calls{x=1}")


# Named pipelines ----------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        pipeline_module.NAMED_PIPELINES, "twice", ("test-sample", "inline-calls", "test-sample")
    )


@pytest.mark.usefixtures("named")
def test_a_named_pipeline_stands_for_its_passes() -> None:
    assert print_pipeline(parse_pipeline("inline-calls,twice")) == (
        "inline-calls,test-sample,inline-calls,test-sample"
    )


@pytest.mark.usefixtures("named")
def test_its_options_go_to_the_passes_that_have_them() -> None:
    passes = parse_pipeline("twice{max-tasks=3}")
    assert print_pipeline(passes) == (
        "test-sample{max-tasks=3},inline-calls,test-sample{max-tasks=3}"
    )


@pytest.mark.usefixtures("named")
def test_its_options_are_checked() -> None:
    with pytest.raises(PipelineError, match=r"column 7: no pass of pipeline 'twice' has an option"):
        parse_pipeline("twice{max-task=3}")
    with pytest.raises(PipelineError, match=r"column 17: option 'max-tasks' of pass 'test-sample'"):
        parse_pipeline("twice{max-tasks=x}")


# The registry -------------------------------------------------------------------------------


def test_a_pass_is_found_by_its_name() -> None:
    cls = find_pass("inline-calls")
    assert (cls.__name__, cls.__module__) == ("InlineCalls", "baechi_jax.passes.inline_calls")


def test_every_pass_is_in_the_module_of_its_name_and_its_options_have_a_text() -> None:
    for cls in all_passes():
        if not cls.__module__.startswith("baechi_jax."):
            continue  # registered by other tests
        module = cls.name.replace("-", "_")
        assert cls.__module__ == f"baechi_jax.passes.{module}"
        assert cls.__name__ == module.title().replace("_", "")
        assert cls.summary
        assert "\n" not in cls.summary
        for option in options_of(cls).values():
            assert option.required or print_pipeline([cls()]) == cls.name


def test_modules_that_are_no_passes_are_no_passes() -> None:
    for name in ("registry", "pass-manager", "pipeline"):
        with pytest.raises(PipelineError, match=f"unknown pass '{name}'"):
            find_pass(name)


def test_two_passes_of_one_name_are_refused() -> None:
    class Other(Sample):
        pass

    Other.__module__ = "elsewhere"
    with pytest.raises(PassError, match=r"two passes are named 'test-sample': .*Sample and else"):
        register_pass(Other)


def test_a_name_must_be_kebab_case() -> None:
    class Misnamed(Sample):
        name = "Not_Kebab"

    with pytest.raises(PassError, match=r"pass name 'Not_Kebab' of .* is not kebab-case"):
        register_pass(Misnamed)


def test_a_pass_must_be_a_frozen_dataclass() -> None:
    class Plain(Sample):
        pass

    @dataclass
    class Thawed(Pass):
        name = "test-thawed"
        summary = ""

        def run(self, module: Module) -> None: ...

    for cls in (Plain, Thawed):
        with pytest.raises(PassError, match="must be a frozen dataclass"):
            options_of(cls)


def test_an_option_needs_a_type_with_a_text() -> None:
    @dataclass(frozen=True)
    class Odd(Pass):
        name = "test-odd"
        summary = ""
        weights: dict[str, int]

        def run(self, module: Module) -> None: ...

    with pytest.raises(PassError, match=r"field 'weights' has type dict\[str, int\]; options are"):
        options_of(Odd)


def test_the_default_pipeline_takes_a_placer() -> None:
    passes = default_pipeline("m-sct")
    assert tuple(each.name for each in passes) == DEFAULT
    assert parse_pipeline("default{placer=m-sct}") == passes
    assert parse_pipeline("prepare,place{placer=m-sct},refine-placement,lower") == passes
    assert parse_pipeline(print_pipeline(passes)) == passes
    assert default_pipeline() == parse_pipeline("default{placer=auto}")
