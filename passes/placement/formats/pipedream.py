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
from dataclasses import dataclass

import numpy as np

from baechi_jax.passes.placement.formats.fields import edge_array
from baechi_jax.passes.placement.workload import DeviceClass, Workload, WorkloadError

_NODE = re.compile(r"node(\d+) -- (.*) -- ([a-z_]+=.*)")
_EDGE = re.compile(r"\s*node(\d+) -- node(\d+)\s*")
_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_MILLISECOND = 1e-3


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal accelerators: how many, the memory of each, and the bandwidth to the others."""

    devices: int
    memory_bytes: float = math.inf
    bytes_per_second: float = 10e9


def read(text: str, file: str, machine: Machine) -> Workload:
    """The workload in the ``text`` of a file of this format, on ``machine``."""
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
        transfer_seconds=activations / machine.bytes_per_second,
        backward=np.zeros(len(names), bool),
        colour=np.full(len(names), -1, np.int64),
        edges=edge_array(ends),
        classes=(
            DeviceClass(
                "accelerator",
                machine.devices,
                machine.memory_bytes,
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
