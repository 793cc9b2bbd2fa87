"""``ideals`` and ``ideals-linear``: optimal contiguous splits by dynamic programming.

best[I, a, b, ...] is the smallest largest load with which a, b, ... devices of each class can hold
the ideal I (a set closed under predecessors): the minimum, over the ideals J within I, of the
larger of best[J, one device less] and the load of that device holding I - J. Optimal among
contiguous splits. ``ideals-linear`` does the same along one topological order, whose prefixes are
the only ideals: near-optimal, and fast enough for any size.

Unlike the authors' program, no pair of ideals is stored, and the walk is bounded by the linear
solution: nothing whose load already reaches it is continued, and no ideal is entered that no number
of devices could have computed while leaving the rest to the others.

Extensions: any number of device classes, each with its own speed and memory; transfers overlapped
with compute; a stage replicated over r equal devices of the most numerous class, with load
``(compute + transfers) / r + 2 (r - 1) / r * parameter bytes / bandwidth``.

Source: Tarnawski et al., NeurIPS 2020 (arXiv 2006.16423), section 3.1; replication: PipeDream
(SOSP 2019), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.placement.throughput.contraction import Contraction, contract
from baechi_jax.passes.placement.workload import Workload, compressed

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TooManyIdealsError(BaechiError):
    """The graph is too wide for the dynamic program over all ideals."""


@dataclass(frozen=True, slots=True)
class IdealsOptions:
    """Options of both dynamic programs."""

    #: A device's load is the larger of compute and transfers, not their sum.
    overlap: bool = False
    #: A stage may be replicated over up to this many devices of the most numerous class.
    replicas: int = 1
    #: Bytes per second of the all-reduce between replicas.
    replica_bytes_per_second: float = 1e10
    #: Give up beyond this many ideals.
    max_ideals: int = 300_000


@dataclass(frozen=True, slots=True, eq=False)
class IdealsResult:
    """An optimal (or, for the linear variant, good) contiguous split."""

    #: ``[node]``: the device of each node; of a replicated stage, its first device.
    device_of: NDArray[np.int64]
    #: ``[device]``: over how many devices the stage on this device is replicated; zero if idle.
    replicas: NDArray[np.int64]
    max_load_seconds: float
    ideals: int
    visited_pairs: int


def solve_ideals(workload: Workload, options: IdealsOptions | None = None) -> IdealsResult | None:
    """The optimal contiguous split, or None where none fits.

    Raises TooManyIdealsError where the graph has more than ``options.max_ideals``.
    """
    options = options if options is not None else IdealsOptions()
    contraction = contract(workload)
    linear = _run(workload, contraction, chain(contraction), options, np.inf)
    ideals = lattice(contraction, options.max_ideals)
    bound = np.inf if linear is None else linear.max_load_seconds
    better = _run(workload, contraction, ideals, options, bound)
    best = better if better is not None else linear
    if best is None:
        return None
    visited = better.visited_pairs if better is not None else 0
    return IdealsResult(
        best.device_of, best.replicas, best.max_load_seconds, len(ideals.member), visited
    )


def solve_linear(workload: Workload, options: IdealsOptions | None = None) -> IdealsResult | None:
    """The best split whose devices hold intervals of one depth-first topological order, or None."""
    options = options if options is not None else IdealsOptions()
    contraction = contract(workload)
    return _run(workload, contraction, chain(contraction), options, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """Ideals in an order in which smaller ones come first, and their covering relation (CSR)."""

    member: NDArray[np.bool_]
    pointers: NDArray[np.int64]
    removed: NDArray[np.int64]
    child: NDArray[np.int64]


def chain(contraction: Contraction) -> Lattice:
    """The prefixes of the classes in their topological order."""
    size = contraction.size
    member = np.tril(np.ones((size + 1, size), bool), -1)
    pointers = np.concatenate([[0], np.arange(size + 1)])
    return Lattice(member, pointers, np.arange(size), np.arange(size))


def lattice(contraction: Contraction, limit: int) -> Lattice:
    """Every ideal; raises TooManyIdealsError beyond ``limit``."""
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


def _run(
    workload: Workload,
    contraction: Contraction,
    ideals: Lattice,
    options: IdealsOptions,
    bound: float,
) -> IdealsResult | None:
    """The best split over ``ideals`` whose largest load is below ``bound``."""
    from baechi_jax.passes.placement.throughput._kernels import best_loads

    order = sorted(range(len(workload.classes)), key=lambda kind: workload.classes[kind].count)
    classes = [workload.classes[kind] for kind in order]
    size = contraction.size
    label = contraction.label
    seconds = np.array([np.bincount(label, kind.seconds, size) for kind in classes])
    effort = np.where(np.isfinite(seconds[-1]), seconds[-1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(effort > 0, effort / seconds, 0.0)
    if not np.isfinite(bound):
        bound = 1.0 + float(np.where(np.isfinite(seconds), seconds, 0.0).sum(axis=1).max())
        bound += 2.0 * float(workload.transfer_seconds.sum())
    sources = workload.predecessors()
    targets = workload.successors()
    held = np.bincount(label, workload.bytes, size)
    sync = np.bincount(label, workload.parameter_bytes, size) / options.replica_bytes_per_second
    best, previous, used_kind, used_replicas, visited = best_loads(
        ideals.pointers,
        ideals.removed,
        ideals.child,
        ideals.member,
        *compressed(label, np.arange(workload.size), size),
        *sources,
        *targets,
        label,
        seconds,
        held,
        workload.transfer_seconds,
        sync,
        np.array([kind.count for kind in classes]),
        np.array([kind.memory_bytes * (1 + 1e-12) for kind in classes]),
        np.array([kind.transfers for kind in classes]),
        bound,
        options.overlap,
        options.replicas,
        False,
        np.zeros(len(classes), bool),
        effort,
        rates.max(axis=1) if size else np.zeros(len(classes)),
    )
    if not np.isfinite(best[-1, -1]):
        return None
    # Read the choices back from the whole graph down.
    first = np.concatenate([[0], np.cumsum([kind.count for kind in workload.classes])])
    next_free = [int(first[kind]) for kind in order]
    stride = np.cumprod([1] + [kind.count + 1 for kind in classes])
    device_of = np.zeros(workload.size, np.int64)
    replicas = np.zeros(workload.devices, np.int64)
    ideal, state = len(best) - 1, best.shape[1] - 1
    while ideal:
        smaller, kind = int(previous[ideal, state]), int(used_kind[ideal, state])
        copies = int(used_replicas[ideal, state])
        content = ideals.member[ideal] & ~ideals.member[smaller]
        device = next_free[kind]
        next_free[kind] += copies
        device_of[content[label]] = device
        replicas[device] = copies
        ideal, state = smaller, state - int(stride[kind]) * copies
    return IdealsResult(device_of, replicas, float(best[-1, -1]), len(best), int(visited))
