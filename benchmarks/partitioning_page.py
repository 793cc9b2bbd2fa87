"""``docs/results.md``: what ``benchmarks/partitioning.py`` measured, beside what is published."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partitioning import Published, Result

#: Columns of published figures: heading, algorithms of measured.csv (the best of them counts).
_THROUGHPUT = (
    ("DP", ("dp",)),
    ("integer program", ("ip_noncontig_highs300",)),
    ("local search", ("localsearch10", "localsearch1")),
    ("Scotch", ("scotch",)),
    ("expert", ("expert",)),
)
_LATENCY = (
    ("DP's split", ("dp_latency", "dpl_latency")),
    ("greedy", ("greedy",)),
    ("integer program", ("lip_q1_highs300",)),
    ("Scotch", ("scotch_latency",)),
    ("expert", ("expert_latency",)),
)

_TEMPLATE = """\
# Results

Written by `benchmarks/partitioning.py --write-results`, not by hand. The workloads are the 24 of \
Tarnawski et al., *Efficient Algorithms for Device Placement of DNN Graph Operators* (NeurIPS \
2020). The published columns are what the authors' own programs, and HiGHS with 300 s on their \
integer programs, reach on a machine like the one used here. All values are the files' \
milliseconds per sample; smaller is better. What the placers do: [placers.md](placers.md).

The layer graphs' throughput files give transfers a thousand times cheaper than the latency files \
of the same graphs, almost surely by a slip of units. They are read as they stand.
{% if counts.contiguous %}

## Contiguous throughput

`ideals` is exact, as the authors' dynamic program (DP) is: {{ contiguous_optimal }} of \
{{ counts.contiguous }} values are theirs. Seconds are CPU seconds of the search. Compiling the \
kernels, once on a machine, is not in them. Memory is the whole process's, of which Python, numpy \
and numba are some 150 MB.

{{ contiguous_table }}
{% endif %}
{% if counts.noncontiguous %}

## Non-contiguous throughput

`auto` with {{ seconds }} s (of CPU: at most {{ noncontiguous_cpu }} s): at most the best \
published value on {{ noncontiguous_at_most }} of {{ counts.noncontiguous }} workloads; strictly \
better on {{ noncontiguous_better }} whose best published value is not proved optimal. The best \
of a row is bold. A value with * breaks the memory limit and does not count: the authors' local \
search and Scotch do not look at memory. \
*Their bound* is that of HiGHS.

{{ noncontiguous_table }}

{{ noncontiguous_looser }}
{% endif %}
{% if counts.latency %}

## Latency of one sample

`auto` with {{ seconds }} s (of CPU: at most {{ latency_cpu }} s), one subgraph on each \
accelerator: at most the best feasible published value on {{ latency_at_most }} of \
{{ counts.latency }} workloads, at least a tenth better on {{ latency_tenth_better }}. The best \
of a row is bold. A value with * breaks the memory limit and does not count.

{{ latency_table }}

{{ latency_looser }}
{% endif %}
{% if placement %}

## Baechi's graphs

