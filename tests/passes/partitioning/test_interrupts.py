"""Ctrl-C in searches that run compiled kernels."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from baechi_jax.passes.placement.interrupts import Interrupts, hears_interrupts
from baechi_jax.passes.placement.latency.placers import PLACERS as LATENCY
from baechi_jax.passes.placement.throughput.placers import PLACERS as THROUGHPUT


def _as_if_in_numba() -> Any:
    namespace: dict[str, Any] = {"__name__": "numba.core.test", "signal": signal}
    exec("def inside():\n    signal.raise_signal(signal.SIGINT)\n    return 'whole'", namespace)
    return namespace["inside"]


def test_inside_numba_it_waits() -> None:
    inside = _as_if_in_numba()
    returned = []

    @hears_interrupts
    def search() -> str:
        try:
            returned.append(inside())
            time.sleep(60)
        except KeyboardInterrupt:
            return "best so far"
        return "not interrupted"

    before = signal.getsignal(signal.SIGINT)
    assert search() == "best so far"
    assert returned == ["whole"]
    assert signal.getsignal(signal.SIGINT) is before


def test_elsewhere_it_comes_at_once() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.seen
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.seen


def test_a_handler_of_the_caller_stays() -> None:
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
        assert heard == [True]
        assert not interrupts.seen
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_change_no_handler() -> None:
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(hears_interrupts(lambda: signal.getsignal(signal.SIGINT))())
    )
    thread.start()
    thread.join()
    assert results == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize(
    "placer", [*THROUGHPUT.values(), *LATENCY.values()], ids=[*THROUGHPUT, *LATENCY]
)
def test_every_placer_hears_it(placer: Any) -> None:
    assert placer.__wrapped__.__module__.startswith("baechi_jax.passes.placement.")
