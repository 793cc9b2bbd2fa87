"""What ``FILE.py:NAME`` on the command line means: a function in a file, and example arguments.

The file is imported as a module of its own, its folder first on ``sys.path``, as Python does for a
script. The arguments come from ``NAME_args()`` in the same file, or from ``example_args()``: a
tuple with the function's positional arguments, arrays or ``jax.ShapeDtypeStruct``.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from baechi_jax.ir.errors import BaechiError
from baechi_jax.passes.registry import suggestion

if TYPE_CHECKING:
    from baechi_jax.ir.topology import Topology
    from baechi_jax.place import PlacedFunction


class TargetError(BaechiError):
    """``FILE.py:NAME`` cannot be used: no such file or name, not a function, no arguments."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function and the arguments to plan it for."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def load_target(text: str) -> Target:
    """Import the file of ``FILE.py:NAME`` and find the function and its example arguments.

    Raises TargetError saying what is missing and how to provide it. An exception of the file's own
    code passes through.
    """
    path_text, separator, name = text.rpartition(":")
    if not separator or not path_text or not name.isidentifier():
        raise TargetError(f"'{text}' is not FILE.py:NAME, such as train.py:train_step")
    path = Path(path_text)
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    module = _import(path)
    function = getattr(module, name, None)
    if function is None:
        raise TargetError(f"{path} has no '{name}'{_functions(module, name)}")
    if not callable(function):
        raise TargetError(f"'{name}' in {path} is a {type(function).__name__}, not a function")
    return Target(name, function, _arguments(module, path, name))


def place_target(
    target: Target,
    *,
    topology: Topology,
    placer: str,
    pipeline: str | None = None,
    donate_argnums: tuple[int, ...] | None,
    dump_folder: Path | None = None,
    **options: Any,
) -> PlacedFunction:
    """The target's function, placed anew for ``topology``.

    What ``jax.jit`` or ``baechi.place`` was told about the function's arguments is kept, unless
    ``donate_argnums`` is given. ``options`` are more of those of ``place``.
    """
    from baechi_jax.place import PlacedFunction, place

    function = target.function
    given: dict[str, Any] = {}
    if isinstance(function, PlacedFunction):
        given = function._signature.jit_options
        function = function._fn
    if donate_argnums is not None:
        given = {**given, "donate_argnums": donate_argnums, "donate_argnames": None}
    placed = place(
        function,
        topology=topology,
        placer=placer,
        pipeline=pipeline,
        dump_folder=dump_folder,
        **options,
        **given,
    )
    assert isinstance(placed, PlacedFunction)
    return placed


def _import(path: Path) -> ModuleType:
    # A name that something else has (json.py) must not replace that module.
    name = path.stem if path.stem not in sys.modules else f"baechi_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file; expected FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _functions(module: ModuleType, name: str) -> str:
    known = [
        key
        for key, value in vars(module).items()
        if callable(value)
        and not key.startswith("_")
        and not inspect.isclass(value)
        and getattr(value, "__module__", None) == module.__name__
    ]
    return suggestion(name, known) or f"; its functions: {', '.join(known) or 'none'}"


def _arguments(module: ModuleType, path: Path, name: str) -> tuple[Any, ...]:
    for candidate in (f"{name}_args", "example_args"):
        maker = getattr(module, candidate, None)
        if maker is None:
            continue
        arguments = maker()
        if not isinstance(arguments, tuple):
            raise TargetError(
                f"{candidate}() in {path} must return a tuple with the arguments of '{name}', "
                f"found {type(arguments).__name__}"
            )
        return arguments
    raise TargetError(
        f"{path} does not say what to call '{name}' with: add a function '{name}_args()' or "
        "'example_args()' that returns a tuple of its arguments, arrays or jax.ShapeDtypeStruct"
    )
