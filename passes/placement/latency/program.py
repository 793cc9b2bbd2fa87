"""The mixed-integer program of ``milp-latency``.

*Levels.* In a split with finite latency the subgraphs can be put in an order in which none waits
for a later one. Level l of the program is the l-th of them: the order rules out subgraphs that wait
for each other (also where they take no time), makes every level contiguous, and leaves equal
accelerators nothing to be exchanged for. A *home* is a class of accelerators (one subgraph each) or
one accelerator (several subgraphs each).

Variables: x[b, l], block b is in level l (a block is a colour class; a node, where an accelerator
may run several subgraphs); w[l, home]; before[v, l], node v is done before level l; in and out, a
level pays for an output; start and finish of levels, ready[v] and the latency. Rows:

- *order*: before rises with l and falls along edges, and so does before + x; x = 1 only between a 0
  and a 1. For given x a fractional ``before`` can be rounded, so it needs no integers;
- *placed*, *homes*, *memory*, *colour*: each block on one level or the host, each level in one
  home, empty levels last, homes within their number, bytes within memory;
- *time*: ``finish >= start + load``; ``start >= ready`` of what it reads; ``ready >= finish`` for
  what it holds; levels of one accelerator in turn. The big constant is the value of the warm
  start, less what must come before;
- *paths*: along a few long paths, the seconds of each node where it is and the transfers between
  its neighbours add up to at most the latency. These rows have no big constant, and with the memory
  rows they carry most of the relaxation's bound; path and work bounds are rows too.

Times are in units of the warm start. Source of the problem: Tarnawski et al., NeurIPS 2020, section
4; the program by levels is ours.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np

from baechi_jax.passes.placement.latency.bounds import likely_paths
from baechi_jax.passes.placement.latency.pieces import Pieces, host_seconds
from baechi_jax.passes.placement.solver import add_row, new_model
from baechi_jax.passes.placement.throughput.nets import colour_classes
from baechi_jax.passes.placement.workload import topological_order

if TYPE_CHECKING:
    import mip
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.workload import Workload

#: Paths whose seconds and transfers bound the latency.
_PATHS = 8


class LatencyProgram:
    """The model and its variables."""

    def __init__(
        self, workload: Workload, subgraphs: int, unit: float, bound: float, seed: int
    ) -> None:
        self.workload = workload
        self.subgraphs = subgraphs
        self.unit = unit
        self.pieces = Pieces.of(workload, subgraphs)
        self.model = new_model("latency", seed=seed)
        self.colour_of, self.colours = colour_classes(workload)
        one_each = subgraphs == 1
        self.block = self.colour_of if one_each else np.arange(workload.size)
        self.blocks = int(self.block.max(initial=-1)) + 1
        self.levels = min(self.pieces.count, self.blocks)
        kinds = list({id(kind): kind for kind in self.pieces.kinds}.values())
        numbers = [kinds.index(kind) for kind in self.pieces.kinds]
        #: ``[home]``: its accelerators, in order.
        self.homes = (
            [
                [at for at, number in enumerate(numbers) if number == kind]
                for kind in range(len(kinds))
            ]
            if one_each
            else [[at] for at in range(len(numbers))]
        )
        self.kind_of = [self.pieces.kinds[home[0]] for home in self.homes]
        pointers, targets = workload.successors()
        #: ``[node]``: those who read its output.
        self.readers = [
            targets[pointers[node] : pointers[node + 1]].tolist() for node in range(workload.size)
        ]
        self.host = host_seconds(workload)
        self.paths = likely_paths(workload, _PATHS)
        self._add_variables(bound)
        self._order()
        self._place()
        self._limit_memory()
        self._share_colours()
        self._pay()
        self._keep_time()
        self._follow_paths()
        import mip

        self.model.objective = mip.minimize(self.latency)

    def _add_variables(self, bound: float) -> None:
        import mip

        model, levels = self.model, range(self.levels)
        #: The largest sensible time; a little more than one, for rounding.
        self.most = 1.0 + 1e-6
        self.x = [
            [model.add_var(name=f"x_{b}_{level}", var_type=mip.BINARY) for level in levels]
            for b in range(self.blocks)
        ]
        self.w = [
            [
                model.add_var(name=f"w_{level}_{h}", var_type=mip.BINARY)
                for h in range(len(self.homes))
            ]
            for level in levels
        ]
        self.before = [
            [model.add_var(name=f"before_{v}_{level}", ub=1.0) for level in levels]
            for v in range(self.workload.size)
        ]
        self.start = [model.add_var(name=f"start_{level}") for level in levels]
        self.finish = [model.add_var(name=f"finish_{level}") for level in levels]
        self.head = self._heads() / self.unit
        self.ready = [
            model.add_var(name=f"ready_{v}", lb=min(float(self.head[v]), self.most))
            for v in range(self.workload.size)
        ]
        self.latency = model.add_var(name="latency", lb=min(bound / self.unit, 1.0))
        self.into: dict[tuple[int, int], mip.Var] = {}
        self.out: dict[tuple[int, int], mip.Var] = {}
        #: ``(source, target, level)``: the level holds one end of the edge.
        self.cross: dict[tuple[int, int, int], mip.Var] = {}
        #: ``(level, home)``: bytes, as a share of the home's memory.
        self.held: dict[tuple[int, int], mip.Var] = {}
        #: ``(colour, home)``
        self.shared: dict[tuple[int, int], mip.Var] = {}

    def _heads(self) -> NDArray[np.float64]:
        """Least time at which each node can be ready."""
        times = [self.host, *(kind.seconds for kind in self.kind_of)]
        head = np.min(times, axis=0)
        head = np.where(np.isfinite(head), head, 0.0)
        pointers, sources = self.workload.predecessors()
        for node in topological_order(self.workload).tolist():
            before = head[sources[pointers[node] : pointers[node + 1]]]
            head[node] += before.max(initial=0.0)
        return head

    def _at(self, node: int, level: int) -> mip.Var:
        return self.x[self.block[node]][level]

    def _row(
        self,
        terms: list[tuple[mip.Var, float]],
        sense: Literal["<", "=", ">"],
        right: float,
        name: str,
    ) -> None:
        if not terms:
            # Nothing to choose: a row without terms is kept as one that holds or cannot.
            terms = [(self.latency, 0.0)]
        variables, values = zip(*terms)
        add_row(self.model, variables, values, sense, right, name)

    def _order(self) -> None:
        for node in range(self.workload.size):
            for level in range(self.levels):
                done = [(self.before[node][level], 1.0), (self._at(node, level), 1.0)]
                if level + 1 < self.levels:
                    done.append((self.before[node][level + 1], -1.0))
                    self._row(done, "<", 0.0, f"rises_{node}_{level}")
                else:
                    self._row(done, "<", 1.0, f"rises_{node}_{level}")
        for source, target in self.workload.edges.tolist():
            for level in range(self.levels):
                early = [(self.before[target][level], 1.0), (self.before[source][level], -1.0)]
                name = f"{source}_{target}_{level}"
                self._row(early, "<", 0.0, f"starts_{name}")
                if self.block[source] != self.block[target]:
                    late = [(self._at(target, level), 1.0), (self._at(source, level), -1.0)]
                    self._row([*early, *late], "<", 0.0, f"ends_{name}")

    def _place(self) -> None:
        hosted = np.bincount(self.block, self.host, self.blocks)
        for block, row in enumerate(self.x):
            on = [(variable, 1.0) for variable in row]
            self._row(on, "<" if np.isfinite(hosted[block]) else "=", 1.0, f"placed_{block}")
        for level in range(self.levels):
            used = [(variable, 1.0) for variable in self.w[level]]
            self._row(used, "<", 1.0, f"one_home_{level}")
            for block, row in enumerate(self.x):
                homeless = [
                    (variable, -value)
                    for (variable, value), kind in zip(used, self.kind_of)
                    if np.isfinite(kind.seconds[self.block == block]).all()
                ]
                self._row([(row[level], 1.0), *homeless], "<", 0.0, f"needs_{block}_{level}")
            members = [(row[level], -1.0) for row in self.x]
            self._row([*used, *members], "<", 0.0, f"not_empty_{level}")
            if level:
                earlier = [(variable, -1.0) for variable in self.w[level - 1]]
                self._row([*used, *earlier], "<", 0.0, f"empty_last_{level}")
        for home, accelerators in enumerate(self.homes):
            limit = float(len(accelerators) * self.subgraphs)
            levels = [(row[home], 1.0) for row in self.w]
            self._row(levels, "<", limit, f"home_{home}")
            if self.subgraphs > 1 and home and self.kind_of[home] is self.kind_of[home - 1]:
                for level in range(self.levels):
                    earlier = [(row[home - 1], -1.0) for row in self.w[:level]]
                    used = [(self.w[level][home], 1.0)]
                    self._row([*used, *earlier], "<", 0.0, f"in_turn_{home}_{level}")

    def _limit_memory(self) -> None:
        bytes_of = np.bincount(self.block, self.workload.bytes, self.blocks)
        total = float(bytes_of.sum())
        limits = [min(kind.memory_bytes, total) for kind in self.kind_of]
        if total > 0 and min(limits, default=total) < total:
            for level in range(self.levels):
                load = [(row[level], float(held / total)) for row, held in zip(self.x, bytes_of)]
                room = [
                    (variable, -limit / total) for variable, limit in zip(self.w[level], limits)
                ]
                self._row([*load, *room], "<", 0.0, f"memory_{level}")
                if self.subgraphs == 1:
                    continue
                for home, variable in enumerate(self.w[level]):
                    held_here = self.model.add_var(name=f"held_{level}_{home}")
                    self.held[level, home] = held_here
                    parts = [*load, (variable, 1.0), (held_here, -1.0)]
                    self._row(parts, "<", 1.0, f"holds_{level}_{home}")
            if self.subgraphs > 1:
                for home, limit in enumerate(limits):
                    parts = [(self.held[level, home], 1.0) for level in range(self.levels)]
                    self._row(parts, "<", limit / total, f"memory_of_{home}")
        for kind in self.workload.classes:
            if kind.seconds is self.host and kind.memory_bytes < total:
                away = [
                    (variable, -float(held / total))
                    for row, held in zip(self.x, bytes_of)
                    for variable in row
                ]
                self._row(away, "<", kind.memory_bytes / total - 1.0, "memory_of_host")

    def _share_colours(self) -> None:
        if self.subgraphs == 1:
            return
        for colour in range(self.colours):
            members = np.flatnonzero(self.colour_of == colour).tolist()
            if len(members) < 2:
                continue
            where = [
                self.model.add_var(name=f"colour_{colour}_{home}", ub=1.0)
                for home in range(len(self.homes))
            ]
            self._row([(each, 1.0) for each in where], "<", 1.0, f"colour_{colour}")
            for home, variable in enumerate(where):
                self.shared[colour, home] = variable
                for node in members:
                    for level in range(self.levels):
                        both = [(self._at(node, level), 1.0), (self.w[level][home], 1.0)]
                        name = f"colour_{colour}_{home}_{node}_{level}"
                        self._row([*both, (variable, -1.0)], "<", 1.0, name)
            for node in members:
                # All on accelerators, or all on the host.
                here = [(self._at(node, level), 1.0) for level in range(self.levels)]
                rest = [(each, -1.0) for each in where]
                self._row([*here, *rest], "=", 0.0, f"colour_{colour}_{node}")

    def _pay(self) -> None:
        for source, readers in enumerate(self.readers):
            readers = [each for each in readers if self.block[each] != self.block[source]]
            if not readers:
                continue
            for level in range(self.levels):
                here = self._at(source, level)
                into = self.model.add_var(name=f"in_{source}_{level}", ub=1.0)
                out = self.model.add_var(name=f"out_{source}_{level}", ub=1.0)
                self.into[source, level], self.out[source, level] = into, out
                for reader in readers:
                    there = self._at(reader, level)
                    name = f"{source}_{reader}_{level}"
                    self._row([(into, 1.0), (there, -1.0), (here, 1.0)], ">", 0.0, f"in_{name}")
                    self._row([(out, 1.0), (here, -1.0), (there, 1.0)], ">", 0.0, f"out_{name}")

    def _keep_time(self) -> None:
        workload, most = self.workload, self.most
        for level in range(self.levels):
            span = [(self.finish[level], 1.0), (self.start[level], -1.0)]
            moved = [
                (pays[source, level], -float(workload.transfer_seconds[source] / self.unit))
                for source in range(workload.size)
                for pays in (self.into, self.out)
                if (source, level) in pays
            ]
            for home, kind in enumerate(self.kind_of):
                if any(self.kind_of[earlier] is kind for earlier in range(home)):
                    continue
                finite = np.where(np.isfinite(kind.seconds), kind.seconds, 0.0)
                busy = np.bincount(self.block, finite, self.blocks) / self.unit
                load = [(row[level], -float(value)) for row, value in zip(self.x, busy)]
                same = [at for at, other in enumerate(self.kind_of) if other is kind]
                if len(same) == len(self.homes):
                    # One kind: an empty level has no load, so the row may always hold.
                    self._row([*span, *moved, *load], ">", 0.0, f"load_{level}")
                    continue
                constant = float(busy.sum() - sum(value for _, value in moved))
                choice = [(self.w[level][at], -constant) for at in same]
                self._row([*span, *moved, *load, *choice], ">", -constant, f"load_{level}_{home}")
            for node, ready in enumerate(self.ready):
                slack = most - float(min(self.head[node], most))
                at_end = [(ready, 1.0), (self.finish[level], -1.0), (self._at(node, level), -slack)]
                self._row(at_end, ">", -slack, f"ends_with_{node}_{level}")
                if (node, level) in self.into:
                    waits = [(self.start[level], 1.0), (ready, -1.0)]
                    waits.append((self.into[node, level], -most))
                    self._row(waits, ">", -most, f"waits_{node}_{level}")
            if self.subgraphs > 1:
                for earlier in range(level):
                    for home, variable in enumerate(self.w[level]):
                        turn = [(self.start[level], 1.0), (self.finish[earlier], -1.0)]
                        both = [(variable, -most), (self.w[earlier][home], -most)]
                        name = f"turn_{level}_{earlier}_{home}"
                        self._row([*turn, *both], ">", -2 * most, name)
        for node, ready in enumerate(self.ready):
            self._row([(self.latency, 1.0), (ready, -1.0)], ">", 0.0, f"last_{node}")
            alone = self._on_host(node)
            self._row([(ready, 1.0), *alone[0]], ">", alone[1], f"first_{node}")
        for source, target in workload.edges.tolist():
            terms, right = self._on_host(target)
            after = [(self.ready[target], 1.0), (self.ready[source], -1.0)]
            self._row([*after, *terms], ">", right, f"after_{source}_{target}")

    def _on_host(self, node: int) -> tuple[list[tuple[mip.Var, float]], float]:
        """Minus the seconds of a node on the host, as terms on the left and a right-hand side."""
        seconds = float(self.host[node] / self.unit)
        if not np.isfinite(seconds) or seconds == 0.0:
            return [], 0.0
        return [(self._at(node, level), seconds) for level in range(self.levels)], seconds

    def _follow_paths(self) -> None:
        workload = self.workload
        fastest = np.min([kind.seconds for kind in self.kind_of], axis=0) if self.homes else None
        for number, path in enumerate(self.paths):
            terms: list[tuple[mip.Var, float]] = [(self.latency, 1.0)]
            right = 0.0
            for node in path:
                minus, seconds = self._on_host(node)
                terms += minus
                right += seconds
                if fastest is not None and np.isfinite(fastest[node]):
                    least = -float(fastest[node] / self.unit)
                    terms += [(self._at(node, level), least) for level in range(self.levels)]
            for source, target in itertools.pairwise(path):
                seconds = float(workload.transfer_seconds[source] / self.unit)
                if self.block[source] == self.block[target] or seconds == 0.0:
                    continue
                for level in range(self.levels):
                    terms.append((self._crosses(source, target, level), -seconds))
            self._row(terms, ">", right, f"path_{number}")

    def _crosses(self, source: int, target: int, level: int) -> mip.Var:
        key = (source, target, level)
        if key not in self.cross:
            variable = self.model.add_var(name=f"cross_{source}_{target}_{level}", ub=1.0)
            here, there = self._at(source, level), self._at(target, level)
            name = f"{source}_{target}_{level}"
            self._row([(variable, 1.0), (here, -1.0), (there, 1.0)], ">", 0.0, f"leaves_{name}")
            self._row([(variable, 1.0), (there, -1.0), (here, 1.0)], ">", 0.0, f"enters_{name}")
            self.cross[key] = variable
        return self.cross[key]
