"""The graph of a step with tensors that live alike as one: what the simulator in Python goes over.

A training step has many more arguments and results than tasks: parameters, moments and their next
values, which are there from the start, change hands in one task, and are never sent. Tensors are
one here when, wherever their groups lie, they are on one device, read by the same nodes, freed
together, and taken over by results of the same node. So every figure of a simulation is the same.

That holds for assignments that keep groups together; ``StepGraph.whole`` is for others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baechi_jax.passes.placement.problem import PlacementProblem, ProblemLists

#: In ``_takers``: results of more than one node.
_SEVERAL = -2


@dataclass(frozen=True, slots=True)
class StepGraph:
    """``lists`` of the tensors here; nodes are those of the problem."""

    lists: ProblemLists
    #: The problem's tensor that each stands for; the first of several.
    original: list[int]
    #: Tensors that may have to be sent, in the order of their producers. Each stands for one.
    crossing: list[int]
    #: Nodes that are arguments, and the others.
    arguments: list[int]
    tasks: list[int]
    #: For each node, one that must be on the same device.
    together: list[int]

    def suits(self, device_of_node: list[int]) -> bool:
        """Whether an assignment keeps together what is collected here."""
        return [device_of_node[node] for node in self.together] == device_of_node

    @staticmethod
    def whole(problem: PlacementProblem) -> StepGraph:
        """Every tensor for itself; any of them may have to be sent."""
        tensors = problem.tensors
        apart = list(range(problem.nodes))
        return _graph(problem.lists, list(range(tensors)), [True] * tensors, apart)

    @staticmethod
    def condensed(problem: PlacementProblem) -> StepGraph:
        """Tensors that are never sent collected; see the module docstring."""
        if problem.groups == problem.nodes:
            # Nothing is sure to lie together. What one node gives is seldom alike then.
            return problem.uncondensed
        lists = problem.lists
        group, is_argument, persistent = lists.group, lists.is_argument, lists.persistent
        taker = _takers(lists)
        number: dict[Hashable, int] = {}
        class_of: list[int] = []
        original: list[int] = []
        crossing: list[bool] = []
        for tensor, (producer, readers) in enumerate(zip(lists.producer, lists.readers)):
            own = group[producer]
            sent = any(group[reader] != own for reader in readers)
            key: Hashable = tensor
            if not sent and taker[tensor] != _SEVERAL:
                # All arguments of a group are there from the start.
                made = -1 - own if is_argument[producer] else producer
                key = (made, tuple(readers), persistent[tensor], taker[tensor])
            found = number.setdefault(key, len(original))
            if found == len(original):
                original.append(tensor)
                crossing.append(sent)
            class_of.append(found)
        together = [problem.members[each][0] for each in group]
        return _graph(_collected(lists, class_of, original), original, crossing, together)


def _takers(lists: ProblemLists) -> list[int]:
    """The node whose result may take over each tensor's buffer; -1 for none."""
    taker = [-1] * len(lists.producer)
    for tensor, old in enumerate(lists.alias):
        if old >= 0:
            node = lists.producer[tensor]
            taker[old] = node if taker[old] in (-1, node) else _SEVERAL
    return taker


def _collected(lists: ProblemLists, class_of: list[int], original: list[int]) -> ProblemLists:
    """``lists`` with tensor ``t`` counted as ``class_of[t]``."""
    nbytes = [0] * len(original)
    for tensor, found in enumerate(class_of):
        nbytes[found] += lists.tensor_bytes[tensor]
    gives: list[list[int]] = [[] for _ in lists.gives]
    reads: list[list[int]] = [[] for _ in lists.reads]
    task_reads = [0] * len(lists.reads)
    producer = [lists.producer[tensor] for tensor in original]
    readers = [lists.readers[tensor] for tensor in original]
    for tensor, (node, reading) in enumerate(zip(producer, readers)):
        gives[node].append(tensor)
        of_task = not lists.is_argument[node]
        for reader in reading:
            reads[reader].append(tensor)
            task_reads[reader] += of_task
    return replace(
        lists,
        tensor_bytes=nbytes,
        producer=producer,
        readers=readers,
        persistent=[lists.persistent[tensor] for tensor in original],
        # Who takes over what is in ``aliases``; a collected tensor may take over several.
        alias=[-1] * len(original),
        reads=reads,
        task_reads=task_reads,
        gives=gives,
        aliases=[
            [(old, nbytes[old]) for old in dict.fromkeys(class_of[each] for each, _ in own)]
            for own in lists.aliases
        ],
    )


def _graph(
    lists: ProblemLists, original: list[int], crossing: list[bool], together: list[int]
) -> StepGraph:
    arguments: list[int] = []
    tasks: list[int] = []
    for node, is_argument in enumerate(lists.is_argument):
        (arguments if is_argument else tasks).append(node)
    sent = [tensor for gives in lists.gives for tensor in gives if crossing[tensor]]
    return StepGraph(lists, original, sent, arguments, tasks, together)
