"""What ``place`` is given, read and checked before anything is traced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from baechi_jax.ir.topology import Topology
from baechi_jax.passes.pipeline import parse_pipeline, print_pipeline
from baechi_jax.passes.placement.auto import PLACERS
from baechi_jax.passes.placement.errors import PlacerError
from baechi_jax.passes.registry import Pass, suggestion
from baechi_jax.plan import Plan
from baechi_jax.planner import pipeline_text
from baechi_jax.profiled import ProfileOptions

#: The most that measuring takes unless the caller says otherwise.
PROFILE_SECONDS = 30.0


def topology_option(given: Topology | str | Path | None) -> Topology | None:
    """A topology, or the one in a file; raises TopologyError for a file that holds none."""
    if given is None or isinstance(given, Topology):
        return given
    if isinstance(given, str | Path):
        return Topology.load(given)
    raise TypeError(f"topology must be a Topology or a file's path, found {type(given).__name__}")


def plan_option(given: Plan | str | Path | None) -> Plan | None:
    """A plan, or the one in a file; raises PlanFileError for a file that holds none."""
    if given is None or isinstance(given, Plan):
        return given
    if isinstance(given, str | Path):
        return Plan.load(given)
    raise TypeError(f"plan must be a Plan or a file's path, found {type(given).__name__}")


def pipeline_option(pipeline: str | Sequence[Pass] | None, placer: str) -> str:
    """The text of the pipeline to run; raises PipelineError or PlacerError for unknown names."""
    if pipeline is None:
        if not isinstance(placer, str):
            raise TypeError(f"placer must be a string, found {placer!r}")
        # "single:2" is device 2 alone.
        if placer.partition(":")[0] not in PLACERS:
            raise PlacerError(f"unknown placer '{placer}'{suggestion(placer, PLACERS)}")
        text = pipeline_text(placer)
    elif isinstance(pipeline, str):
        text = pipeline
    else:
        text = print_pipeline(pipeline)
    parse_pipeline(text)
    return text


def devices_option(given: Sequence[jax.Device] | None) -> tuple[jax.Device, ...] | None:
    """The devices to run on."""
    if given is None:
        return None
    if isinstance(given, jax.Device):
        raise TypeError(f"devices must be a sequence of JAX devices, found {given!r} alone")
    chosen = tuple(given)
    for device in chosen:
        if not isinstance(device, jax.Device):
            raise TypeError(
                f"devices must hold JAX devices, such as jax.devices()[:2], found {device!r}"
            )
    if not chosen:
        raise ValueError("devices is empty; name at least one, or leave the option out for all")
    return chosen


def folder_option(given: str | Path | None, name: str) -> Path | None:
    """A folder that is there or can be made."""
    if given is None:
        return None
    folder = Path(given)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{name} must be a folder, and {folder} is a file")
    return folder


def costs_option(
    costs: str,
    seconds: float,
    folder: str | Path | None,
    progress: bool | None,
    compiler_options: tuple[tuple[str, Any], ...],
) -> ProfileOptions | None:
    """How to measure; None where the model alone is asked for."""
    if costs not in ("analytic", "profile"):
        hint = suggestion(costs, ("analytic", "profile")) if isinstance(costs, str) else ""
        raise ValueError(f"costs must be 'analytic' or 'profile', found {costs!r}{hint}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"profile_seconds must be a number of seconds, found {seconds!r}")
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"profile_seconds must be finite and not negative, found {seconds}")
    if costs == "analytic":
        if folder is not None or seconds != PROFILE_SECONDS:
            option = "profile_seconds" if folder is None else "profile_folder"
            raise ValueError(f"{option} is only for costs='profile'; the model measures nothing")
        return None
    return ProfileOptions(
        float(seconds),
        folder=folder_option(folder, "profile_folder"),
        progress=progress,
        compiler_options=compiler_options,
    )
