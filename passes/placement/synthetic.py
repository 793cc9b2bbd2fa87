"""Made-up placement problems, for tests and benchmarks.

All are deterministic in their arguments.
"""

from __future__ import annotations

import random

from baechi_jax.passes.placement.machine import Machine
from baechi_jax.passes.placement.problem import PlacementProblem, ProblemBuilder


def layered_problem(
    nodes: int, width: int, machine: Machine, *, fan_in: int = 3, seed: int = 0
) -> PlacementProblem:
    """Nodes of 0.1 to 1 ms in layers, each reading ``fan_in`` of the two layers before its own.

    Every node is a group of its own; tensors have 1 kB to 1 MB.
    """
    rng = random.Random(seed)
    builder = ProblemBuilder(machine)
    readers: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(nodes):
        builder.add_node(f"n{node}", rng.uniform(1e-4, 1e-3))
        layer = node // width
        if layer:
            candidates = range(max(0, (layer - 2) * width), layer * width)
            for source in rng.sample(candidates, min(fan_in, len(candidates))):
                readers[source].append(node)
    for node in range(nodes):
        builder.add_tensor(node, rng.randrange(1_000, 1_000_000), readers[node])
    return builder.build()


def training_problem(
    layers: int,
    machine: Machine,
    *,
    parameter_bytes: int = 1 << 20,
    activation_bytes: int = 1 << 18,
    residuals: int = 4,
    forward_seconds: float = 1e-3,
) -> PlacementProblem:
    """A training step with Adam: a chain of layers forward and back, each with its update.

    Each layer is one group of its parameter, two moments (donated, each with its next value), its
    forward, backward and update task, and ``residuals`` activations kept from forward to backward.
    """
    builder = ProblemBuilder(machine)
    names = [f"layer{index}" for index in range(layers)]
    state: list[list[tuple[int, int]]] = [
        [
            builder.add_argument(f"{what}['{name}']", parameter_bytes, donated=True, group=name)
            for what in ("params", "m", "v")
        ]
        for name in names
    ]
    batch = builder.add_node("batch", 0.0, is_argument=True)
    forward = [
        builder.add_node(
            f"{name}.forward",
            forward_seconds,
            temporary_bytes=activation_bytes,
            group=name,
            source=f"model.py:{10 + index}",
        )
        for index, name in enumerate(names)
    ]
    backward: dict[int, int] = {}
    update: dict[int, int] = {}
    for index in reversed(range(layers)):
        name = names[index]
        backward[index] = builder.add_node(
            f"{name}.backward",
            2 * forward_seconds,
            temporary_bytes=activation_bytes,
            group=name,
            source=f"model.py:{10 + index}",
        )
        update[index] = builder.add_node(
            f"{name}.update", forward_seconds / 10, group=name, source="model.py:90"
        )
    builder.add_tensor(batch, activation_bytes, forward[:1], persistent=True)
    for index in range(layers):
        parameter, *moments = state[index]
        builder.set_readers(parameter[1], [forward[index], backward[index], update[index]])
        for _, tensor in moments:
            builder.set_readers(tensor, [update[index]])
        # From the last layer's forward task straight to its backward task.
        above = forward[index + 1] if index + 1 < layers else backward[index]
        builder.add_tensor(forward[index], activation_bytes, [above])
        for _ in range(residuals):
            builder.add_tensor(forward[index], activation_bytes, [backward[index]])
        below = [backward[index - 1]] if index else []
        builder.add_tensor(backward[index], activation_bytes, below)
        builder.add_tensor(backward[index], parameter_bytes, [update[index]])
        for _, tensor in state[index]:
            builder.add_tensor(update[index], parameter_bytes, persistent=True, alias=tensor)
    return builder.build()


