"""``baechi``: plan a function, look at a plan, simulate it on another machine; split workloads.

A command is a click command in a module of this package, added here. JAX is imported by the
commands that need it, when they run. Results go to the standard output stream, everything else to
the standard error stream. The exit status is 0, 1 for an error of this package (one line, no
traceback), 2 for wrong usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import click

from baechi_jax.cli import explain, plan, profile, saved, topology, workloads


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="baechi-jax", prog_name="baechi")
def main() -> None:
    """Place JAX programs over several, unequal, memory-limited devices."""


main.add_command(plan.plan)
main.add_command(saved.show)
main.add_command(explain.explain)
main.add_command(saved.simulate)
main.add_command(topology.topology)
main.add_command(profile.profile)
main.add_command(workloads.place)
main.add_command(workloads.evaluate)
