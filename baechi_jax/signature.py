"""How a call is split into what is traced and what is not, as ``jax.jit`` does it.

Assumption: as for ``jax.jit``, static arguments are hashable and compare by value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any


class Signature:
    """The static and donated arguments of ``fn``, by number and by name.

    A number or a name stands for both where ``fn``'s signature tells the other. Raises TypeError
    for an entry of the wrong type and ValueError for an argument that ``fn`` does not have.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
    ) -> None:
        parameters = _parameters(fn)
        self._positional = _positional(parameters or {})
        self.static_argnums, self.static_argnames = _resolve(
            parameters, "static", static_argnums, static_argnames
        )
        self.donate_argnums, self.donate_argnames = _resolve(
            parameters, "donate", donate_argnums, donate_argnames
        )
        both = [name for name in self.donate_argnames if name in self.static_argnames]
        clash = [number for number in self.donate_argnums if number in self.static_argnums]
        if both or clash:
            raise ValueError(
                f"argument {both[0] if both else clash[0]} is both static and donated; a static "
                "argument has no buffer to give away"
            )
        self._has_static = bool(self.static_argnums or self.static_argnames)

    @property
    def jit_options(self) -> dict[str, Any]:
        """Keyword arguments of ``jax.jit``, donation included."""
        return {
            **self.static_options,
            "donate_argnums": self.donate_argnums,
            "donate_argnames": self.donate_argnames,
        }

    @property
    def static_options(self) -> dict[str, Any]:
        """Keyword arguments of ``jax.jit``, without donation."""
        return {"static_argnums": self.static_argnums, "static_argnames": self.static_argnames}

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], Hashable]:
        """``((args, kwargs), static)``: what is traced, and a key of what is not.

        Raises ValueError naming a static argument that cannot be hashed.
        """
        if not self._has_static:
            return (args, kwargs), None
        count = len(args)
        numbers = self._static_numbers(count)
        static: list[Hashable] = []
        for number in sorted(numbers):
            if number < count:
                static.append((number, *_hashed(args[number], f"argument {number}")))
        dynamic = tuple(arg for number, arg in enumerate(args) if number not in numbers)
        named: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in self.static_argnames:
                static.append((name, *_hashed(value, f"argument '{name}'")))
            else:
                named[name] = value
        # Keyword arguments in another order are the same call.
        return (dynamic, named), tuple(sorted(static, key=str))

    def restore(self, args: tuple[Any, ...], dynamic: tuple[Any, ...]) -> tuple[Any, ...]:
        """``dynamic`` (one entry per traced positional argument) with None for static ones."""
        numbers = self._static_numbers(len(args))
        rest = iter(dynamic)
        return tuple(None if number in numbers else next(rest) for number in range(len(args)))

    def map_traced(
        self, change: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``(args, kwargs)`` with ``change`` of each leaf of what is traced."""
        from jax import tree

        numbers = self._static_numbers(len(args))
        changed = tuple(
            arg if number in numbers else tree.map(change, arg) for number, arg in enumerate(args)
        )
        named = {
            name: value if name in self.static_argnames else tree.map(change, value)
            for name, value in kwargs.items()
        }
        return changed, named

    def no_array(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_wrong: Callable[[Any], bool],
        error: TypeError,
    ) -> TypeError:
        """``error`` with the path of the first leaf that ``is_wrong``, and what to do about it."""
        from jax.tree_util import keystr, tree_leaves_with_path

        (traced, named), _ = self.split(args, kwargs)
        numbers = [n for n in range(len(args)) if n not in self._static_numbers(len(args))]
        for (part, place, *path), leaf in tree_leaves_with_path((traced, named)):
            if not is_wrong(leaf):
                continue
            if part.idx == 0:
                number = numbers[place.idx]
                known = number < len(self._positional)
                root = self._positional[number] if known else f"args[{number}]"
                static = f"static_argnums={number}"
            else:
                root, static = str(place.key), f"static_argnames='{place.key}'"
            return TypeError(
                f"argument {root}{keystr(tuple(path))} is no array but {_shown(leaf)}: "
                f"{str(error).rstrip('.')}. "
                f"For a constant, mark the argument as static ({static}) or close over it"
            )
        return error

    def _static_numbers(self, count: int) -> set[int]:
        """Numbers of the static ones of ``count`` positional arguments."""
        return {n + count if n < 0 else n for n in self.static_argnums}


def _hashed(value: Any, what: str) -> tuple[type, Hashable]:
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            f"static {what} must be hashable, found {type(value).__name__}: {error}; pass it as an "
            "ordinary argument, or as something hashable such as a tuple"
        ) from error
    # True == 1 == 1.0, and each traces differently.
    return type(value), value


def _parameters(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(fn).parameters
    except (ValueError, TypeError):
        return None


def _positional(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    return [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _resolve(
    parameters: Mapping[str, inspect.Parameter] | None,
    kind: str,
    argnums: int | Sequence[int] | None,
    argnames: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    numbers = _numbers(kind, argnums)
    names = _names(kind, argnames)
    if parameters is None:
        return numbers, names
    positional = _positional(parameters)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    for number in numbers:
        if not variadic and not -len(positional) <= number < len(positional):
            raise ValueError(
                f"{kind}_argnums={number}: the function has {len(positional)} positional arguments"
            )
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in names:
        if name not in parameters and not keywords:
            raise ValueError(
                f"{kind}_argnames='{name}': the function has no such argument; it has "
                f"{', '.join(parameters)}"
            )
    if not numbers:
        numbers = tuple(positional.index(name) for name in names if name in positional)
    if not names and not variadic:
        names = tuple(
            positional[number]
            for number in numbers
            if parameters[positional[number]].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
    return numbers, names


def _numbers(kind: str, argnums: int | Sequence[int] | None) -> tuple[int, ...]:
    if argnums is None:
        return ()
    entries = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for entry in entries:
        if not isinstance(entry, int) or isinstance(entry, bool):
            raise TypeError(f"{kind}_argnums must hold integers, found {entry!r}")
    return entries


def _names(kind: str, argnames: str | Iterable[str] | None) -> tuple[str, ...]:
    if argnames is None:
        return ()
    entries = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    for entry in entries:
        if not isinstance(entry, str):
            raise TypeError(f"{kind}_argnames must hold strings, found {entry!r}")
    return entries