The placers for one step, against the assignments that Baechi's authors' placers make: \
[results/placement.md](results/placement.md).
{% endif %}
"""


def write_page(
    path: Path,
    results: Sequence[Result],
    published: Mapping[str, Published],
    figures: Mapping[str, Any],
) -> None:
    """Write the page, whole or not at all."""
    from baechi_jax.ir.files import write_text_atomically

    write_text_atomically(path, render(path, results, published, figures))


def render(
    path: Path,
    results: Sequence[Result],
    published: Mapping[str, Published],
    figures: Mapping[str, Any],
) -> str:
    """The text of the page."""
    from jinja2 import Environment, StrictUndefined

    by_kind = {
        kind: [each for each in results if each.kind == kind]
        for kind in ("contiguous", "noncontiguous", "latency")
    }
    others, latency = by_kind["noncontiguous"], by_kind["latency"]
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    return environment.from_string(_TEMPLATE).render(
        figures,
        counts={kind: len(found) for kind, found in by_kind.items()},
        seconds=f"{max((each.limit_seconds for each in results), default=0.0):g}",
        noncontiguous_cpu=_most_cpu(others),
        latency_cpu=_most_cpu(latency),
        contiguous_table=_contiguous(by_kind["contiguous"], published),
        noncontiguous_table=_beside(others, published, _THROUGHPUT),
        noncontiguous_looser=_looser(others, published),
        latency_table=_beside(latency, published, _LATENCY),
        latency_looser=_looser(latency, published),
        placement=(path.parent / "results" / "placement.md").exists(),
    )


def _most_cpu(results: Sequence[Result]) -> str:
    return f"{max((each.cpu_seconds for each in results), default=0.0):.0f}"


def _contiguous(results: Sequence[Result], published: Mapping[str, Published]) -> str:
    from partitioning import short

    rows = []
    for each in results:
        entry = published[each.workload]
        theirs = entry.cpu_seconds["dp"]
        ratio = theirs / max(each.cpu_seconds, 1e-9)
        rows.append(
            [
                short(each.workload),
                _ms(entry.values["dp"]),
                _ms(each.value),
                f"{theirs:.3g}",
                f"{each.cpu_seconds:.3g}",
                f"{ratio:.0f} x" if theirs > 1 else "-",
                f"{entry.peak_mb['dp']:.0f}",
                f"{each.peak_mb:.0f}",
            ]
        )
    heading = ["workload", "DP", "`ideals`", "DP, CPU s", "`ideals`, CPU s", "faster"]
    return _table([*heading, "DP, MB", "`ideals`, MB"], rows)


def _beside(
    results: Sequence[Result],
    published: Mapping[str, Published],
    columns: Sequence[tuple[str, Sequence[str]]],
) -> str:
    from partitioning import EQUAL, short

    rows = []
    for each in results:
        entry = published[each.workload]
        best = min(entry.best, each.value) * (1 + EQUAL)
        cells = [short(each.workload)]
        for _, algorithms in columns:
            cells.append(_published_cell(entry, algorithms, best))
        cells.append(_bold(each.value, best))
        cells.append(_change(each.value / entry.best - 1.0, EQUAL))
        theirs = max(entry.bounds.values(), default=0.0)
        cells += [_ms(theirs) if theirs else "-", _ms(each.bound), f"{100 * each.gap:.1f}%"]
        rows.append([*cells, each.winner])
    heading = ["workload", *(name for name, _ in columns)]
    heading += ["`auto`", "to the best", "their bound", "bound", "gap", "found by"]
    return _table(heading, rows)


def _published_cell(entry: Published, algorithms: Iterable[str], best: float) -> str:
    values = [entry.values[each] for each in algorithms if each in entry.values]
    if values and math.isfinite(min(values)):
        return _bold(min(values), best)
    broken = [entry.broken[each] for each in algorithms if each in entry.broken]
    if broken:
        return f"{_ms(min(broken))}*"
    return "none" if values else "-"


def _looser(results: Sequence[Result], published: Mapping[str, Published]) -> str:
    from partitioning import EQUAL, short

    looser = [
        short(each.workload)
        for each in results
        if each.bound < max(published[each.workload].bounds.values(), default=0.0) * (1 - EQUAL)
    ]
    if not looser:
        return "Nowhere is the bound looser than the one that HiGHS reaches in 300 s."
    return f"The bound is looser than the one that HiGHS reaches in 300 s on: {', '.join(looser)}."


def _change(share: float, equal: float) -> str:
    return "equal" if abs(share) <= equal else f"{100 * share:+.2f}%"


def _bold(value: float, best: float) -> str:
    return f"**{_ms(value)}**" if value <= best else _ms(value)


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1000 else f"{value:.1f}"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---", *("---:" for _ in heading[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
