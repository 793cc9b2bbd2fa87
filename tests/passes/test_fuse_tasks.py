"""``fuse-tasks`` on traced programs, and the parts it is made of."""

import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.function import argument_attributes, function, refresh_function_type
from baechi_jax.ir.location import Location
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.types import TensorType
from baechi_jax.ir.verifier import verify
from baechi_jax.passes.clustering.cuts import Cutter, Repeat, find_repeat
from baechi_jax.passes.clustering.op_graph import OpGraph
from baechi_jax.passes.fuse_tasks import FuseTasks, choose_clusters
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.tasks import tasks_of

FRONT = "inline-calls,eliminate-dead-code,annotate-costs,colocate"
SQUARE = jax.ShapeDtypeStruct((64, 64), jnp.float32)


def fused(step, arguments, max_tasks: int) -> Module:
    module = trace(step, arguments, {}, donate_argnums=0).module
    module.attributes["baechi.topology"] = Topology.uniform(2)
    PassManager(parse_pipeline(FRONT)).run(module)
    FuseTasks(max_tasks=max_tasks).run(module)
    verify(module)
    return module


def loss(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return jnp.sum(x * x)


def momentum_step(state, x):
    params, moments = state
    grads = jax.grad(loss)(params, x)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments


def network(layers: int):
    params = [(SQUARE, jax.ShapeDtypeStruct((64,), jnp.float32))] * layers
    return ((params, params), SQUARE)


def backward(op: Operation) -> bool:
    return "transpose(" in op.location.name


@pytest.fixture(scope="module")
def step_of_six() -> Module:
    return fused(momentum_step, network(6), 40)


def test_layers_give_tasks_of_one_structure(step_of_six: Module) -> None:
    tasks = [t for t in tasks_of(step_of_six.main) if len(t.body.ops) > 3]
    kinds: dict[str, int] = {}
    for task in tasks:
        kinds[fingerprint(task)] = kinds.get(fingerprint(task), 0) + 1
    # Forward, backward and update of the four inner layers at least.
    assert sum(1 for count in kinds.values() if count >= 4) >= 3


def test_forward_backward_and_update_stay_apart(step_of_six: Module) -> None:
    for task in tasks_of(step_of_six.main):
        dots = [op for op in task.body.ops if op.name == "jax.dot_general"]
        assert len({backward(op) for op in dots}) <= 1
        if any(op.location.name == "" and op.name == "jax.sub" for op in task.body.ops):
            # Nothing waits for an update: what it gives, the step returns.
            readers = {user.name for result in task.results for user in result.users}
            assert readers == {"func.return"}


def test_moments_wait_for_their_gradient(step_of_six: Module) -> None:
    """``0.9 * m`` could be computed at once, and would then live beside m all through the step."""
    arguments = step_of_six.main.body.arguments
    names = [str(entry["baechi.name"]) for entry in argument_attributes(step_of_six.main)]
    moments = {value for value, name in zip(arguments, names) if name.startswith("state[1]")}
    assert len(moments) == 12
    for task in tasks_of(step_of_six.main):
        if moments & set(task.operands):
            assert any(op.name == "jax.sub" for op in task.body.ops)


def test_a_tied_weight_does_not_tie_what_lies_between() -> None:
    def tied(params, x):
        embed, layers = params
        x = embed[x]
        for w in layers:
            x = jnp.tanh(x @ w)
        return jnp.sum(jax.nn.log_softmax(x @ embed.T))

    def step(params, x):
        grads = jax.grad(tied)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = (jax.ShapeDtypeStruct((128, 64), jnp.float32), [SQUARE] * 6)
    module = fused(step, (params, jax.ShapeDtypeStruct((64,), jnp.int32)), 60)
    embedding = argument_attributes(module.main)[0]["baechi.group"]
    inside = [
        op
        for task in tasks_of(module.main)
        if task.attributes.get("baechi.group") == embedding
        for op in task.body.ops
        if op.name == "jax.dot_general"
    ]
    # The head's product and its two backward products; none of the six layers'.
    assert len(inside) == 3


@pytest.mark.parametrize(("rows", "apart"), [(16384, True), (128, False)])
def test_a_large_table_is_not_tied_to_the_layer_that_reads_it(rows: int, apart: bool) -> None:
    def step(params, tokens):
        def table_loss(params):
            x = params["table"][tokens]
            for w in params["dense"]:
                x = jnp.tanh(x @ w)
            return jnp.sum(x)

        grads = jax.grad(table_loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    table = jax.ShapeDtypeStruct((rows, 256), jnp.float32)
    dense = [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 12
    tokens = jax.ShapeDtypeStruct((512,), jnp.int32)
    module = fused(step, ({"table": table, "dense": dense}, tokens), 200)
    groups = {
        str(entry["baechi.name"]): entry.get("baechi.group")
        for entry in argument_attributes(module.main)
    }
    assert (groups["params['table']"] != groups["params['dense'][0]"]) == apart


def test_branches_that_do_not_touch_are_tasks_of_their_own() -> None:
    def branches(params, x):
        for _ in range(3):
            params = [jnp.tanh(p @ x) for p in params]
        return params

    module = fused(branches, ([SQUARE] * 2, SQUARE), 8)
    # Every task reads one branch, and x.
    assert len(tasks_of(module.main)) >= 4
    for task in tasks_of(module.main):
        assert len(task.operands) <= 2


@pytest.mark.parametrize("max_tasks", [1, 2, 3, 5, 8, 13, 40])
def test_the_bound_holds(max_tasks: int) -> None:
    module = fused(momentum_step, network(5), max_tasks)
    assert 1 <= len(tasks_of(module.main)) <= max_tasks


def test_arguments_follow_their_group_to_its_new_name(step_of_six: Module) -> None:
    of_tasks = {t.attributes.get("baechi.group") for t in tasks_of(step_of_six.main)}
    of_arguments = {e.get("baechi.group") for e in argument_attributes(step_of_six.main)}
    assert of_arguments <= of_tasks


def test_pins_are_kept_apart() -> None:
    def pinned(params, x):
        for index, w in enumerate(params):
            with jax.named_scope(f"baechi.device:{index % 2}"):
                x = jnp.tanh(x @ w)
        return x

    module = fused(pinned, ([SQUARE] * 6, SQUARE), 1)
    for task in tasks_of(module.main):
        pins = {
            op.attributes["baechi.pin"] for op in task.body.ops if "baechi.pin" in op.attributes
        }
        assert pins == {task.attributes["baechi.pin"]}
    # The pins alternate along a chain: nothing less is possible.
    assert len(tasks_of(module.main)) == 6


def chain(length: int) -> Module:
    """A chain, forward and backward, in groups of eight."""
    type_ = TensorType((4, 4), "f32")
    func = function("main", [type_])
    value = func.body.arguments[0]
    for index in range(length):
        name = "jvp()" if index < length // 2 else "transpose(jvp())"
        op = Operation(
            "jax.cumsum",
            (value,),
            (type_,),
            {
                "axis": 0,
                "reverse": False,
                "baechi.cost": Cost(seconds=(1e-5,), output_bytes=64),
                "baechi.group": f"{index // 8}",
            },
            (),
            Location("f.py", 1, 0, name),
        )
        value = func.body.append(op).results[0]
    func.body.append(Operation("func.return", (value,)))
    refresh_function_type(func)
    module = Module({"baechi.topology": Topology.uniform(1)})
    module.body.append(func)
    return module


@pytest.mark.slow
def test_time_grows_with_the_number_of_operations_alone() -> None:
    seconds = []
    for length in (5_000, 20_000):
        func = chain(length).main
        start = time.process_time()
        _, clusters = choose_clusters(OpGraph.of(func), 200)
        seconds.append(time.process_time() - start)
        assert 50 < len(clusters) <= 200
    assert seconds[1] < 8 * seconds[0]


# Cuts -------------------------------------------------------------------------------------------


def test_a_repetition_is_found() -> None:
    assert find_repeat("xyabcabcabcabcz") == Repeat(start=2, period=3, count=4)
    assert find_repeat("abcdefg") is None
    assert find_repeat("") is None


def test_cuts_repeat_with_the_program() -> None:
    # A light start, six layers of four operations of which the second is heavy, a light end.
    keys = "s" + "abcd" * 6 + "e"
    weights = [0.1, *[1.0, 3.0, 1.0, 1.0] * 6, 0.1]
    resistance = [1.0] * len(keys)
    cuts = Cutter(weights, resistance, find_repeat(keys)).cuts(12)
    # The same two places in every layer; the light ends are no segments of their own.
    places = {(cut - 1) % 4 for cut in cuts}
    assert len(places) == 2
    assert len(cuts) == 11
    assert cuts[0] > 1
    assert cuts[-1] < len(keys) - 1


def test_fewer_segments_than_layers_cut_between_layers() -> None:
    keys = "abcd" * 12
    cuts = Cutter([1.0] * 48, [1.0] * 48, find_repeat(keys)).cuts(4)
    assert cuts == [12, 24, 36]


def test_cuts_avoid_resistance() -> None:
    weights = [1.0] * 20
    resistance = [5.0] * 20
    resistance[8] = resistance[13] = 0.0
    assert Cutter(weights, resistance, None).cuts(3) == [8, 13]


@given(
    st.lists(st.floats(0.001, 10.0), min_size=1, max_size=40),
    st.integers(1, 12),
    st.text("ab", max_size=40),
)
def test_cuts_are_ascending_and_few(weights: list[float], segments: int, text: str) -> None:
    keys = (text * 40)[: len(weights)] if text else ""
    repeat = find_repeat(keys) if len(keys) == len(weights) else None
    cuts = Cutter(weights, [1.0] * len(weights), repeat).cuts(segments)
    assert cuts == sorted(set(cuts))
    assert all(0 < cut < len(weights) for cut in cuts)
