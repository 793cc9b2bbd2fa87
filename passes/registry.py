"""What a pass is, and how one is found by name.

A pass is a frozen dataclass whose fields are its options. Pass ``fuse-tasks`` is class
``FuseTasks`` in ``passes/fuse_tasks.py``; it is imported when its name is first asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar

from baechi_jax.ir.core import Module


class Pass(ABC):
    """A transformation of a module, in place.

    ``name`` is the name in pipelines; ``summary`` is one line for ``--list-passes``. Options are
    the dataclass fields of the subclass (``bool``, ``int``, ``float``, ``str`` or a tuple of
    these); in a pipeline they are written ``name{option=value other-option=value}``.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def run(self, module: Module) -> None:
        """Transform ``module``; every decision becomes an attribute or an op of it."""


_P = TypeVar("_P", bound=type[Pass])

#: Passes that have been imported, by name.
REGISTERED_PASSES: dict[str, type[Pass]] = {}


def register_pass(cls: _P) -> _P:
    """Class decorator: make the pass known by its ``name``."""
    REGISTERED_PASSES[cls.name] = cls
    return cls
