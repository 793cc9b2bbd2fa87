"""The dynamic program over a lattice of ideals, for largest and for summed loads.

``run`` prepares arrays, calls the compiled kernel a share of the ideals at a time, so that time
limits and Ctrl-C are heard, and reads the chosen sets back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.workload import Workload, compressed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from baechi_jax.passes.placement.throughput.contraction import Contraction
    from baechi_jax.passes.placement.workload import DeviceClass

#: Seconds that one call of the kernel should take, about.
_SLICE_SECONDS = 0.2


class TooManyIdealsError(BaechiError):
    """The graph is too wide for the dynamic program over all ideals."""


class OutOfTimeError(BaechiError):
    """The time limit has passed before the dynamic program was done."""


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """Ideals in an order in which smaller ones come first, and their covering relation (CSR).

    The classes that can be taken out of an ideal come in falling order.
    """

    #: ``[ideal, class]``
    member: NDArray[np.bool_]
    pointers: NDArray[np.int64]
    removed: NDArray[np.int64]
    child: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Device classes of the program; the last may be replicated."""

    classes: Sequence[DeviceClass]
    #: Whether devices of the class may be used any number of times (its count is then ignored).
    unlimited: Sequence[bool]
    #: ``[kind, class of nodes]`` seconds.
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    """What the program minimises."""

    in_series: bool = False
    overlap: bool = False
    replicas: int = 1
    replica_bytes_per_second: float = 1e10


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """What one device, or ``replicas`` of them, holds: ``[class]`` members."""

    kind: int
    replicas: int
    content: NDArray[np.bool_]


def chain(contraction: Contraction) -> Lattice:
    """The prefixes of the classes in their topological order."""
    size = contraction.size
    member = np.tril(np.ones((size + 1, size), bool), -1)
    pointers = np.concatenate([[0], np.arange(size + 1)])
    return Lattice(member, pointers, np.arange(size), np.arange(size))


def lattice(contraction: Contraction, limit: int, deadline: float = float("inf")) -> Lattice:
    """Every ideal.

    Raises TooManyIdealsError beyond ``limit``, OutOfTimeError after ``deadline`` (of the monotonic
    clock).
    """
    size = contraction.size
    before = [0] * size
    after: list[list[int]] = [[] for _ in range(size)]
    for source, target in contraction.edges.tolist():
        before[target] |= 1 << source
        after[source].append(target)
    number = {0: 0}
    layer = {0: [group for group in range(size) if not before[group]]}
    above: list[int] = []
    removed: list[int] = []
    child: list[int] = []
    while layer:
        if now() > deadline:
            raise OutOfTimeError("no time left to list the ideals of the graph")
        following: dict[int, list[int]] = {}
        for ideal, ready in layer.items():
            for group in ready:
                larger = ideal | 1 << group
                if larger not in number:
                    if len(number) >= limit:
                        raise TooManyIdealsError(
                            f"the graph has more than {limit} ideals; use ideals-linear, "
                            "local-search or milp-throughput, or raise max_ideals"
                        )
                    number[larger] = len(number)
                    following[larger] = [other for other in ready if other != group] + [
                        other for other in after[group] if not before[other] & ~larger
                    ]
                above.append(number[larger])
                removed.append(group)
                child.append(number[ideal])
        layer = following
    # Within an ideal the highest class is taken out first, which makes the content grow fast.
    order = np.lexsort((-np.array(removed, np.int64), np.array(above, np.int64)))
    pointers, edges = compressed(np.array(above, np.int64)[order], order, len(number))
    width = (size + 7) // 8
    packed = np.frombuffer(
        b"".join(ideal.to_bytes(width, "little") for ideal in number), np.uint8
    ).reshape(len(number), width)
    member = np.unpackbits(packed, axis=1, bitorder="little")[:, :size].astype(bool)
    return Lattice(
        member, pointers, np.array(removed, np.int64)[edges], np.array(child, np.int64)[edges]
    )


def run(
    workload: Workload,
    contraction: Contraction,
    ideals: Lattice,
    kinds: Kinds,
    model: Model,
    *,
    bound: float,
    effort: NDArray[np.float64],
    exchange: NDArray[np.float64],
    deadline: float = float("inf"),
) -> tuple[float, list[Stage], int] | None:
    """The best stages, whose value is below ``bound``, or None.

    ``effort[class]`` and ``exchange[kind]`` are work, and the most work that a second of a kind
    does; in series, effort is the least seconds anywhere. Returns the value, the stages from last
    to first, and the number of sets visited. Raises OutOfTimeError after ``deadline``.
    """
    from baechi_jax.passes.placement.throughput._kernels import best_loads

    size, label = contraction.size, contraction.label
    counts = np.array(
        [0 if unlimited else kind.count for kind, unlimited in zip(kinds.classes, kinds.unlimited)],
        np.int64,
    )
    stride = np.cumprod([1, *(counts + 1)])
    shape = (len(ideals.member), int(stride[-1]))
    best = np.full(shape, np.inf)
    best[0] = 0.0
    previous = np.zeros(shape, np.int32)
    used_kind = np.zeros(shape, np.int8)
    used_replicas = np.zeros(shape, np.int8)
    sync = np.bincount(label, workload.parameter_bytes, size) / model.replica_bytes_per_second
    arguments: tuple[Any, ...] = (
        best,
        previous,
        used_kind,
        used_replicas,
        ideals.pointers,
        ideals.removed,
        ideals.child,
        ideals.member,
        *compressed(label, np.arange(workload.size), size),
        *workload.predecessors(),
        *workload.successors(),
        label,
        kinds.seconds,
        np.bincount(label, workload.bytes, size),
        workload.transfer_seconds,
        sync,
        counts,
        np.array([kind.memory_bytes * (1 + 1e-12) for kind in kinds.classes], np.float64),
        np.array([kind.transfers for kind in kinds.classes], bool),
        float(bound),
        model.overlap,
        model.replicas,
        model.in_series,
        np.array(kinds.unlimited, bool),
        effort,
        exchange,
    )
    visited = 0
    first, step = 1, 64
    while first < shape[0]:
        began = now()
        if began > deadline:
            raise OutOfTimeError(f"no time left after {first} of {shape[0]} ideals")
        stop = min(first + step, shape[0])
        visited += int(best_loads(first, stop, *arguments))
        first = stop
        took = now() - began
        step = max(1, min(4096, int(step * min(4.0, _SLICE_SECONDS / max(took, 1e-6)))))
    if not np.isfinite(best[-1, -1]):
        return None
    stages = []
    ideal, state = shape[0] - 1, shape[1] - 1
    while ideal:
        smaller, kind = int(previous[ideal, state]), int(used_kind[ideal, state])
        copies = int(used_replicas[ideal, state])
        stages.append(Stage(kind, copies, ideals.member[ideal] & ~ideals.member[smaller]))
        if not kinds.unlimited[kind]:
            state -= int(stride[kind]) * copies
        ideal = smaller
    return float(best[-1, -1]), stages, visited
