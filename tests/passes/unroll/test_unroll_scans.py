"""unroll-scans: layers out of scans, with values as ``jax.jit`` has them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baechi_jax.ir.errors import PassError
from baechi_jax.ir.function import argument_attributes, result_attributes
from baechi_jax.ir.pieces import Piece, leaves
from baechi_jax.ir.topology import Topology
from baechi_jax.ir.trace import trace
from baechi_jax.ir.types import TokenType
from baechi_jax.passes.pipeline import parse_pipeline
from baechi_jax.passes.unroll_scans import UnrollScans
from tests.passes.unroll.evaluate import check, unroll

Tree = Any

WIDTH = 8


def parameters(layers: int = 4, seed: int = 0) -> Tree:
    """A stack of layers: ``x + tanh(x @ w + b)``."""
    draw = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(draw.normal(0, 0.4, (layers, WIDTH, WIDTH)), jnp.float32),
        "b": jnp.asarray(draw.normal(0, 0.4, (layers, WIDTH)), jnp.float32),
    }


def batch(seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(0, 1, (6, WIDTH)), jnp.float32)


def layer(x: jax.Array, p: Tree) -> tuple[jax.Array, None]:
    return x + jnp.tanh(x @ p["w"] + p["b"]), None


def predict(params: Tree, x: jax.Array) -> jax.Array:
    return jax.lax.scan(layer, x, params)[0]


def loss(params: Tree, x: jax.Array) -> jax.Array:
    return jnp.mean(predict(params, x) ** 2)


def sgd(params: Tree, x: jax.Array) -> tuple[Tree, jax.Array]:
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def adam(loss: Callable[[Tree, Tree], jax.Array], clip: float | None = None) -> Any:
    """A step with Adam, weight decay, and clipping by the global norm where it is given."""

    def step(state: Tree, x: Tree) -> tuple[Tree, jax.Array]:
        value, grads = jax.value_and_grad(loss)(state["params"], x)
        if clip is not None:
            norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
            grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grads)
        count = state["count"] + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)
        params = jax.tree.map(
            lambda p, m, v: (
                p
                - 0.01 * (m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-4) + 0.1 * p)
            ),
            state["params"],
            m,
            v,
        )
        return {"params": params, "m": m, "v": v, "count": count}, value

    return step


def adam_state(params: Tree) -> Tree:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "count": jnp.zeros((), jnp.float32)}


def no_stack(unrolled: Any, layers: int = 4) -> None:
    """No value of the body is a stack of all layers."""
    body = unrolled.module.main.body
    for op in body.ops:
        for result in op.results:
            shape = getattr(result.type, "shape", ())
            assert len(shape) < 2 or shape[0] != layers, op


# What comes out ------------------------------------------------------------------------------


def test_layers_of_a_forward_function() -> None:
    unrolled = check(predict, (parameters(), batch()))
    assert unrolled.count("scan") == 0
    assert unrolled.names("tanh") == [f"params[{index}]" for index in range(4)]
    assert unrolled.pieces == [
        *(Piece(leaf, start, 1, 4) for leaf in range(2) for start in range(4)),
        None,
    ]
    no_stack(unrolled)


def test_gradients_and_the_update_stay_apart() -> None:
    unrolled = check(sgd, (parameters(7), batch()), donate=(0,))
    assert unrolled.count("scan") == unrolled.count("concatenate") == 0
    assert unrolled.pieces[:-1] == unrolled.result_pieces[:-1]
    no_stack(unrolled, 7)


def test_names_donation_and_state_of_pieces() -> None:
    main = unroll(sgd, (parameters(3), batch()), donate=(0,)).module.main
    arguments, results = argument_attributes(main), result_attributes(main)
    assert [entry["baechi.name"] for entry in arguments] == [
        *(f"params['b'][{i}:{i + 1}]" for i in range(3)),
        *(f"params['w'][{i}:{i + 1}]" for i in range(3)),
        "x",
    ]
    assert [entry.get("baechi.state") for entry in arguments] == [0, 1, 2, 3, 4, 5, None]
    assert all("baechi.donated" in entry for entry in arguments[:6])
    assert str(results[4]["baechi.name"]).endswith("['w'][1:2]")


def test_the_backward_iteration_has_the_name_of_the_forward_one() -> None:
    names = unroll(sgd, (parameters(), batch())).names("dot_general")
    assert "jvp()/params[2]" in names
    assert "transpose(jvp())/params[2]" in names
    # Two products backward, one forward; the last layer needs no gradient of its input less.
    assert len(names) == 3 * 4 - 1 or len(names) == 3 * 4


@pytest.mark.parametrize("clip", [pytest.param(None, marks=pytest.mark.slow), 0.5])
def test_adam_with_moments_weight_decay_and_clipping(clip: float | None) -> None:
    arguments = (adam_state(parameters(5)), batch())
    unrolled = check(adam(loss, clip), arguments, donate=(0,), rtol=1e-4)
    assert sum(piece is not None for piece in unrolled.pieces) == 2 * 3 * 5
    assert unrolled.pieces[:-1] == unrolled.result_pieces[:-1]
    assert unrolled.count("scan") == unrolled.count("concatenate") == 0
    no_stack(unrolled, 5)


def test_zeros_made_by_arithmetic_are_made_for_each_layer() -> None:
    """``jnp.imag`` of a real stack is zeros; optax's global norm squares them."""

    def norm(params: Tree, x: jax.Array) -> tuple[Tree, jax.Array]:
        grads = jax.grad(loss)(params, x)
        squares = [jnp.sum(jnp.square(g.real) + jnp.square(g.imag)) for g in grads.values()]
        return grads, jnp.sqrt(sum(squares))

    unrolled = check(norm, (parameters(7), batch()))
    shapes = [op.result.type.shape for op in unrolled.ops if op.name == "jax.square"]  # type: ignore[union-attr]
    assert shapes.count((1, WIDTH, WIDTH)) == 2 * 7
    assert unrolled.count("slice") == 0


