"""From modules to problems."""

import pytest

from baechi_jax.ir.errors import PassError
from baechi_jax.ir.parser import parse_module
from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.from_module import ModuleProblem, from_module
from baechi_jax.passes.simulate.judge import judge

TOPOLOGY = """#baechi.topology<
  devices = [#baechi.device<kind = "gpu", memory_bytes = 1000>, #baechi.device<kind = "cpu">],
  links = [#baechi.link<source = 0, target = 1>, #baechi.link<source = 1, target = 0>]>"""


def module(
    tasks: str, arguments: str = "{}, {}", results: str = "%a#0", topology: str = TOPOLOGY
) -> str:
    count = results.count("%")
    types = ", ".join(["tensor<4xf32>"] * count)
    return f"""
"builtin.module"() ({{
  "func.func"() ({{
  ^bb0(%w: tensor<4xf32>, %x: tensor<4xf32>):
    {tasks}
    "func.return"({results}) : ({types}) -> ()
  }}) {{sym_name = "main", function_type = (tensor<4xf32>, tensor<4xf32>) -> ({types}),
      arg_attrs = [{arguments}]}} : () -> ()
}}) {{{f"baechi.topology = {topology}" if topology else ""}}} : () -> ()
"""


def task(
    name: str,
    result: str,
    operands: str,
    attributes: str = "",
    types: str = "(tensor<4xf32>) -> tensor<4xf32>",
    cost: str = "baechi.cost = #baechi.cost<seconds = [1.0, 4.0], temporary_bytes = 5>",
) -> str:
    inputs, outputs = types.split(" -> ")
    inputs = inputs.strip("()").split(", ")
    outputs = outputs.strip("()").split(", ")
    arguments = ", ".join(f"%{name}_{i}: {each}" for i, each in enumerate(inputs))
    values = ", ".join(f"%{name}r{i}" for i in range(len(outputs)))
    ops = "\n".join(f'%{name}r{i} = "jax.f"() : () -> {each}' for i, each in enumerate(outputs))
    extra = ", ".join(each for each in (f'sym_name = "{name}"', cost, attributes) if each)
    return f"""{result} = "baechi.task"({operands}) ({{
    ^bb0({arguments}):
      {ops}
      "baechi.yield"({values}) : ({", ".join(outputs)}) -> ()
    }}) {{{extra}}} : {types} loc("train.py":7:1)
    """


def read(text: str, memory_scale: float = 1.0) -> ModuleProblem:
    return from_module(parse_module(text), memory_scale)


TWO = task("a", "%a", "%w") + task("b", "%b", "%a")


def test_arguments_then_tasks() -> None:
    source = read(module(TWO, '{baechi.name = "state.w"}, {}', "%b"))
    problem = source.problem
    assert problem.node_names == ("state.w", "argument 1", "a", "b")
    assert problem.node_sources == ("", "", "train.py:7", "train.py:7")
    assert problem.is_argument.tolist() == [True, True, False, False]
    assert problem.seconds.tolist() == [[0, 0], [0, 0], [1, 4], [1, 4]]
    assert problem.temporary_bytes.tolist() == [0, 0, 5, 5]
    assert problem.tensor_bytes.tolist() == [16] * 4
    assert problem.producer.tolist() == [0, 1, 2, 3]
    assert problem.lists.readers == [[2], [], [3], []]
    assert [source.node_of_task(0), source.node_of_argument(1)] == [2, 1]


def test_resident_bytes_are_those_of_the_types() -> None:
    """No cost holds them: what lives when the step starts takes what its type says, read or not."""
    text = module(TWO, results="%b").replace("%x: tensor<4xf32>", "%x: tensor<8x3xbf16>")
    problem = read(
        text.replace("(tensor<4xf32>, tensor<4xf32>)", "(tensor<4xf32>, tensor<8x3xbf16>)")
    ).problem
    assert problem.tensor_bytes[problem.producer[problem.is_argument]].tolist() == [16, 48]
    # Beside both: a's result and b's, and the temporaries of b.
    assert judge(problem, [0] * problem.nodes).peak_bytes == [16 + 48 + 2 * 16 + 5, 0]


