"""Arguments and the results that are their next values."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from baechi_jax.ir.match_state import Leaf, match_state

F, G = ("f32[4]", "f32[4,4]")


def leaves(tree: object, *path: object) -> list[Leaf]:
    """Leaves of nested dicts and tuples of type names; a type without brackets is a scalar's."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key], *path, key)]
    if isinstance(tree, tuple):
        return [leaf for i, part in enumerate(tree) for leaf in leaves(part, *path, i)]
    return [Leaf(path, tree, "[" not in str(tree))]


def names(matched: dict[int, int], ins: list[Leaf], outs: list[Leaf]) -> dict[object, object]:
    return {ins[i].path: outs[r].path for i, r in matched.items()}


PARAMS = {"w": G, "b": F}


def test_whole_state_first() -> None:
    state = {"params": PARAMS, "m": PARAMS, "v": PARAMS, "count": "f32"}
    ins, outs = leaves((state, G)), leaves((state, "f32"))
    matched = match_state(ins, outs)
    assert names(matched, ins, outs) == {leaf.path: leaf.path for leaf in leaves((state,))}


def test_positions_differ() -> None:
    opt = ("i32", PARAMS, PARAMS)
    ins, outs = leaves((PARAMS, opt, G)), leaves(("f32", PARAMS, opt))
    matched = names(match_state(ins, outs), ins, outs)
    assert matched[0, "w"] == (1, "w")
    assert matched[1, 0] == (2, 0)
    assert matched[1, 1, "w"] == (2, 1, "w")
    assert matched[1, 2, "b"] == (2, 2, "b")
    assert (2,) not in matched


def test_part_of_the_state_by_name() -> None:
    ins = leaves(({"params": PARAMS, "stats": {"mean": F}}, G))
    outs = leaves(("f32", {"params": PARAMS, "seen": F}))
    matched = names(match_state(ins, outs), ins, outs)
    assert matched[0, "params", "w"] == (1, "params", "w")
    assert (0, "stats", "mean") not in matched


def test_unequal_counts_are_left_out() -> None:
    ins, outs = leaves((PARAMS, PARAMS, G)), leaves(("f32", PARAMS))
    assert match_state(ins, outs) == {}


def test_unequal_counts_by_donation() -> None:
    ins, outs = leaves((PARAMS, PARAMS, F)), leaves(("f32", PARAMS))
    donated = [False, False, True, True, False]
    assert names(match_state(ins, outs, donated), ins, outs) == {
        (1, "w"): (1, "w"),
        (1, "b"): (1, "b"),
    }


def test_unequal_counts_by_name() -> None:
    ins = leaves(({"params": PARAMS, "ema": PARAMS},))
    outs = leaves(("f32", {"ema": PARAMS}))
    matched = names(match_state(ins, outs), ins, outs)
    assert matched == {(0, "ema", "w"): (1, "ema", "w"), (0, "ema", "b"): (1, "ema", "b")}


def test_prediction_has_no_state() -> None:
    ins = leaves((PARAMS, G))
    assert match_state(ins, [Leaf((), G)]) == {}


def test_lone_array_donated_is_state() -> None:
    assert match_state(leaves((G, F)), [Leaf((), G)], [True, False]) == {0: 0}


def test_lone_arrays_in_order() -> None:
    ins, outs = leaves((G, G, "f32")), leaves(("f32", G, G))
    assert match_state(ins, outs) == {0: 1, 1: 2}


def test_lone_array_at_the_same_position() -> None:
    ins, outs = leaves((G, F)), leaves((G, "f32"))
    assert match_state(ins, outs) == {0: 0}
    assert match_state(leaves((G, G)), outs) == {0: 0}


def test_a_loss_is_no_learning_rate() -> None:
    ins, outs = leaves((PARAMS, "f32")), leaves(("f32", PARAMS))
    assert names(match_state(ins, outs), ins, outs) == {(0, "w"): (1, "w"), (0, "b"): (1, "b")}


def test_returned_unchanged() -> None:
    ins, outs = leaves((G, G)), leaves((G, G))
    assert match_state(ins, outs, returned={0: 1, 1: 0}) == {0: 1, 1: 0}
    assert match_state(ins, outs, returned={0: 0, 1: 0}) == {0: 0}


trees = st.recursive(
    st.sampled_from([F, G, "f32"]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


@given(
    st.lists(trees, max_size=4).map(tuple), st.lists(trees, max_size=4).map(tuple), st.integers()
)
def test_one_to_one_and_of_equal_type(ins: tuple, outs: tuple, seed: int) -> None:
    arguments, results = leaves(ins), leaves(outs)
    flip = random.Random(seed)
    matched = match_state(arguments, results, [flip.random() < 0.5 for _ in arguments])
    assert len(set(matched.values())) == len(matched)
    for argument, result in matched.items():
        assert arguments[argument].type == results[result].type


@given(trees.filter(lambda t: isinstance(t, dict)))
def test_a_tree_is_its_own_next_value(tree: dict) -> None:
    ins = leaves((tree, "other[]"))
    assert match_state(ins, leaves((tree, "f64"))) == {i: i for i in range(len(ins) - 1)}
