"""The table of what lives at a peak."""

from __future__ import annotations

import pytest

from baechi_jax.passes.peak_table import ROWS, LiveBuffer, PeakTable, size_text


def table(buffers: list[LiveBuffer]) -> PeakTable:
    total = sum(each.nbytes for each in buffers)
    return PeakTable.of(1, "cpu:1", total, total - 1024, "while 't3' at m.py:7 runs", buffers)


def test_largest_first_and_nothing_of_no_bytes() -> None:
    found = table(
        [LiveBuffer(1024, "argument b"), LiveBuffer(0, "none"), LiveBuffer(3072, "dot", "m.py:7")]
    )
    assert found.headline == (
        "device 1 (cpu:1) needs 4.00 KiB while 't3' at m.py:7 runs, 1.00 KiB more than its limit "
        "of 3.00 KiB"
    )
    assert found.lines() == [
        "    3.00 KiB   75.0%  dot at m.py:7",
        "    1.00 KiB   25.0%  argument b",
    ]


@pytest.mark.parametrize("count", [ROWS, ROWS + 1, ROWS + 2, 100])
def test_every_byte_is_in_a_row(count: int) -> None:
    found = table([LiveBuffer(1 << index % 20, f"v{index}") for index in range(count)])
    assert sum(each.nbytes for each in (*found.shown, *found.others)) == found.peak_bytes
    # One buffer is not worth a row that counts it.
    assert len(found.others) != 1
    assert len(found.lines()) <= ROWS + 1
    if found.others:
        assert f"{count - ROWS} smaller buffers" in found.lines()[-1]


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 << 30, "3.00 GiB")]
)
def test_sizes(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text
