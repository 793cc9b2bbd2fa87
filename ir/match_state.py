"""Which result of a function is the next value of which argument.

A training step takes its state and gives it back changed: ``step(state, batch) -> (state, loss)``,
or ``step(params, opt_state, batch) -> (loss, params, opt_state)``. Arguments and results are leaves
of two trees, known by path and type. An argument and a result belong together when they stand at
the same place of subtrees that look the same: equal relative paths, equal types.

The rules, larger subtrees first, each argument and each result used once:

1. A result that is an argument returned unchanged belongs to it.
2. Subtrees that look the same, equally many among arguments and results: in order
   (``(params, m, v)`` in, ``(params, m, v)`` out).
3. Otherwise as many of them donated as there are results: the donated ones in order.
4. Otherwise those at the same position, or whose paths end alike (``state.params`` and
   ``[1].params``), where that is the only match.

What is still ambiguous is left out. A lone array must have better evidence than its type, or
``f(x, y) -> x + y`` would have state: the same position, a name in common, or donation.

Types are compared without JAX's weak type: a step may return ``count + 1`` strong.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: Steps from the root: field names and dictionary keys as they are, positions as integers.
Path = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One argument or result: its path, and whatever identifies its type.

    The first step of an argument's path is its position among the arguments (or its keyword), of a
    result's its position in the tuple of results (0 for a function that returns no tuple).
    """

    path: Path
    type: Hashable


@dataclass(slots=True)
class _Subtree:
    path: Path
    leaves: list[int]


def match_state(
    arguments: Sequence[Leaf],
    results: Sequence[Leaf],
    donated: Sequence[bool] | None = None,
    returned: dict[int, int] | None = None,
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
        if argument not in state:
            state[argument] = result
    sources = _subtrees(arguments)
    targets = _subtrees(results)
    # Equal signatures have equally many leaves; larger first, then in order of appearance.
    for signature in sorted(sources.keys() & targets.keys(), key=_by_size(sources)):
        ins = [t for t in sources[signature] if not any(leaf in state for leaf in t.leaves)]
        outs = [t for t in targets[signature] if not any(leaf in used for leaf in t.leaves)]
        for source, target in _pair(signature, ins, outs, given_away):
            state.update(zip(source.leaves, target.leaves))
            used.update(target.leaves)
    return dict(sorted(state.items()))


_Signature = tuple[tuple[Path, Hashable], ...]


def _subtrees(leaves: Sequence[Leaf]) -> dict[_Signature, list[_Subtree]]:
    """Every subtree (inner nodes, then leaves), by what it looks like."""
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


def _by_size(sources: dict[_Signature, list[_Subtree]]):  # type: ignore[no-untyped-def]
    order = {signature: index for index, signature in enumerate(sources)}
    return lambda signature: (-len(signature), order[signature])


def _pair(
    signature: _Signature, ins: list[_Subtree], outs: list[_Subtree], donated: Sequence[bool]
) -> list[tuple[_Subtree, _Subtree]]:
    if not ins or not outs:
        return []
    given_away = [t for t in ins if all(donated[leaf] for leaf in t.leaves)]
    if len(given_away) == len(outs):
        return list(zip(given_away, outs))
    if len(ins) == len(outs) and (len(signature) > 1 or _named(signature)):
        return list(zip(ins, outs))
    pairs: list[tuple[_Subtree, _Subtree]] = []
    for tail in (None, 2, 1):
        pairs += _unique(ins, outs, tail)
        ins = [t for t in ins if not any(t is source for source, _ in pairs)]
        outs = [t for t in outs if not any(t is target for _, target in pairs)]
    return pairs


def _unique(
    ins: list[_Subtree], outs: list[_Subtree], tail: int | None
) -> list[tuple[_Subtree, _Subtree]]:
    """Pairs whose paths (or their last ``tail`` steps, a name last) are equal and unique."""

    def key(tree: _Subtree) -> Path | None:
        if tail is None:
            return tree.path
        named = len(tree.path) > tail and isinstance(tree.path[-1], str)
        return tree.path[-tail:] if named else None

    by_key: dict[Path | None, tuple[list[_Subtree], list[_Subtree]]] = {}
    for side, trees in enumerate((ins, outs)):
        for tree in trees:
            by_key.setdefault(key(tree), ([], []))[side].append(tree)
    return [
        (sources[0], targets[0])
        for name, (sources, targets) in by_key.items()
        if name is not None and len(sources) == len(targets) == 1
    ]


def _named(signature: _Signature) -> bool:
    return any(isinstance(step, str) for path, _ in signature for step in path)
