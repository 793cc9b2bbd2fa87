"""Every entry of the zoo, placed on four devices and compared with ``jax.jit``."""

from __future__ import annotations

import pytest

from tests.zoo.registry import ENTRIES, Entry

PARAMETERS = [
    pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.slow else [])
    for entry in ENTRIES
]


@pytest.mark.filterwarnings("default")  # the packages' own
@pytest.mark.parametrize("entry", PARAMETERS)
def test_entry(entry: Entry) -> None:
    if missing := entry.missing():
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[zoo]'")
    from tests.zoo.examine import examine

    outcome = examine(entry)
    assert not outcome.problems, outcome.summary
    assert (outcome.devices_used > 1) != bool(entry.one_device)
