"""``baechi topology``: the machine at hand, as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from baechi_jax.cli.arguments import COUNT, OUTPUT
from baechi_jax.cli.errors import told_errors


@click.command(short_help="Print the topology of the devices at hand.")
@click.option("--memory", help="Memory of every device, such as 6GiB.")
@click.option("--count", type=COUNT, help="That many like the first one, each with its own cores.")
@click.option("-o", "output", type=OUTPUT, help="A file, instead of the standard output stream.")
def topology(memory: str | None, count: int | None, output: Path | None) -> None:
    """Print the topology of the devices at hand, JSON to edit and to plan for."""
    with told_errors():
        from baechi_jax.ir.files import write_text_atomically
        from baechi_jax.local import local_topology, repeated

        # Many like the first are to plan for, not at hand: they share nothing.
        found = local_topology(memory, share_hardware=count is None)
        text = (found if count is None else repeated(found, count)).to_json()
        if output is None:
            click.echo(text)
        else:
            write_text_atomically(output, text + "\n")
