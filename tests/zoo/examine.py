"""One entry of the zoo, placed on four devices and compared with ``jax.jit``.

The limit of each device is a share of the one-device peak: what XLA says that the jitted step
takes, its state donated. The first step is run instruction by instruction, which gives the real
peaks, the others as users run them. Every step's results are compared with those of ``jax.jit``:
structure, types (weak ones too), values.

Values are equal when they differ by no more than the entry's tolerance, relative to the array's
largest. Some arrays are rounding alone: the gradient of a key's bias is zero but for it, and Adam
or Lion make a whole step of its sign. So the jitted step is also run with its inputs changed by
half a unit in the last place; an array that differs in the placed run (root mean square) by little
more than it does there is equal too.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import baechi_jax as baechi
from baechi_jax.ir.core import Module
from baechi_jax.ir.types import TensorType
from baechi_jax.passes.tasks import tasks_of
from tests.zoo.registry import Entry

DEVICES = 4

#: How much more than from half a unit in the last place of its inputs an array may differ: a step
#: rounds in every operation, not only once at its start.
NOISE = 10.0


#: A stack of less is a stack of biases, which may lie together.
STACK_BYTES = 2**18

_REASON = re.compile(r"(\d+% of the work is in one [^.:]+ at \S+:\d+): it cannot be divided")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found about one entry. Peaks are bytes, times seconds.

    Planning is measured by the processor's time, steps by the quickest: other work on the machine
    lengthens both.
    """

    entry: Entry
    equations: int
    tasks: int
    plan_seconds: float
    one_device_bytes: int
    limit_bytes: int
    predicted_bytes: tuple[int, ...]
    actual_bytes: tuple[int, ...]
    predicted_step_seconds: float
    step_seconds: float
    one_device_step_seconds: float
    #: The largest difference of any array from ``jax.jit``'s, relative to its largest value; how
    #: many arrays are equal to within rounding alone; what is wrong.
    difference: float
    noisy: int
    wrong: tuple[str, ...]
    #: The plan's own words.
    summary: str
    devices_used: int

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this outcome is no success; empty when it is one."""
        found = list(self.wrong)
        if max(self.actual_bytes) > self.limit_bytes:
            found.append(f"peak of {max(self.actual_bytes)} over the limit of {self.limit_bytes}")
        if not self.entry.one_device:
            if self.devices_used < 2:
                found.append("everything on one device")
        elif not self.reason:
            found.append("the summary does not say why one device does it all")
        return tuple(found)

    @property
    def reason(self) -> str:
        """Why one device does it all, in the summary's words; empty where it does not say."""
        found = _REASON.search(" ".join(self.summary.split()))
        return found[1] if found else ""


def examine(entry: Entry, *, share: float | None = None, steps: int = 3) -> Outcome:
    """Build ``entry``, place it, run ``steps`` steps of both, compare.

    Raises what planning raises: InfeasiblePlacementError where the limit is too low.
    """
    with entry.settings():
        step, arguments = entry.build()
        return _examine(entry, step, arguments, share or entry.share, steps)


