"""The mixed-integer program of throughput: variables and rows.

Variables: x[c, d], class c is on device d (a class is the nodes of one colour); pays[e, d], the net
e costs device d a transfer. Rows:

- *placed*: each class is on one device; a class that cannot run there has no variable;
- *out*, *in*: a device that holds the source of a net and lacks a reader pays for it, and so does
  one that lacks the source and holds a reader;
- *memory*: the bytes of the classes on a device;
- *load*: compute and transfers (or each of them, with overlap) are at most the largest load; with
  ``sum_of_maxima`` forward and backward parts have a largest load each, and their sum is minimised;
- *contiguous*: z[v, d] = 1 if node v or something after it is on d: z falls along edges, and is 0
  after an edge that leaves d. Forward nodes only; fractional z suffice, since for given x the rows
  on z are differences.

The program may cover some of the devices only. Everything elsewhere is then one class, *outside*,
that is on none of them and costs nothing.

Times are in units of a first solution, so that the solver sees numbers near one. Equal devices are
not numbered: HiGHS finds such symmetries by itself, and does worse with rows that break them.

Source: Tarnawski et al., NeurIPS 2020, section 3.2 and appendix C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.solver import add_row, new_model
from baechi_jax.passes.placement.throughput.nets import Nets
from baechi_jax.passes.placement.workload import topological_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mip
    from numpy.typing import NDArray

    from baechi_jax.passes.placement.partitioning import Throughput
    from baechi_jax.passes.placement.workload import Workload


class Program:
    """The model and its variables; ``unit``: seconds that the solver sees as one."""

    def __init__(
        self,
        workload: Workload,
        objective: Throughput,
        unit: float,
        seed: int,
        nets: Nets | None = None,
        devices: Sequence[int] | None = None,
        outside: int = -1,
    ) -> None:
        self.workload = workload
        self.objective = objective
        self.unit = unit
        self.nets = Nets.of(workload) if nets is None else nets
        self.model = new_model("throughput", seed=seed)
        kind_of = workload.class_of_devices().tolist()
        #: The devices that classes may be put on, and their kinds.
        self.kind_of = {
            device: kind_of[device]
            for device in (range(workload.devices) if devices is None else devices)
        }
        #: A class that stands for everything on other devices; -1 if there is none.
        self.outside = outside
        #: Parts of the objective: all nodes, or forward and backward apart.
        self.phases = ((0,), (1,)) if objective.sum_of_maxima else ((0, 1),)
        #: ``[phase]``
        self.largest: list[mip.Var] = []
        #: ``[class][device]``
        self.on: list[dict[int, mip.Var]] = []
        #: ``(net, device)``: pays for sending, or receiving; one variable for nets with one reader.
        self.sends: dict[tuple[int, int], mip.Var] = {}
        self.receives: dict[tuple[int, int], mip.Var] = {}
        #: ``(node, device)``
        self.reaches: dict[tuple[int, int], mip.Var] = {}
        self._add_variables()
        self._place()
        self._pay()
        self._limit_memory()
        self._limit_load()
        if objective.contiguous:
            self._be_contiguous()

    def _add_variables(self) -> None:
        import mip

        model = self.model
        self.largest = [
            model.add_var(name=f"largest{phase}", obj=1.0) for phase in range(len(self.phases))
        ]
        total = self.nets.total_seconds
        for group in range(self.nets.size):
            self.on.append(
                {
                    device: model.add_var(name=f"x_{group}_{device}", var_type=mip.BINARY)
                    for device, kind in self.kind_of.items()
                    if group != self.outside and np.isfinite(total[kind, group])
                }
            )

    def _place(self) -> None:
        for group, on in enumerate(self.on):
            if group != self.outside:
                add_row(self.model, list(on.values()), [1.0] * len(on), "=", 1.0, f"placed_{group}")

    def _pay(self) -> None:
        for index, net in enumerate(self.nets.nets):
            for device, kind in self.kind_of.items():
                if not self.workload.classes[kind].transfers:
                    continue
                source = self.on[net.source].get(device)
                readers = [self.on[target].get(device) for target in net.targets]
                if source is not None:
                    sends = self.model.add_var(name=f"sends_{index}_{device}", ub=1.0)
                    self.sends[index, device] = sends
                    for number, reader in enumerate(readers):
                        self._at_least(sends, source, reader, f"out_{index}_{device}_{number}")
                present = [reader for reader in readers if reader is not None]
                if not present:
                    continue
                if len(readers) == 1 and source is not None:
                    receives = self.sends[index, device]
                else:
                    receives = self.model.add_var(name=f"receives_{index}_{device}", ub=1.0)
                self.receives[index, device] = receives
                for number, reader in enumerate(present):
                    self._at_least(receives, reader, source, f"in_{index}_{device}_{number}")

    def _at_least(self, pays: mip.Var, here: mip.Var, there: mip.Var | None, name: str) -> None:
        """``pays >= here - there``."""
        if there is None:
            add_row(self.model, [pays, here], [1.0, -1.0], ">", 0.0, name)
        else:
            add_row(self.model, [pays, here, there], [1.0, -1.0, 1.0], ">", 0.0, name)

    def _limit_memory(self) -> None:
        held = self.nets.bytes
        for device, kind in self.kind_of.items():
            memory = self.workload.classes[kind].memory_bytes
            if held.sum() <= memory:
                continue
            users = [group for group, on in enumerate(self.on) if device in on and held[group]]
            add_row(
                self.model,
                [self.on[group][device] for group in users],
                [float(held[group] / memory) for group in users],
                "<",
                1.0,
                f"memory_{device}",
            )

    def _limit_load(self) -> None:
        for device, kind in self.kind_of.items():
            for phase, parts in enumerate(self.phases):
                compute: list[tuple[mip.Var, float]] = []
                for group, on in enumerate(self.on):
                    seconds = float(self.nets.seconds[list(parts), kind, group].sum())
                    if device in on and seconds:
                        compute.append((on[device], seconds / self.unit))
                moved: list[tuple[mip.Var, float]] = []
                for index, net in enumerate(self.nets.nets):
                    if int(net.backward) not in parts:
                        continue
                    variables = {
                        id(variable): variable
                        for variable in (
                            self.sends.get((index, device)),
                            self.receives.get((index, device)),
                        )
                        if variable is not None
                    }
                    moved += [(each, net.seconds / self.unit) for each in variables.values()]
                name = f"load_{device}_{phase}"
                if self.objective.overlap:
                    self._below(compute, phase, f"{name}_compute")
                    self._below(moved, phase, f"{name}_transfers")
                else:
                    self._below(compute + moved, phase, name)

    def _below(self, terms: list[tuple[mip.Var, float]], phase: int, name: str) -> None:
        if terms:
            variables, values = zip(*terms)
            add_row(self.model, [*variables, self.largest[phase]], [*values, -1.0], "<", 0.0, name)

    def _be_contiguous(self) -> None:
        workload, label = self.workload, self.nets.label
        forward = np.flatnonzero(~workload.backward).tolist()
        for device in self.kind_of:
            for node in forward:
                reach = self.model.add_var(name=f"z_{node}_{device}", ub=1.0)
                self.reaches[node, device] = reach
                on = self.on[label[node]].get(device)
                if on is not None:
                    add_row(
                        self.model, [reach, on], [1.0, -1.0], ">", 0.0, f"holds_{node}_{device}"
                    )
            for source, target in workload.edges.tolist():
                if workload.backward[source] or workload.backward[target]:
                    continue
                before, after = self.reaches[source, device], self.reaches[target, device]
                name = f"{source}_{target}_{device}"
                add_row(self.model, [before, after], [1.0, -1.0], ">", 0.0, f"falls_{name}")
                here = self.on[label[source]].get(device)
                there = self.on[label[target]].get(device)
                if here is None:
                    continue
                variables, values = [after, here], [1.0, 1.0]
                if there is not None and there is not here:
                    variables, values = [*variables, there], [*values, -1.0]
                elif there is here:
                    continue
                add_row(self.model, variables, values, "<", 1.0, f"leaves_{name}")

    def start_from(
        self, where: NDArray[np.int64], maxima: Sequence[float], device_of: NDArray[np.int64]
    ) -> None:
        """Give the solver a first solution.

        ``where``: the device of each class (-1 for the one outside); ``maxima``: the largest load
        of each phase, in seconds; ``device_of``: the device of each node.
        """
        values: list[tuple[mip.Var, float]] = [
            (variable, float(where[group] == device))
            for group, on in enumerate(self.on)
            for device, variable in on.items()
        ]
        for (index, device), variable in self.sends.items():
            net = self.nets.nets[index]
            home = where[net.source] == device
            pays = home and any(where[target] != device for target in net.targets)
            if self.receives.get((index, device)) is variable:
                pays = pays or (not home and where[net.targets[0]] == device)
            values.append((variable, float(pays)))
        for (index, device), variable in self.receives.items():
            net = self.nets.nets[index]
            if self.sends.get((index, device)) is not variable:
                pays = where[net.source] != device and device in where[list(net.targets)]
                values.append((variable, float(pays)))
        if self.reaches:
            values += self._reaches_of(device_of)
        values += [(each, most / self.unit) for each, most in zip(self.largest, maxima)]
        self.model.start = values

    def _reaches_of(self, device_of: NDArray[np.int64]) -> list[tuple[mip.Var, float]]:
        workload = self.workload
        pointers, targets = workload.successors()
        reach = np.zeros((workload.size, workload.devices), bool)
        for node in topological_order(workload)[::-1].tolist():
            if workload.backward[node]:
                continue
            for target in targets[pointers[node] : pointers[node + 1]].tolist():
                if not workload.backward[target]:
                    reach[node] |= reach[target]
            reach[node, device_of[node]] = True
        return [
            (variable, float(reach[node, device]))
            for (node, device), variable in self.reaches.items()
        ]

    def decode(self) -> NDArray[np.int64]:
        """``[class]``: the devices in the solver's best solution; -1 for the class outside."""
        where = np.full(self.nets.size, -1, np.int64)
        for group, on in enumerate(self.on):
            for device, variable in on.items():
                if variable.x > 0.5:
                    where[group] = device
        assert all(where[group] >= 0 for group in range(self.nets.size) if group != self.outside)
        return where
