"""Random small workloads, and the definitions written down naively, to compare against."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from hypothesis import strategies as st

from baechi_jax.passes.placement.workload import DeviceClass, Workload


def workload(
    seconds: Iterable[Iterable[float]],
    edges: Iterable[tuple[int, int]],
    *,
    counts: Iterable[int],
    transfers: Iterable[bool] | None = None,
    memory: Iterable[float] | None = None,
    nbytes: Iterable[float] | None = None,
    transfer: Iterable[float] | None = None,
    colour: Iterable[int] | None = None,
    backward: Iterable[bool] | None = None,
    parameters: Iterable[float] | None = None,
) -> Workload:
    """A workload from plain lists; ``seconds`` is per class."""
    times = [np.array(list(row), np.float64) for row in seconds]
    size, kinds = len(times[0]), len(times)
    pays = [True] * kinds if transfers is None else list(transfers)
    limits = [np.inf] * kinds if memory is None else list(memory)
    links = sorted(set(edges))
    return Workload(
        names=tuple(f"n{node}" for node in range(size)),
        ids=tuple(range(10, 10 + size)),
        bytes=_array(nbytes, size),
        transfer_seconds=_array(transfer, size),
        backward=np.zeros(size, bool) if backward is None else np.array(list(backward), bool),
        colour=np.full(size, -1, np.int64) if colour is None else np.array(list(colour), np.int64),
        edges=np.array(links, np.int64).reshape(len(links), 2),
        classes=tuple(
            DeviceClass(f"class{kind}", count, limits[kind], times[kind], pays[kind])
            for kind, count in enumerate(counts)
        ),
        parameter_bytes=_array(parameters, size),
    )


def _array(values: Iterable[float] | None, size: int) -> np.ndarray:
    return np.zeros(size) if values is None else np.array(list(values), np.float64)


@st.composite
def workloads(
    draw: st.DrawFn,
    *,
    most_nodes: int = 6,
    training: bool | None = None,
    host: bool | None = None,
    most_devices: int = 4,
) -> Workload:
    """Up to ``most_nodes`` nodes, a few devices of one to three classes, tight memory at times.

    ``host``: exactly one class without transfers, one with; None: anything.
    """
    forward = draw(st.integers(1, most_nodes))
    is_training = draw(st.booleans()) if training is None else training
    if is_training:
        forward = max(1, forward // 2)
    pairs = list(itertools.combinations(range(forward), 2))
    edges = [pair for pair in pairs if draw(st.integers(0, 2)) == 0]
    backward = [False] * forward
    colours = draw(st.lists(st.sampled_from([-1, -1, 0, 1]), min_size=forward, max_size=forward))
    if is_training:
        colours = [node if colour < 0 else colour + 10 for node, colour in enumerate(colours)]
        mirror = {}
        for node in reversed(range(forward)):
            if draw(st.integers(0, 4)):
                mirror[node] = len(backward)
                backward.append(True)
                colours.append(colours[node] if draw(st.integers(0, 5)) else -1)
        edges += [
            (mirror[target], mirror[source])
            for source, target in list(edges)
            if source in mirror and target in mirror
        ]
        edges += [(node, other) for node, other in mirror.items() if draw(st.booleans())]
    size = len(backward)
    times = st.integers(0, 6).map(float)
    if host is None:
        counts = draw(
            st.lists(st.integers(1, 2), min_size=1, max_size=3).filter(
                lambda found: sum(found) <= most_devices
            )
        )
        transfers = [draw(st.booleans()) for _ in counts]
    else:
        counts = [draw(st.integers(1, most_devices - 1)), 1]
        transfers = [True, False]
    seconds = []
    for pays in transfers:
        row = draw(st.lists(times, min_size=size, max_size=size))
        if pays and draw(st.integers(0, 3)) == 0:
            row[draw(st.integers(0, size - 1))] = float("inf")
        seconds.append(row)
    nbytes = draw(st.lists(st.integers(0, 4).map(float), min_size=size, max_size=size))
    memory = [
        float(draw(st.integers(1, max(1, int(sum(nbytes)))))) if draw(st.booleans()) else np.inf
        for _ in counts
    ]
    if host is not None:
        memory[1] = np.inf
    return workload(
        seconds,
        edges,
        counts=counts,
        transfers=transfers,
        memory=memory,
        nbytes=nbytes,
        transfer=draw(st.lists(st.integers(0, 3).map(float), min_size=size, max_size=size)),
        colour=colours,
        backward=backward,
        parameters=draw(st.lists(st.integers(0, 3).map(float), min_size=size, max_size=size)),
    )


def assignments(given: Workload) -> Iterator[tuple[int, ...]]:
    """Every assignment of nodes to devices that keeps colours, memory and support."""
    kind_of = given.class_of_devices().tolist()
    classes = [
        int(colour) if colour >= 0 else -2 - node for node, colour in enumerate(given.colour)
    ]
    keys = sorted(set(classes), key=classes.index)
    for choice in itertools.product(range(given.devices), repeat=len(keys)):
        where = dict(zip(keys, choice))
        device_of = tuple(where[key] for key in classes)
        held = [0.0] * given.devices
        for node, device in enumerate(device_of):
            held[device] += given.bytes[node]
            if not np.isfinite(given.classes[kind_of[device]].seconds[node]):
                break
        else:
            if all(
                used <= given.classes[kind_of[device]].memory_bytes
                for device, used in enumerate(held)
            ):
                yield device_of


def naive_load(
    given: Workload,
    device_of: tuple[int, ...],
    device: int,
    *,
    overlap: bool = False,
    part: bool | None = None,
) -> float:
    """Load of one device; ``part``: of its backward (True) or forward (False) nodes."""
    kind = given.classes[given.device_class(device)]
    edges = given.edges.tolist()
    counted = [part is None or bool(given.backward[node]) == part for node in range(given.size)]
    compute = sum(
        kind.seconds[node]
        for node, where in enumerate(device_of)
        if where == device and counted[node]
    )
    incoming = {u for u, v in edges if device_of[u] != device and device_of[v] == device}
    outgoing = {u for u, v in edges if device_of[u] == device and device_of[v] != device}
    moved = sum(given.transfer_seconds[u] for u in incoming if counted[u])
    moved += sum(given.transfer_seconds[u] for u in outgoing if counted[u])
    if not kind.transfers:
        moved = 0.0
    return float(max(compute, moved) if overlap else compute + moved)


def naive_max_load(given: Workload, device_of: tuple[int, ...], *, overlap: bool = False) -> float:
    """The largest load."""
    return max(
        naive_load(given, device_of, device, overlap=overlap) for device in range(given.devices)
    )


def naive_sum_of_maxima(
    given: Workload, device_of: tuple[int, ...], *, overlap: bool = False
) -> float:
    """Largest forward load plus largest backward load."""
    return sum(
        max(
            naive_load(given, device_of, device, overlap=overlap, part=part)
            for device in range(given.devices)
        )
        for part in (False, True)
    )


def reachable(edges: Iterable[tuple[int, int]], nodes: Iterable[int]) -> dict[int, set[int]]:
    """What each node reaches, itself aside unless it is on a cycle."""
    after: dict[int, set[int]] = {node: set() for node in nodes}
    links = list(edges)
    for u, v in links:
        after[u].add(v)
    changed = True
    while changed:
        changed = False
        for node, found in after.items():
            larger = found.union(*(after[other] for other in found)) if found else found
            if larger != found:
                after[node] = larger
                changed = True
    return after


def naive_contiguous(given: Workload, device_of: tuple[int, ...]) -> bool:
    """Whether no path among forward nodes leaves a device and comes back to it."""
    forward = [node for node in range(given.size) if not given.backward[node]]
    edges = [(u, v) for u, v in given.edges.tolist() if u in forward and v in forward]
    after = reachable(edges, forward)
    return not any(
        device_of[a] == device_of[c] != device_of[b]
        for a in forward
        for b in after[a]
        for c in after[b]
    )


def naive_pipeline(given: Workload, device_of: tuple[int, ...]) -> bool:
    """Whether the devices can be put in an order that all edges follow.

    Edges between forward nodes count, and, reversed, those between backward nodes one of which has
    a colour class without forward nodes.
    """
    classes = [
        int(colour) if colour >= 0 else -2 - node for node, colour in enumerate(given.colour)
    ]
    has_forward = {classes[node] for node in range(given.size) if not given.backward[node]}
    links = set()
    for u, v in given.edges.tolist():
        ends = (device_of[u], device_of[v])
        lone = classes[u] not in has_forward or classes[v] not in has_forward
        if not given.backward[u] and not given.backward[v]:
            links.add(ends)
        elif given.backward[u] and given.backward[v] and lone:
            links.add(ends[::-1])
    links = {(a, b) for a, b in links if a != b}
    after = reachable(links, range(given.devices))
    return not any(device in found for device, found in after.items())


def naive_latency(given: Workload, piece_of: tuple[int, ...], subgraphs: int = 1) -> float:
    """Latency by its definition, as a fixed point; infinite if something waits for itself."""
    host = next((kind for kind in given.classes if not kind.transfers), None)
    edges = given.edges.tolist()
    # Host nodes are units below zero.
    unit = [piece if piece >= 0 else -1 - node for node, piece in enumerate(piece_of)]
    cost: dict[int, float] = {}
    for each in set(unit):
        if each < 0:
            assert host is not None
            cost[each] = float(host.seconds[-1 - each])
            continue
        kind = given.classes[given.device_class(each // subgraphs)]
        incoming = {u for u, v in edges if unit[u] != each and unit[v] == each}
        outgoing = {u for u, v in edges if unit[u] == each and unit[v] != each}
        cost[each] = sum(kind.seconds[v] for v in range(given.size) if unit[v] == each)
        cost[each] += sum(given.transfer_seconds[u] for u in [*incoming, *outgoing])
    waits = {(unit[u], unit[v]) for u, v in edges if unit[u] != unit[v]}
    waits |= {
        (one, other)
        for one, other in itertools.permutations(cost, 2)
        if 0 <= one < other and one // subgraphs == other // subgraphs
    }
    end = dict.fromkeys(cost, 0.0)
    for _ in range(len(cost) + 1):
        before = dict(end)
        for each in cost:
            end[each] = cost[each] + max((end[u] for u, v in waits if v == each), default=0.0)
        if before == end:
            break
    cyclic = any(each in found for each, found in reachable(waits, cost).items())
    return float("inf") if cyclic else max(end.values(), default=0.0)


def best_latency(given: Workload, subgraphs: int) -> float:
    """The least latency over all splits into up to ``subgraphs`` pieces of each accelerator."""
    classes = [
        int(colour) if colour >= 0 else -2 - node for node, colour in enumerate(given.colour)
    ]
    kind_of = given.class_of_devices().tolist()
    host = next(kind for kind in given.classes if not kind.transfers)
    devices = [each for each in range(given.devices) if given.classes[kind_of[each]].transfers]
    pieces = [device * subgraphs + number for device in devices for number in range(subgraphs)]
    best = float("inf")
    for piece_of in itertools.product([-1, *pieces], repeat=given.size):
        held: dict[int, float] = {}
        home: dict[int, int] = {}
        valid = True
        for node, piece in enumerate(piece_of):
            device = piece // subgraphs if piece >= 0 else -1
            kind = given.classes[kind_of[device]] if piece >= 0 else host
            held[device] = held.get(device, 0.0) + given.bytes[node]
            valid &= home.setdefault(classes[node], device) == device
            valid &= bool(np.isfinite(kind.seconds[node]))
        valid &= all(
            used <= given.classes[kind_of[device]].memory_bytes
            for device, used in held.items()
            if device >= 0
        )
        # Equal devices are used in their order.
        seen: dict[int, list[int]] = {}
        for device in dict.fromkeys(each for each in held if each >= 0):
            seen.setdefault(kind_of[device], []).append(device)
        for kind_index, found in seen.items():
            valid &= found == list(range(kind_of.index(kind_index), found[-1] + 1))
        if valid:
            best = min(best, naive_latency(given, piece_of, subgraphs))
    return best
