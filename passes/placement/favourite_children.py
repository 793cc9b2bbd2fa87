"""The linear program of m-SCT: which successor of each node should follow on its device.

Hanen and Munier's program, as Baechi uses it (section 3.1.3), over ``x`` of each edge in [0, 1]
(0: the end of the edge is the favourite child of its start), start times ``s`` and makespan ``w``:

    minimise w
    s_i + k_i <= w
    s_i + k_i + c_ij x_ij <= s_j
    sum of x over the edges out of a node >= their number - 1,   and likewise for the edges into it

``k`` is the node's time on its fastest device, ``c`` the edge's time on the fastest link. ``j`` is
the favourite child of ``i`` when ``x_ij < 0.1``; the sums leave room for one such edge at each end.
Here it is written with ``y = 1 - x``, whose sums are at most one.

What is left out without changing the program:

- arguments: they lie where their readers are;
- edges whose ends share a group: nothing is ever sent there, so ``c = 0``, and they use up nobody's
  favourite;
- edges that are the only one out of their start and into their end: ``x = 0`` costs nothing, so
  both ends become one node;
- ``s_i + k_i <= w`` where ``i`` has successors;
- starts of nodes with one edge on one side and few on the other: rows go past them.

The solver starts where every transfer takes its full time and each start has its latest row tight.

Large programs are solved on part of the edges first. The longest way without any transfer bounds
``w`` from below. A greedy ``y`` leaves ways that are longer; their edges (in later rounds also
those that compete with them for a favourite) make a smaller program, whose value is the next bound:
every edge left out has ``y = 0`` and no row. With its ``y``, and what is left of each node's
favourite given to the other edges, the longest way of the whole graph either is that bound, which
proves it to be the value of the whole program, or names the edges that come in next. An edge that
is on no way longer than the bound even where every transfer takes its full time never comes in.

The optimum is degenerate: solvers agree on ``w``, not on ``x``. Solver and seed are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.linear_program import LinearProgram, Solved, solve
from baechi_jax.passes.placement.problem import PlacementProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Below this, ``x`` makes a favourite child (0.5 in the original, 0.1 in Baechi).
THRESHOLD = 0.1
#: From so many edges on, part of them first; that takes numba, half a second to load.
_LARGE = 2000
#: Edges on the other side of a chain that has one edge on one side, up to which it is bridged.
_BRIDGED = 3
#: Rounds of the greedy completion.
_PASSES = 20
#: Relative difference up to which two values are one, as solvers see it.
_EQUAL = 1e-7


@dataclass(frozen=True, slots=True)
class FavouriteChildren:
    """``child[node]``: the node that should follow on the same device, or -1."""

    child: list[int]
    #: Optimum of the program, seconds.
    makespan_seconds: float


@dataclass(frozen=True, slots=True)
class _Graph:
    """The contracted graph, its nodes (chains) numbered topologically, edges sorted by source."""

    #: Of each chain, in ``unit_seconds``.
    seconds: NDArray[np.float64]
    unit_seconds: float
    #: Of each edge: chains, the nodes that it joins, its time, whether the ends may be apart.
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    last: NDArray[np.int64]
    first: NDArray[np.int64]
    cost: NDArray[np.float64]
    free: NDArray[np.bool_]
    #: Favourite children that contraction has settled.
    child: NDArray[np.int64]


def favourite_children(
    problem: PlacementProblem,
    *,
    seed: int = 0,
    solver: str = "auto",
    time_limit: float = 10.0,
    in_parts: bool | None = None,
) -> FavouriteChildren:
    """Solve the program; raises PlacerError when that takes longer than ``time_limit`` seconds.

    ``in_parts``: whether to start with part of the edges; by default with large programs.
    """
    graph = _contract(problem)
    choices = int(graph.free.sum())
    if in_parts is None:
        in_parts = choices >= _LARGE
    solving = _Solving(graph, seed, solver, time_limit, choices)
    if not choices or problem.devices == 1:
        near, makespan = np.zeros(len(graph.source)), solving.without_transfers()
    elif in_parts:
        near, makespan = _in_parts(solving)
    else:
        near, makespan = solving.run(np.arange(len(graph.source)))
    child = graph.child.copy()
    chosen = np.flatnonzero(graph.free & (near > 1.0 - THRESHOLD))
    child[graph.last[chosen]] = graph.first[chosen]
    return FavouriteChildren(child.tolist(), makespan * graph.unit_seconds)


class _Solving:
    """Programs over some of the edges of one graph, within one time limit."""

    def __init__(
        self, graph: _Graph, seed: int, solver: str, time_limit: float, choices: int
    ) -> None:
        self.graph = graph
        self.seed = seed
        self.solver = solver
        self.time_limit = time_limit
        self.choices = choices
        self.deadline = now() + time_limit
        #: ``_bare_ways`` of the graph, once they are known.
        self.bare: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def without_transfers(self) -> float:
        """The longest way when nothing is sent."""
        graph = self.graph
        ends = graph.seconds.tolist()
        longest = [0.0] * len(ends)
        for source, target in zip(graph.source.tolist(), graph.target.tolist()):
            longest[target] = max(longest[target], longest[source] + ends[source])
        return max((start + end for start, end in zip(longest, ends)), default=0.0)

    def run(self, edges: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """``y`` of all edges, zero but for ``edges``, and the value of the program over those."""
        if self.bare is None:
            self.bare = _bare_ways(self.graph)
        program, chains = _program(self.graph, edges, self.bare)
        left = max(1e-6, self.deadline - now())
        left = min(left, self.time_limit)
        found = solve(program, "m-sct", seed=self.seed, solver=self.solver, time_limit=left)
        self._check(found)
        near = np.zeros(len(self.graph.source))
        near[edges] = np.clip(found.x[1 + chains :], 0.0, 1.0)
        return near, found.value

    def _check(self, found: Solved) -> None:
        if found.status != "OPTIMAL":
            raise PlacerError(
                f"the linear program of m-sct ({self.choices} edges) was not solved within "
                f"{self.time_limit:g} s (it ended as {found.status.lower()}); raise the time "
                "limit, or use m-etf"
            )


def _in_parts(solving: _Solving) -> tuple[NDArray[np.float64], float]:
    from baechi_jax.passes.placement._favourite_kernel import complete, ways

    graph = solving.graph
    source, target, seconds, cost = graph.source, graph.target, graph.seconds, graph.cost
    head, tail = solving.bare = ways(source, target, seconds, np.zeros(len(cost)))
    bound = float((head + seconds + tail).max())

    def lengths(costs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(
            head[source] + seconds[source] + costs + seconds[target] + tail[target],
            dtype=np.float64,
        )

    head, tail = ways(source, target, seconds, cost)
    longest = lengths(cost)
    near = np.zeros(len(cost))
    head, tail = complete(source, target, seconds, cost, graph.free, near, bound, _PASSES)
    active = np.zeros(len(cost), dtype=np.bool_)
    while float((head + seconds + tail).max()) > bound * (1 + _EQUAL):
        late = lengths(cost * (1 - near)) > bound * (1 + 1e-2 * _EQUAL)
        if active.any():
            rivals_out = np.zeros(len(seconds), dtype=np.bool_)
            rivals_in = np.zeros(len(seconds), dtype=np.bool_)
            rivals_out[source[late]] = True
            rivals_in[target[late]] = True
            late |= rivals_out[source] | rivals_in[target]
        more = late & (longest > bound) & ~active
        if not more.any():
            # Within the solver's tolerance: the value is that of the whole program.
            break
        active |= more
        near, value = solving.run(np.flatnonzero(active))
        bound = max(bound, value)
        head, tail = complete(source, target, seconds, cost, graph.free, near, bound, _PASSES)
    return near, bound


def _program(
    graph: _Graph,
    edges: NDArray[np.int64],
    bare: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> tuple[LinearProgram, int]:
    """The program over ``edges``: makespan, start of each chain left there, ``y`` of each edge.

    The second result is the number of chains. A chain starts no earlier than without any transfer
    where none of its edges in is there, and ends as early before the makespan where none of its
    edges out is; ``bare`` are these ways. Chains that ``_join`` bridges have no start.
    """
    ends = np.concatenate((graph.source[edges], graph.target[edges]))
    chains, index = np.unique(ends, return_inverse=True)
    count, size = len(edges), len(chains)
    source, target = index[:count], index[count:]
    seconds, cost, free = graph.seconds, graph.cost[edges], graph.free[edges]
    alone_head, alone_tail = bare
    is_source = np.ones(size, dtype=np.bool_)
    is_source[target] = False
    is_sink = np.ones(size, dtype=np.bool_)
    is_sink[source] = False
    ways = _join(source, target, seconds[chains[source]] + cost, size)
    left = np.flatnonzero(ways.left)
    number = np.full(size, -1)
    number[left] = np.arange(len(left))
    start_lower = np.where(is_source, alone_head[chains], 0.0)[left]
    start_upper = np.where(is_source, alone_head[chains], np.inf)[left]
    sinks = np.flatnonzero(is_sink)
    # s_j - s_i + sum of c y >= k + c all the way, then w - s_i >= k_i + its tail, then sums of y.
    order, after = np.arange(len(ways.least)), len(ways.least) + np.arange(len(sinks))
    first_y = 1 + len(left)
    rows = [order, order, np.repeat(order, ways.lengths), after, after]
    columns = [
        1 + number[ways.target],
        1 + number[ways.source],
        first_y + ways.edges,
        np.zeros(len(sinks), int),
        1 + number[sinks],
    ]
    ones = np.ones(len(order))
    values = [ones, -ones, cost[ways.edges], np.ones(len(sinks)), -np.ones(len(sinks))]
    lower = [ways.least, seconds[chains[sinks]] + alone_tail[chains[sinks]]]
    done = len(order) + len(sinks)
    upper = [np.full(done, np.inf)]
    for end in (source, target):
        degree = np.bincount(end[free], minlength=size)
        several = np.flatnonzero(degree > 1)
        row_of = np.full(size, -1)
        row_of[several] = done + np.arange(len(several))
        inside = np.flatnonzero(free & (row_of[end] >= 0))
        rows.append(row_of[end[inside]])
        columns.append(first_y + inside)
        values.append(np.ones(len(inside)))
        lower.append(np.full(len(several), -np.inf))
        upper.append(np.ones(len(several)))
        done += len(several)
    row, column = np.concatenate(rows), np.concatenate(columns)
    value = np.concatenate(values)
    kept = value != 0
    row, column, value = row[kept], column[kept], value[kept]
    by_row = np.argsort(row, kind="stable")
    starts = np.zeros(done + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=done), out=starts[1:])
    weight = np.zeros(first_y + count)
    weight[0] = 1.0
    tight = _longest(
        np.concatenate((1 + number[ways.source], 1 + number[sinks])),
        np.concatenate((1 + number[ways.target], np.zeros(len(sinks), dtype=np.int64))),
        np.concatenate(lower[:2]),
        np.concatenate((np.zeros(1), start_lower)),
    )
    basic = np.zeros(first_y + count, dtype=np.bool_)
    basic[:first_y] = tight >= 0
    slack = np.ones(done, dtype=np.bool_)
    slack[tight[tight >= 0]] = False
    return (
        LinearProgram(
            cost=weight,
            lower=np.concatenate((np.zeros(1), start_lower, np.zeros(count))),
            upper=np.concatenate(([np.inf], start_upper, np.where(free, 1.0, 0.0))),
            row_lower=np.concatenate(lower),
            row_upper=np.concatenate(upper),
            starts=starts,
            columns=column[by_row].astype(np.int64),
            values=value[by_row],
            basic_columns=basic,
            basic_rows=slack,
        ),
        len(left),
    )


@dataclass(frozen=True, slots=True)
class _Ways:
    """What is left of edges when chains between them are bridged; sorted by source."""

    #: Of each chain, whether it is left.
    left: NDArray[np.bool_]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    #: From start to start when every transfer takes its full time.
    least: NDArray[np.float64]
    #: How many edges each joins, and these edges, one way after the other.
    lengths: NDArray[np.int64]
    edges: NDArray[np.int64]


def _join(
    source: NDArray[np.int64], target: NDArray[np.int64], least: NDArray[np.float64], size: int
) -> _Ways:
    """Bridge chains that have one edge on one side and at most ``_BRIDGED`` on the other.

    Such a chain may start as soon as its one edge in lets it, or as late as its one edge out does,
    so that its start need not be a variable.
    """
    begin, end, time = source.tolist(), target.tolist(), least.tolist()
    parts: list[tuple[int, ...]] = [(edge,) for edge in range(len(begin))]
    out: list[list[int]] = [[] for _ in range(size)]
    into: list[list[int]] = [[] for _ in range(size)]
    for way, (a, b) in enumerate(zip(begin, end)):
        out[a].append(way)
        into[b].append(way)
    left = np.ones(size, dtype=np.bool_)
    for chain in (*range(size), *range(size)):
        before, after = into[chain], out[chain]
        if min(len(before), len(after)) != 1 or max(len(before), len(after)) > _BRIDGED:
            continue
        left[chain] = False
        into[chain], out[chain] = [], []
        for one in before:
            out[begin[one]].remove(one)
        for other in after:
            into[end[other]].remove(other)
        for one in before:
            for other in after:
                out[begin[one]].append(len(begin))
                into[end[other]].append(len(begin))
                begin.append(begin[one])
                end.append(end[other])
                time.append(time[one] + time[other])
                parts.append(parts[one] + parts[other])
    kept = [way for ways in out for way in ways]
    return _Ways(
        left,
        np.array([begin[way] for way in kept], dtype=np.int64),
        np.array([end[way] for way in kept], dtype=np.int64),
        np.array([time[way] for way in kept]),
        np.array([len(parts[way]) for way in kept], dtype=np.int64),
        np.array([edge for way in kept for edge in parts[way]], dtype=np.int64),
    )


def _longest(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    time: NDArray[np.float64],
    start: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The way that makes each node start when it does, or -1; ways sorted by source."""
    starts = start.tolist()
    found = [-1] * len(starts)
    for way, (a, b, takes) in enumerate(zip(source.tolist(), target.tolist(), time.tolist())):
        if found[b] < 0 or starts[a] + takes > starts[b]:
            starts[b], found[b] = starts[a] + takes, way
    return np.array(found, dtype=np.int64)