def random_machine(rng: random.Random, devices: int, *, limit_bytes: int) -> Machine:
    """Unequal devices and links; some devices share hardware, some links a wire."""
    import numpy as np

    machine = Machine.uniform_of(
        devices,
        limit_bytes,
        latency_seconds=rng.choice([1e-3, 0.05, 1.0]),
        seconds_per_byte=rng.choice([0.0, 1e-3, 5e-2]),
    )
    latency = machine.latency_seconds.copy()
    per_byte = machine.seconds_per_byte.copy()
    wire = machine.wire.copy()
    processor = machine.processor.copy()
    limits = machine.limit_bytes.copy()
    if rng.random() < 0.4:
        for source in range(devices):
            for target in range(devices):
                latency[source, target] *= rng.uniform(0.5, 2)
                per_byte[source, target] *= rng.uniform(0.5, 2)
    if rng.random() < 0.3:
        # One wire for both directions of each pair.
        wire = np.minimum(wire, wire.T)
    if devices > 1 and rng.random() < 0.3:
        processor = np.array([0, *range(devices - 1)], dtype=np.int64)
    if rng.random() < 0.4:
        limits = np.array([int(limit_bytes * rng.uniform(0.6, 1.5)) for _ in range(devices)])
    return Machine(
        limit_bytes=limits,
        processor=processor,
        latency_seconds=latency,
        seconds_per_byte=per_byte,
        wire=wire,
        names=machine.names,
        kinds=machine.kinds,
    )


def random_problem(
    seed: int,
    *,
    tasks: int = 8,
    devices: int = 3,
    limit_bytes: int = 1 << 40,
    pins: bool = True,
    equal: bool = False,
) -> PlacementProblem:
    """Anything: a random graph with arguments, state, groups, pins and unequal devices.

    ``equal``: equal devices, links and limits, and no shared hardware.
    """
    rng = random.Random(seed)
    if equal:
        machine = Machine.uniform_of(
            devices, limit_bytes, latency_seconds=0.05, seconds_per_byte=rng.choice([0.0, 1e-2])
        )
    else:
        machine = random_machine(rng, devices, limit_bytes=limit_bytes)
    builder = ProblemBuilder(machine)
    arguments = rng.randrange(4)
    groups = max(1, rng.randrange(1, tasks + 1))

    def group() -> str | None:
        return f"g{rng.randrange(groups)}" if rng.random() < 0.6 else None

    states: list[tuple[int, str | None, bool]] = []
    tensors: list[tuple[int, int]] = []
    for index in range(arguments):
        donated = rng.random() < 0.5
        name = group()
        node, tensor = builder.add_argument(
            f"a{index}", rng.randrange(1, 100), donated=donated, group=name
        )
        tensors.append((node, tensor))
        states.append((tensor, name, donated))
    readers: dict[int, list[int]] = {tensor: [] for _, tensor in tensors}
    speeds = (
        [1.0] * devices if equal else [rng.choice([1.0, 1.0, 0.5, 3.0]) for _ in range(devices)]
    )
    for index in range(tasks):
        work = rng.uniform(0.2, 2.0)
        name = group()
        seconds = [work * speed for speed in speeds]
        node = builder.add_node(
            f"t{index}",
            seconds,
            temporary_bytes=rng.choice([0, rng.randrange(60)]),
            group=name,
            source=f"model.py:{index + 1}",
        )
        for _, tensor in rng.sample(tensors, min(len(tensors), rng.randrange(4))):
            readers[tensor].append(node)
        for _ in range(rng.choice([0, 1, 1, 2])):
            old = rng.choice(states) if states and rng.random() < 0.4 else None
            takes = old is not None and old[2] and old[1] == name and name is not None
            alias = old[0] if takes and old is not None else -1
            if alias >= 0 and old is not None:
                states.remove(old)
            tensor = builder.add_tensor(
                node,
                builder.bytes_of(alias) if alias >= 0 else rng.randrange(1, 100),
                persistent=alias >= 0 or rng.random() < 0.2,
                alias=alias,
            )
            tensors.append((node, tensor))
            readers[tensor] = []
    for tensor, nodes in readers.items():
        builder.set_readers(tensor, nodes)
    if pins and rng.random() < 0.5:
        node = rng.randrange(arguments + tasks)
        builder.pin(node, rng.randrange(devices))
    return builder.build()
