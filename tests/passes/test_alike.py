"""Merged tasks cut into equal ones where layers repeat."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import baechi_jax as baechi
from baechi_jax.ir.fingerprint import fingerprint, fingerprints
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.passes.alike import LAUNCHES, Sequences, cut_alike
from baechi_jax.passes.tasks import device_of, tasks_of


def cut(*groups: str, ops: int = 40, launches: float = LAUNCHES) -> list[str]:
    """The pieces of groups of one-letter keys, with all members alike in size."""
    keys = [[ord(each) for each in group] for group in groups]
    sequences = Sequences(
        keys,
        [[ops] * len(group) for group in groups],
        [[launches] * len(group) for group in groups],
    )
    pieces = cut_alike(sequences)
    return [
        " ".join(group[start:stop] for start, stop in ranges)
        for group, ranges in zip(groups, pieces, strict=True)
    ]


def test_layers_become_one_piece_each() -> None:
    assert cut("abcabcabc") == ["abc abc abc"]
    # All groups are cut at the same place of a layer, where most of them are whole.
    assert cut("abcabcab", "cabcabcabc") == ["ab cab cab", "cab cab cab c"] or cut(
        "abcabcab", "cabcabcabc"
    ) == ["abc abc ab", "c abc abc abc"]
    assert cut("xabcabcy", "abc", "zabc") == ["x abc abc y", "abc", "z abc"]


def test_what_is_left_is_cut_too() -> None:
    assert cut("ababcdcd") == ["ab ab cd cd"]
    assert cut("aaab", "aab") == ["a a a b", "a a b"]


def test_what_does_not_repeat_stays_whole() -> None:
    assert cut("abcdef", "ghi") == ["abcdef", "ghi"]
    # In different groups they are tasks of their own already, or parts of different ones.
    assert cut("xab", "yab") == ["xab", "yab"]


def test_small_pieces_stay_together() -> None:
    assert cut("abab", launches=LAUNCHES / 2 - 1) == ["abab"]
    assert cut("aaaa", launches=LAUNCHES / 2) == ["aa aa"]
    # Little to compile: nothing to be saved.
    assert cut("aa", ops=10) == ["aa"]


@given(
    st.lists(st.text("abc", min_size=1, max_size=14), min_size=1, max_size=4),
    st.sampled_from([LAUNCHES / 3, LAUNCHES]),
)
def test_pieces_make_the_groups(groups: list[str], launches: float) -> None:
    pieces = cut(*groups, launches=launches)
    assert [each.replace(" ", "") for each in pieces] == groups
    # Fewer operations are compiled, each distinct piece once.
    parts = [part for each in pieces for part in each.split(" ")]
    if parts != groups:
        assert max(Counter(parts).values()) > 1
        assert sum(map(len, set(parts))) < sum(map(len, groups))


# In a plan ---------------------------------------------------------------------------------------

LAYERS, WIDTH = 8, 64


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for p in params:
            h = h + jnp.tanh(h @ p["w"] + p["b"])
        return jnp.mean(h**2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def arguments() -> Any:
    draw = np.random.default_rng(0)
    layers = [
        {"w": draw.normal(size=(WIDTH, WIDTH)).astype(np.float32), "b": np.zeros(WIDTH, np.float32)}
        for _ in range(LAYERS)
    ]
    return layers, np.ones((16, WIDTH), np.float32)


def machine(count: int) -> Topology:
    """Slow devices, so that a launch is nothing beside a layer, and little memory on each."""
    state = LAYERS * 4 * (WIDTH * WIDTH + WIDTH)
    limit = 4 * state if count == 1 else state
    slow = Device(memory_bytes=limit, flops_per_second=1e8, bytes_per_second=1e8)
    return Topology.uniform(count, slow)


def structures(pipeline: str, devices: int) -> list[str]:
    """The structures of the tasks that the devices run."""
    plan = baechi.place(step, topology=machine(devices), pipeline=pipeline, donate_argnums=0).plan(
        *arguments()
    )
    return [fingerprint(task) for task in tasks_of(plan.module.main)]


def test_fewer_programs() -> None:
    cut = structures("default{placer=m-topo}", 3)
    whole = structures("default{placer=m-topo alike=false}", 3)
    assert max(Counter(cut).values()) >= 4  # a layer's work, on each device that has layers
    assert len(set(cut)) <= len(set(whole)) + 2
    assert len(cut) > len(whole)


def test_one_device_has_one_task() -> None:
    assert len(structures("default", 1)) == 1


def test_values_are_those_of_jit() -> None:
    placed = baechi.place(step, topology=machine(3), donate_argnums=0)
    plan = placed.plan(*arguments())
    assert len({device_of(task) for task in tasks_of(plan.module.main)}) > 1
    params, value = placed(*arguments())
    want, wanted = jax.jit(step)(*arguments())
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_fingerprints_of_runs_of_operations() -> None:
    def fn(x: Any, y: Any) -> Any:
        return jnp.tanh(x) * x, jnp.tanh(y) * y, jnp.tanh(x) + x, jnp.tanh(x) * y

    from baechi_jax.ir.trace import trace

    module = trace(fn, (np.ones(3, np.float32), np.ones(3, np.float32))).module
    ops = module.main.body.ops[:-1]
    assert [op.name for op in ops] == ["jax.tanh", "jax.mul"] * 2 + [
        "jax.tanh",
        "jax.add",
        "jax.tanh",
        "jax.mul",
    ]
    square, again, plus, mixed = fingerprints([ops[at : at + 2] for at in range(0, 8, 2)])
    assert square == again
    assert len({square, plus, mixed}) == 3  # another operation; another operand
