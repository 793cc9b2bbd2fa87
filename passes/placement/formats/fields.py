"""Typed access to the fields of a JSON file, with errors that say where in the file they are."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.workload import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

#: How a file of gzip's begins.
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object somewhere in ``file``; ``where`` is its path, empty for the whole file."""

    values: Mapping[str, object]
    file: str
    where: str = ""

    def fault(self, name: str, reason: str) -> WorkloadError:
        """The error to raise about field ``name``."""
        path = f"{self.where}.{name}" if self.where and name else self.where or name
        return WorkloadError(f"{self.file}: {path}: {reason}" if path else f"{self.file}: {reason}")

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str) -> object:
        """Field ``name``; raises WorkloadError if it is missing."""
        if name not in self.values:
            known = ", ".join(sorted(self.values)) or "none"
            raise self.fault(name, f"the field is missing (fields here: {known})")
        return self.values[name]

    def number(
        self, name: str, default: float | None = None, *, least: float | None = 0.0
    ) -> float:
        """A finite number of at least ``least``."""
        if default is not None and name not in self:
            return default
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(name, f"expected a number, found {_shown(value)}")
        if not math.isfinite(value):
            raise self.fault(name, f"expected a finite number, found {value}")
        if least is not None and value < least:
            raise self.fault(name, f"expected at least {least:g}, found {value}")
        return float(value)

    def integer(self, name: str, default: int | None = None, *, least: int | None = None) -> int:
        """A whole number of at least ``least``."""
        if default is not None and name not in self:
            return default
        value = self.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(name, f"expected a whole number, found {_shown(value)}")
        if least is not None and value < least:
            raise self.fault(name, f"expected at least {least}, found {value}")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """true, false, 1 or 0."""
        if default is not None and name not in self:
            return default
        value = self.get(name)
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise self.fault(name, f"expected true, false, 1 or 0, found {_shown(value)}")

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        if default is not None and name not in self:
            return default
        value = self.get(name)
        if not isinstance(value, str):
            raise self.fault(name, f"expected text, found {_shown(value)}")
        return value

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects of a list."""
        value = self.get(name)
        if not isinstance(value, list):
            raise self.fault(name, f"expected a list, found {_shown(value)}")
        for index, each in enumerate(value):
            if not isinstance(each, dict):
                raise self.fault(f"{name}[{index}]", f"expected an object, found {_shown(each)}")
            yield self.inside(f"{name}[{index}]", each)

    def nested(self, name: str) -> Fields:
        """An object."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise self.fault(name, f"expected an object, found {_shown(value)}")
        return self.inside(name, value)

    def integers(self, name: str) -> list[int]:
        """A list of whole numbers."""
        value = self.get(name)
        if not isinstance(value, list):
            raise self.fault(name, f"expected a list, found {_shown(value)}")
        for index, each in enumerate(value):
            if isinstance(each, bool) or not isinstance(each, int):
                raise self.fault(
                    f"{name}[{index}]", f"expected a whole number, found {_shown(each)}"
                )
        return value

    def inside(self, name: str, values: Mapping[str, object]) -> Fields:
        """An object within this one."""
        return Fields(values, self.file, f"{self.where}.{name}" if self.where else name)


def load_text(path: str | Path) -> str:
    """The text of a file, unpacked if it is gzip's; raises WorkloadError where it is unreadable."""
    try:
        content = Path(path).read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path}: cannot be unpacked: {error}") from error
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: is not UTF-8 text: {error.reason}") from error


def parse_object(text: str, file: str) -> Fields:
    """The JSON object that ``text`` is; raises WorkloadError with line and column otherwise."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f"{file}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    except RecursionError as error:
        raise WorkloadError(f"{file}: not a workload: nested too deeply") from error
    if not isinstance(value, dict):
        raise WorkloadError(f"{file}: expected a JSON object, found {_shown(value)}")
    return Fields(value, file)


def index_of_ids(ids: Sequence[int], nodes: Sequence[Fields]) -> dict[int, int]:
    """The index of each identifier; raises WorkloadError where one is used twice."""
    index: dict[int, int] = {}
    for position, (each, node) in enumerate(zip(ids, nodes)):
        if each in index:
            raise node.fault("id", f"{each} is used already by {nodes[index[each]].where}")
        index[each] = position
    return index


def edge_ends(edge: Fields, index: Mapping[int, int], source: str, target: str) -> tuple[int, int]:
    """Indices of the nodes at the ends of ``edge``."""
    ends = []
    for name in (source, target):
        each = edge.integer(name)
        if each not in index:
            raise edge.fault(name, f"there is no node with id {each}")
        ends.append(index[each])
    if ends[0] == ends[1]:
        raise edge.fault(target, f"the edge joins node {edge.integer(target)} to itself")
    return ends[0], ends[1]


def edge_array(edges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Distinct edges, sorted, ``[edge, 2]``."""
    if not edges:
        return np.zeros((0, 2), np.int64)
    return np.unique(np.array(edges, np.int64), axis=0)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
