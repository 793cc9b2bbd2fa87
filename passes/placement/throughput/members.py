"""Each placer of throughput as a function with one signature, and what it can do.

A placer gives a valid split, as the judge sees it, never worse than the start of the budget. It
raises PlacerError for an option that it cannot honour, InfeasiblePlacementError where it finds
nothing that fits (``proven`` if nothing can), WorkloadError for a start that is not valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.clock import now
from baechi_jax.passes.placement.errors import InfeasiblePlacementError, PlacerError
from baechi_jax.passes.placement.partitioning import TOLERANCE, Partitioning, Throughput
from baechi_jax.passes.placement.split import Split
from baechi_jax.passes.placement.throughput.balanced_cut import balanced_cut
from baechi_jax.passes.placement.throughput.bounds import lower_bound
from baechi_jax.passes.placement.throughput.ideals import (
    IdealsOptions,
    IdealsResult,
    solve_ideals,
    solve_linear,
)
from baechi_jax.passes.placement.throughput.local_search import LocalSearchOptions, local_search
from baechi_jax.passes.placement.throughput.milp import solve_milp
from baechi_jax.passes.placement.throughput.pairs import PairOptions, improve_pairs
from baechi_jax.passes.placement.throughput.pipedream import solve_pipedream
from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from baechi_jax.passes.placement.budget import Budget
    from baechi_jax.passes.placement.workload import Workload

#: Placers that give contiguous splits when asked to.
CONTIGUOUS = frozenset(
    ["auto", "ideals", "ideals-linear", "milp-throughput", "one-device", "pairs", "pipedream"]
)
#: Placers that can minimise the sum of the largest forward and the largest backward load;
#: ``multilevel`` minimises neither that nor the largest load.
SUM_OF_MAXIMA = frozenset(
    ["auto", "local-search", "milp-throughput", "multilevel", "one-device", "pairs"]
)
#: Placers that replicate stages.
REPLICAS = frozenset(["auto", "ideals", "ideals-linear", "one-device", "pipedream"])

#: What ``ideals`` proves. A contiguous split can have devices that need each other's results, by
#: different nodes; such splits are rare, and ``milp-throughput`` considers them too.
PIPELINES_ONLY = (
    "optimal among the splits whose devices can be put in an order that all edges follow"
)

#: Topological orders that ``ideals-linear`` tries, rounds of ``local-search`` and solves of
#: ``pairs``, without a limit of steps.
_ORDERS = 8
_ROUNDS = 12
_MANY = 1_000_000


def honours(name: str, objective: Throughput) -> bool:
    """Whether the placer ``name`` can do what ``objective`` asks for."""
    return not _unable(name, objective)


def check_honours(name: str, objective: Throughput) -> None:
    """Raise PlacerError, naming the placers that can, unless ``name`` honours ``objective``."""
    for option, able in _unable(name, objective):
        raise PlacerError(
            f"placer '{name}' cannot honour the option {option}; "
            f"these can: {', '.join(sorted(able))}"
        )


def _unable(name: str, objective: Throughput) -> list[tuple[str, frozenset[str]]]:
    asked = [
        (objective.contiguous, "contiguous", CONTIGUOUS),
        (objective.sum_of_maxima, "sum_of_maxima", SUM_OF_MAXIMA),
        (objective.replicas > 1, "replicas", REPLICAS),
    ]
    return [(option, able) for wanted, option, able in asked if wanted and name not in able]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a placer's run ended, for ``conclude``."""

    status: str = "heuristic"
    #: A bound that the placer itself has proved.
    bound_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    #: Nothing fits, and the placer has proved it.
    proven: bool = False