def test_a_layer_shares_a_device_with_its_state_and_the_ends_of_its_gradients() -> None:
    module = unroll(adam(loss), (adam_state(parameters(3)), batch()), donate=(0,)).module
    module.attributes["baechi.topology"] = Topology.uniform(2)
    for each in parse_pipeline("annotate-costs,colocate"):
        each.run(module)
    entries, results = argument_attributes(module.main), module.main.body.terminator.operands
    groups = {str(entry["baechi.name"]): entry.get("baechi.group") for entry in entries}
    seen = 0
    for entry in entries:
        name, state = str(entry["baechi.name"]), entry.get("baechi.state")
        if not name.startswith("state['m']") or not isinstance(state, int):
            continue
        seen += 1
        group = entry["baechi.group"]
        for other in ("v", "params"):
            assert groups[name.replace("['m']", f"['{other}']")] == group
        update = results[state].defining_op
        assert update is not None
        assert update.attributes["baechi.group"] == group
        (expanded,) = [
            op
            for product in update.operands
            if (scaled := product.defining_op) is not None
            for value in scaled.operands
            if (op := value.defining_op) is not None and op.name == "jax.reshape"
        ]
        gradient = expanded.operands[0].defining_op
        assert expanded.attributes["baechi.group"] == group
        assert gradient is not None
        assert gradient.attributes["baechi.group"] == group
    assert seen == 2 * 3


def test_a_norm_is_one_sum_of_each_layers() -> None:
    unrolled = unroll(adam(loss, 0.5), (adam_state(parameters(5)), batch()), donate=(0,))
    by_line: dict[Any, int] = {}
    for op in unrolled.ops:
        if op.name == "jax.add" and op.result.type.shape == ():  # type: ignore[union-attr]
            by_line[op.location] = by_line.get(op.location, 0) + 1
    # Of two leaves with five layers each: four additions a leaf, and what adds leaves together.
    assert max(by_line.values()) >= 2 * 4


def test_a_reversed_scan() -> None:
    def backwards(params: Tree, x: jax.Array) -> jax.Array:
        return jax.lax.scan(layer, x, params, reverse=True)[0]

    unrolled = check(jax.grad(lambda p, x: jnp.sum(backwards(p, x) ** 2)), (parameters(), batch()))
    forward = [name for name in unrolled.names("tanh") if "transpose" not in name]
    assert forward == [f"jvp()/p[{index}]" for index in (3, 2, 1, 0)]


