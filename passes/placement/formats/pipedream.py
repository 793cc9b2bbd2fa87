"""PipeDream's ``graph.txt``: a profiled layer graph, one line a node, then one line an edge.

``nodeK -- description -- forward_compute_time=ms, backward_compute_time=ms,
activation_size=bytes, parameter_size=bytes``, and tab-indented ``nodeA -- nodeB``. An activation
size may be a list ``[a; b]`` of several outputs. The file says nothing about the machine.

A node takes its forward and its backward time; its bytes are its parameters and its activations,
of one batch. What crosses to another device is its activations.

Source: github.com/msr-fiddle/pipedream, profiler.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.formats.fields import edge_array
from baechi_jax.passes.placement.workload import DeviceClass, Workload, WorkloadError

if TYPE_CHECKING:
    from baechi_jax.passes.placement.formats.machine import Machine

_NODE = re.compile(r"node(\d+) -- (.*) -- ([a-z_]+=.*)")
_EDGE = re.compile(r"\s*node(\d+) -- node(\d+)\s*")
_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_MILLISECOND = 1e-3
#: Between accelerators, where the machine does not say.
_BYTES_PER_SECOND = 10e9


def read(text: str, file: str, machine: Machine) -> Workload:
    """The workload in the ``text`` of a file of this format, on ``machine``.

    Without a limit of memory there is none; without a bandwidth it is 10 GB/s.
    """
    if machine.devices is None:
        raise WorkloadError(
            f"{file}: PipeDream's graph.txt does not say how many devices there are; give a "
            "Machine with devices (on the command line: --devices, --memory, --bandwidth)"
        )
    memory = math.inf if machine.memory_bytes is None else machine.memory_bytes
    bandwidth = machine.bytes_per_second or _BYTES_PER_SECOND
    index: dict[int, int] = {}
    names: list[str] = []
    figures: list[list[float]] = []
    ends: list[tuple[int, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}: line {number}"
        if edge := _EDGE.fullmatch(line):
            pair = []
            for each in edge.groups():
                if int(each) not in index:
                    raise WorkloadError(f"{where}: there is no node{each} above")
                pair.append(index[int(each)])
            if pair[0] == pair[1]:
                raise WorkloadError(f"{where}: the edge joins node{edge[1]} to itself")
            ends.append((pair[0], pair[1]))
        elif node := _NODE.fullmatch(line.strip()):
            if int(node[1]) in index:
                raise WorkloadError(f"{where}: node{node[1]} is there already")
            index[int(node[1])] = len(index)
            names.append(f"node{node[1]} {node[2]}")
            figures.append(_figures(node[3], where))
        else:
            raise WorkloadError(
                f"{where}: expected 'nodeK -- description -- forward_compute_time=..., ...' or "
                f"'nodeA -- nodeB', found '{line.strip()[:60]}'"
            )
    table = np.array(figures, np.float64).reshape(len(figures), len(_FIELDS))
    forward, backward, activations, parameters = table.T
    return Workload(
        names=tuple(names),
        ids=tuple(index),
        bytes=activations + parameters,
        transfer_seconds=activations / bandwidth,
        backward=np.zeros(len(names), bool),
        colour=np.full(len(names), -1, np.int64),
        edges=edge_array(ends),
        classes=(
            DeviceClass(
                "accelerator",
                machine.devices,
                memory,
                (forward + backward) * _MILLISECOND,
            ),
        ),
        parameter_bytes=parameters.copy(),
    )


def _figures(text: str, where: str) -> list[float]:
    given = dict(part.strip().partition("=")[::2] for part in text.split(","))
    values = []
    for name in _FIELDS:
        if name not in given:
            raise WorkloadError(f"{where}: {name}: the field is missing")
        parts = given[name].strip("[] ").split(";")
        try:
            value = sum(float(part) for part in parts)
        except ValueError:
            raise WorkloadError(
                f"{where}: {name}: expected a number, found '{given[name]}'"
            ) from None
        if not math.isfinite(value) or value < 0:
            raise WorkloadError(f"{where}: {name}: expected at least 0, found '{given[name]}'")
        values.append(value)
    return values
