"""Measured costs on disk: one JSON file for each environment that times depend on.

An environment is a kind of device, the releases of JAX and of its backend, and the compiler's
options; for CPUs also the processor and how many cores there are. Its file holds tasks by
structural fingerprint and links by name::

    {"format": "baechi-measured-costs", "version": 1, "environment": {...},
     "tasks": {"<fingerprint>": {"name": "t3", "seconds": 0.0012, "samples": 5, "spread": 0.03,
                                 "families": {"matmul": 0.001}}},
     "links": {"cpu/shared to cpu/shared": {"latency_seconds": 2e-5, "bytes_per_second": 3e9}}}

``families`` are the analytic seconds of each family in the task, to which a model is fitted. A file
is written under a temporary name and renamed, after what another process has written meanwhile has
been read and joined, under a lock; so a reader sees all of it, and nobody's entries are lost. A
file that is truncated, foreign or of a newer release is an error, never an empty cache: it may be
somebody's.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baechi_jax.ir.errors import BaechiError
from baechi_jax.ir.files import write_text_atomically

if TYPE_CHECKING:
    import jax

FORMAT, VERSION = "baechi-measured-costs", 1


class CostCacheError(BaechiError):
    """A file of measured costs cannot be trusted, or not be written; the message says why."""


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One measured task."""

    seconds: float
    samples: int
    spread: float
    families: Mapping[str, float]
    name: str = ""


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One measured link."""

    latency_seconds: float
    bytes_per_second: float


@dataclass(slots=True)
class Costs:
    """What is known for one environment."""

    tasks: dict[str, TaskEntry] = field(default_factory=dict)
    links: dict[str, LinkEntry] = field(default_factory=dict)


def default_folder() -> Path:
    """``baechi_jax/costs`` in the user's cache folder, as the XDG specification has it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "baechi_jax" / "costs"


def environment_of(
    device: jax.Device, compiler_options: tuple[tuple[str, Any], ...] = ()
) -> dict[str, str]:
    """All that times on ``device`` depend on, apart from the task."""
    from importlib.metadata import version

    import jax

    environment = {
        "device": device.device_kind,
        "platform": device.platform,
        "backend": device.client.platform_version,
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "xla_flags": _flags(os.environ.get("XLA_FLAGS", "")),
        "compiler_options": repr(sorted((key, repr(value)) for key, value in compiler_options)),
    }
    if device.platform == "cpu":
        environment["processor"] = _processor()
    return environment


def _flags(text: str) -> str:
    """The flags, without the number of virtual devices, which changes no time."""
    kept = [f for f in text.split() if "xla_force_host_platform_device_count" not in f]
    return " ".join(sorted(kept))


def _processor() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
        model = found.group(1) if found else ""
    except OSError:
        import platform

        model = platform.processor()
    return f"{model or 'unknown'}, {cores} cores"


class CostCache:
    """The file of one environment in ``folder``."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        text = json.dumps(self.environment, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        kind = re.sub(r"[^a-z0-9]+", "-", self.environment["device"].lower()).strip("-")
        self.path = folder / f"{kind or 'device'}-{digest}.json"

    def load(self) -> Costs:
        """What the file holds; nothing where there is none. Raises CostCacheError."""
        if not self.path.exists():
            return Costs()
        costs, environment = read_costs(self.path)
        if environment != self.environment:
            raise CostCacheError(
                f"{self.path} holds costs of another environment ({environment}); it was "
                "renamed or copied. Delete it, or give another folder"
            )
        return costs

    def add(self, new: Costs) -> Costs:
        """Join ``new`` with what the file holds, newer measurements first; returns all of it.

        Raises CostCacheError when the file cannot be trusted, or not be written.
        """
        try:
            with _locked(self.path):
                costs = self.load()
                costs.tasks.update(new.tasks)
                costs.links.update(new.links)
                write_text_atomically(self.path, _text(costs, self.environment))
        except OSError as error:
            raise CostCacheError(
                f"cannot write measured costs to {self.path}: {error}; give another folder"
            ) from error
        return costs


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from joining at the same time; where nothing can lock, one may lose."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_suffix(".lock"), "a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)


def _text(costs: Costs, environment: Mapping[str, str]) -> str:
    data = {
        "format": FORMAT,
        "version": VERSION,
        "environment": dict(environment),
        "tasks": {key: asdict(entry) for key, entry in costs.tasks.items()},
        "links": {key: asdict(entry) for key, entry in costs.links.items()},
    }
    return json.dumps(data, indent=1) + "\n"


# Reading ------------------------------------------------------------------------------------------


def cache_files(folder: Path) -> list[Path]:
    """The files of measured costs in ``folder``, by name."""
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def is_ours(path: Path) -> bool:
    """Whether ``path`` was written here: by any release, perhaps cut off since."""
    try:
        with open(path, encoding="utf-8") as stream:
            start = stream.read(200)
    except (OSError, UnicodeDecodeError):
        return False
    return f'"format": "{FORMAT}"' in start


def read_costs(path: Path) -> tuple[Costs, dict[str, str]]:
    """What a file holds, and of which environment. Raises CostCacheError saying what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CostCacheError(f"cannot read measured costs from {path}: {error}") from error
    except json.JSONDecodeError as error:
        raise CostCacheError(
            f"{path} is no file of measured costs, or was cut off: {error}. Delete it, or give "
            "another folder"
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CostCacheError(
            f'{path} is no file of measured costs: it lacks "format": "{FORMAT}". Move it away, or '
            "give another folder"
        )
    if data.get("version") != VERSION:
        raise CostCacheError(
            f"{path} has version {data.get('version')!r}, this release reads {VERSION}; delete it, "
            "or give another folder"
        )
    try:
        environment = {str(k): str(v) for k, v in _mapping(data, "environment").items()}
        tasks = {str(k): _task(v, k) for k, v in _mapping(data, "tasks").items()}
        links = {str(k): _link(v, k) for k, v in _mapping(data, "links").items()}
    except _WrongError as error:
        raise CostCacheError(f"{path}: {error}. Delete it, or give another folder") from error
    return Costs(tasks, links), environment


class _WrongError(Exception):
    """What is wrong with a file, without its name."""


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    if not isinstance(found, dict):
        raise _WrongError(f"'{key}' must be an object, found {found!r}")
    return found


def _task(row: object, key: str) -> TaskEntry:
    if not isinstance(row, dict):
        raise _WrongError(f"tasks['{key}'] must be an object, found {row!r}")
    families = row.get("families")
    if not isinstance(families, dict):
        raise _WrongError(f"tasks['{key}'].families must be an object, found {families!r}")
    where = f"tasks['{key}']"
    return TaskEntry(
        _number(row, "seconds", where),
        int(_number(row, "samples", where)),
        _number(row, "spread", where),
        {str(name): _number(families, name, f"{where}.families") for name in families},
        str(row.get("name", "")),
    )


def _link(row: object, key: str) -> LinkEntry:
    if not isinstance(row, dict):
        raise _WrongError(f"links['{key}'] must be an object, found {row!r}")
    where = f"links['{key}']"
    bandwidth = _number(row, "bytes_per_second", where)
    if not bandwidth:
        raise _WrongError(f"{where}.bytes_per_second must be positive")
    return LinkEntry(_number(row, "latency_seconds", where), bandwidth)


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _WrongError(f"{where}.{key} must be a number, found {value!r}")
    if not 0 <= value < math.inf:
        raise _WrongError(f"{where}.{key} must be finite and not negative, found {value!r}")
    return float(value)