def conclude(
    name: str,
    workload: Workload,
    objective: Throughput,
    budget: Budget,
    found: Split | None,
    terms: Terms,
) -> Partitioning:
    """The better of ``found`` and the start, judged, with the best bound known."""
    start = check_start(workload, objective, budget)
    bound, rule = lower_bound(workload, objective)
    if found is None and start is None:
        if not np.isfinite(bound):
            why = f"no split exists: the bound by {rule} is infinite"
            raise InfeasiblePlacementError(f"{why}; {_machine(workload)}", proven=True)
        why = "no split exists" if terms.proven else f"'{name}' found no split that fits"
        advice = "; 'milp-throughput' finds one if there is one, given time"
        if name in ("auto", "milp-throughput"):
            advice = "; with more time it finds one if there is one"
        advice = "" if terms.proven else advice
        raise InfeasiblePlacementError(f"{why}: {_machine(workload)}{advice}", proven=terms.proven)
    notes = terms.notes
    value, faults = (np.inf, ()) if found is None else objective.seconds(workload, found)
    assert not faults, (name, faults)
    if start is not None and (found is None or start[1] < value):
        found, value = start
        notes = (*notes, "nothing better than the start was found")
    assert found is not None
    bound = min(max(bound, terms.bound_seconds), value)
    status = terms.status
    if status != "optimal" and value <= bound * (1 + TOLERANCE):
        status = "optimal"
    return Partitioning(name, found, float(value), float(bound), status, notes)


def check_start(
    workload: Workload, objective: Throughput, budget: Budget
) -> tuple[Split, float] | None:
    """The start and its value, or None without one; raises WorkloadError if it is not valid."""
    if budget.start is None:
        return None
    value, faults = objective.seconds(workload, budget.start)
    if faults:
        raise WorkloadError(f"the split to start from is not valid: {faults[0]}")
    return budget.start, value


def _machine(workload: Workload) -> str:
    parts = [
        f"{kind.count} {kind.name} of {kind.memory_bytes:.4g} bytes"
        if np.isfinite(kind.memory_bytes)
        else f"{kind.count} {kind.name}"
        for kind in workload.classes
    ]
    return f"{workload.bytes.sum():.4g} bytes, on {', '.join(parts)}"


