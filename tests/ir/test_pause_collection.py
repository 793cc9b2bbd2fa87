"""Pausing the collector: as before afterwards, nested, and without a walk over what was made."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from baechi_jax.ir.pause_collection import paused_collection


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_pauses_and_resumes_also_when_nested() -> None:
    with paused_collection():
        assert not gc.isenabled()
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_resumes_after_an_error() -> None:
    with pytest.raises(ValueError, match="odd"), paused_collection():
        raise ValueError("odd")
    assert gc.isenabled()


def test_stays_off_where_it_was_off() -> None:
    gc.disable()
    with paused_collection():
        pass
    assert not gc.isenabled()


def test_what_was_made_inside_is_not_walked_at_once() -> None:
    with paused_collection():
        made = [[index] for index in range(100_000)]
    assert gc.get_count()[0] < 1000
    young = gc.get_objects(generation=0)
    assert len(young) < 10_000 < len(made)


def test_garbage_made_inside_is_found() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    with paused_collection():
        Cycle()
    gc.collect()
    assert not any(isinstance(each, Cycle) for each in gc.get_objects())


def test_objects_that_the_caller_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with paused_collection():
            pass
        assert gc.get_freeze_count() > frozen // 2
    finally:
        gc.unfreeze()