def test_results_of_each_layer() -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        def body(x: jax.Array, p: Tree) -> Tree:
            x, _ = layer(x, p)
            return x, (jnp.sum(x), jnp.outer(x, jnp.ones(700)))

        return jax.lax.scan(body, x, params)

    unrolled = check(fn, (parameters(), batch()))
    # The vector of sums is small and put together; the activations are large and stay apart.
    assert unrolled.result_pieces == [None, None, *(Piece(2, i, 1, 4) for i in range(4))]
    assert unrolled.count("concatenate") == 1


@pytest.mark.slow
def test_several_carries_constants_and_counters() -> None:
    def fn(params: Tree, x: jax.Array, scale: jax.Array) -> Tree:
        def body(carry: Tree, p: Tree) -> Tree:
            x, total, index = carry
            x, _ = layer(x * scale, p)
            return (x, total + jnp.sum(x) / (1 + index), index + 1), None

        return jax.lax.scan(body, (x, 0.0, 0), params)[0]

    check(fn, (parameters(), batch(), jnp.float32(0.5)))


@pytest.mark.parametrize("around", [pytest.param(False, marks=pytest.mark.slow), True])
def test_remat_keeps_its_barriers(around: bool) -> None:
    def remat_loss(params: Tree, x: jax.Array) -> jax.Array:
        if around:
            return jnp.mean(jax.checkpoint(predict)(params, x) ** 2)
        return jnp.mean(jax.lax.scan(jax.checkpoint(layer), x, params)[0] ** 2)

    unrolled = check(adam(remat_loss), (adam_state(parameters()), batch()), donate=(0,), rtol=1e-4)
    assert unrolled.count("scan") == unrolled.count("concatenate") == 0
    assert unrolled.count("optimization_barrier") >= 4
    no_stack(unrolled)


@pytest.mark.parametrize("inside", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dropout_keys(inside: bool) -> None:
    def fn(params: Tree, x: jax.Array, keys: jax.Array) -> jax.Array:
        def body(x: jax.Array, row: Tree) -> Tree:
            p, key = row
            x, _ = layer(x, p)
            return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0.0), None

        given = jax.random.split(keys, 4) if inside else keys
        return jnp.sum(jax.lax.scan(body, x, (params, given))[0] ** 2)

    key = jax.random.key(0)
    keys = key if inside else jax.random.split(key, 4)
    unrolled = check(fn, (parameters(), batch(), keys))
    assert (unrolled.pieces[-1] is None) == inside


@pytest.mark.slow
def test_mixed_precision() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        low = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        return loss(low, x.astype(jnp.bfloat16)).astype(jnp.float32)

    unrolled = check(adam(fn), (adam_state(parameters()), batch()), donate=(0,), rtol=3e-2)
    assert unrolled.count("concatenate") == 0
    no_stack(unrolled)


@pytest.mark.slow
def test_tied_weights() -> None:
    def tied(params: Tree, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(layer, x, params["layers"])
        logits = x @ params["embed"].T
        return jnp.mean(jax.nn.log_softmax(logits @ params["embed"])) + jnp.mean(x**2)

    params = {"layers": parameters(), "embed": batch(3)}
    unrolled = check(adam(tied), (adam_state(params), batch()), donate=(0,), rtol=1e-4)
    assert sum(piece is None for piece in unrolled.pieces) == 3 + 1 + 1


@pytest.mark.slow
def test_a_scan_in_a_scan_stays_one_operation_of_each_layer() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        def body(x: jax.Array, p: Tree) -> Tree:
            def inner(x: jax.Array, b: jax.Array) -> Tree:
                return jnp.sin(x @ p["w"] + b), None

            return jax.lax.scan(inner, x, jnp.stack([p["b"], -p["b"], p["b"]]))[0], None

        return jnp.sum(jax.lax.scan(body, x, params)[0] ** 2)

    unrolled = check(jax.grad(fn), (parameters(), batch()))
    assert unrolled.count("scan") == 2 * 4
    no_stack(unrolled)


@pytest.mark.slow
def test_a_branch_in_a_layer() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        def body(x: jax.Array, p: Tree) -> Tree:
            return jax.lax.cond(jnp.sum(x) > 0, lambda: layer(x, p)[0], lambda: x * 0.5), None

        return jnp.sum(jax.lax.scan(body, x, params)[0] ** 2)

    check(jax.grad(fn), (parameters(), batch()))


def test_a_branch_around_the_update() -> None:
    def step(params: Tree, x: jax.Array) -> Tree:
        value, grads = jax.value_and_grad(loss)(params, x)
        update = lambda: jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)  # noqa: E731
        return jax.lax.cond(jnp.isfinite(value), update, lambda: params), value

    unrolled = check(step, (parameters(), batch()), donate=(0,))
    assert unrolled.count("cond") == 4
    no_stack(unrolled)


