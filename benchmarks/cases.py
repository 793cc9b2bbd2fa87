"""The steps that benchmarks of placed steps go over: ``models.py``'s and the zoo's (``tests/zoo``).

A virtual environment without the zoo's packages has few of the latter: ``make bench-zoo`` has all.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import models

from tests.zoo.registry import ENTRIES, Entry

#: Largest difference, relative to the largest value of an array, that counts as equal: sums in
#: another order, through a few layers of float32.
TOLERANCE = 2e-4


@dataclass(frozen=True)
class Case:
    """A training step; the limit of each of four devices as a share of its one-device peak; the
    tolerance of its values."""

    name: str
    build: Callable[[], tuple[Any, tuple[Any, ...]]]
    share: float = 0.5
    tolerance: float = TOLERANCE
    settings: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def own_models(share: float, *, layers: int, blocks: int, images: int) -> list[Case]:
    """The models of ``models.py``: ``layers`` of the transformer, ``blocks`` and ``images`` of the
    residual net."""

    def case(name: str, make: Callable[[], Any]) -> Case:
        def build() -> tuple[Any, tuple[Any, ...]]:
            step, shapes = make()
            return step, models.materialise(shapes)

        return Case(name, build, share)

    return [
        case("mlp", models.mlp),
        case("transformer", lambda: models.transformer(layers=layers)),
        case("resnet", lambda: models.resnet(blocks=blocks, batch=images)),
    ]


def choose(
    own: Sequence[Case], names: Sequence[str] | None, parser: argparse.ArgumentParser
) -> tuple[list[Case], dict[str, str]]:
    """The cases called ``names`` (all if there are none) of ``own`` and the zoo's, in order; and
    why others are left out. ``parser`` tells of a name that is none."""
    skipped = {entry.name: why for entry in ENTRIES if (why := _why_not(entry))}
    cases = [
        *own,
        *(
            Case(entry.name, entry.build, entry.share, entry.tolerance, entry.settings)
            for entry in ENTRIES
            if entry.name not in skipped
        ),
    ]
    if not names:
        return cases, skipped
    known = [case.name for case in cases]
    if unknown := [name for name in names if name not in known]:
        parser.error(
            f"no such model, or its packages are missing: {', '.join(unknown)}; "
            f"there are {', '.join(known)}"
        )
    return [case for case in cases if case.name in names], {}


def _why_not(entry: Entry) -> str:
    """Why ``entry`` is left out; empty when it is not."""
    if missing := entry.missing():
        return f"needs {', '.join(missing)}"
    return f"one device: {entry.one_device}" if entry.one_device else ""
