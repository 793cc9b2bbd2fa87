"""The compiled inner loop of ``local-search`` (numba, cached on disk).

The state is the device of every node, with the compute, transfer and byte totals of every device
kept up to date. For each node and device it counts the node's readers there: a node pays on its own
device while some reader sits elsewhere, and on every other device that has a reader. Moving a node
changes the loads of its old and new device only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from baechi_jax.passes.placement._jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]


@compiled
def _move(
    node: int,
    target: int,
    device_of: Ints,
    readers: NDArray[np.int32],
    degree: Ints,
    source_pointers: Ints,
    sources: Ints,
    transfer: Floats,
    seconds: Floats,
    held: Floats,
    kind_of: Ints,
    compute: Floats,
    moved: Floats,
    used: Floats,
) -> None:
    """Put ``node`` on device ``target``, updating every total in place."""
    origin = device_of[node]
    if origin == target:
        return
    cost = transfer[node]
    if readers[node, origin] < degree[node]:
        moved[origin] -= cost
    if readers[node, origin] > 0:
        moved[origin] += cost
    if readers[node, target] > 0:
        moved[target] -= cost
    if readers[node, target] < degree[node]:
        moved[target] += cost
    device_of[node] = target
    for edge in range(source_pointers[node], source_pointers[node + 1]):
        source = sources[edge]
        home = device_of[source]
        cost = transfer[source]
        if home == origin:
            if readers[source, origin] == degree[source]:
                moved[origin] += cost
        elif readers[source, origin] == 1:
            moved[origin] -= cost
        readers[source, origin] -= 1
        if home == target:
            if readers[source, target] == degree[source] - 1:
                moved[target] -= cost
        elif readers[source, target] == 0:
            moved[target] += cost
        readers[source, target] += 1
    compute[origin] -= seconds[kind_of[origin], node]
    compute[target] += seconds[kind_of[target], node]
    used[origin] -= held[node]
    used[target] += held[node]


@compiled
def anneal(
    steps: int,
    seed: int,
    start: Ints,
    # Nodes of each colour class, and which classes are joined by an edge: CSR.
    class_pointers: Ints,
    class_nodes: Ints,
    neighbour_pointers: Ints,
    neighbours: Ints,
    # Edges of the workload (CSR by target and by source) and costs; ``allowed[kind, class]``, with
    # ``seconds`` zero where a node cannot run.
    source_pointers: Ints,
    sources: Ints,
    target_pointers: Ints,
    targets: Ints,
    transfer: Floats,
    seconds: Floats,
    allowed: Bools,
    held: Floats,
    # Devices: [device] kind and memory; [kind] whether transfers cost.
    kind_of: Ints,
    memory: Floats,
    pays: Floats,
    overlap: bool,
    # Temperatures at the first and the last step, and the exponent of the loads' norm.
    hot: float,
    cold: float,
    exponent: float,
) -> tuple[float, Ints]:
    """Simulated annealing on the sum of ``load ** exponent``; the best largest load seen.

    Returns ``(largest load, device_of)``. Moves a class to a neighbour's device or to any device,
    or exchanges two classes. A move that breaks a memory limit, or puts a node where it cannot run,
    is never taken. ``start`` must be valid. The same seed gives the same result.
    """
    np.random.seed(seed)
    nodes = len(start)
    devices = len(kind_of)
    classes = len(class_pointers) - 1
    device_of = start.copy()
    degree = np.diff(target_pointers)
    readers = np.zeros((nodes, devices), np.int32)
    compute = np.zeros(devices)
    moved = np.zeros(devices)
    used = np.zeros(devices)
    for node in range(nodes):
        for edge in range(target_pointers[node], target_pointers[node + 1]):
            readers[node, device_of[targets[edge]]] += 1
    for node in range(nodes):
        home = device_of[node]
        compute[home] += seconds[kind_of[home], node]
        used[home] += held[node]
        for device in range(devices):
            if device == home:
                if readers[node, device] < degree[node]:
                    moved[device] += transfer[node]
            elif readers[node, device] > 0:
                moved[device] += transfer[node]
    loads = np.zeros(devices)
    for device in range(devices):
        paid = moved[device] * pays[kind_of[device]]
        loads[device] = max(compute[device], paid) if overlap else compute[device] + paid
    best = loads.max()
    best_device_of = device_of.copy()
    scale = best if best > 0 else 1.0
    for step in range(steps):
        temperature = hot * (cold / hot) ** (step / steps)
        first = np.random.randint(classes)
        origin = device_of[class_nodes[class_pointers[first]]]
        second = -1
        choice = np.random.random()
        width = neighbour_pointers[first + 1] - neighbour_pointers[first]
        if choice < 0.55 and width > 0:
            other = neighbours[neighbour_pointers[first] + np.random.randint(width)]
            target = device_of[class_nodes[class_pointers[other]]]
        elif choice < 0.8:
            target = np.random.randint(devices)
        else:
            second = np.random.randint(classes)
            target = device_of[class_nodes[class_pointers[second]]]
        if origin == target or not allowed[kind_of[target], first]:
            continue
        if second >= 0 and not allowed[kind_of[origin], second]:
            continue
        for turn in range(2):
            group = first if turn == 0 else second
            goal = target if turn == 0 else origin
            if group < 0:
                continue
            for position in range(class_pointers[group], class_pointers[group + 1]):
                _move(
                    class_nodes[position],
                    goal,
                    device_of,
                    readers,
                    degree,
                    source_pointers,
                    sources,
                    transfer,
                    seconds,
                    held,
                    kind_of,
                    compute,
                    moved,
                    used,
                )
        accepted = used[origin] <= memory[origin] and used[target] <= memory[target]
        load_origin = 0.0
        load_target = 0.0
        if accepted:
            paid = moved[origin] * pays[kind_of[origin]]
            busy = compute[origin]
            load_origin = max(busy, paid) if overlap else busy + paid
            paid = moved[target] * pays[kind_of[target]]
            busy = compute[target]
            load_target = max(busy, paid) if overlap else busy + paid
            change = (
                (load_origin / scale) ** exponent
                + (load_target / scale) ** exponent
                - (loads[origin] / scale) ** exponent
                - (loads[target] / scale) ** exponent
            )
            accepted = change <= 0 or np.random.random() < np.exp(-change / temperature)
        if accepted:
            loads[origin] = load_origin
            loads[target] = load_target
            largest = loads.max()
            if largest < best * (1 - 1e-12):
                best = largest
                best_device_of[:] = device_of
            if step % 1024 == 0 and largest < 0.9 * scale:
                scale = largest
            continue
        for turn in range(2):
            group = second if turn == 0 else first
            goal = target if turn == 0 else origin
            if group < 0:
                continue
            for position in range(class_pointers[group], class_pointers[group + 1]):
                _move(
                    class_nodes[position],
                    goal,
                    device_of,
                    readers,
                    degree,
                    source_pointers,
                    sources,
                    transfer,
                    seconds,
                    held,
                    kind_of,
                    compute,
                    moved,
                    used,
                )
    return best, best_device_of