@pytest.mark.slow
def test_two_groups_of_layers() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        memory, _ = jax.lax.scan(layer, x, params["encoder"]["layers"])

        def body(x: jax.Array, p: Tree) -> Tree:
            x, _ = layer(x + memory, p)
            return x, None

        return jnp.mean(jax.lax.scan(body, x, params["decoder"]["layers"])[0] ** 2)

    for decoder in (4, 3):
        params = {
            "encoder": {"layers": parameters(4)},
            "decoder": {"layers": parameters(decoder, seed=2)},
        }
        unrolled = check(adam(fn), (adam_state(params), batch()), donate=(0,), rtol=1e-4)
        assert unrolled.count("scan") == 0
        assert len(unrolled.names("tanh")) == 4 + decoder
        assert unrolled.pieces[:-1] == unrolled.result_pieces[:-1]
        assert len(leaves(unrolled.pieces)) == 3 * 4 + 2
        if decoder == 4:
            assert "jvp()/encoder.layers[1]" in unrolled.names("tanh")
            assert "jvp()/decoder.layers[1]" in unrolled.names("tanh")


def test_effects_keep_their_order() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        def body(carry: Tree, p: Tree) -> Tree:
            x, index = carry
            jax.debug.print("layer {}", index, ordered=True)
            return (layer(x, p)[0], index + 1), None

        return jax.lax.scan(body, (x, 0), params)[0][0]

    unrolled = unroll(fn, (parameters(), batch()))
    tokens = [op for op in unrolled.ops if op.operands and op.operands[-1].type == TokenType()]
    assert [op.location.name for op in tokens] == [f"params[{index}]" for index in range(4)]
    for before, after in itertools.pairwise(tokens):
        assert after.operands[-1] is before.results[-1]


def test_stacks_of_two_lengths_made_of_one_another() -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        # The shorter scan is looked at first; it tells nothing of the longer one.
        most = jax.tree.map(lambda p: p[1:], params)
        x, _ = jax.lax.scan(layer, x, most)
        return jax.lax.scan(layer, x, params)[0]

    unrolled = unroll(fn, (parameters(), batch()))
    assert len(unrolled.names("tanh")) == 4
    assert unrolled.count("scan") == 1
    assert unrolled.count("concatenate") == 2


def test_a_long_way_from_arguments_to_what_is_scanned() -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        for _ in range(700):
            params = jax.tree.map(lambda p: p * 1.001, params)
        return predict(params, x)

    assert unroll(fn, (parameters(2), batch())).count("scan") == 0


# Where the layers are mixed --------------------------------------------------------------------


def test_a_stack_that_is_read_whole_is_put_together_there(caplog: pytest.LogCaptureFixture) -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        value, grads = jax.value_and_grad(loss)(params, x)
        smooth = params["w"][::-1]  # mixes the layers
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value, smooth

    with caplog.at_level(logging.INFO, logger="baechi_jax.passes.unroll.rewrite"):
        unrolled = check(fn, (parameters(), batch()), donate=(0,))
    assert unrolled.count("concatenate") == 1
    (record,) = [r for r in caplog.records if "put together" in r.getMessage()]
    assert "test_unroll_scans.py" in record.getMessage()
    assert "'jax.rev'" in record.getMessage()
    assert record.levelno == logging.INFO


def test_sums_over_layers_are_combined_where_they_are_read() -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        value, grads = jax.value_and_grad(loss)(params, x)
        mean = jnp.mean(grads["w"], axis=0)
        top = jnp.max(jnp.abs(params["w"]))
        return jax.tree.map(lambda p, g: p - 0.1 * g / top, params, grads), value, jnp.tanh(mean)

    unrolled = check(fn, (parameters(), batch()), donate=(0,))
    assert unrolled.count("concatenate") == 0
    no_stack(unrolled)