def _bare_ways(graph: _Graph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longest way to the start of each chain and from its end, without transfers."""
    ends = graph.seconds.tolist()
    head, tail = [0.0] * len(ends), [0.0] * len(ends)
    pairs = list(zip(graph.source.tolist(), graph.target.tolist()))
    for a, b in pairs:
        head[b] = max(head[b], head[a] + ends[a])
    for a, b in reversed(pairs):
        tail[a] = max(tail[a], tail[b] + ends[b])
    return np.array(head), np.array(tail)


def _contract(problem: PlacementProblem) -> _Graph:
    flat, machine, nodes = problem.flat, problem.machine, problem.nodes
    apart = ~np.eye(problem.devices, dtype=np.bool_)
    latency = float(machine.latency_seconds[apart].min(initial=np.inf)) if apart.any() else 0.0
    per_byte = float(machine.seconds_per_byte[apart].min(initial=np.inf)) if apart.any() else 0.0
    tensor = np.repeat(np.arange(problem.tensors), np.diff(flat.reader_starts))
    tensor, readers = (
        each[~problem.is_argument[problem.producer[tensor]]] for each in (tensor, flat.readers)
    )
    # One edge for each pair of nodes; several tensors follow one another.
    keys, place = np.unique(problem.producer[tensor] * nodes + readers, return_inverse=True)
    cost = np.bincount(
        place, latency + per_byte * problem.tensor_bytes[tensor], minlength=len(keys)
    )
    last, first = np.divmod(keys, max(1, nodes))
    free = problem.group[last] != problem.group[first]
    alone = (np.bincount(last, minlength=nodes)[last] == 1) & (
        np.bincount(first, minlength=nodes)[first] == 1
    )
    child = np.full(nodes, -1, dtype=np.int64)
    settled = np.flatnonzero(alone & free)
    child[last[settled]] = first[settled]
    # The first node of each chain, by doubling.
    head = np.arange(nodes)
    head[first[alone]] = last[alone]
    while True:
        further = head[head]
        if (further == head).all():
            break
        head = further
    tasks = np.flatnonzero(~problem.is_argument)
    heads = np.unique(flat.position[head[tasks]])
    number = np.searchsorted(heads, flat.position[head])
    seconds = np.bincount(
        number[tasks], problem.seconds[tasks].min(axis=1), minlength=len(heads)
    ).astype(np.float64)
    # Seconds of some micro would drown in the solver's tolerances.
    unit = float(seconds.max(initial=0.0)) or 1.0
    kept = np.flatnonzero(~alone)
    source, target = number[last[kept]], number[first[kept]]
    order = np.lexsort((target, source))
    kept = kept[order]
    return _Graph(
        seconds=seconds / unit,
        unit_seconds=unit,
        source=source[order],
        target=target[order],
        last=last[kept],
        first=first[kept],
        cost=np.where(free[kept], cost[kept], 0.0) / unit,
        free=free[kept],
        child=child,
    )
