"""Which result of a function is the next value of which argument.

A training step takes its state and gives it back changed: ``step(state, batch) -> (state, loss)``,
or ``step(params, opt_state, batch) -> (loss, params, opt_state)``. Arguments and results are leaves
of two trees, known by path and type. An argument and a result belong together when they stand at
the same place of subtrees that look the same: equal relative paths, equal types.

The rules, larger subtrees first, each argument and each result used once:

1. A result that is an argument returned unchanged belongs to it.
2. Subtrees that look the same, equally many among the arguments and the results: in order
   (``(params, m, v)`` in, ``(params, m, v)`` out).
3. Otherwise, as many of them donated as there are results: the donated ones in order.
4. Otherwise, those at the same position, or whose paths end alike (``state.params`` and
   ``[1].params``), where that is the only match.

What is still ambiguous is left out. A lone array without a name must have better evidence than its
type, or ``predict(params, x) -> y`` would have state: donation, two or more of its kind in order,
or the same position in a result that begins as the arguments do. A wrong guess costs a transfer,
never a wrong value.

Types are compared without JAX's weak type: a step may return ``count + 1`` strong.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: Steps from the root: field names and dictionary keys as they are, positions as integers.
Path: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One argument or result: its path, and whatever identifies its type.

    The first step of an argument's path is its position among the arguments (or its keyword). The
    first step of a result's path is its position in the tuple of results; a function that returns
    one tree has all of it at position 0, one that returns a lone array has it at ``()``.
    """

    path: Path
    type: Hashable
    #: Whether it holds one number: a count looks like a loss, a learning rate, a seed.
    is_scalar: bool = False


@dataclass(slots=True)
class _Subtree:
    path: Path
    leaves: list[int]


#: What a subtree looks like: relative path and type of each leaf.
_Signature: TypeAlias = tuple[tuple[Path, Hashable], ...]


def match_state(
    arguments: Sequence[Leaf],
    results: Sequence[Leaf],
    donated: Sequence[bool] | None = None,
    returned: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Argument index -> result index; see the module's rules.

    ``donated`` tells which arguments are given away. ``returned`` maps each result that is an
    argument returned unchanged to that argument.
    """
    given_away = [False] * len(arguments) if donated is None else donated
    state: dict[int, int] = {}
    used: set[int] = set()
    for result, argument in (returned or {}).items():
        used.add(result)
        state.setdefault(argument, result)
    sources, targets = _subtrees(arguments), _subtrees(results)
    aligned = _aligned(sources, targets)
    common = [signature for signature in sources if signature in targets]
    common.sort(key=len, reverse=True)  # stable: equal sizes in order of appearance
    for signature in common:
        ins = [t for t in sources[signature] if not any(leaf in state for leaf in t.leaves)]
        outs = [t for t in targets[signature] if not any(leaf in used for leaf in t.leaves)]
        if not ins or not outs:
            continue
        weak = len(signature) == 1 and not _is_named(signature[0][0])
        scalar = weak and arguments[ins[0].leaves[0]].is_scalar
        for source, target in _pair(ins, outs, given_away, weak, scalar, aligned):
            state.update(zip(source.leaves, target.leaves))
            used.update(target.leaves)
    return dict(sorted(state.items()))


def _subtrees(leaves: Sequence[Leaf]) -> dict[_Signature, list[_Subtree]]:
    """Every subtree (inner nodes and leaves), by what it looks like, in order of appearance."""
    nodes: dict[Path, list[int]] = {}
    for index, leaf in enumerate(leaves):
        for depth in range(len(leaf.path) + 1):
            nodes.setdefault(leaf.path[:depth], []).append(index)
    found: dict[_Signature, list[_Subtree]] = {}
    for path, members in nodes.items():
        depth = len(path)
        signature = tuple((leaves[i].path[depth:], leaves[i].type) for i in members)
        found.setdefault(signature, []).append(_Subtree(path, members))
    return found


def _aligned(
    sources: Mapping[_Signature, list[_Subtree]], targets: Mapping[_Signature, list[_Subtree]]
) -> int:
    """How many leading positions of the results look like those of the arguments."""

    def by_position(subtrees: Mapping[_Signature, list[_Subtree]]) -> dict[Hashable, _Signature]:
        return {
            tree.path[0]: signature
            for signature, trees in subtrees.items()
            for tree in trees
            if len(tree.path) == 1
        }

    before, after = by_position(sources), by_position(targets)
    count = 0
    while count in before and before[count] == after.get(count):
        count += 1
    return count


def _pair(
    ins: list[_Subtree],
    outs: list[_Subtree],
    donated: Sequence[bool],
    weak: bool,
    scalar: bool,
    aligned: int,
) -> list[tuple[_Subtree, _Subtree]]:
    """Pairs among subtrees that look the same. ``weak``: they are lone arrays without a name."""
    given_away = [tree for tree in ins if all(donated[leaf] for leaf in tree.leaves)]
    in_order = not weak or (len(ins) > 1 and not scalar)
    if len(ins) == len(outs) and in_order:
        return list(zip(ins, outs))
    if len(given_away) == len(outs):
        return list(zip(given_away, outs))
    pairs: list[tuple[_Subtree, _Subtree]] = []
    for tail in (None, 2, 1):
        found = _unique(ins, outs, tail, aligned)
        pairs += found
        ins = [tree for tree in ins if not any(tree is source for source, _ in found)]
        outs = [tree for tree in outs if not any(tree is target for _, target in found)]
    return pairs


def _unique(
    ins: list[_Subtree], outs: list[_Subtree], tail: int | None, aligned: int
) -> list[tuple[_Subtree, _Subtree]]:
    """Pairs whose whole paths (``tail`` None) or last ``tail`` steps are equal and unique."""

    def key(path: Path) -> Path | None:
        if tail is not None:  # an end that says nothing (the third of a list) is no evidence
            return path[-tail:] if len(path) > tail and isinstance(path[-1], str) else None
        # A position counts only while the results begin as the arguments do.
        first = path[0] if path else aligned
        return path if isinstance(first, str) or first in range(aligned) else None

    by_key: dict[Path | None, tuple[list[_Subtree], list[_Subtree]]] = {}
    for side, trees in enumerate((ins, outs)):
        for tree in trees:
            by_key.setdefault(key(tree.path), ([], []))[side].append(tree)
    return [
        (sources[0], targets[0])
        for name, (sources, targets) in by_key.items()
        if name is not None and len(sources) == len(targets) == 1
    ]


def _is_named(path: Path) -> bool:
    return any(isinstance(step, str) for step in path)