def _examine(
    entry: Entry, step: Any, arguments: tuple[Any, ...], share: float, steps: int
) -> Outcome:
    again = jax.tree.map(lambda array: array.copy(), arguments)  # both runs donate
    jitted, whole = jit_leaves(step, arguments)
    shaken, _ = _run(jitted, shake(arguments), steps)
    wanted, one_device_seconds = _run(jitted, arguments, steps)

    limit = int(share * whole) if not entry.one_device else whole * 3
    topology = baechi.local_topology(memory=limit, devices=jax.devices()[:DEVICES])
    placed = baechi.place(step, topology=topology, donate_argnums=0)
    start = time.process_time()
    lowered = placed.lower(*again)
    plan_seconds = time.process_time() - start
    plan = lowered.plan
    compiled = lowered.compile()
    again = put(again, compiled)
    first, memory = compiled.measure_memory(*again)
    found = [keep(first)]
    rest, step_seconds = _run(placed, (first[0], *again[1:]), steps - 1)
    found += rest
    wrong: list[str] = []
    if entry.layers:
        shardings = compiled.input_shardings[0][0]
        wrong += kept_together(compiled.plan.module, arguments[0], shardings, entry.layers)
    worst, noisy = 0.0, 0
    for number, (one, other, near) in enumerate(zip(wanted, found, shaken, strict=True), 1):
        compared = compare(one, other, near, entry.tolerance)
        wrong += [f"step {number}: {problem}" for problem in compared.problems]
        worst = max(worst, compared.difference)
        noisy = max(noisy, compared.noisy)
    return Outcome(
        entry=entry,
        equations=_count(placed.trace(*again).jaxpr),
        tasks=len(tasks_of(plan.module.main)),
        plan_seconds=plan_seconds,
        one_device_bytes=whole,
        limit_bytes=limit,
        predicted_bytes=plan.peak_bytes,
        actual_bytes=memory.peak_bytes,
        predicted_step_seconds=plan.step_seconds,
        step_seconds=step_seconds,
        one_device_step_seconds=one_device_seconds,
        difference=worst,
        noisy=noisy,
        wrong=tuple(wrong),
        summary=str(plan),
        devices_used=len(plan.devices_used),
    )


