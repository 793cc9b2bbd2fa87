"""Reads graphs with the placements that Baechi's own placers gave (arXiv 2301.08695).

One JSON object, perhaps gzipped: ``compute_us``, ``output_bytes``, ``temporary_bytes``,
``persistent_bytes`` and ``colocation`` (a name) per op; ``tensors`` with ``source``, ``bytes`` and
``consumers``; ``alpha_us`` and ``beta_us_per_byte`` of a transfer; ``devices`` and
``memory_bytes``; under ``authors`` for each placer its seconds, its assignment and the makespan
in their simulator.

Output bytes that no tensor carries are results that nobody reads. Where an op's output is
persistent, all of its tensors are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from baechi_jax.passes.placement.errors import PlacementProblemError
from baechi_jax.passes.placement.machine import MICROSECOND, Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder

_LISTS = ("compute_us", "output_bytes", "temporary_bytes", "persistent_bytes", "colocation")


@dataclass(frozen=True, slots=True)
class AuthorsPlacement:
    """What the authors' program gave: seconds of placing, a device per op, its makespan."""

    placement_seconds: float
    assignment: tuple[int, ...]
    makespan_us: int


@dataclass(frozen=True, slots=True)
class BaechiGraph:
    """A graph under the authors' communication model, and their placements of it by placer."""

    name: str
    problem: PlacementProblem
    authors: dict[str, AuthorsPlacement]


def read_baechi_graph(path: Path) -> BaechiGraph:
    """Read ``path``; raises PlacementProblemError that names the field that is wrong."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise PlacementProblemError("expected a JSON object")
        return _decode(path.name.split(".")[0], data)
    except KeyError as error:
        raise PlacementProblemError(f"{path}: there is no field {error}") from None
    except (PlacementProblemError, TypeError, ValueError) as error:
        raise PlacementProblemError(f"{path}: {error}") from None


def _decode(name: str, data: Mapping[str, object]) -> BaechiGraph:
    columns = {field: cast("list[object]", data[field]) for field in _LISTS}
    count = len(columns["compute_us"])
    for field, values in columns.items():
        if len(values) != count:
            raise PlacementProblemError(f"'{field}' has {len(values)} entries, expected {count}")
    machine = Machine.uniform_of(
        int(cast(int, data["devices"])),
        int(cast(float, data["memory_bytes"])),
        latency_seconds=float(cast(float, data["alpha_us"])) * MICROSECOND,
        seconds_per_byte=float(cast(float, data["beta_us_per_byte"])) * MICROSECOND,
    ).with_communication("channel")
    compute, output, temporary, persistent = (
        [int(cast(int, value)) for value in columns[field]] for field in _LISTS[:4]
    )
    builder = ProblemBuilder(machine)
    for op in range(count):
        builder.add_node(
            f"op{op}",
            compute[op] * MICROSECOND,
            temporary_bytes=temporary[op],
            group=str(columns["colocation"][op]),
        )
    left = list(output)
    for index, tensor in enumerate(cast("list[Mapping[str, object]]", data["tensors"])):
        source = int(cast(int, tensor["source"]))
        if not 0 <= source < count:
            raise PlacementProblemError(
                f"'tensors[{index}].source' is {source}, but there are {count} ops"
            )
        nbytes = int(cast(int, tensor["bytes"]))
        left[source] -= nbytes
        builder.add_tensor(
            source,
            nbytes,
            [int(reader) for reader in cast("list[int]", tensor["consumers"])],
            persistent=persistent[source] > 0,
        )
    for op, nbytes in enumerate(left):
        if persistent[op] not in (0, output[op]):
            raise PlacementProblemError(
                f"'persistent_bytes[{op}]' is {persistent[op]}, expected 0 or all of the output, "
                f"{output[op]}"
            )
        if nbytes > 0:
            builder.add_tensor(op, nbytes, persistent=persistent[op] > 0)
    authors = {
        placer.replace("_", "-"): AuthorsPlacement(
            float(cast(float, entry["placement_seconds"])),
            tuple(int(device) for device in cast("list[int]", entry["assignment"])),
            int(cast(int, entry["makespan_us"])),
        )
        for placer, entry in cast("Mapping[str, Mapping[str, object]]", data["authors"]).items()
    }
    return BaechiGraph(name, builder.build(), authors)
