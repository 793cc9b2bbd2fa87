"""The functions that users write (``tests/runtime/functions.py``), an axis of each followed."""

from collections import Counter

import jax
import numpy as np
import pytest

from tests.passes.axis.execution import compare, follow
from tests.runtime.functions import FUNCTIONS, Case

PURE = [case for case in FUNCTIONS if not case.effects and not case.x64]


@pytest.mark.slow
@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("case", PURE, ids=repr)
def test_whole_and_pieces_agree(case: Case, combine: bool) -> None:
    """Every argument of the commonest first dimension is split; each alone where all differ."""
    args = case.arguments()
    leaves = jax.tree_util.tree_leaves(args)
    first = {i: np.shape(leaf)[0] for i, leaf in enumerate(leaves) if np.ndim(leaf)}
    sizes = Counter(size for size in first.values() if size > 1)
    for size, _ in sizes.most_common(2):
        axes = {index: 0 for index, own in first.items() if own == size}
        followed = follow(case.fn, args, axes, combine=combine)
        compare(followed, args, size, rtol=1e-3)