def test_state_whose_next_value_mixes_the_layers_is_whole_at_the_end() -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        return jax.tree.map(lambda p: p[::-1], params), loss(params, x)

    main = check(fn, (parameters(), batch()), donate=(0,)).module.main
    assert not any("baechi.state" in entry for entry in argument_attributes(main)[:-1])


# Several iterations to a piece -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "rows"),
    [
        (7, 3),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(6, 2), (7, 2), (4, 4), (4, 9)]),
    ],
)
def test_several_iterations_to_a_piece(layers: int, rows: int) -> None:
    unrolled = check(
        adam(loss, 0.5), (adam_state(parameters(layers)), batch()), donate=(0,), iterations=rows
    )
    pieces = -(-layers // rows)
    assert sum(piece is not None for piece in unrolled.pieces) == 2 * 3 * pieces
    single = layers % rows == 1
    assert unrolled.count("scan") == 2 * (pieces - single)
    assert unrolled.pieces[:-1] == unrolled.result_pieces[:-1]
    assert unrolled.count("concatenate") == 0


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_several_iterations_inlined_in_one_piece(reverse: bool) -> None:
    def fn(params: Tree, x: jax.Array) -> Tree:
        def body(x: jax.Array, p: Tree) -> Tree:
            x, _ = layer(x, p)
            return x, jnp.sum(x)

        x, sums = jax.lax.scan(body, x, params, reverse=reverse)
        return jnp.mean(x**2) + jnp.sum(sums * jnp.arange(5)), sums

    def step(params: Tree, x: jax.Array) -> Tree:
        (_, sums), grads = jax.value_and_grad(fn, has_aux=True)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), sums

    unrolled = check(step, (parameters(5), batch()), donate=(0,), iterations=2, inline=True)
    assert unrolled.count("scan") == 0
    forward = [name for name in unrolled.names("tanh") if "transpose" not in name]
    order = reversed(range(5)) if reverse else range(5)
    assert forward == [f"jvp()/params[{index}]" for index in order]
    assert [p for p in unrolled.pieces if p is not None][:3] == [
        Piece(0, 0, 2, 5),
        Piece(0, 2, 2, 5),
        Piece(0, 4, 1, 5),
    ]


def test_a_piece_of_several_iterations_is_named_by_its_range() -> None:
    unrolled = unroll(sgd, (parameters(5), batch()), donate=(0,), iterations=2)
    assert unrolled.names("scan") == [
        "jvp()/params[0:2]",
        "jvp()/params[2:4]",
        "transpose(jvp())/params[2:4]",
        "transpose(jvp())/params[0:2]",
    ]


def test_so_many_equal_pieces_where_they_divide_the_layers() -> None:
    unrolled = check(sgd, (parameters(6), batch()), donate=(0,), pieces=3)
    assert [p for p in unrolled.pieces if p is not None][:3] == [
        Piece(0, 0, 2, 6),
        Piece(0, 2, 2, 6),
        Piece(0, 4, 2, 6),
    ]
    odd = unroll(sgd, (parameters(5), batch()), donate=(0,), pieces=3)
    assert [p.size for p in odd.pieces if p is not None and p.leaf == 0] == [1] * 5


# Which scans -------------------------------------------------------------------------------------


def rnn(params: Tree, xs: jax.Array) -> jax.Array:
    def cell(h: jax.Array, x: jax.Array) -> Tree:
        return jnp.tanh(h @ params["w"][0] + x), None

    return jax.lax.scan(cell, jnp.zeros((5, WIDTH)), xs)[0]


def test_time_steps_stay_one_operation() -> None:
    xs = jnp.ones((6, 5, WIDTH))
    step = adam(lambda p, x: jnp.sum(rnn(p, x) ** 2))
    for fn, args in ((rnn, (parameters(), xs)), (step, (adam_state(parameters()), xs))):
        unrolled = unroll(fn, args)
        assert unrolled.count("scan") > 0
        assert not any(unrolled.pieces)


@pytest.mark.slow
def test_time_steps_are_unrolled_on_request() -> None:
    xs = jnp.ones((6, 5, WIDTH))
    assert check(rnn, (parameters(), xs), when="always").count("scan") == 0
    named = check(rnn, (parameters(), xs), arguments=("xs",))
    assert named.pieces[-1] == Piece(2, 5, 1, 6)