def ideals(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """The dynamic program over all ideals; ``steps`` is the most ideals."""
    check_honours("ideals", objective)
    options = _ideals_options(objective, budget)
    if budget.steps is not None:
        options = IdealsOptions(
            options.overlap,
            options.replicas,
            options.replica_bytes_per_second,
            budget.steps,
            seed=budget.seed,
        )
    result = solve_ideals(workload, options)
    terms = Terms()
    if result is not None and result.optimal:
        status = "optimal" if objective.contiguous else "heuristic"
        terms = Terms(status, notes=(PIPELINES_ONLY,))
    elif result is not None:
        terms = Terms("interrupted" if result.interrupted else "time limit")
    return conclude("ideals", workload, objective, budget, _stages(result), terms)


def ideals_linear(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """The dynamic program along topological orders; ``steps`` is the number of orders."""
    check_honours("ideals-linear", objective)
    result = solve_linear(workload, _ideals_options(objective, budget))
    interrupted = result is not None and result.interrupted
    terms = Terms("interrupted" if interrupted else "heuristic")
    return conclude("ideals-linear", workload, objective, budget, _stages(result), terms)


def _ideals_options(objective: Throughput, budget: Budget) -> IdealsOptions:
    return IdealsOptions(
        overlap=objective.overlap,
        replicas=objective.replicas,
        replica_bytes_per_second=objective.replica_bytes_per_second,
        time_limit_seconds=budget.seconds,
        orders=_ORDERS if budget.steps is None else max(1, budget.steps),
        seed=budget.seed,
    )


def _stages(result: IdealsResult | None) -> Split | None:
    return None if result is None else Split(result.device_of, replicas=result.replicas)


def milp_throughput(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """The mixed-integer program; ``steps`` is the most nodes of its search tree.

    Without a start it begins from a quick split, so that there is a result whatever the limits.
    """
    check_honours("milp-throughput", objective)
    deadline = budget.deadline()
    start = first_split(workload, objective, budget)
    result = solve_milp(
        workload,
        objective,
        start=start,
        time_limit_seconds=max(0.0, deadline - now()),
        max_nodes=budget.steps,
        seed=budget.seed,
    )
    if result.device_of is None and result.status == "interrupted":
        raise KeyboardInterrupt
    found = None if result.device_of is None else Split(result.device_of)
    terms = Terms(result.status, result.bound_seconds, proven=result.status == "infeasible")
    return conclude("milp-throughput", workload, objective, budget, found, terms)


def pipedream(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """PipeDream's optimiser; it needs no limits."""
    check_honours("pipedream", objective)
    result = solve_pipedream(
        workload,
        replicas=objective.replicas,
        replica_bytes_per_second=objective.replica_bytes_per_second,
    )
    found = None if result is None else Split(result.device_of, replicas=result.replicas)
    if found is not None and objective.seconds(workload, found)[1]:
        found = None
    return conclude("pipedream", workload, objective, budget, found, Terms())


def multilevel(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """Balanced parts with few transfers; it needs no limits."""
    check_honours("multilevel", objective)
    device_of = balanced_cut(workload, seed=budget.seed)
    found = None if device_of is None else Split(device_of)
    terms = Terms(notes=("minimises the sum of transfers between balanced parts, not loads",))
    return conclude("multilevel", workload, objective, budget, found, terms)


def one_device(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """Everything on the device that is best for it, or replicated over several."""
    check_honours("one-device", objective)
    best: Split | None = None
    least = np.inf
    device = 0
    for kind in workload.classes:
        for copies in range(1, min(kind.count, max(1, objective.replicas)) + 1):
            shared = np.ones(workload.devices, np.int64)
            shared[device] = copies
            split = Split(np.full(workload.size, device, np.int64), replicas=shared)
            value, faults = objective.seconds(workload, split)
            if not faults and value < least:
                best, least = split, value
        device += kind.count
    return conclude("one-device", workload, objective, budget, best, Terms())


def local_search_placer(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """Annealing from the start, or from a quick split; ``steps`` is the number of rounds."""
    check_honours("local-search", objective)
    start = first_split(workload, objective, budget)
    if start is None:
        return conclude("local-search", workload, objective, budget, None, Terms())
    rounds = budget.steps
    if rounds is None:
        rounds = _MANY if np.isfinite(budget.seconds) else _ROUNDS
    options = LocalSearchOptions(
        seed=budget.seed,
        rounds=rounds,
        time_limit_seconds=budget.seconds,
        target_seconds=lower_bound(workload, objective)[0] * (1 + TOLERANCE),
    )
    result = local_search(workload, start, objective, options)
    terms = Terms("interrupted" if result.status == "interrupted" else "heuristic")
    found = Split(result.device_of)
    return conclude("local-search", workload, objective, budget, found, terms)


def pairs(workload: Workload, objective: Throughput, budget: Budget) -> Partitioning:
    """Few devices at a time by exact programs; ``steps`` is the number of programs."""
    check_honours("pairs", objective)
    deadline = budget.deadline()
    start = first_split(workload, objective, budget)
    if start is None:
        return conclude("pairs", workload, objective, budget, None, Terms())
    options = PairOptions(
        seed=budget.seed,
        solves=budget.steps,
        deadline=deadline,
        target_seconds=lower_bound(workload, objective)[0] * (1 + TOLERANCE),
    )
    result = improve_pairs(workload, start, objective, options)
    terms = Terms("interrupted" if result.status == "interrupted" else "heuristic")
    return conclude("pairs", workload, objective, budget, Split(result.device_of), terms)


def first_split(
    workload: Workload, objective: Throughput, budget: Budget
) -> np.typing.NDArray[np.int64] | None:
    """The start of a search, ``[node]``: the budget's, or the best of the quick placers' splits."""
    start = check_start(workload, objective, budget)
    if start is not None:
        return start[0].device_of
    best = None
    least = np.inf
    linear = solve_linear(workload, IdealsOptions(overlap=objective.overlap))
    candidates = [] if linear is None else [linear.device_of]
    cut = balanced_cut(workload, seed=budget.seed)
    candidates += [] if cut is None else [cut]
    candidates += [np.full(workload.size, device) for device in range(workload.devices)]
    for device_of in candidates:
        value, faults = objective.seconds(workload, Split(device_of))
        if not faults and value < least:
            best, least = device_of, value
    return best
