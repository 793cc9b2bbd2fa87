"""The linear program of m-SCT: which successor of each node should follow on its device.

Hanen and Munier's program, as Baechi uses it (section 3.1.3), over ``x`` of each edge in [0, 1]
(0: the end of the edge is the favourite child of its start), start times ``s`` and makespan ``w``:

    minimise w
    s_i + k_i <= w
    s_i + k_i + c_ij x_ij <= s_j
    sum of x over the edges out of a node >= their number - 1,   and likewise for the edges into it

``k`` is the node's time on its fastest device, ``c`` the edge's time on the fastest link. ``j`` is
the favourite child of ``i`` when ``x_ij < 0.1``; the sums leave room for one such edge at each end.

What is left out without changing the program:

- arguments: they lie where their readers are;
- edges whose ends share a group: nothing is ever sent there, so ``c = 0``, and they use up nobody's
  favourite;
- edges that are the only one out of their start and into their end: ``x = 0`` costs nothing, so
  both ends become one node.

The optimum is degenerate: solvers agree on ``w``, not on ``x``. Solver and seed are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.problem import PlacementProblem
from baechi_jax.passes.placement.solver import add_row, new_model

if TYPE_CHECKING:
    import mip

#: Below this, ``x`` makes a favourite child (0.5 in the original, 0.1 in Baechi).
THRESHOLD = 0.1


@dataclass(frozen=True, slots=True)
class FavouriteChildren:
    """``child[node]``: the node that should follow on the same device, or -1."""

    child: list[int]
    #: Optimum of the program, seconds.
    makespan_seconds: float


@dataclass(frozen=True, slots=True)
class _Edge:
    """``source`` and ``target`` are chains; ``last`` and ``first`` the nodes that it joins."""

    source: int
    target: int
    last: int
    first: int
    seconds: float
    #: Whether the ends may be apart, so that there is something to choose.
    free: bool


@dataclass(frozen=True, slots=True)
class _Graph:
    """The contracted graph."""

    chain_seconds: list[float]
    edges: list[_Edge]
    #: Favourite children that contraction has settled.
    child: list[int]


def favourite_children(
    problem: PlacementProblem, *, seed: int = 0, solver: str = "auto", time_limit: float = 10.0
) -> FavouriteChildren:
    """Solve the program; raises PlacerError when that takes longer than ``time_limit`` seconds."""
    graph = _contract(problem)
    child = list(graph.child)
    choices = [edge for edge in graph.edges if edge.free]
    if not choices or problem.devices == 1:
        return FavouriteChildren(child, _longest_path(graph))
    # Seconds of some micro would drown in the solver's tolerances.
    unit = max(graph.chain_seconds) or 1.0
    model = new_model("m-sct", seed=seed, solver=solver)
    apart = _variables_and_constraints(model, graph, unit)
    status = optimize(model, time_limit)
    if status != "OPTIMAL":
        raise PlacerError(
            f"the linear program of m-sct ({len(choices)} edges) was not solved within "
            f"{time_limit:g} s (it ended as {status.lower()}); raise the time limit, or use "
            "m-etf"
        )
    for edge, variable in apart:
        if variable.x < THRESHOLD:
            child[edge.last] = edge.first
    return FavouriteChildren(child, float(model.objective_value) * unit)


def _variables_and_constraints(
    model: mip.Model, graph: _Graph, unit: float
) -> list[tuple[_Edge, mip.Var]]:
    makespan = model.add_var(name="makespan", obj=1.0)
    start = [model.add_var(name=f"start_{chain}") for chain in range(len(graph.chain_seconds))]
    apart: list[tuple[_Edge, mip.Var]] = []
    out: list[list[mip.Var]] = [[] for _ in start]
    into: list[list[mip.Var]] = [[] for _ in start]
    scaled = [seconds / unit for seconds in graph.chain_seconds]
    for chain, seconds in enumerate(scaled):
        add_row(model, [makespan, start[chain]], [1.0, -1.0], ">", seconds, f"end_{chain}")
    for index, edge in enumerate(graph.edges):
        ends = [start[edge.target], start[edge.source]]
        seconds = scaled[edge.source]
        if not edge.free:
            add_row(model, ends, [1.0, -1.0], ">", seconds, f"order_{index}")
            continue
        variable = model.add_var(name=f"apart_{index}", ub=1.0)
        add_row(
            model,
            [*ends, variable],
            [1.0, -1.0, -edge.seconds / unit],
            ">",
            seconds,
            f"order_{index}",
        )
        apart.append((edge, variable))
        out[edge.source].append(variable)
        into[edge.target].append(variable)
    for name, rows in (("child", out), ("parent", into)):
        for chain, variables in enumerate(rows):
            count = len(variables)
            if count > 1:
                add_row(
                    model,
                    variables,
                    [1.0] * count,
                    ">",
                    count - 1.0,
                    f"one_favourite_{name}_{chain}",
                )
    return apart


def _contract(problem: PlacementProblem) -> _Graph:
    lists, machine = problem.lists, problem.machine
    size = problem.devices
    ends = [(a, b) for a in range(size) for b in range(size) if a != b]
    latency = min((machine.latency_seconds[end] for end in ends), default=0.0)
    per_byte = min((machine.seconds_per_byte[end] for end in ends), default=0.0)
    seconds: dict[tuple[int, int], float] = {}
    for tensor, node in enumerate(lists.producer):
        if lists.is_argument[node]:
            continue
        cost = float(latency + per_byte * lists.tensor_bytes[tensor])
        for reader in lists.readers[tensor]:
            seconds[node, reader] = seconds.get((node, reader), 0.0) + cost
    out_degree = [0] * problem.nodes
    in_degree = [0] * problem.nodes
    for node, reader in seconds:
        out_degree[node] += 1
        in_degree[reader] += 1
    chain = list(range(problem.nodes))
    child = [-1] * problem.nodes
    successor = dict(seconds)  # (node, reader), also the only one for chain edges
    joined = [pair for pair in successor if out_degree[pair[0]] == 1 and in_degree[pair[1]] == 1]
    joined.sort(key=lambda pair: problem.position[pair[0]])
    for node, reader in joined:
        chain[reader] = chain[node]
        if lists.group[node] != lists.group[reader]:
            child[node] = reader
    number: dict[int, int] = {}
    chain_seconds: list[float] = []
    for node in problem.order:
        if lists.is_argument[node]:
            continue
        index = number.setdefault(chain[node], len(number))
        if index == len(chain_seconds):
            chain_seconds.append(0.0)
        chain_seconds[index] += min(lists.seconds[node])
    settled = set(joined)
    edges: list[_Edge] = []
    for (node, reader), cost in seconds.items():
        if (node, reader) in settled:
            continue
        free = lists.group[node] != lists.group[reader]
        source, target = number[chain[node]], number[chain[reader]]
        edges.append(_Edge(source, target, node, reader, cost if free else 0.0, free))
    return _Graph(chain_seconds, edges, child)


def _longest_path(graph: _Graph) -> float:
    """Makespan without any transfer."""
    out: list[list[int]] = [[] for _ in graph.chain_seconds]
    missing = [0] * len(graph.chain_seconds)
    for edge in graph.edges:
        out[edge.source].append(edge.target)
        missing[edge.target] += 1
    start = [0.0] * len(graph.chain_seconds)
    ready = [chain for chain, count in enumerate(missing) if count == 0]
    longest = 0.0
    while ready:
        chain = ready.pop()
        end = start[chain] + graph.chain_seconds[chain]
        longest = max(longest, end)
        for target in out[chain]:
            start[target] = max(start[target], end)
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    return longest
