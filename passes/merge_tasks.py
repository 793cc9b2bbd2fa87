"""``merge-tasks``: after placement, neighbouring tasks on one device become one task.

Every task is compiled and launched by itself, and what goes from one to another must lie in memory,
so few large tasks are better than many small ones; on one device the whole step becomes one task,
which is why it then costs what ``jax.jit`` costs. Against merging stand four things, each checked:

- *Convexity*: no path may leave a merged task and come back.
- *Time*: a merged task starts when its last input has come and gives all its results at its end. So
  first come the runs of tasks that a simulated step executes one after another where no result is
  sent before the end of the run and no input comes after its start (nothing changes for anybody);
  then runs that use up slack, and pairs, as long as the simulated step stays within ``slowdown``.
- *Memory*: operands of a merged task live until it ends, and XLA orders what is in it. While a
  device's limit is passed, the merged task to blame is halved.
- *Compilation*: equal tasks are compiled once. Where layers repeat, long tasks are cut into equal
  ones (``alike.py``).

A task keeps which tasks it was made of, and their groups and pins: ``baechi.parts = [{task = "t4",
ops = 12, baechi.group = "w"}, ...]``; its operations, literals left out, are theirs in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from baechi_jax.ir.attributes import Attribute, DictAttr
from baechi_jax.ir.core import Module, Operation, OpResult
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.passes.alike import cut_where_alike
from baechi_jax.passes.cost.task import task_cost
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.priorities import SHARES
from baechi_jax.passes.quotient import Quotient
from baechi_jax.passes.registry import Pass, register_pass
from baechi_jax.passes.simulate.simulator import Simulation
from baechi_jax.passes.tasks import (
    LITERAL,
    argument_devices,
    build_tasks,
    device_of,
    dissolve_tasks,
    tasks_of,
    topology_of,
)

#: On a task: the tasks that it was made of.
PARTS = "baechi.parts"

#: Most simulations of the search for pairs.
_TRIALS = 60

#: Most groups that are halved so that memory fits.
_SPLITS = 40


@register_pass
@dataclass(frozen=True, slots=True)
class MergeTasks(Pass):
    """See the module docstring.

    ``slowdown``: the fraction by which the simulated step may become longer.
    ``tasks_per_device``: merges that cost time are sought only while a device has more tasks.
    ``alike``: cut merged tasks where layers repeat (``alike.py``), if several devices are used.
    """

    name: ClassVar[str] = "merge-tasks"
    summary: ClassVar[str] = "merge neighbouring tasks on one device, within time and memory"

    slowdown: float = 0.02
    tasks_per_device: int = 4
    alike: bool = True

    def run(self, module: Module) -> None:
        """Rewrite ``@main`` of ``module``."""
        if self.slowdown < 0 or self.tasks_per_device < 1:
            raise PassError(
                "merge-tasks: slowdown must not be negative and tasks-per-device at least 1, found "
                f"{self.slowdown} and {self.tasks_per_device}"
            )
        tasks = tasks_of(module.main)
        if len(tasks) < 2:
            return
        base = placed_quotient(module)
        groups = choose_merges(base, self.slowdown, self.tasks_per_device)
        if len(groups) == len(tasks):
            return
        parts = TaskParts(module)
        parts.build(base.in_order(self._fitting(base, groups, parts)))

    def _fitting(
        self, base: Quotient, groups: Sequence[Sequence[int]], parts: TaskParts
    ) -> list[list[int]]:
        """``groups`` in equal pieces and within memory; whole if only that helps memory."""
        cut = [list(group) for group in groups]
        if self.alike and len(set(base.device)) > 1:
            cut = cut_where_alike(base, groups, parts)
        excess, fitting = split_to_fit(base, cut, parts)
        if excess and len(cut) > len(groups):
            tries = ((excess, fitting), split_to_fit(base, groups, parts))
            _, fitting = min(tries, key=lambda each: each[0])
        return fitting


def placed_quotient(module: Module) -> Quotient:
    """The graph of the tasks of ``module`` on the devices where they are placed."""
    from baechi_jax.passes.placement.from_module import from_module

    problem = from_module(module)
    devices = argument_devices(module.main) + [device_of(task) for task in problem.tasks]
    return Quotient.of(problem, devices)


# Choosing -----------------------------------------------------------------------------------


def choose_merges(base: Quotient, slowdown: float, tasks_per_device: int) -> list[list[int]]:
    """Groups of task indices, each to become one task, by time alone."""
    simulation, share = base.play()
    longest = simulation.makespan_seconds * (1 + slowdown)
    quotient = _merge_runs(base, simulation, harmless=True)
    relaxed = _merge_runs(quotient, quotient.simulate(share), harmless=False)
    if relaxed.simulate(share).makespan_seconds <= longest:
        quotient = relaxed
    quotient = _merge_pairs(quotient, longest, share, tasks_per_device)
    return [list(members) for members in quotient.members]


def _merge_runs(quotient: Quotient, simulation: Simulation, *, harmless: bool) -> Quotient:
    """Merge runs of nodes that follow one another on a device.

    ``harmless``: only where nothing starts or arrives later for it. Else a run may end as late as
    the simulated step allows without becoming longer (the slack of several runs may add up, so the
    result must be simulated).
    """
    seconds, start, end = quotient.seconds, simulation.start_seconds, simulation.end_seconds
    arrival, moved = _transfers(quotient, simulation)
    latest = end if harmless else _latest_ends(quotient, simulation, moved)
    # The latest end at which what a node sends does not come too late.
    sent_by = [float("inf")] * quotient.size
    for index, tensor in enumerate(quotient.tensors):
        if tensor.producer < 0:
            continue
        for reader in tensor.readers:
            target = quotient.device[reader]
            if target == quotient.device[tensor.producer]:
                continue
            limit = (
                end[tensor.producer]
                if harmless
                else latest[reader] - seconds[reader] - moved[index, target]
            )
            sent_by[tensor.producer] = min(sent_by[tensor.producer], limit)
    tolerance = 1e-9 * simulation.makespan_seconds
    reach = quotient.reachability()
    groups: list[list[int]] = []
    position = {node: index for index, node in enumerate(quotient.order())}
    for device in range(quotient.machine.size):
        nodes = [node for node in range(quotient.size) if quotient.device[node] == device]
        nodes.sort(key=lambda node: (start[node], position[node]))
        run: list[int] = []
        begin = finish = limit = 0.0
        for node in nodes:
            if run:
                began = max(begin, arrival[node])
                finished = began + finish - begin + seconds[node]
                bound = min(limit, sent_by[node], latest[node]) + tolerance
                if finished <= bound and reach.may_join(run[0], node):
                    reach.join(run[0], node)
                    run.append(node)
                    begin, finish, limit = began, finished, min(limit, sent_by[node])
                    continue
            run = [node]
            groups.append(run)
            begin = start[node]
            finish, limit = begin + seconds[node], sent_by[node]
    return quotient.merged(groups)


def _transfers(
    quotient: Quotient, simulation: Simulation
) -> tuple[list[float], dict[tuple[int, int], float]]:
    """When the last thing from elsewhere reaches each node; seconds of each transfer."""
    arrival = [0.0] * quotient.size
    moved: dict[tuple[int, int], float] = {}
    for transfer in simulation.transfers:
        moved[transfer.tensor, transfer.target] = transfer.end_seconds - transfer.start_seconds
        for reader in quotient.tensors[transfer.tensor].readers:
            if quotient.device[reader] == transfer.target:
                arrival[reader] = max(arrival[reader], transfer.end_seconds)
    return arrival, moved


def _latest_ends(
    quotient: Quotient, simulation: Simulation, moved: dict[tuple[int, int], float]
) -> list[float]:
    """How late each node may end without the step ending later, in the simulated order."""
    start = simulation.start_seconds
    latest = [simulation.makespan_seconds] * quotient.size
    gives: list[list[int]] = [[] for _ in range(quotient.size)]
    for index, tensor in enumerate(quotient.tensors):
        if tensor.producer >= 0:
            gives[tensor.producer].append(index)
    processor = [int(quotient.machine.processor[device]) for device in quotient.device]
    following: dict[int, int] = {}
    position = {node: index for index, node in enumerate(quotient.order())}
    for node in sorted(range(quotient.size), key=lambda n: (start[n], position[n]), reverse=True):
        bound = latest[node]
        after = following.get(processor[node])
        if after is not None:
            bound = min(bound, latest[after] - quotient.seconds[after])
        for index in gives[node]:
            for reader in quotient.tensors[index].readers:
                way = moved.get((index, quotient.device[reader]), 0.0)
                bound = min(bound, latest[reader] - quotient.seconds[reader] - way)
        latest[node] = bound
        following[processor[node]] = node
    return latest


def _merge_pairs(
    quotient: Quotient, longest: float, share: float, tasks_per_device: int
) -> Quotient:
    """Merge pairs, shortest first, on devices with many tasks, while the step stays short."""
    limits = quotient.machine.limit_bytes.tolist()
    excess = quotient.simulate(share).excess_bytes(limits)
    refused: set[tuple[int, ...]] = set()
    trials = 0
    while trials < _TRIALS:
        pair = _next_pair(quotient, tasks_per_device, refused)
        if pair is None:
            break
        trials += 1
        others = [[node] for node in range(quotient.size) if node not in pair]
        joined = quotient.merged([pair, *others])
        simulation = joined.simulate(share)
        if simulation.makespan_seconds <= longest and simulation.excess_bytes(limits) <= excess:
            quotient = joined
        else:
            refused.add(joined.members[0])
    return quotient


def _next_pair(
    quotient: Quotient, tasks_per_device: int, refused: set[tuple[int, ...]]
) -> list[int] | None:
    counts = [quotient.device.count(device) for device in range(quotient.machine.size)]
    if max(counts) <= tasks_per_device:
        return None
    reach = quotient.reachability()
    order = quotient.order()
    best: tuple[float, int, int] | None = None
    found: list[int] | None = None
    for place, left in enumerate(order):
        if counts[quotient.device[left]] <= tasks_per_device:
            continue
        for right in order[place + 1 :]:
            if quotient.device[right] != quotient.device[left]:
                continue
            rank = (quotient.seconds[left] + quotient.seconds[right], left, right)
            if (
                (best is None or rank < best)
                and quotient.members[left] + quotient.members[right] not in refused
                and reach.may_join(left, right)
            ):
                best, found = rank, [left, right]
    return found


def split_to_fit(
    base: Quotient, groups: Sequence[Sequence[int]], parts: TaskParts
) -> tuple[int, list[list[int]]]:
    """Halve groups until every device is within its limit, as far as that helps.

    Returns the bytes that are too many, and the groups.

    Halved is the group that runs at the peak of the device furthest over its limit, or else one
    that runs later and keeps most bytes waiting for it. Groups have their true costs here: what
    XLA fuses takes no memory, and what it runs breadth first may take far more than its parts.
    """
    limits = base.machine.limit_bytes.tolist()
    current = [list(group) for group in groups]
    best: tuple[int, list[list[int]]] | None = None
    for _ in range(_SPLITS):
        quotient = base.merged(current)
        for number, group in enumerate(current):
            if len(group) > 1:
                parts.set_cost(quotient, number, group)
        simulation, _ = quotient.play((SHARES[0], SHARES[-1]))
        excess = simulation.excess_bytes(limits)
        if best is None or excess < best[0]:
            best = (excess, current)
        node = _group_to_halve(quotient, simulation, limits) if excess else None
        if node is None:
            break
        group = current[node]
        half = len(group) // 2
        current = [
            *(each for index, each in enumerate(current) if index != node),
            group[:half],
            group[half:],
        ]
    assert best is not None
    return best


def _group_to_halve(
    quotient: Quotient, simulation: Simulation, limits: Sequence[int]
) -> int | None:
    over = [peak - limit for peak, limit in zip(simulation.peak_bytes, limits)]
    for device in sorted(range(len(over)), key=lambda d: -over[d]):
        if over[device] > 0:
            node = _to_blame(quotient, simulation, device)
            if node is not None:
                return node
    return None


def _to_blame(quotient: Quotient, simulation: Simulation, device: int) -> int | None:
    at = simulation.peak_seconds[device]
    start, end = simulation.start_seconds, simulation.end_seconds
    nodes = [
        node
        for node in range(quotient.size)
        if quotient.device[node] == device and len(quotient.members[node]) > 1 and end[node] >= at
    ]
    running = [node for node in nodes if start[node] <= at]
    if running:
        return max(running, key=lambda node: (start[node], node))
    waiting = dict.fromkeys(nodes, 0)
    for tensor in quotient.tensors:
        if tensor.producer >= 0 and end[tensor.producer] <= at:
            for reader in tensor.readers:
                if reader in waiting:
                    waiting[reader] += tensor.nbytes
    return max(waiting, key=lambda node: (waiting[node], -node), default=None)


def cluster_of(func: Operation, ops: Sequence[Operation]) -> list[Operation]:
    """What ``build_tasks`` wants of ``ops``: literals only where ``func`` returns them."""
    terminator = func.body.terminator
    return [
        op
        for op in ops
        if op.name != LITERAL or any(user is terminator for user, _ in op.result.uses)
    ]


# Building -----------------------------------------------------------------------------------


class TaskParts:
    """The tasks of a module taken apart, to be costed and put together in groups."""

    def __init__(self, module: Module) -> None:
        self.func = module.main
        self.topology = topology_of(module)
        self.measured = MeasuredMemory.of(module)
        tasks = tasks_of(self.func)
        self.attributes = [dict(task.attributes) for task in tasks]
        self.ops = dissolve_tasks(self.func, tasks)
        self._known: dict[tuple[int, ...], Cost] = {}

    def set_cost(self, quotient: Quotient, node: int, group: Sequence[int]) -> None:
        """Give ``node`` of ``quotient`` the cost of ``group`` as one task."""
        cost = self.cost(group)
        kind = self.topology.devices[quotient.device[node]].kind
        quotient.temporary_bytes[node] = cost.temporary_bytes
        quotient.seconds[node] = cost.seconds[self.topology.kinds.index(kind)]

    def cost(self, group: Sequence[int]) -> Cost:
        """The cost of ``group`` as one task."""
        key = tuple(group)
        cost = self._known.get(key)
        if cost is None:
            ops = [op for part in group for op in self.ops[part]]
            inside = set(ops)
            inputs = dict.fromkeys(
                value
                for op in ops
                for value in op.operands
                if not (isinstance(value, OpResult) and value.owner in inside)
            )
            outputs = [
                result
                for op in ops
                for result in op.results
                if any(user not in inside for user, _ in result.uses)
            ]
            cost = task_cost(ops, list(inputs), outputs, self.topology)
            more = self.measured.excess_bytes(ops, outputs)
            cost = replace(cost, temporary_bytes=cost.temporary_bytes + more)
            self._known[key] = cost
        return cost

    def build(self, groups: Sequence[Sequence[int]]) -> None:
        """Make a task of each group; groups and their parts are in an order in which they run."""
        contents = [cluster_of(self.func, ops) for ops in self.ops]
        clusters: list[list[Operation]] = []
        attributes: list[dict[str, Attribute]] = []
        for number, group in enumerate(groups):
            clusters.append([op for part in group for op in contents[part]])
            entry = {"sym_name": f"t{number}", **self._common(group)}
            entry[PARTS] = tuple(self._part(part, len(contents[part])) for part in group)
            if len(group) > 1:
                entry["baechi.cost"] = self.cost(group)
            attributes.append(entry)
        build_tasks(self.func, clusters, attributes)

    def _part(self, part: int, ops: int) -> DictAttr:
        attributes = self.attributes[part]
        entry: dict[str, Attribute] = {"task": attributes["sym_name"], "ops": ops}
        for key in ("baechi.group", "baechi.pin"):
            if key in attributes:
                entry[key] = attributes[key]
        return DictAttr.of(entry)

    def _common(self, group: Iterable[int]) -> dict[str, Attribute]:
        """The attributes on which all parts agree, without their names."""
        parts = list(group)
        first = self.attributes[parts[0]]
        return {
            key: value
            for key, value in first.items()
            if key != "sym_name" and all(self.attributes[p].get(key) == value for p in parts[1:])
        }
