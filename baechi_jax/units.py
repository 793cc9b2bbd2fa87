"""Byte sizes, seconds and counts: read from what people write, written as people read them."""

from __future__ import annotations

import re

from baechi_jax.ir.errors import TopologyError

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_bytes(size: str | int | float) -> int:
    """Bytes in ``"6GiB"``, ``"512 MB"`` or ``2_000_000``: a number, then a unit or nothing.

    ``kB MB GB TB PB`` are powers of 1000, ``KiB MiB GiB TiB PiB`` powers of 1024; case does not
    matter. Raises TopologyError saying what is wrong and what is accepted.
    """
    if isinstance(size, bool) or not isinstance(size, str | int | float):
        raise TopologyError(
            f"a size in bytes must be a number or text such as '6GiB', not {size!r}"
        )
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise TopologyError(
                f"cannot read the size {size!r}: write a number and a unit, such as '6GiB'"
            )
        number, unit = match.groups()
        factor = _UNITS.get(unit.lower())
        if factor is None:
            hint = f" Did you mean '{number}{unit}iB'?" if unit.lower() in tuple("kmgtp") else ""
            raise TopologyError(
                f"the size {size!r} has the unknown unit '{unit}'.{hint} Units: B, kB, MB, GB, TB, "
                "PB (powers of 1000), KiB, MiB, GiB, TiB, PiB (powers of 1024)"
            )
        value = int(number) * factor if number.isdigit() else int(float(number) * factor)
    else:
        value = int(size) if size == size and abs(size) != float("inf") else -1
        if value != size and value > 0:
            raise TopologyError(
                f"a size in bytes must be a whole number, found {size!r}; with a unit it is text, "
                f"such as '{size}GiB'"
            )
    if value <= 0:
        raise TopologyError(f"a size in bytes must be positive and finite, found {size!r}")
    return value


def format_bytes(nbytes: float) -> str:
    """``1.50 GiB``: three significant digits, powers of 1024."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.5 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{_three_digits(value)} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """``1.50 ms``: three significant digits, from ns to s."""
    if seconds == 0:
        return "0 s"
    value = abs(seconds)
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.9995 * factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def format_count(count: float) -> str:
    """``4.19 M``: three significant digits, powers of 1000 (flops, parameters)."""
    value = float(count)
    for unit in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5 or unit == "P":
            text = f"{value:.0f}" if unit == "" and value == int(value) else _three_digits(value)
            return f"{text} {unit}".rstrip()
        value /= 1000
    raise AssertionError("unreachable")


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"
