"""A problem as the compiled list scheduler takes it; see ``list_scheduling.py``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.flat import starts
from baechi_jax.passes.placement.fusion import Fused
from baechi_jax.passes.placement.ledger import Ledger, Profiles
from baechi_jax.passes.placement.units import Units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from baechi_jax.passes.placement._list_kernel import Graph, Memory, State
    from baechi_jax.passes.placement.problem import PlacementProblem


def memory_is_ample(problem: PlacementProblem) -> bool:
    """Whether no placement can pass a limit: every tensor on every device, and one node's work."""
    total = int(problem.tensor_bytes.sum()) + int(problem.temporary_bytes.max(initial=0))
    return total <= int(problem.machine.limit_bytes.min())


def schedule_compiled(
    fused: Fused,
    profiles: Profiles | None,
    favourite_child: Sequence[int] | None,
) -> tuple[list[int], float, int]:
    """The device of each group, the makespan in the machine's unit, groups above a limit."""
    from baechi_jax.passes.placement import _list_kernel as kernel

    problem = fused.original
    ample = memory_is_ample(problem)
    if not ample and profiles is None:
        profiles = Profiles(problem)
    memory = _memory(problem, None if ample else profiles)
    state = _state(fused.problem)
    graph = _graph(fused.problem, favourite_child)
    overflows, makespan = kernel.run(graph, memory, state)
    device_of_group: list[int] = state.device.tolist()
    if -1 in device_of_group:
        # Arguments that nobody reads.
        profiles = Profiles(problem) if profiles is None else profiles
        ledger = Ledger(profiles)
        for group, device in enumerate(device_of_group):
            if device >= 0:
                ledger.place(group, device)
        overflows += Units(problem, profiles, ledger).place_rest()
        device_of_group = list(ledger.device)
    return device_of_group, float(makespan), int(overflows)


def _graph(problem: PlacementProblem, favourite_child: Sequence[int] | None) -> Graph:
    from baechi_jax.passes.placement._list_kernel import Graph

    flat, machine, times = problem.flat, problem.machine, problem.node_times
    order = np.argsort(flat.position)
    by_group = order[np.argsort(problem.group[order], kind="stable")]
    along_starts, along = _along(problem)
    favourite = np.full(problem.nodes, -1, dtype=np.int64)
    if favourite_child is not None:
        favourite[:] = favourite_child
    nodes = np.column_stack(
        (
            problem.group,
            flat.position,
            problem.is_argument,
            flat.read_starts[:-1],
            flat.read_starts[1:],
            np.zeros(problem.nodes, dtype=np.int64),
            flat.task_reads,
            favourite,
        )
    )
    tensors = np.column_stack(
        (problem.producer, problem.tensor_bytes, flat.reader_starts[:-1], flat.reader_starts[1:])
    )
    return Graph(
        nodes=np.ascontiguousarray(nodes, dtype=np.int64),
        tensors=np.ascontiguousarray(tensors, dtype=np.int64),
        seconds=times,
        fastest=times.min(axis=1),
        order=order,
        reads=flat.reads,
        readers=flat.readers,
        give_starts=flat.give_starts,
        gives=flat.gives,
        member_starts=starts(np.bincount(problem.group, minlength=problem.groups)),
        members=by_group,
        allowed=problem.allowed_mask,
        processor=machine.processor,
        links=np.stack((machine.unit_latency, machine.unit_per_byte, machine.wire)),
        along_starts=along_starts,
        along=along,
        awake=favourite_child is not None,
        channel=machine.communication == "channel",
    )


def _along(problem: PlacementProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups whose arguments each group reads, in the order of those tensors, without itself."""
    empty = np.zeros(problem.groups + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if not problem.is_argument.any():
        return empty
    flat, group = problem.flat, problem.group
    tensor = np.repeat(np.arange(problem.tensors), np.diff(flat.reader_starts))
    owner, reader = group[problem.producer[tensor]], group[flat.readers]
    kept = problem.is_argument[problem.producer[tensor]] & (owner != reader)
    pairs = reader[kept] * problem.groups + owner[kept]
    _, first = np.unique(pairs, return_index=True)
    pairs = pairs[np.sort(first)]
    readers, owners = np.divmod(pairs, max(1, problem.groups))
    by_reader = np.argsort(readers, kind="stable")
    return (
        starts(np.bincount(readers, minlength=problem.groups)),
        np.ascontiguousarray(owners[by_reader]),
    )


def _memory(problem: PlacementProblem, profiles: Profiles | None) -> Memory:
    from baechi_jax.passes.placement._list_kernel import Memory

    devices = problem.devices
    none = np.zeros(0, dtype=np.int64)
    incoming = _table([] if profiles is None else profiles.incoming)
    outgoing = _table([] if profiles is None else profiles.outgoing)
    slots = 0 if profiles is None else profiles.slots
    copied = (0, devices) if profiles is None else (problem.tensors, devices)
    return Memory(
        ample=profiles is None,
        limit=problem.machine.limit_bytes,
        curve=np.zeros((0, 0), dtype=np.int64) if profiles is None else profiles.curve,
        group_peak=none if profiles is None else np.asarray(profiles.group_peak, dtype=np.int64),
        first=none if profiles is None else np.asarray(profiles.first_list, dtype=np.int64),
        nbytes=problem.tensor_bytes,
        in_starts=incoming[0],
        in_tensors=incoming[1],
        in_groups=incoming[2],
        in_until=incoming[3],
        out_starts=outgoing[0],
        out_tensors=outgoing[1],
        out_groups=outgoing[2],
        out_until=outgoing[3],
        used=np.zeros((devices, slots), dtype=np.int64),
        peak=np.zeros(devices, dtype=np.int64),
        copied=np.full(copied, -1, dtype=np.int64),
        together=np.zeros(max(1, problem.groups), dtype=np.int64),
        touched=np.zeros(devices, dtype=np.bool_),
    )


def _state(problem: PlacementProblem) -> State:
    from baechi_jax.passes.placement._list_kernel import HEAPS, State

    machine, devices = problem.machine, problem.devices
    # A node is offered to a device when it is ready, and again when its group is placed there.
    capacity = 2 * problem.nodes + 1
    return State(
        device=np.full(problem.groups, -1, dtype=np.int64),
        open=problem.allowed_mask.copy(),
        finish=np.zeros(problem.nodes),
        arrival=np.full((problem.tensors, devices), -1.0),
        free=np.zeros(machine.processors),
        wire_free=np.zeros(max(devices, int(machine.wire.max(initial=0)) + 1)),
        keys=np.empty((devices * HEAPS, capacity)),
        ranks=np.empty((devices * HEAPS, capacity), dtype=np.int64),
        sizes=np.zeros(devices * HEAPS, dtype=np.int64),
        awake_for=np.full(devices, -1, dtype=np.int64),
        sent=np.zeros(devices),
    )


def _table(rows: list[list[tuple[int, int, int]]]) -> tuple[NDArray[np.int64], ...]:
    flat = np.array(list(chain.from_iterable(rows)), dtype=np.int64).reshape(-1, 3)
    columns = (np.ascontiguousarray(flat[:, column]) for column in range(3))
    return (starts(np.array([len(row) for row in rows], dtype=np.int64)), *columns)
