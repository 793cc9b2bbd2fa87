"""The mixed-integer program of the ``milp`` placer: variables and constraints.

Variables, for groups ``g``, ``h``, devices ``d``, nodes ``i`` of the contracted graph:

- ``on[g, d]`` (binary): group ``g`` is on device ``d``;
- ``comes[g, h, d]``: ``h`` is on ``d`` and ``g`` is not, for groups with an edge ``g`` to ``h``;
- ``flow[g, h, d, e]``: ``g`` is on ``d`` and ``h`` on ``e``, where links differ;
- ``start[i]``, ``makespan``;
- ``copy[x, d]``: tensor ``x`` is copied to ``d``, where several groups read it;
- ``first[i, j]`` (binary) and ``same[g, h, p]``: order on a processor, when that is in the program.

Rows are named after the rule that they hold: ``one_device``, ``order``, ``window``, ``memory``, ...
Times are in units of ``unit`` seconds, so that tolerances of the solver are small against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.latency_model import LatencyEdge, LatencyGraph
from baechi_jax.passes.placement.ledger import Profiles
from baechi_jax.passes.placement.solver import add_row, new_model

if TYPE_CHECKING:
    import mip

    from baechi_jax.passes.placement.problem import PlacementProblem

#: Moments at which memory is counted.
_MOMENTS = 32
#: Copies below this share of the smallest limit are left out of the memory rows.
_SMALL_COPY = 1e-3


@dataclass(frozen=True, slots=True)
class _Copy:
    """Tensor of ``source`` read by ``targets``; alive at ``moments`` on other devices."""

    tensor: int
    source: int
    targets: tuple[int, ...]
    nbytes: int
    moments: tuple[int, ...]


class MilpModel:
    """One program. Make it with ``build``."""

    def __init__(
        self,
        problem: PlacementProblem,
        profiles: Profiles,
        graph: LatencyGraph,
        seed: int,
        solver: str,
    ) -> None:
        self.problem = problem
        self.graph = graph
        self.model = new_model("placement", seed=seed, solver=solver)
        everything = sum(max(_finite(row)) for row in graph.seconds)
        self.unit = everything / 100 or 1.0
        self.moments = _worst_moments(profiles)
        self.curve = profiles.curve[:, self.moments]
        self.copies = _copies(problem, profiles, self.moments)
        pairs = [(graph.group[e.source], graph.group[e.target]) for e in graph.edges]
        #: Pairs of groups with an edge between them.
        self.pairs = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
        self.on: dict[tuple[int, int], mip.Var] = {}
        self.comes: dict[tuple[int, int, int], mip.Var] = {}
        self.flow: dict[tuple[int, int, int, int], mip.Var] = {}
        self.start: list[mip.Var] = []
        self.copy: dict[tuple[int, int], mip.Var] = {}
        self.first: dict[tuple[int, int], mip.Var] = {}
        self.same: dict[tuple[int, int, int], mip.Var] = {}
        self.makespan: mip.Var
        #: Unordered pairs of nodes whose order is decided.
        self.unordered: list[tuple[int, int]] = []
        self.equal_links = _links_are_equal(problem)

    @staticmethod
    def build(
        problem: PlacementProblem,
        profiles: Profiles,
        graph: LatencyGraph,
        ordered_pairs: int,
        *,
        seed: int = 0,
        solver: str = "auto",
    ) -> MilpModel:
        """The whole program."""
        self = MilpModel(problem, profiles, graph, seed, solver)
        unordered = unordered_pairs(graph)
        if len(unordered) <= ordered_pairs:
            self.unordered = unordered
        self.add_variables()
        self.add_assignment_rows()
        self.add_order_rows()
        self.add_window_rows()
        self.add_memory_rows()
        self.add_processor_rows()
        self.add_symmetry_rows()
        return self

    # Variables ----------------------------------------------------------------------------------

    def add_variables(self) -> None:
        """All but what the rows below need only for themselves."""
        model, problem = self.model, self.problem
        self.makespan = model.add_var(name="makespan", obj=1.0)
        for group, allowed in enumerate(problem.allowed):
            for device in allowed:
                self.on[group, device] = model.add_var(name=f"on_{group}_{device}", var_type="B")
        self.start = [
            model.add_var(name=f"start_{node}", lb=head / self.unit)
            for node, head in enumerate(self.graph.head)
        ]
        wanted = list(self.pairs)
        wanted += [(copy.source, target) for copy in self.copies for target in copy.targets]
        for g, h in dict.fromkeys(wanted):
            for device in problem.allowed[h]:
                self.comes[g, h, device] = model.add_var(name=f"comes_{g}_{h}_{device}", ub=1.0)
        if not self.equal_links:
            for g, h in self.pairs:
                for d in problem.allowed[g]:
                    for e in problem.allowed[h]:
                        self.flow[g, h, d, e] = model.add_var(name=f"flow_{g}_{h}_{d}_{e}", ub=1.0)
        for copy in self.copies:
            if len(copy.targets) > 1:
                for device in range(problem.devices):
                    self.copy[copy.tensor, device] = model.add_var(
                        name=f"copy_{copy.tensor}_{device}", ub=1.0
                    )

    # Constraints --------------------------------------------------------------------------------

    def add_assignment_rows(self) -> None:
        """Each group on one device; ``comes`` and ``flow`` follow from that."""
        model, allowed = self.model, self.problem.allowed
        for group, devices in enumerate(allowed):
            own = [self.on[group, device] for device in devices]
            add_row(model, own, [1.0] * len(own), "=", 1.0, f"one_device_{group}")
        for (g, h, device), comes in self.comes.items():
            here = self.on.get((g, device))
            others = [] if here is None else [here]
            add_row(
                model,
                [comes, self.on[h, device], *others],
                [1.0, -1.0, *([1.0] * len(others))],
                ">",
                0.0,
                f"comes_{g}_{h}_{device}",
            )
        if self.equal_links:
            return
        for g, h in self.pairs:
            for d in allowed[g]:
                out = [self.flow[g, h, d, e] for e in allowed[h]]
                add_row(
                    model,
                    [*out, self.on[g, d]],
                    [*([1.0] * len(out)), -1.0],
                    "=",
                    0.0,
                    f"flow_from_{g}_{h}_{d}",
                )
            for e in allowed[h]:
                into = [self.flow[g, h, d, e] for d in allowed[g]]
                add_row(
                    model,
                    [*into, self.on[h, e]],
                    [*([1.0] * len(into)), -1.0],
                    "=",
                    0.0,
                    f"flow_to_{g}_{h}_{e}",
                )

    def add_order_rows(self) -> None:
        """A node starts when what it reads has come; the makespan is the last end."""
        graph = self.graph
        for index, edge in enumerate(graph.edges):
            variables, coefficients = self._time_of(edge.source)
            moved, costs = self._transfer(edge)
            add_row(
                self.model,
                [self.start[edge.target], self.start[edge.source], *variables, *moved],
                [1.0, -1.0, *(-each for each in coefficients), *(-each for each in costs)],
                ">",
                0.0,
                f"order_{index}",
            )
        for node in range(len(graph.group)):
            variables, coefficients = self._time_of(node)
            add_row(
                self.model,
                [self.makespan, self.start[node], *variables],
                [1.0, -1.0, *(-each for each in coefficients)],
                ">",
                graph.tail[node] / self.unit,
                f"end_{node}",
            )

    def add_window_rows(self) -> None:
        """Within each window a processor has time for what it runs there."""
        graph, problem = self.graph, self.problem
        for index, window in enumerate(graph.windows):
            load: dict[tuple[int, int], float] = {}
            for node in window.nodes:
                group = graph.group[node]
                for device in problem.allowed[group]:
                    key = (group, device)
                    load[key] = load.get(key, 0.0) + graph.seconds[node][device] / self.unit
            for processor in range(problem.machine.processors):
                here = {
                    key: each
                    for key, each in load.items()
                    if problem.lists.processor[key[1]] == processor and each > 0
                }
                add_row(
                    self.model,
                    [self.makespan, *(self.on[key] for key in here)],
                    [1.0, *(-each for each in here.values())],
                    ">",
                    # Valid without work there too: some node of the window runs somewhere.
                    (window.head + window.tail) / self.unit,
                    f"window_{index}_{processor}",
                )

    def add_memory_rows(self) -> None:
        """Each device holds what lives there at each moment."""
        problem = self.problem
        for copy in self.copies:
            if len(copy.targets) > 1:
                for target in copy.targets:
                    for device in problem.allowed[target]:
                        add_row(
                            self.model,
                            [
                                self.copy[copy.tensor, device],
                                self.comes[copy.source, target, device],
                            ],
                            [1.0, -1.0],
                            ">",
                            0.0,
                            f"copy_{copy.tensor}_{target}_{device}",
                        )
        unit = float(max(problem.lists.limit_bytes))
        for device, limit in enumerate(problem.lists.limit_bytes):
            here = [group for group in range(problem.groups) if device in problem.allowed[group]]
            for moment in range(self.curve.shape[1]):
                variables = [self.on[group, device] for group in here if self.curve[group, moment]]
                sizes = [
                    float(self.curve[group, moment]) / unit
                    for group in here
                    if self.curve[group, moment]
                ]
                for copy in self.copies:
                    if moment not in copy.moments:
                        continue
                    if len(copy.targets) > 1:
                        variables.append(self.copy[copy.tensor, device])
                    elif device in problem.allowed[copy.targets[0]]:
                        variables.append(self.comes[copy.source, copy.targets[0], device])
                    else:
                        continue
                    sizes.append(copy.nbytes / unit)
                if sum(sizes) > limit / unit:
                    add_row(
                        self.model, variables, sizes, "<", limit / unit, f"memory_{device}_{moment}"
                    )

    def add_processor_rows(self) -> None:
        """Nodes on one processor run one after another (only when order is in the program)."""
        graph, problem = self.graph, self.problem
        horizon = sum(max(_finite(row)) for row in graph.seconds) / self.unit
        horizon += (
            sum(
                max(
                    problem.machine.transfer_seconds(d, e, edge.nbytes)
                    for d in range(problem.devices)
                    for e in range(problem.devices)
                )
                for edge in graph.edges
            )
            / self.unit
        )
        for i, j in self.unordered:
            first = self.model.add_var(name=f"first_{i}_{j}", var_type="B")
            self.first[i, j] = first
            g, h = graph.group[i], graph.group[j]
            shared = self._shared_processors(g, h)
            for before, after, sign in ((i, j, 1.0), (j, i, -1.0)):
                variables, coefficients = self._time_of(before)
                # start[after] >= start[before] + time, unless the other order or apart.
                slack = [(first, sign)]
                right = -2.0 * horizon if sign > 0 else -1.0 * horizon
                if g == h:
                    right += horizon
                else:
                    slack += [(variable, 1.0) for variable in shared]
                add_row(
                    self.model,
                    [
                        self.start[after],
                        self.start[before],
                        *variables,
                        *(variable for variable, _ in slack),
                    ],
                    [
                        1.0,
                        -1.0,
                        *(-each for each in coefficients),
                        *(-horizon * each for _, each in slack),
                    ],
                    ">",
                    right,
                    f"{'before' if sign > 0 else 'after'}_{i}_{j}",
                )

    def _shared_processors(self, g: int, h: int) -> list[mip.Var]:
        """Variables whose sum is one exactly when both groups are on one processor."""
        if g == h:
            return []
        g, h = min(g, h), max(g, h)
        problem = self.problem
        result: list[mip.Var] = []
        for processor in range(problem.machine.processors):
            sides = [
                [
                    self.on[each, device]
                    for device in problem.allowed[each]
                    if problem.lists.processor[device] == processor
                ]
                for each in (g, h)
            ]
            if not sides[0] or not sides[1]:
                continue
            known = self.same.get((g, h, processor))
            if known is None:
                name = f"same_{g}_{h}_{processor}"
                known = self.model.add_var(name=name, ub=1.0)
                self.same[g, h, processor] = known
                both = [*sides[0], *sides[1]]
                add_row(self.model, [known, *both], [1.0, *([-1.0] * len(both))], ">", -1.0, name)
            result.append(known)
        return result

    def add_symmetry_rows(self) -> None:
        """Equal devices are numbered by the first group that comes to them."""
        if self.numbers_devices:
            for rank, group in enumerate(self.numbering_order()[: self.problem.devices]):
                for device in range(rank + 1, self.problem.devices):
                    add_row(
                        self.model,
                        [self.on[group, device]],
                        [1.0],
                        "<",
                        0.0,
                        f"number_{group}_{device}",
                    )

    @property
    def numbers_devices(self) -> bool:
        """Whether devices may be renumbered without changing anything."""
        problem = self.problem
        seconds = problem.seconds
        return (
            problem.machine.uniform
            and self.equal_links
            and problem.machine.processors == problem.devices
            and all(len(allowed) == problem.devices for allowed in problem.allowed)
            and bool((seconds == seconds[:, :1]).all())
        )

    def numbering_order(self) -> list[int]:
        """Groups in the order in which equal devices are numbered."""
        return list(dict.fromkeys(self.graph.group[node] for node in range(len(self.graph.group))))

    # Expressions --------------------------------------------------------------------------------

    def _time_of(self, node: int) -> tuple[list[mip.Var], list[float]]:
        """Time of a node as a linear expression."""
        group = self.graph.group[node]
        devices = [d for d in self.problem.allowed[group] if self.graph.seconds[node][d] > 0]
        return (
            [self.on[group, device] for device in devices],
            [self.graph.seconds[node][device] / self.unit for device in devices],
        )

    def _transfer(self, edge: LatencyEdge) -> tuple[list[mip.Var], list[float]]:
        """Time of an edge as a linear expression."""
        g, h = self.graph.group[edge.source], self.graph.group[edge.target]
        if g == h:
            return [], []
        machine, allowed = self.problem.machine, self.problem.allowed
        if self.equal_links:
            seconds = machine.transfer_seconds(0, 1, edge.nbytes) / self.unit
            variables = [self.comes[g, h, device] for device in allowed[h]]
            return variables, [seconds] * len(variables)
        pairs = [(d, e) for d in allowed[g] for e in allowed[h] if d != e]
        return (
            [self.flow[g, h, d, e] for d, e in pairs],
            [machine.transfer_seconds(d, e, edge.nbytes) / self.unit for d, e in pairs],
        )


def unordered_pairs(graph: LatencyGraph) -> list[tuple[int, int]]:
    """Pairs of nodes that could run at the same time: neither must wait for the other."""
    count = len(graph.group)
    after = [0] * count
    for edge in reversed(graph.edges):
        after[edge.source] |= after[edge.target] | (1 << edge.target)
    return [
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if not (after[i] >> j) & 1 and not graph.is_argument[i] and not graph.is_argument[j]
    ]


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if value != float("inf")] or [0.0]


def _links_are_equal(problem: PlacementProblem) -> bool:
    machine = problem.machine
    off = ~np.eye(machine.size, dtype=bool)
    if machine.size < 2:
        return True
    return bool(
        np.ptp(machine.latency_seconds[off]) == 0 and np.ptp(machine.seconds_per_byte[off]) == 0
    )


def _worst_moments(profiles: Profiles) -> list[int]:
    """Columns of the table of curves at which memory is counted."""
    count = profiles.curve.shape[1]
    if count <= _MOMENTS:
        return list(range(count))
    total = profiles.curve.sum(axis=0)
    edges = np.linspace(0, count, _MOMENTS + 1).astype(np.int64).tolist()
    return [low + int(total[low:high].argmax()) for low, high in pairwise(edges)]


def _copies(problem: PlacementProblem, profiles: Profiles, moments: list[int]) -> list[_Copy]:
    lists = problem.lists
    least = min(lists.limit_bytes) * _SMALL_COPY
    readers: dict[int, dict[int, int]] = {}
    for group, outgoing in enumerate(profiles.outgoing):
        for tensor, other, until in outgoing:
            if lists.tensor_bytes[tensor] >= least:
                readers.setdefault(tensor, {})[other] = until
                assert lists.group[lists.producer[tensor]] == group
    copies: list[_Copy] = []
    for tensor, targets in sorted(readers.items()):
        since, until = profiles.first_list[tensor], max(targets.values())
        alive = tuple(index for index, slot in enumerate(moments) if since <= slot <= until)
        if alive:
            source = lists.group[lists.producer[tensor]]
            size = lists.tensor_bytes[tensor]
            copies.append(_Copy(tensor, source, tuple(sorted(targets)), size, alive))
    return copies
