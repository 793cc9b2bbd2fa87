"""What a step really takes, added up instruction by instruction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.runtime.errors import ArgumentError

SIZE = 64 * 64 * 4


def chain(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Layers pinned to devices 0, 0, 1, 1; gives the weights back, halved."""
    for index, weight in enumerate(weights):
        with baechi.on(index // 2):
            x = jnp.tanh(x @ weight)
    return [weight / 2 for weight in weights], jnp.sum(x)


def arguments() -> tuple[list[jax.Array], jax.Array]:
    """Fresh ones; a step may give them away."""
    keys = jax.random.split(jax.random.key(0), 4)
    return [jax.random.normal(key, (64, 64)) for key in keys], jnp.ones((32, 64))


@pytest.mark.parametrize("donate", [(), (0,)])
def test_results_and_peaks(donate: tuple[int, ...]) -> None:
    topology = baechi.local_topology("1MiB", jax.devices()[:2])
    step = baechi.place(chain, topology=topology, placer="expert", donate_argnums=donate)
    compiled = step.lower(*arguments()).compile()
    expected = jax.jit(chain)(*arguments())
    given = jax.device_put(arguments(), compiled.input_shardings[0])
    (weights, y), memory = compiled.measure_memory(*given)
    peaks = memory.peak_bytes
    np.testing.assert_allclose(y, expected[1], rtol=1e-6)
    for found, wanted in zip(weights, expected[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert len(peaks) == 2
    # Two weights lie on each device; halves of donated ones take their place.
    least = 2 * SIZE if donate else 4 * SIZE
    for peak, planned in zip(peaks, compiled.plan.memory, strict=True):
        assert least <= peak <= planned.limit_bytes
    assert given[0][0].is_deleted() == bool(donate)


def test_static_arguments_are_left_out() -> None:
    def scaled(x: jax.Array, factor: int, *, mode: str) -> jax.Array:
        return x * factor if mode == "times" else x + factor

    step = baechi.place(
        scaled,
        topology=baechi.local_topology("1MiB", jax.devices()[:1]),
        static_argnums=1,
        static_argnames="mode",
    )
    compiled = step.lower(jnp.ones(8), 3, mode="times").compile()
    result, memory = compiled.measure_memory(jnp.ones(8), 3, mode="times")
    np.testing.assert_array_equal(result, np.full(8, 3.0))
    assert memory.peak_bytes == (64,)
    with pytest.raises(ArgumentError, match="compile again"):
        compiled.measure_memory(jnp.ones(8), 4, mode="times")
