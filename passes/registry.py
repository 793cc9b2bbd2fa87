"""What a pass is, and how one is found by name.

A pass is a frozen dataclass whose fields are its options. Pass ``fuse-tasks`` is class
``FuseTasks`` in ``passes/fuse_tasks.py``; it is imported when its name is first asked for, so that
a pipeline pays only for the passes in it.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import PassError, PipelineError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Pass(ABC):
    """A transformation of a module, in place.

    ``name`` is the name in pipelines; ``summary`` is one line for ``--list-passes``. Options are
    the dataclass fields of the subclass (``bool``, ``int``, ``float``, ``str``, a tuple of one of
    these, or one of these ``| None``); in a pipeline they are written
    ``name{option=value other-option=value}``.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def run(self, module: Module) -> None:
        """Transform ``module``; every decision becomes an attribute or an op of it."""


_P = TypeVar("_P", bound=type[Pass])

#: Passes that have been imported, by name.
REGISTERED_PASSES: dict[str, type[Pass]] = {}

_PASS_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def register_pass(cls: _P) -> _P:
    """Class decorator: make the pass known by its ``name``.

    Raises PassError when the name is not kebab-case, or when another module has taken it.
    """
    if not _PASS_NAME.fullmatch(cls.name):
        raise PassError(f"pass name '{cls.name}' of {cls.__qualname__} is not kebab-case")
    other = REGISTERED_PASSES.get(cls.name)
    if other is not None and other.__module__ != cls.__module__:
        raise PassError(
            f"two passes are named '{cls.name}': {other.__module__}.{other.__qualname__} and "
            f"{cls.__module__}.{cls.__qualname__}"
        )
    REGISTERED_PASSES[cls.name] = cls
    return cls


def find_pass(name: str) -> type[Pass]:
    """The pass called ``name``, imported if need be.

    Raises PipelineError, with the closest names, when there is none. An error in the pass's own
    module is raised as it is.
    """
    if name not in REGISTERED_PASSES and _PASS_NAME.fullmatch(name):
        module = name.replace("-", "_")
        if module in _module_names():
            _import(module)
    cls = REGISTERED_PASSES.get(name)
    if cls is None:
        known = [each.name for each in all_passes()]
        raise PipelineError(f"unknown pass '{name}'" + suggestion(name, known))
    return cls


def all_passes() -> tuple[type[Pass], ...]:
    """Every pass there is, by name: those of this package and those registered from elsewhere."""
    for module in _module_names():
        _import(module)
    return tuple(REGISTERED_PASSES[name] for name in sorted(REGISTERED_PASSES))


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'fuse-tasks'?`` with the closest of ``known``; else what there is."""
    import difflib

    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=3)
    if close:
        return "; did you mean " + " or ".join(f"'{choice}'" for choice in close) + "?"
    return f"; there are: {', '.join(choices)}" if choices else ""


def _module_names() -> tuple[str, ...]:
    """Modules of this package that may hold a pass."""
    import pkgutil

    import baechi_jax.passes

    return tuple(
        sorted(
            module.name
            for module in pkgutil.iter_modules(baechi_jax.passes.__path__)
            if not module.ispkg and not module.name.startswith("_")
        )
    )


def _import(module: str) -> None:
    import importlib

    importlib.import_module(f"baechi_jax.passes.{module}")


# Options -------------------------------------------------------------------------------------

#: The scalar types of options, by the name that messages give them.
SCALARS: dict[str, type[bool] | type[int] | type[float] | type[str]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
}

OptionValue = bool | int | float | str | tuple[bool | int | float | str, ...] | None


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass: a dataclass field, seen from the text of a pipeline.

    ``name`` is ``max-tasks`` where the field is ``max_tasks``; ``scalar`` is a key of ``SCALARS``,
    the type of the value or, with ``is_tuple``, of its elements.
    """

    name: str
    field: str
    scalar: str
    is_tuple: bool
    is_optional: bool
    default: OptionValue
    required: bool

    @property
    def type_name(self) -> str:
        """The type as messages show it: ``int``, ``tuple of str``, ``float or none``."""
        name = f"tuple of {self.scalar}" if self.is_tuple else self.scalar
        return f"{name} or none" if self.is_optional else name


def options_of(cls: type[Pass]) -> dict[str, Option]:
    """The options of a pass by kebab-case name, in the order of its fields.

    Raises PassError for a pass that is not a frozen dataclass, or a field of a type that has no
    text form: both are mistakes in the pass.
    """
    # A subclass of a dataclass inherits its fields, but its own annotations would not be options.
    parameters = vars(cls).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise PassError(f"pass '{cls.name}': {cls.__qualname__} must be a frozen dataclass")
    options: dict[str, Option] = {}
    for field in dataclasses.fields(cast("type[DataclassInstance]", cls)):
        if not field.init:
            continue
        option = _option(cls, field)
        options[option.name] = option
    return options


_OPTION_TYPE = re.compile(
    r"(?:(?P<scalar>bool|int|float|str)|tuple\[(?P<element>bool|int|float|str), \.\.\.\])"
    r"(?P<optional> \| None)?"
)


def _option(cls: type[Pass], field: dataclasses.Field[OptionValue]) -> Option:
    # Annotations are read as text: resolving them would import whatever else the module names.
    annotation: object = field.type
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        text = annotation.__name__
    else:
        text = str(annotation)
    match = _OPTION_TYPE.fullmatch(text)
    if match is None:
        raise PassError(
            f"pass '{cls.name}': field '{field.name}' has type {text}; options are bool, int, "
            "float, str, tuple[int, ...] and the like, or one of these | None"
        )
    default: OptionValue = None
    required = False
    if field.default is not MISSING:
        default = field.default
    elif field.default_factory is not MISSING:
        default = field.default_factory()
    else:
        required = True
    return Option(
        name=field.name.replace("_", "-"),
        field=field.name,
        scalar=match["scalar"] or match["element"],
        is_tuple=match["element"] is not None,
        is_optional=match["optional"] is not None,
        default=default,
        required=required,
    )
