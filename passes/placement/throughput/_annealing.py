"""The compiled inner loop of ``local-search`` (numba, cached on disk).

The state is the device of every class, with the compute, transfer and byte totals of every device
kept up to date. For each net and device it counts the readers there: a net costs its own device
while some reader sits elsewhere, and every other device that has a reader. Moving a class changes
the loads of its old and new device only.
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
    group: int,
    target: int,
    device_of: Ints,
    readers: NDArray[np.int32],
    own_pointers: Ints,
    own: Ints,
    read_pointers: Ints,
    read: Ints,
    source: Ints,
    degree: Ints,
    cost: Floats,
    part: Ints,
    seconds: Floats,
    held: Floats,
    kind_of: Ints,
    compute: Floats,
    moved: Floats,
    used: Floats,
) -> None:
    """Put class ``group`` on device ``target``, updating every total in place."""
    origin = device_of[group]
    if origin == target:
        return
    for position in range(own_pointers[group], own_pointers[group + 1]):
        net = own[position]
        paid = cost[net]
        phase = part[net]
        if readers[net, origin] < degree[net]:
            moved[phase, origin] -= paid
        if readers[net, origin] > 0:
            moved[phase, origin] += paid
        if readers[net, target] > 0:
            moved[phase, target] -= paid
        if readers[net, target] < degree[net]:
            moved[phase, target] += paid
    device_of[group] = target
    for position in range(read_pointers[group], read_pointers[group + 1]):
        net = read[position]
        home = device_of[source[net]]
        paid = cost[net]
        phase = part[net]
        if home == origin:
            if readers[net, origin] == degree[net]:
                moved[phase, origin] += paid
        elif readers[net, origin] == 1:
            moved[phase, origin] -= paid
        readers[net, origin] -= 1
        if home == target:
            if readers[net, target] == degree[net] - 1:
                moved[phase, target] -= paid
        elif readers[net, target] == 0:
            moved[phase, target] += paid
        readers[net, target] += 1
    for phase in range(len(seconds)):
        compute[phase, origin] -= seconds[phase, kind_of[origin], group]
        compute[phase, target] += seconds[phase, kind_of[target], group]
    used[origin] -= held[group]
    used[target] += held[group]


@compiled
def anneal(
    steps: int,
    seed: int,
    start: Ints,
    # Nets that each class is the source of, and that it reads: CSR.
    own_pointers: Ints,
    own: Ints,
    read_pointers: Ints,
    read: Ints,
    # [net] source class, number of readers, seconds, phase.
    source: Ints,
    degree: Ints,
    cost: Floats,
    part: Ints,
    # Classes joined by an edge: CSR.
    neighbour_pointers: Ints,
    neighbours: Ints,
    # [phase, kind, class], zero where a class cannot run; [kind, class]; [class].
    seconds: Floats,
    allowed: Bools,
    held: Floats,
    # [device] kind and memory; [kind] whether transfers cost.
    kind_of: Ints,
    memory: Floats,
    pays: Floats,
    overlap: bool,
    # Temperatures at the first and the last step, and the exponent of the loads' norm.
    hot: float,
    cold: float,
    exponent: float,
) -> tuple[float, Ints]:
    """Simulated annealing; the least sum over phases of the largest load seen, and its split.

    The energy is the sum of ``load ** exponent``, or for several phases the sum of the roots of
    those. Moves a class to a neighbour's device or to any device, or exchanges two classes. A move
    that breaks a memory limit, or puts a class where it cannot run, is never taken. ``start``,
    ``[class]``, must be valid. The same seed gives the same result.
    """
    np.random.seed(seed)
    classes = len(start)
    devices = len(kind_of)
    phases = len(seconds)
    nets = len(source)
    device_of = start.copy()
    readers = np.zeros((nets, devices), np.int32)
    compute = np.zeros((phases, devices))
    moved = np.zeros((phases, devices))
    used = np.zeros(devices)
    for group in range(classes):
        home = device_of[group]
        used[home] += held[group]
        for phase in range(phases):
            compute[phase, home] += seconds[phase, kind_of[home], group]
        for position in range(read_pointers[group], read_pointers[group + 1]):
            readers[read[position], home] += 1
    for net in range(nets):
        home = device_of[source[net]]
        for device in range(devices):
            inside = readers[net, device]
            if (device == home and inside < degree[net]) or (device != home and inside > 0):
                moved[part[net], device] += cost[net]
    loads = np.zeros((phases, devices))
    for phase in range(phases):
        for device in range(devices):
            paid = moved[phase, device] * pays[kind_of[device]]
            busy = compute[phase, device]
            loads[phase, device] = max(busy, paid) if overlap else busy + paid
    largest = 0.0
    for phase in range(phases):
        largest += loads[phase].max()
    best = largest
    best_device_of = device_of.copy()
    scale = best if best > 0 else 1.0
    root = 1.0 if phases == 1 else 1.0 / exponent
    powers = np.zeros(phases)
    for phase in range(phases):
        for device in range(devices):
            powers[phase] += (loads[phase, device] / scale) ** exponent
    new_powers = np.zeros(phases)
    new_loads = np.zeros((phases, 2))
    for step in range(steps):
        temperature = hot * (cold / hot) ** (step / steps)
        first = np.random.randint(classes)
        origin = device_of[first]
        second = -1
        choice = np.random.random()
        width = neighbour_pointers[first + 1] - neighbour_pointers[first]
        if choice < 0.55 and width > 0:
            other = neighbours[neighbour_pointers[first] + np.random.randint(width)]
            target = device_of[other]
        elif choice < 0.8:
            target = np.random.randint(devices)
        else:
            second = np.random.randint(classes)
            target = device_of[second]
        if origin == target or not allowed[kind_of[target], first]:
            continue
        change_held = held[first]
        if second >= 0:
            if not allowed[kind_of[origin], second]:
                continue
            change_held -= held[second]
        if used[target] + change_held > memory[target]:
            continue
        if used[origin] - change_held > memory[origin]:
            continue
        for turn in range(2):
            group = first if turn == 0 else second
            if group < 0:
                continue
            _move(
                group,
                target if turn == 0 else origin,
                device_of,
                readers,
                own_pointers,
                own,
                read_pointers,
                read,
                source,
                degree,
                cost,
                part,
                seconds,
                held,
                kind_of,
                compute,
                moved,
                used,
            )
        change = 0.0
        for phase in range(phases):
            power = powers[phase]
            for end in range(2):
                device = origin if end == 0 else target
                paid = moved[phase, device] * pays[kind_of[device]]
                busy = compute[phase, device]
                load = max(busy, paid) if overlap else busy + paid
                new_loads[phase, end] = load
                power -= (loads[phase, device] / scale) ** exponent
                power += (load / scale) ** exponent
            new_powers[phase] = max(power, 0.0)
            change += new_powers[phase] ** root - powers[phase] ** root
        if change <= 0 or np.random.random() < np.exp(-change / temperature):
            largest = 0.0
            for phase in range(phases):
                loads[phase, origin] = new_loads[phase, 0]
                loads[phase, target] = new_loads[phase, 1]
                powers[phase] = new_powers[phase]
                largest += loads[phase].max()
            if largest < best * (1 - 1e-12):
                best = largest
                best_device_of[:] = device_of
            if step % 1024 == 0:
                if 0.0 < largest < 0.9 * scale:
                    scale = largest
                for phase in range(phases):
                    powers[phase] = 0.0
                    for device in range(devices):
                        powers[phase] += (loads[phase, device] / scale) ** exponent
            continue
        for turn in range(2):
            group = second if turn == 0 else first
            if group < 0:
                continue
            _move(
                group,
                target if turn == 0 else origin,
                device_of,
                readers,
                own_pointers,
                own,
                read_pointers,
                read,
                source,
                degree,
                cost,
                part,
                seconds,
                held,
                kind_of,
                compute,
                moved,
                used,
            )
    return best, best_device_of
