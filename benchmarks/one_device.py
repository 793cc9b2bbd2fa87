"""What a step takes on one device, from which limits are derived."""

from __future__ import annotations

from typing import Any

import jax


def one_device_bytes(step: Any, arguments: Any) -> int:
    """Bytes of ``jax.jit`` of ``step`` with its first argument donated: arguments, results that
    take no argument's buffer, XLA's temporaries.

    Compiled for the leaves: ``jax.jit(step).lower`` builds the classes of the arguments around what
    is no array, which some refuse.
    """
    leaves, tree = jax.tree.flatten(arguments)

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(step(*jax.tree.unflatten(tree, leaves)))

    donated = tuple(range(len(jax.tree.leaves(arguments[0]))))
    compiled = jax.jit(flat, donate_argnums=donated).lower(*leaves).compile()
    stats: Any = compiled.memory_analysis()
    return int(
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
    )