def jit_leaves(step: Any, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """``jax.jit(step, donate_argnums=0)``, compiled, and the bytes that it takes on one device.

    Compiled for the leaves: ``jax.jit(step).lower`` builds the classes of the arguments around what
    is no array, which jmp's refuse.
    """
    leaves, tree = jax.tree.flatten(arguments)
    structure: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        found, result_tree = jax.tree.flatten(step(*jax.tree.unflatten(tree, leaves)))
        structure[:] = [result_tree]
        return found

    donated = tuple(range(len(jax.tree.leaves(arguments[0]))))
    compiled = jax.jit(flat, donate_argnums=donated).lower(*leaves).compile()
    stats = compiled.memory_analysis()
    nbytes = (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
    )

    def run(*arguments: Any) -> Any:
        return jax.tree.unflatten(structure[0], compiled(*jax.tree.leaves(arguments)))

    return run, int(nbytes)


def put(arguments: tuple[Any, ...], compiled: Any) -> tuple[Any, ...]:
    """``arguments`` where a compiled step wants them."""
    try:
        shardings = compiled.input_shardings[0]
    except TypeError:  # a class of the state refuses leaves that are no arrays, as jmp's do
        leaves, tree = jax.tree.flatten(arguments)
        wanted = compiled.program.arguments[-len(leaves) :]
        devices = jax.devices()
        moved = [jax.device_put(leaf, devices[w.device]) for leaf, w in zip(leaves, wanted)]
        return tuple(jax.tree.unflatten(tree, moved))
    return tuple(baechi.device_put(arguments, shardings))


def kept_together(module: Module, state: Any, shardings: Any, layers: int) -> list[str]:
    """What is left of a scan over ``layers`` layers, which a plan should have taken apart.

    A scan over all layers; a stack of ``state`` that lies on one device; an operation that makes a
    stack of such a shape. ``shardings``: where the plan wants the leaves of ``state``.
    """
    stacks = {
        jax.tree_util.keystr(path): (leaf, sharding)
        for (path, leaf), sharding in zip(
            jax.tree_util.tree_leaves_with_path(state),
            jax.tree.leaves(shardings),
            strict=True,
        )
        if leaf.shape[:1] == (layers,) and leaf.nbytes >= STACK_BYTES
    }
    if not stacks:
        return [f"the state has no stacks of {layers} layers"]
    problems = [
        f"{path} lies whole on one device"
        for path, (_, sharding) in stacks.items()
        if len(sharding.device_set) == 1
    ]
    shapes = {leaf.shape for leaf, _ in stacks.values()}
    for op in module.main.walk():
        if op.name == "jax.scan" and op.attributes["length"] == layers:
            problems.append(f"a scan over all layers at {op.location}")
        problems += [
            f"a stack of all layers, {result.type} at {op.location}"
            for result in op.results
            if isinstance(result.type, TensorType) and result.type.shape in shapes
        ]
    return problems


def _run(function: Any, arguments: tuple[Any, ...], steps: int) -> tuple[list[Any], float]:
    """The results of ``steps`` steps in a row, and the seconds of the quickest."""
    kept, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        results = jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
        kept.append(keep(results))
        arguments = (results[0], *arguments[1:])
    return kept, min(seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is wrong; the largest difference of arrays that are equal; how many are noise."""

    problems: tuple[str, ...]
    difference: float
    noisy: int


def compare(wanted: KeptTree, found: KeptTree, near: KeptTree, tolerance: float) -> Comparison:
    """Compare results; ``near`` is ``wanted`` from slightly other inputs."""
    if found.structure != wanted.structure:
        return Comparison((f"structure {found.structure}, not {wanted.structure}",), 0.0, 0)
    problems: list[str] = []
    worst, noisy = 0.0, 0
    for where, one, other, third in zip(
        wanted.paths, wanted.leaves, found.leaves, near.leaves, strict=True
    ):
        if one.type != other.type:
            problems.append(f"{where} is {other.type}, not {one.type}")
            continue
        difference = _difference(one.value, other.value)
        top = float(difference.max(initial=0.0))
        if top <= tolerance:
            worst = max(worst, top)
        elif _root_mean_square(difference) <= NOISE * _root_mean_square(
            _difference(one.value, third.value)
        ):
            noisy += 1
        else:  # also where it is no number
            problems.append(f"{where} {one.type} differs by {top:.2g} of its largest value")
    return Comparison(tuple(problems), worst, noisy)


def shake(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of ``arguments``, each float changed by at most half a unit in its last place."""
    random = np.random.default_rng(0)

    def one(array: Any) -> Any:
        if not jnp.issubdtype(array.dtype, jnp.floating) or array.weak_type:
            return array.copy()
        eps = float(jnp.finfo(array.dtype).eps)
        change = random.uniform(-eps, eps, array.shape)
        return jnp.asarray(np.asarray(array, np.float64) * (1 + change), array.dtype)

    return jax.tree.map(one, arguments)


def _root_mean_square(difference: np.ndarray) -> float:
    return float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0


class Kept:
    """An array of a result, on the host, with its type."""

    __slots__ = ("type", "value")

    def __init__(self, array: Any) -> None:
        weak = " weak" if getattr(array, "weak_type", False) else ""
        self.type = f"{array.dtype}{list(array.shape)}{weak}"
        self.value = np.asarray(_raw(array)).copy()


@dataclass(frozen=True, slots=True)
class KeptTree:
    """A result, on the host. No tree: classes of the state may refuse what is no array."""

    structure: Any
    paths: tuple[str, ...]
    leaves: tuple[Kept, ...]


def keep(results: Any) -> KeptTree:
    """A copy of ``results``."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(results)
    paths = tuple(jax.tree_util.keystr(path) for path, _ in leaves)
    return KeptTree(structure, paths, tuple(Kept(leaf) for _, leaf in leaves))


def _difference(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Elementwise, relative to the largest value; exact for what are no floats."""
    if left.dtype.kind not in "fcV" and not jnp.issubdtype(left.dtype, jnp.floating):
        return (left != right).astype(np.float64)
    wide = np.complex128 if left.dtype.kind == "c" else np.float64
    left, right = left.astype(wide), right.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    scale = max(float(np.abs(left[np.isfinite(left)]).max(initial=0.0)), 1e-12)
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.abs(left - right) / scale)


def _raw(array: Any) -> Any:
    """A random key's data; any other array itself."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(array)
    return array


def _count(jaxpr: Any) -> int:
    """The equations of a jaxpr, those of jaxprs inside included."""
    total = 0
    for eqn in jaxpr.eqns:
        total += 1
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns"):
                    total += _count(inner)
    return total