def test_a_while_loop_stays_one_operation() -> None:
    def fn(params: Tree, x: jax.Array) -> jax.Array:
        def body(carry: Tree) -> Tree:
            index, x = carry
            p = jax.tree.map(lambda a: a[index], params)
            return index + 1, layer(x, p)[0]

        return jax.lax.while_loop(lambda carry: carry[0] < 4, body, (0, x))[1]

    assert check(fn, (parameters(), batch()), when="always").count("while") == 1


@pytest.mark.parametrize(
    "options", [{"longest": 3}, {"when": "never"}, {"keep": ("params",)}, {"share": 1.0}]
)
def test_scans_that_the_options_leave_alone(options: dict[str, Any]) -> None:
    def fn(params: Tree, x: jax.Array, other: jax.Array) -> Tree:
        return sgd(params, x)

    unrolled = unroll(fn, (parameters(), batch(), jnp.ones(9000)), **options)
    assert unrolled.count("scan") == 2
    assert not any(unrolled.pieces)


@pytest.mark.slow
def test_cheap_scans_stay_by_default() -> None:
    def fn(params: Tree, big: jax.Array, x: jax.Array) -> Tree:
        return *sgd(params, x), big + 1

    args = (parameters(), jnp.ones((300, 1000)), batch())
    assert check(fn, args, share=UnrollScans().share).count("scan") == 2


def test_one_device_needs_no_layers() -> None:
    module = trace(sgd, (parameters(), batch())).module
    module.attributes["baechi.topology"] = Topology.uniform(1)
    UnrollScans(share=0.0).run(module)
    assert sum(op.name == "jax.scan" for op in module.main.body.ops) == 2


@pytest.mark.slow
def test_one_argument_is_kept_whole() -> None:
    unrolled = check(sgd, (parameters(), batch()), donate=(0,), keep=("params['b']",))
    assert [piece is None for piece in unrolled.pieces] == [True, *[False] * 4, True]


def test_a_second_run_is_refused() -> None:
    module = unroll(sgd, (parameters(), batch())).module
    with pytest.raises(PassError, match="in pieces already"):
        UnrollScans().run(module)


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="when=sometimes is not known"):
        UnrollScans(when="sometimes")
    with pytest.raises(ValueError, match="iterations must be at least 1, found 0"):
        UnrollScans(iterations=0)
    with pytest.raises(ValueError, match="pieces must not be negative, found -1"):
        UnrollScans(pieces=-1)
    with pytest.raises(ValueError, match="longest must be at least 1, found 0"):
        UnrollScans(longest=0)
    with pytest.raises(ValueError, match="around must not be negative, found -1"):
        UnrollScans(around=-1)
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        UnrollScans(share=2.0)
    with pytest.raises(PassError, match="no argument is named 'parms'; did you mean 'params'"):
        UnrollScans(arguments=("parms",)).run(trace(sgd, (parameters(), batch())).module)
    assert parse_pipeline("unroll-scans{iterations=2 when=always}") == (
        UnrollScans(iterations=2, when="always"),
    )


# Loops around layers -------------------------------------------------------------------------


def accumulate(params: Tree, xs: jax.Array) -> Tree:
    """Gradients summed over microbatches, then one step."""

    def micro(carry: Tree, x: jax.Array) -> tuple[Tree, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(jnp.add, carry, grads), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    grads, losses = jax.lax.scan(micro, zeros, xs)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), losses


def test_microbatches_around_layers_are_unrolled_too() -> None:
    arguments = (parameters(), jnp.stack([batch(1), batch(2), batch(5)]))
    unrolled = check(accumulate, arguments, donate=(0,))
    assert unrolled.count("scan") == 0
    assert "scan[2]/jvp()/params[1]" in unrolled.names("tanh")
    # The losses of the microbatches are one result; the parameters are in layers.
    assert unrolled.count("concatenate") == 1
    assert unrolled.pieces[:-1] == unrolled.result_pieces[:-1]
    assert unrolled.pieces[-1] is None
    no_stack(unrolled)


@pytest.mark.parametrize("options", [{"around": 2}, {"keep": ("params",)}])
def test_microbatches_that_stay_one_operation(options: dict[str, Any]) -> None:
    arguments = (parameters(), jnp.stack([batch(1), batch(2), batch(5)]))
    unrolled = unroll(accumulate, arguments, donate=(0,), **options)
    assert unrolled.count("scan") == 1
    assert not any(unrolled.pieces)