def test_undonated_arguments_and_results_persist() -> None:
    problem = read(module(TWO, "{baechi.donated}, {}", "%b, %x")).problem
    assert problem.persistent.tolist() == [False, True, False, True]
    problem = read(module(TWO, "{baechi.donated}, {}", "%b, %w")).problem
    assert problem.persistent.tolist() == [True, True, False, True]


def test_memory_scale_multiplies_the_limits() -> None:
    assert read(module(TWO, results="%b"), 0.5).problem.lists.limit_bytes[0] == 500


def test_groups_by_name() -> None:
    text = module(
        task("a", "%a", "%w", 'baechi.group = "g"') + task("b", "%b", "%a"),
        '{baechi.group = "g"}, {}',
        "%b",
    )
    problem = read(text).problem
    assert problem.group.tolist() == [0, 1, 0, 2]
    assert problem.group_names == ("g", "argument 1", "b")


def test_state_shares_a_device_and_its_buffer() -> None:
    problem = read(module(TWO, "{baechi.donated, baechi.state = 0}, {}", "%b")).problem
    assert problem.group[0] == problem.group[3]
    assert problem.alias.tolist() == [-1, -1, -1, 0]
    kept = read(module(TWO, "{baechi.state = 0}, {}", "%b")).problem
    assert kept.group[0] == kept.group[3]
    assert kept.alias.tolist() == [-1] * 4


def test_tokens_share_a_device() -> None:
    text = module(
        task("a", "%a:2", "%w", types="(tensor<4xf32>) -> (tensor<4xf32>, !baechi.token)")
        + task("b", "%b", "%a#1", types="(!baechi.token) -> tensor<4xf32>"),
        results="%b",
    )
    problem = read(text).problem
    assert problem.group[2] == problem.group[3]
    assert problem.tensor_bytes.tolist() == [16, 16, 16, 0, 16]


def test_an_operand_read_twice_is_one_reader() -> None:
    text = module(
        task("a", "%a", "%w, %w", types="(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"),
        results="%a",
    )
    assert read(text).problem.lists.readers[0] == [2]


def test_pins() -> None:
    text = module(
        task("a", "%a", "%w", 'baechi.pin = [1], baechi.group = "g"')
        + task("b", "%b", "%a", 'baechi.group = "g"'),
        "{}, {baechi.pin = [0]}",
        "%b",
    )
    problem = read(text).problem
    assert problem.pinned.tolist() == [-1, 0, 1]


def test_pins_that_contradict_are_named() -> None:
    text = module(
        task("a", "%a", "%w", 'baechi.pin = [1], baechi.group = "g"')
        + task("b", "%b", "%a", 'baechi.pin = [0], baechi.group = "g"'),
        results="%b",
    )
    message = r"'b' is pinned to device 0 and 'a' to device 1, .*group 'g'.*unpin one"
    with pytest.raises(PlacementProblemError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (module(TWO, results="%b", topology=""), "no 'baechi.topology'; run annotate-costs"),
        (module(task("a", "%a", "%w", cost=""), results="%a"), "task 'a' at train.py:7 has no"),
        (
            module(
                task("a", "%a", "%w", cost="baechi.cost = #baechi.cost<seconds = [1.0]>"),
                results="%a",
            ),
            r"has seconds for 1 device kinds, the topology has 2 \(gpu, cpu\)",
        ),
        (
            module('%a = "jax.sin"(%w) : (tensor<4xf32>) -> tensor<4xf32>', results="%a"),
            "'jax.sin' at .* is in no task; run fuse-tasks",
        ),
        (
            module(task("a", "%a", "%w", "baechi.pin = [2]"), results="%a"),
            r"'baechi.pin' of 'a' must name one of 2 devices as \[device\], found \(2,\)",
        ),
    ],
)
def test_what_cannot_be_placed_is_named(text: str, message: str) -> None:
    with pytest.raises(PassError, match=message):
        read(text)


def test_a_module_without_tasks() -> None:
    problem = read(module("", results="%x")).problem
    assert problem.nodes == 2
    assert problem.persistent.tolist() == [True, True]
