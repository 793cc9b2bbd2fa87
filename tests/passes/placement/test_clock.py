"""What a limit in seconds counts."""

import time

from baechi_jax.passes.placement.clock import leave_out, now


def test_it_runs() -> None:
    before = now()
    time.sleep(0.05)
    assert now() - before >= 0.05


def test_what_is_left_out_is_not_counted() -> None:
    before = now()
    leave_out(1000.0)
    assert now() < before


def test_the_compilation_of_kernels_is_left_out() -> None:
    import numba

    from baechi_jax.passes.placement import _jit  # noqa: F401  (listens from here on)

    @numba.njit
    def inner(count: int) -> int:
        total = 0
        for each in range(count):
            total += each
        return total

    @numba.njit
    def outer(count: int) -> int:
        return inner(count) + 1

    before, real = now(), time.monotonic()
    assert outer(4) == 7
    assert now() - before < 0.5 * (time.monotonic() - real)
