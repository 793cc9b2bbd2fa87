"""Arguments that several commands take: files, argument numbers, the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from baechi_jax.ir.topology import Topology

#: A file that a command reads, one that it writes, a folder that it writes to, a number of things.
INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)


def numbers(text: str, option: str) -> tuple[int, ...] | None:
    """The numbers of ``0,1``; None for an empty text."""
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is not a list of argument numbers such as 0,1", param_hint=option
        ) from None


def machine(topology_file: Path | None, memory: str | None) -> Topology:
    """The topology of a file, or that of the devices at hand; ``memory`` is each device's."""
    from baechi_jax.ir.topology import Topology
    from baechi_jax.local import local_topology
    from baechi_jax.units import parse_bytes

    if topology_file is None:
        return local_topology(memory)
    topology = Topology.load(topology_file)
    return topology if memory is None else topology.with_memory(parse_bytes(memory))
