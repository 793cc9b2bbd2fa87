"""The flow bound: a lower bound on latency from many paths at once, and splits on the way.

The latency of a split is at least the time along each path of the graph, and so at least the mean
over paths with any weights: a *flow* of one unit from the sources to the sinks. A node on the host
adds its seconds times the flow through it, a subgraph its load times the flow that enters it (a
path enters it once, since it is contiguous). For a given flow, the split with the least such cost
is found exactly: the subgraphs can be put in an order in which none waits for a later one, so a
split is a chain of ideals (sets closed under predecessors), each of which adds a host node or a
subgraph, and a dynamic program over all ideals finds the best. Its value is a lower bound for any
flow, here with real memory, transfers and colours, and off-path nodes that the path bound (a flow
on one path) gives away.

The best flow comes from cutting planes: each split found gives a row ``bound <= cost(flow)``,
linear in the flow, and a linear program picks the next flow between its own optimum and the best
flow so far (in-out separation, which damps the swings of Kelley's method). The program's optimum
also says how far the bound could still rise. By duality that limit is what mixtures of splits could
reach if the latency were the longest *expected* path, so the bound may stay below the optimum.

Before, nodes that decide nothing are merged or left out, which only lowers the bound. A node
without predecessors that costs nothing on the host and whose output is free to move is left out (it
may be on the host). A node without predecessors, or without readers, that has one neighbour joins
it: with its seconds and bytes if it has the neighbour's colour and costs nothing on the host,
without its bytes if it takes no time anywhere. With several subgraphs per accelerator, colours and
the memory that subgraphs share are left out too. Where there are too many ideals, chains are cut
short: see ``_cut_short``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.latency.bounds import critical_weights, longest_path
from baechi_jax.passes.placement.latency.pieces import Pieces, host_seconds
from baechi_jax.passes.placement.solver import add_row, new_model
from baechi_jax.passes.placement.throughput.contraction import Contraction
from baechi_jax.passes.placement.throughput.dynamic_program import (
    Lattice,
    OutOfTimeError,
    TooManyIdealsError,
    lattice,
)
from baechi_jax.passes.placement.workload import Workload, compressed, topological_order

if TYPE_CHECKING:
    import mip
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import DeviceClass

#: Seconds that one call of the kernel should take, about.
_SLICE_SECONDS = 0.2
#: Shares of the nodes within chains that are tried to float.
_CUT_SHORT = (0.0, 0.5, 0.67, 0.8, 1.0)
#: Weight of the best flow so far in the next one.
_INERTIA = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Classes:
    """The merged graph; edges are sorted.

    ``label[node]`` is the class of a node, -1 where it is left out (on the host, for free);
    ``kept[class]`` is the node that the class is named after.
    """

    label: NDArray[np.int64]
    kept: NDArray[np.int64]
    edges: NDArray[np.int64]
    host: NDArray[np.float64]
    transfer: NDArray[np.float64]
    bytes: NDArray[np.float64]
    #: ``[kind, class]``: seconds on accelerators.
    seconds: NDArray[np.float64]
    #: Of the nodes between the class and its readers, where chains are cut short.
    bytes_behind: NDArray[np.float64]
    seconds_behind: NDArray[np.float64]
    #: ``[class]``: a colour that several classes have, or -1; and how many have each.
    colour: NDArray[np.int64]
    colour_size: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Number of classes."""
        return len(self.host)


