"""What can go wrong when a placed step is called."""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import BaechiError


class ArgumentError(BaechiError, ValueError):
    """An argument of a placed step cannot be used; the message names it by its pytree path."""


class DeviceError(BaechiError):
    """The plan needs devices that this process does not have."""


class CompilationError(BaechiError):
    """XLA refused a task; the message names the task, its device and its source lines."""


class ExecutionError(BaechiError, RuntimeError):
    """A task failed while the step ran.

    The message names the task, its device and its source lines, and says whether donated arguments
    are lost. The task's own error is the ``__cause__``. The decorated function stays usable.
    """


def source_lines(task: Operation, limit: int = 4) -> str:
    """The source lines that a task comes from: ``train.py:12-14, model.py:7``.

    Files in the order in which they appear, each with the span of its lines; at most ``limit``
    files, the rest counted.
    """
    spans: dict[str, tuple[int, int]] = {}
    for op in task.walk():
        location = op.location
        if location.file:
            low, high = spans.get(location.file, (location.line, location.line))
            spans[location.file] = (min(low, location.line), max(high, location.line))
    if not spans:
        return str(task.location)
    texts = [
        f"{file}:{low}" if low == high else f"{file}:{low}-{high}"
        for file, (low, high) in spans.items()
    ]
    rest = f" and {len(texts) - limit} more files" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + rest


def describe_task(task: Operation, device: object) -> str:
    """``task 't3' on cpu:1 (train.py:12-14)``."""
    name = task.attributes.get("sym_name", "?")
    return f"task '{name}' on {device} ({source_lines(task)})"


def execution_error(
    what: str,
    error: BaseException,
    lost: Sequence[str],
    donated: bool,
    planned: str = "",
    broken: Sequence[str] = (),
) -> ExecutionError:
    """The error for a failed step: ``what`` failed with ``error``; ``lost`` arguments are gone.

    ``planned``: a sentence on the memory that the plan reckons with, for when memory ran out.
    ``broken``: arguments that are results of what failed, before any was given away.
    """
    reason = str(error).strip() or type(error).__name__
    if type(error).__name__ == "InternalFloatingPointError":
        # jax_debug_nans and jax_debug_infs; what was found is its last argument.
        reason = f"a result holds {error.args[-1]}"
    if lost:
        state = (
            f"The donated arguments {_some(lost)} were already given away and are lost: restore "
            "them, from a checkpoint for example, before the next call."
        )
    elif broken:
        state = (
            f"The arguments {_some(broken)} were to come from it and hold nothing: restore them, "
            "from a checkpoint for example, before the next call. All others are intact."
        )
    elif donated:
        state = "No donated argument was given away yet: all arguments are intact."
    else:
        state = "All arguments are intact."
    hint = ""
    if "RESOURCE_EXHAUSTED" in reason or "out of memory" in reason.lower():
        hint = (
            f"\nThe device ran out of memory. {planned}Give it a smaller memory_bytes or a larger "
            "reserved_bytes in the topology, so that the plan keeps away from what it really has."
        )
    return ExecutionError(f"{what} failed: {reason}\n{state}{hint}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