class FlowBound:
    """The bound, a flow at a time. ``seconds`` is the best so far; see the module's docstring."""

    def __init__(
        self,
        workload: Workload,
        *,
        subgraphs: int = 1,
        path: tuple[int, ...] = (),
        max_ideals: int = 50_000,
        deadline: float = float("inf"),
    ) -> None:
        """``path``: nodes of a path that give the first flow; the longest by seconds, without.

        Raises TooManyIdealsError beyond ``max_ideals``, OutOfTimeError after ``deadline`` (of the
        monotonic clock).
        """
        from baechi_jax.passes.placement.latency._flow_kernel import following_edges

        self.workload = workload
        self.pieces = Pieces.of(workload, subgraphs)
        self.seconds = 0.0
        #: How many flows have been tried.
        self.flows = 0
        #: No flow gives more than this.
        self.most_seconds = float("inf")
        kinds = list({id(kind): kind for kind in self.pieces.kinds}.values())
        self.kind_of = [kinds.index(kind) for kind in self.pieces.kinds]
        self.classes, self.ideals = _few_ideals(
            _merged(workload, kinds, subgraphs), max_ideals, deadline
        )
        classes = self.classes
        counts = [self.kind_of.count(kind) * subgraphs for kind in range(len(kinds))]
        self.counts = np.minimum(np.array(counts, np.int64), classes.size)
        self.strides = np.cumprod([1, *(self.counts + 1)])
        self.memory = np.array([kind.memory_bytes for kind in kinds], np.float64) * (1 + 1e-9)
        self.follows: NDArray[np.int64] = following_edges(
            self.ideals.pointers, self.ideals.removed, self.ideals.child
        )
        #: What carries flow, ``[arc, 2]``: it may begin at any class (from -1), and end at any.
        begins = np.stack([np.full(classes.size, -1), np.arange(classes.size)], axis=1)
        self.arcs = np.concatenate([begins, classes.edges])
        self.flow = self._first_flow(path)
        #: A row for each split that is known: what each arc's flow adds to its cost.
        self.rows: list[NDArray[np.float64]] = []
        self._master = _Master(self.arcs, classes.size)

    def closed(self) -> bool:
        """Whether no flow gives a better bound, but for a millionth."""
        return self.seconds >= self.most_seconds * (1 - 1e-6)

    def add_split(self, piece_of: NDArray[np.int64]) -> None:
        """Let a valid split, found elsewhere, tell where the bound cannot be."""
        row = self._row(piece_of[self.classes.kept])
        self.rows.append(row)
        self._master.add(row)

    def step(self, deadline: float = float("inf")) -> NDArray[np.int64] | None:
        """Try one more flow; the split of least cost for it, as ``piece_of``.

        None if there is none (the bound is then infinite), or none that is better than those known.
        With several subgraphs per accelerator the split may break memory or colours. Raises
        OutOfTimeError after ``deadline``.
        """
        query = self.flow
        if self.flows and self.rows:
            self.most_seconds = self._master.solve()
            if np.isfinite(self.most_seconds):
                query = _INERTIA * self.flow + (1 - _INERTIA) * self._master.flow
        self.flows += 1
        ceiling = min((float(row @ query) for row in self.rows), default=float("inf"))
        # A little more than the ceiling, so that the split that has it is found again.
        cost, piece = self._least(query, ceiling * (1 + 1e-7) + 1e-12, deadline)
        if piece is None and not self.rows:
            self.seconds = self.most_seconds = float("inf")
            return None
        if min(cost, ceiling) > self.seconds:
            # Less a little for sums of floating-point numbers in another order.
            self.seconds, self.flow = min(cost, ceiling) * (1 - 1e-9), query
        if piece is None:
            return None
        row = self._row(piece)
        self.rows.append(row)
        self._master.add(row)
        return np.append(piece, -1)[self.classes.label]

    def _first_flow(self, path: tuple[int, ...]) -> NDArray[np.float64]:
        flow = np.zeros(len(self.arcs))
        if not path:
            path = longest_path(self.workload, critical_weights(self.workload))
        number = {tuple(arc): index for index, arc in enumerate(self.arcs.tolist())}
        label = self.classes.label
        along = [each for each in dict.fromkeys(label[list(path)].tolist()) if each >= 0]
        along = along or list(range(min(1, self.classes.size)))
        for arc in zip([-1, *along], along):
            flow[number[arc]] = 1.0
        return flow

    def _least(
        self, flow: NDArray[np.float64], bound: float, deadline: float
    ) -> tuple[float, NDArray[np.int64] | None]:
        """Least cost below ``bound`` for ``flow``, and the piece of each class (-1: the host)."""
        from baechi_jax.passes.placement.latency._flow_kernel import (
            least_flow_costs,
            sums_of_ideals,
        )

        classes, ideals = self.classes, self.ideals
        size, edges = classes.size, classes.edges
        through = np.bincount(self.arcs[:, 1], flow, size)
        finite = np.where(np.isfinite(classes.host), classes.host, 0.0)
        on_host = np.where(np.isfinite(classes.host), finite * through, np.inf)
        least = np.min([classes.host, *classes.seconds], axis=0)
        least = np.where(np.isfinite(least), least, 0.0) * through
        lattice_ = (ideals.pointers, ideals.removed, ideals.child)
        best = np.full((len(ideals.member), int(self.strides[-1])), np.inf)
        best[0] = 0.0
        previous = np.zeros(best.shape, np.int32)
        used_kind = np.full(best.shape, -1, np.int8)
        arguments: tuple[Any, ...] = (
            best,
            previous,
            used_kind,
            *lattice_,
            self.follows,
            ideals.member,
            *compressed(edges[:, 1], edges[:, 0], size),
            *compressed(edges[:, 0], edges[:, 1], size),
            flow[size:],
            through,
            on_host,
            classes.bytes,
            classes.bytes_behind,
            classes.transfer,
            classes.colour,
            classes.colour_size,
            classes.seconds,
            classes.seconds_behind,
            self.counts,
            self.memory,
            sums_of_ideals(*lattice_, least),
            bound,
        )
        first, step = 1, 64
        while first < len(best):
            began = now()
            if began > deadline:
                raise OutOfTimeError(f"no time left after {first} of {len(best)} ideals")
            stop = min(first + step, len(best))
            least_flow_costs(first, stop, *arguments)
            first = stop
            took = max(now() - began, 1e-6)
            step = max(1, min(4096, int(step * min(4.0, _SLICE_SECONDS / took))))
        state = int(np.argmin(best[-1]))
        value = float(best[-1, state])
        if not np.isfinite(value):
            return value, None
        return value, self._decode(previous, used_kind, state)

    def _decode(
        self, previous: NDArray[np.int32], used_kind: NDArray[np.int8], state: int
    ) -> NDArray[np.int64]:
        member, pieces = self.ideals.member, self.pieces
        free = [
            [
                pieces.devices[at] * pieces.subgraphs + number
                for at, kind in enumerate(self.kind_of)
                if kind == wanted
                for number in range(pieces.subgraphs)
            ]
            for wanted in range(len(self.counts))
        ]
        piece = np.full(self.classes.size, -1, np.int64)
        ideal = len(member) - 1
        while ideal:
            smaller, kind = int(previous[ideal, state]), int(used_kind[ideal, state])
            if kind >= 0:
                # From the last to the first, as the subgraphs of an accelerator are numbered.
                piece[member[ideal] & ~member[smaller]] = free[kind].pop()
                state -= int(self.strides[kind])
            ideal = smaller
        return piece

    def _row(self, piece: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[arc]``: what a unit of flow pays for the unit (piece or host node) that it enters."""
        classes = self.classes
        source, target = classes.edges.T
        unit = np.where(piece < 0, -2 - np.arange(classes.size), piece)
        cost = np.where(np.isfinite(classes.host), classes.host, 0.0)
        crossing = unit[source] != unit[target]
        kind_of_device = dict(zip(self.pieces.devices, self.kind_of))
        for each in np.unique(piece[piece >= 0]).tolist():
            mine = piece == each
            incoming = np.unique(source[crossing & (unit[target] == each)])
            outgoing = np.unique(source[crossing & (unit[source] == each)])
            kind = kind_of_device[each // self.pieces.subgraphs]
            near = np.unique(source[~crossing & (unit[source] == each)])
            cost[mine] = (
                classes.seconds[kind, mine].sum()
                + classes.seconds_behind[kind, near].sum()
                + classes.transfer[incoming].sum()
                + classes.transfer[outgoing].sum()
            )
        return np.concatenate([cost, np.where(crossing, cost[target], 0.0)])


def flow_bound(
    workload: Workload,
    *,
    subgraphs: int = 1,
    flows: int = 20,
    path: tuple[int, ...] = (),
    max_ideals: int = 50_000,
    time_limit_seconds: float = float("inf"),
) -> float:
    """A lower bound on latency, in seconds: the best of ``flows`` flows, or of those in time.

    Infinite where no split is valid. ``path`` gives the first flow. Raises TooManyIdealsError where
    the graph has more than ``max_ideals``.
    """
    deadline = now() + time_limit_seconds
    seconds = 0.0
    try:
        bound = FlowBound(
            workload, subgraphs=subgraphs, path=path, max_ideals=max_ideals, deadline=deadline
        )
        for _ in range(flows):
            bound.step(deadline)
            seconds = bound.seconds
            if bound.closed():
                break
    except OutOfTimeError:
        return seconds
    return seconds


class _Master:
    """The linear program of the best flow against the splits known."""

    def __init__(self, arcs: NDArray[np.int64], size: int) -> None:
        self.model = new_model("flow-bound")
        self.arcs = [self.model.add_var(name=f"flow_{arc}") for arc in range(len(arcs))]
        self.value: mip.Var = self.model.add_var(name="value", lb=-float("inf"))
        self.flow = np.zeros(len(arcs))
        self.unit = 0.0
        self.rows = 0
        begins = self.arcs[:size]
        add_row(self.model, begins, [1.0] * size, "=", 1.0, "one_unit")
        leaving: list[list[int]] = [[] for _ in range(size)]
        entering: list[list[int]] = [[] for _ in range(size)]
        for arc, (source, target) in enumerate(arcs.tolist()):
            entering[target].append(arc)
            if source >= 0:
                leaving[source].append(arc)
        for node in range(size):
            if leaving[node]:
                both = [*leaving[node], *entering[node]]
                values = [1.0] * len(leaving[node]) + [-1.0] * len(entering[node])
                variables = [self.arcs[arc] for arc in both]
                add_row(self.model, variables, values, "<", 0.0, f"through_{node}")
        import mip

        self.model.objective = mip.minimize(-1.0 * self.value)

    def add(self, row: NDArray[np.float64]) -> None:
        """``value <= row * flow``."""
        if not self.unit:
            self.unit = float(row.max()) or 1.0
        paying = np.flatnonzero(row)
        variables = [self.arcs[arc] for arc in paying]
        values = (-row[paying] / self.unit).tolist()
        add_row(
            self.model, [self.value, *variables], [1.0, *values], "<", 0.0, f"split_{self.rows}"
        )
        self.rows += 1

    def solve(self) -> float:
        """The best value, and ``flow`` that has it."""
        status = optimize(self.model, float("inf"), relax=True)
        if status != "OPTIMAL":
            return float("inf")
        self.flow = np.maximum(0.0, [variable.x for variable in self.arcs])
        return float(self.value.x) * self.unit * (1 + 1e-7)


def _few_ideals(classes: _Classes, max_ideals: int, deadline: float) -> tuple[_Classes, Lattice]:
    """The classes and their ideals, with chains cut short as far as it takes."""
    for share in _CUT_SHORT:
        shorter = _cut_short(classes, share)
        contraction = Contraction(np.arange(shorter.size), shorter.edges, shorter.size)
        try:
            return shorter, lattice(contraction, max_ideals, deadline)
        except TooManyIdealsError:
            if share == _CUT_SHORT[-1]:
                raise
    raise AssertionError("the last share returns or raises")


def _cut_short(classes: _Classes, share: float) -> _Classes:
    """Let the quickest ``share`` of the nodes within chains float behind the node before them.

    A link of a chain leads from the only reader to the only predecessor. The second node of a link
    then counts only in a subgraph that holds the first and a reader of the last, since it lies
    between; a cut costs the least transfer of the chain.
    """
    size = classes.size
    before, after = (
        np.bincount(classes.edges[:, 1], minlength=size),
        np.bincount(classes.edges[:, 0], minlength=size),
    )
    least = np.min([classes.host, *classes.seconds], axis=0)
    links = [
        (float(least[target]), source, target)
        for source, target in classes.edges.tolist()
        if after[source] == 1 and before[target] == 1
    ]
    into = np.arange(size)
    for _, source, target in sorted(links)[: int(share * len(links))]:
        into[target] = source
    # Sources come before targets.
    for each in range(size):
        into[each] = into[into[each]]
    kept = np.flatnonzero(into == np.arange(size))
    rank = np.full(size, -1, np.int64)
    rank[kept] = np.arange(len(kept))
    rank = rank[into]
    floats = np.flatnonzero(into != np.arange(size))
    transfer = np.full(len(kept), np.inf)
    np.minimum.at(transfer, rank, classes.transfer)
    edges = rank[classes.edges]
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0).reshape(-1, 2)
    colour = classes.colour[kept]
    sizes = np.bincount(colour[colour >= 0], minlength=len(classes.colour_size))
    return _Classes(
        label=np.where(classes.label < 0, -1, rank[classes.label]),
        kept=classes.kept[kept],
        edges=edges,
        host=classes.host[kept],
        transfer=transfer,
        bytes=classes.bytes[kept],
        seconds=classes.seconds[:, kept],
        bytes_behind=np.bincount(rank[floats], classes.bytes[floats], len(kept)).astype(np.float64),
        seconds_behind=np.array(
            [np.bincount(rank[floats], row[floats], len(kept)) for row in classes.seconds],
            np.float64,
        ).reshape(len(classes.seconds), len(kept)),
        colour=colour,
        colour_size=sizes.astype(np.int64),
    )


def _merged(workload: Workload, kinds: list[DeviceClass], subgraphs: int) -> _Classes:
    """Leave out, or merge into their one neighbour, nodes that decide nothing."""
    size = workload.size
    host = host_seconds(workload)
    free = (host == 0.0) & np.all([kind.seconds == 0.0 for kind in kinds], axis=0)
    held = workload.bytes.copy()
    into = list(range(size))
    entering: list[set[int]] = [set() for _ in range(size)]
    leaving: list[set[int]] = [set() for _ in range(size)]
    for source, target in workload.edges.tolist():
        entering[target].add(source)
        leaving[source].add(target)
    order = topological_order(workload).tolist()
    gone = np.zeros(size, bool)
    for node in order:
        if not entering[node] and host[node] == 0.0 and workload.transfer_seconds[node] == 0.0:
            gone[node] = len(leaving[node]) > 1
            for target in leaving[node] if gone[node] else ():
                entering[target].discard(node)
    for nodes, before, after in ((order, entering, leaving), (order[::-1], leaving, entering)):
        for node in nodes:
            if gone[node] or before[node] or len(after[node]) != 1:
                continue
            (other,) = after[node]
            mates = workload.colour[node] >= 0 and workload.colour[node] == workload.colour[other]
            if free[node] or (mates and subgraphs == 1 and host[node] == 0.0):
                into[node] = other
                free[other] &= free[node]
                if mates:
                    held[other] += held[node]
                before[other].discard(node)
                after[node] = set()
    kept = [node for node in order if into[node] == node and not gone[node]]
    rank = np.full(size, -1, np.int64)
    rank[kept] = np.arange(len(kept))
    for node in range(size):
        root = node
        while into[root] != root:
            root = into[root]
        rank[node] = rank[root]
    edges = rank[workload.edges]
    edges = edges[(edges[:, 0] != edges[:, 1]) & (edges[:, 0] >= 0)]
    edges = np.unique(edges, axis=0).reshape(-1, 2)
    # A colour matters where it is on several classes, and where it must be in one piece.
    colour = np.full(len(kept), -1, np.int64)
    sizes: list[int] = []
    of_kept = workload.colour[kept]
    for each in np.unique(of_kept[of_kept >= 0]).tolist() if subgraphs == 1 else ():
        members = np.flatnonzero(of_kept == each)
        if len(members) > 1:
            colour[members] = len(sizes)
            sizes.append(len(members))
    merged = np.flatnonzero(rank >= 0)
    seconds = [np.bincount(rank[merged], kind.seconds[merged], len(kept)) for kind in kinds]
    return _Classes(
        label=rank,
        kept=np.array(kept, np.int64),
        edges=edges,
        host=host[kept],
        transfer=workload.transfer_seconds[kept],
        bytes=held[kept],
        seconds=np.array(seconds, np.float64).reshape(len(kinds), len(kept)),
        bytes_behind=np.zeros(len(kept)),
        seconds_behind=np.zeros((len(kinds), len(kept))),
        colour=colour,
        colour_size=np.array(sizes, np.int64),
    )
